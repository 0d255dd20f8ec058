"""Retrieve chunks: search, fuse, select and rerank. To add a part, write its file and register it here."""

from rag_eval.parts import Kind

RERANKER = Kind(
    "reranker",
    {
        "none": None,
        "lexical": "rag_eval.retrieval.rerankers:LexicalReranker",
        "maxsim": "rag_eval.retrieval.rerankers:MaxSimReranker",
        "cohere": "rag_eval.retrieval.rerankers:CohereReranker",
        "cross-encoder": "rag_eval.retrieval.rerankers:CrossEncoderReranker",
    },
    foreign="rag_eval.retrieval.foreign_retrieval:ForeignReranker",
)

TOKENIZER = Kind(
    "tokenizer",
    {
        "words": "rag_eval.retrieval.tokenizers:WordTokenizer",
        "stemmed": "rag_eval.retrieval.tokenizers:StemmedTokenizer",
    },
    foreign="rag_eval.retrieval.tokenizers:ForeignTokenizer",
)
"""Splits a text into words for BM25."""

FUSION = Kind(
    "fusion",
    {
        "z-score": "rag_eval.retrieval.fusion:ZScoreFusion",
        "rrf": "rag_eval.retrieval.fusion:ReciprocalRankFusion",
    },
    foreign="rag_eval.retrieval.fusion:ForeignFusion",
)
"""Combines several rankings into one."""

FULL_TEXT = Kind("full-text index", {"fts": "rag_eval.retrieval.lancedb_search:FullTextIndex"}, implied="fts")
"""The full-text index of LanceDB."""

LANCEDB_RERANKER = Kind(
    "LanceDB reranker",
    {
        "none": None,
        "rrf": "rag_eval.retrieval.lancedb_search:RRFReranker",
        "linear": "rag_eval.retrieval.lancedb_search:LinearReranker",
        "mrr": "rag_eval.retrieval.lancedb_search:MRRReranker",
    },
)
"""Combines LanceDB's vector and full-text search."""

RETRIEVER = Kind(
    "retriever",
    {
        "vector": "rag_eval.retrieval.searching:VectorSearch",
        "bm25": "rag_eval.retrieval.searching:WordSearch",
        "hybrid": "rag_eval.retrieval.searching:HybridSearch",
        "lancedb": "rag_eval.retrieval.lancedb_search:LanceDBSearch",
    },
    foreign="rag_eval.retrieval.engines:foreign_retriever",
    completes=True,
)
"""Ranks chunks for queries."""

SYSTEM = Kind(
    "system",
    {
        "http": "rag_eval.retrieval.http:HttpSystem",
        "hits": "rag_eval.retrieval.recorded_hits:RecordedHits",
        "lancedb": "rag_eval.retrieval.lancedb_table:LanceDBTable",
    },
    foreign="rag_eval.retrieval.foreign_retrieval:ForeignSystem",
)
"""Whole retrieval systems, which index documents and answer queries."""

REWRITER = Kind(
    "rewriter",
    {
        "as-asked": None,
        "rewritten": "rag_eval.retrieval.queries:RewrittenQueries",
        "variants": "rag_eval.retrieval.queries:QueryVariants",
        "hyde": "rag_eval.retrieval.queries:HypotheticalAnswers",
    },
    foreign="rag_eval.retrieval.queries:ForeignQueries",
    nothing="Each question is searched as it is asked.",
)
"""Returns the texts to search instead of a question."""

SELECTION = Kind(
    "selection",
    {"none": None, "select": "rag_eval.retrieval.selection:Selection"},
    nothing="All documents are searched, and all hits are kept.",
    implied="select",
)
"""Decides which chunks may be found, and which hits are kept."""

PASSAGE = Kind(
    "passage",
    {
        "hit": None,
        "window": "rag_eval.retrieval.passages:WindowPassage",
        "section": "rag_eval.retrieval.passages:SectionPassage",
        "document": "rag_eval.retrieval.passages:DocumentPassage",
    },
    foreign="rag_eval.retrieval.passages:ForeignPassage",
    nothing="The chunk that was found.",
)
"""Returns the text around a hit."""
