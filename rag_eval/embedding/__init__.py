"""Turning texts into vectors; an embedder is added by its file and its line here."""

from rag_eval.parts import Kind

EMBEDDER = Kind(
    "embedder",
    {
        "local": "rag_eval.embedding.local:LocalEmbedder",
        "openai": "rag_eval.embedding.openai:OpenAIEmbedder",
        "sentence-transformers": "rag_eval.embedding.sentence_transformers:SentenceTransformersEmbedder",
    },
    foreign="rag_eval.embedding.foreign_embedders:ForeignEmbedder",
)
