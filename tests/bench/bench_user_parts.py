"""An evaluation with a user's parts against one with the built-in parts that they hand everything to, in CPU seconds.

The user's parts are loaded as ``module:Name``. Both evaluate Chroma's five corpora with the same chunks, vectors and
order, so that the difference is what the adapters cost.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.evaluation.evaluations import TokenLevelEvaluation
from rag_eval.parts.part_settings import Place
from rag_eval.retrieval import RERANKER
from rag_eval.retrieval.rerankers import LexicalReranker
from tests.bench.chroma_data import chroma_dataset

TURNS = 5
MODULE = """
from rag_eval import LexicalReranker, LocalEmbedder, RecursiveTokenChunker


class MyChunker:
    def __init__(self, size):
        self.inner = RecursiveTokenChunker(size)

    def chunk_with_positions(self, doc):
        return self.inner.chunk_with_positions(doc)


class MyEmbedder:
    def __init__(self):
        self.inner = LocalEmbedder()

    def embed(self, texts):
        return self.inner.embed(texts)


class MyReranker:
    def __init__(self):
        self.inner = LexicalReranker()

    def rerank(self, query, chunks):
        return self.inner.rerank(query, chunks, len(chunks))
"""


def run() -> list[dict[str, object]]:
    """The figures; none without Chroma's dataset."""
    dataset = chroma_dataset()
    if dataset is None:
        return []
    evaluation = TokenLevelEvaluation(*dataset)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "my_parts.py").write_text(MODULE)
        place = Place(folder=Path(folder))
        mine = (
            CHUNKER.make({"type": "my_parts:MyChunker", "size": 200}, place),
            EMBEDDER.make("my_parts:MyEmbedder", place),
            RERANKER.make("my_parts:MyReranker", place),
        )
        ours = (RecursiveTokenChunker(200), LocalEmbedder(), LexicalReranker())
        seconds: dict[str, list[float]] = {"mine": [], "ours": []}
        results: dict[str, Any] = {}
        for _ in range(TURNS):
            for name, (chunker, embedder, reranker) in (("ours", ours), ("mine", mine)):
                started = time.process_time()
                results[name] = evaluation.run(chunker, embedder, k=5, reranker=reranker)
                seconds[name].append(time.process_time() - started)
    # Other work on the machine can only add to either.
    ratio = min(seconds["mine"]) / min(seconds["ours"])
    same = results["mine"].metrics == results["ours"].metrics
    return [
        _figure("user parts: an evaluation with built-in parts", median(seconds["ours"]), None, "s CPU"),
        _figure("user parts: the same with a user's", median(seconds["mine"]), None, "s CPU"),
        _figure("user parts: times the CPU seconds of the built-in ones", ratio, 1.05, "", ratio <= 1.05 and same),
    ]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


if __name__ == "__main__":
    print(*run(), sep="\n")
    sys.exit(0)
