"""Keeping vectors and finding the nearest; a store of the benchmark is added by its file and its line here."""

from rag_eval.parts import Kind

INDEX = Kind("index", {"none": None, "ivf-pq": "rag_eval.stores.lance:IvfPq", "hnsw": "rag_eval.stores.lance:Hnsw"})
"""The indexes of LanceDB; without one every search is exact."""

STORE = Kind(
    "store",
    {"lancedb": "rag_eval.stores.lance:LanceDBVectorStore"},
    foreign="rag_eval.stores.foreign_stores:ForeignStore",
    completes=True,
)
"""The stores of a benchmark, which keeps its indexes for later runs."""
