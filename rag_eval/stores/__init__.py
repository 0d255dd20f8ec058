"""Keeping vectors and finding the nearest; a store is added by its file and its line here."""

from rag_eval.parts import Kind

INDEX = Kind("index", {"none": None, "ivf-pq": "rag_eval.stores.lance:IvfPq", "hnsw": "rag_eval.stores.lance:Hnsw"})
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
"""What keeps vectors and finds the nearest. A benchmark keeps the indexes of LanceDB, and of other stores the hits."""
