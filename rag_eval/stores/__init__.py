"""Store vectors and find the nearest. To add a store, write its file and register it here."""

from rag_eval.parts import Kind

INDEX = Kind(
    "index",
    {
        "none": None,
        "ivf-flat": "rag_eval.stores.lance:IvfFlat",
        "ivf-sq": "rag_eval.stores.lance:IvfSq",
        "ivf-pq": "rag_eval.stores.lance:IvfPq",
        "ivf-rq": "rag_eval.stores.lance:IvfRq",
        "hnsw-flat": "rag_eval.stores.lance:HnswFlat",
        "hnsw": "rag_eval.stores.lance:Hnsw",
        "hnsw-pq": "rag_eval.stores.lance:HnswPq",
    },
)
"""The indexes of LanceDB; without one every search is exact."""

STORE = Kind(
    "store",
    {
        "lancedb": "rag_eval.stores.lance:LanceDBVectorStore",
        "memory": "rag_eval.stores.memory:InMemoryVectorStore",
        "chroma": "rag_eval.stores.chroma:ChromaVectorStore",
    },
    foreign="rag_eval.stores.foreign_stores:ForeignStore",
    completes=True,
)
"""Stores vectors and finds the nearest. A benchmark keeps the indexes of LanceDB; for other stores, it keeps the hits.
"""
