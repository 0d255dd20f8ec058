"""Turn texts into vectors. To add an embedder, write its file and register it here."""

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
