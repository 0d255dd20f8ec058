"""An embedder with coroutines in an evaluation that is awaited."""

import asyncio
from collections.abc import Sequence
from typing import Any

from rag_eval import Corpus, LocalEmbedder, TokenLevelEvaluation
from rag_eval.sample import CORPUS, GROUND_TRUTH


def paragraphs(text: str) -> list[str]:
    return [one for one in text.split("\n\n") if one.strip()]


class Waiting:
    """An embedder whose methods are coroutines, without a name and a dimension."""

    async def embed(self, texts: Sequence[str]) -> Any:
        await asyncio.sleep(0)
        return LocalEmbedder().embed(list(texts))


def test_coroutines_run_inside_a_running_loop() -> None:
    evaluation = TokenLevelEvaluation(Corpus.from_folder(CORPUS), GROUND_TRUTH)

    async def inside() -> dict[str, float]:
        found = await evaluation.arun(paragraphs, Waiting(), k=5)
        return dict(found.metrics)

    assert asyncio.run(inside()) == evaluation.run(paragraphs, LocalEmbedder(), k=5).metrics
