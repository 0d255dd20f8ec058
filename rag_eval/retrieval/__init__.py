"""Finding chunks for queries and ordering them; a reranker is added by its file and its line here."""

from rag_eval.parts import Kind

RERANKER = Kind(
    "reranker",
    {
        "none": None,
        "lexical": "rag_eval.retrieval.rerankers:LexicalReranker",
        "cohere": "rag_eval.retrieval.rerankers:CohereReranker",
        "cross-encoder": "rag_eval.retrieval.rerankers:CrossEncoderReranker",
    },
)
