"""Parts that a user writes, and the README's code, under a strict type checker."""

import re
from pathlib import Path

from tests.type_checking import type_errors

ROOT = Path(__file__).parents[2]

USER = """
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rag_eval import (
    BM25Retriever, CallableRetriever, CharacterSpan, Chunk, ChunkId, ChunkLevelEvaluation,
    ChunkLevelGroundTruth, Corpus, Hit, HybridRetriever, LocalEmbedder, PositionAwareChunk, Query,
    RecursiveCharacterChunker, SpanRecall, TokenLevelEvaluation, TokenLevelGroundTruth,
    VectorRAGRetriever, run_experiment,
)
from rag_eval.stores.rankings import Mask, Ranking
from rag_eval.stores.store import AnyChunk

class MyEmbedder:
    name = "mine"
    dimension = 3
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 3), np.float32)
    def embed_query(self, text: str) -> NDArray[np.float32]:
        return np.ones(3, np.float32)

class MyStore:
    name = "mine"
    def add(self, chunks: Sequence[AnyChunk], embeddings: NDArray[np.float32]) -> None: ...
    def search_many(self, vectors: NDArray[np.float32], k: int, among: Mask | None = None) -> Ranking:
        return Ranking.of([])
    def clear(self) -> None: ...

AChunk = TypeVar("AChunk", Chunk, PositionAwareChunk)

class MyReranker:
    name = "mine"
    def rerank(self, query: str, chunks: Sequence[AChunk], top_k: int) -> list[AChunk]:
        return list(chunks[:top_k])

class MyRetriever:
    name = "mine"
    def index(self, corpus: Corpus) -> None: ...
    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        return [[] for _ in queries]

class MyMetric:
    name = "mine"
    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        return 0.0

class MyChunkMetric:
    name = "mine"
    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId]) -> float:
        return 0.0

class MySplitter:
    def split_text(self, text: str) -> list[str]:
        return [text]

def split(text: str) -> list[str]:
    return [text]

def score(retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
    return 1.0

def use(corpus: Corpus, truth: list[TokenLevelGroundTruth], ids: list[ChunkLevelGroundTruth]) -> None:
    chunker, embedder = RecursiveCharacterChunker(), LocalEmbedder()
    evaluation = TokenLevelEvaluation(corpus, truth)
    evaluation.run(split, MyEmbedder(), [1, 5], MyStore(), MyReranker(), [MyMetric(), SpanRecall()])
    evaluation.run(MySplitter(), embedder).raw_results.scores.to_pylist()
    evaluation.run(split, embedder, metrics=["span_recall@3", SpanRecall, MyMetric, score, "my_metrics:Own"])
    ChunkLevelEvaluation(corpus, ids).run(split, MyEmbedder(), metrics=[MyChunkMetric()]).raw_results.hits.num_rows
    spans = HybridRetriever([VectorRAGRetriever(chunker, embedder), BM25Retriever(chunker)])
    reranked = HybridRetriever([spans, BM25Retriever(chunker)], MyReranker())
    for retriever in (spans, reranked, MyRetriever(), CallableRetriever(lambda query, k: [])):
        run_experiment(evaluation_type="token-level", corpus=corpus, ground_truth=truth, retriever=retriever)
    vectors = VectorRAGRetriever(chunker, embedder, evaluation_type="chunk-level")
    chunks = HybridRetriever([vectors, BM25Retriever(chunker, evaluation_type="chunk-level")])
    run_experiment(evaluation_type="chunk-level", corpus=corpus, ground_truth=ids, retriever=chunks)
    run_experiment(evaluation_type="chunk-level", corpus=corpus, ground_truth=ids, retriever=spans)  # refused
    HybridRetriever([vectors, BM25Retriever(chunker)])  # refused
    evaluation.run(LocalEmbedder(), embedder)  # refused
    evaluation.run(split, embedder, metrics=[MyChunkMetric()])  # refused
    evaluation.run(split, embedder, metrics=[MyChunkMetric])  # refused
    ChunkLevelEvaluation(corpus, ids).run(split, embedder, metrics=[SpanRecall()])  # refused
"""


def test_parts_that_users_write_fit_and_mixes_do_not(tmp_path: Path) -> None:
    refused = [number for number, line in enumerate(USER.splitlines(), start=1) if line.endswith("# refused")]
    assert len(refused) == 6
    assert list(type_errors(tmp_path, USER)) == refused


def test_the_documented_code_is_well_typed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert any("HybridRetriever([" in block for block in blocks)
    assert type_errors(tmp_path, "\n".join(blocks)) == {}
