"""What a reranker answered is kept before it is used, replaced when it is asked anew, and checked when it is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rag_eval import Chunk
from rag_eval.parts import part
from rag_eval.pipeline.caches import RANKINGS, CachedReranker, cached_reranker
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import C
from rag_eval.storage.rows import KeyedRows
from rag_eval.types.ids import DocumentId, generate_chunk_id

CHUNKS = [
    Chunk(generate_chunk_id(text), text, DocumentId("a.md"), {"ordinal": number})
    for number, text in enumerate(("one", "two", "three"))
]


class Reversing:
    """Puts the last first, and counts what it is asked."""

    name = "reversing"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        self.asked.append(query)
        return list(reversed(chunks))[:top_k]


def with_cache(reranker: Any, folder: Path) -> CachedReranker:
    return CachedReranker(reranker, KeyedRows(folder, RANKINGS))


def contents(cached: CachedReranker, query: str, top_k: int = 3) -> list[str]:
    return [chunk.content for chunk in cached.rerank(query, CHUNKS, top_k)]


def test_a_question_is_asked_once_for_every_number_of_hits(tmp_path: Path) -> None:
    reranker = Reversing()
    for _ in range(2):
        cached = with_cache(reranker, tmp_path / "rankings")
        assert contents(cached, "a") == ["three", "two", "one"]
        assert contents(cached, "a", 1) == ["three"]
        assert contents(cached, "b", 2) == ["three", "two"]
    assert reranker.asked == ["a", "b"]
    assert cached.fresh == 0
    assert cached.seconds > 0
    assert [path.name for path in tmp_path.iterdir()] == ["rankings"]


closed: list[str] = []


class Service(Reversing):
    """A user's own, which uses the network and has connections to close."""

    remote = True

    def close(self) -> None:
        closed.append(self.name)


@part
class Settled:
    """A part that uses the network and has nothing to close."""

    name: ClassVar[str] = "settled"
    remote: ClassVar[bool] = True

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        return list(chunks)[:top_k]


@part
class Connected(Settled):
    """A part that uses the network and has connections to close."""

    def close(self) -> None:
        closed.append(self.name)


@pytest.mark.parametrize(("reranker", "ended"), [(Service(), []), (Settled(), []), (Connected(), ["settled"])])
def test_the_connections_of_a_part_end_with_its_work_and_those_of_a_user_are_the_users(
    tmp_path: Path, reranker: Any, ended: list[str]
) -> None:
    closed.clear()
    with cached_reranker(Workspace(root=tmp_path), reranker) as asked:
        assert len(asked.rerank("a", CHUNKS, 2)) == 2
        assert closed == []
    assert closed == ended


@pytest.mark.parametrize("order", [[2, 1], [2, 1, 3], [2, 1, 1], [-1, 0, 1]])
def test_a_planted_order_that_is_none_of_the_chunks_is_not_used(tmp_path: Path, order: list[int]) -> None:
    reranker = Reversing()
    contents(with_cache(reranker, tmp_path), "a")
    rows = KeyedRows(tmp_path, RANKINGS)
    (file,) = rows.files()
    file.path.unlink()
    rows.put({file.keys[0].tobytes().hex(): {"order": order, "seconds": 1.0}})
    assert contents(with_cache(reranker, tmp_path), "a") == ["three", "two", "one"]
    assert reranker.asked == ["a", "a"]
