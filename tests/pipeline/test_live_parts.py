"""Evaluations in Python take parts of other libraries and of users as they are."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rag_eval import Corpus, LocalEmbedder, TokenLevelEvaluation
from rag_eval.sample import CORPUS, GROUND_TRUTH


@pytest.fixture(scope="module")
def evaluation() -> TokenLevelEvaluation:
    return TokenLevelEvaluation(Corpus.from_folder(CORPUS), GROUND_TRUTH)


def paragraphs(text: str) -> list[str]:
    return [one for one in text.split("\n\n") if one.strip()]


class Waiting:
    """An embedder whose methods are coroutines, without a name and a dimension."""

    async def embed(self, texts: Sequence[str]) -> Any:
        await asyncio.sleep(0)
        return LocalEmbedder().embed(list(texts))


class Plain:
    """A store with the methods of the seed documents, whose search gives chunks."""

    name = "plain"

    def __init__(self) -> None:
        self.clear()

    def add(self, chunks: Sequence[Any], embeddings: Any) -> None:
        self.chunks += chunks
        self.rows += [row / (np.linalg.norm(row) or 1) for row in embeddings]

    def search(self, query_embedding: Any, k: int) -> list[Any]:
        scores = np.array(self.rows) @ query_embedding
        return [self.chunks[number] for number in np.argsort(-scores, kind="stable")[:k]]

    def clear(self) -> None:
        self.chunks: list[Any] = []
        self.rows: list[Any] = []


def test_an_embedder_of_coroutines_and_a_store_of_four_methods_find_what_ours_find(
    evaluation: TokenLevelEvaluation,
) -> None:
    ours = evaluation.run(paragraphs, LocalEmbedder(), k=5)
    theirs: Any = evaluation
    assert theirs.run(paragraphs, Waiting(), Plain(), 5).metrics == ours.metrics
    assert theirs.run(paragraphs, Waiting(), 5, Plain()).metrics == ours.metrics


def test_inside_a_running_loop(evaluation: TokenLevelEvaluation) -> None:
    async def inside() -> dict[str, float]:
        found = await evaluation.arun(paragraphs, Waiting(), k=5)
        return dict(found.metrics)

    assert asyncio.run(inside()) == evaluation.run(paragraphs, LocalEmbedder(), k=5).metrics
