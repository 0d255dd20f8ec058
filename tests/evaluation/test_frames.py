"""Data people have: truth and queries from frames, results as frames, and tables in notebooks."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from rag_eval import (
    CallableRetriever,
    Corpus,
    Document,
    DocumentId,
    RecursiveCharacterChunker,
    TokenLevelEvaluation,
    queries_from,
    run_experiment,
    truth_from,
)
from rag_eval.errors import GroundTruthError
from rag_eval.evaluation.run_experiment import RetrievalResult
from rag_eval.types.ids import generate_chunk_id

HOSTILE = "<script>alert('x')</script>"
A = Document(DocumentId("a.md"), f"one two three {HOSTILE} four")
CORPUS = Corpus([A])
SPANS = {
    "query": ["which numbers?", "which numbers?", HOSTILE],
    "doc_id": ["a.md", "a.md", "a.md"],
    "start": [0, 4, 8],
    "end": [3, 7, 13],
    "topic": ["sums", "sums", None],
}


def frames(columns: dict[str, list[Any]]) -> list[Any]:
    pandas = pytest.importorskip("pandas")
    return [pl.DataFrame(columns), pa.table(columns), pandas.DataFrame(columns)]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_truth_and_queries_come_from_frames_of_polars_arrow_and_pandas(kind: int) -> None:
    first, second = truth_from(frames(SPANS)[kind], "token-level")
    assert [(one.start, one.end) for one in first.relevant_spans] == [(0, 3), (4, 7)]
    assert (first.query.metadata, second.query.metadata, second.query.text) == ({"topic": "sums"}, {}, HOSTILE)
    ids = {"query": ["a?", "a?"], "chunk_id": [generate_chunk_id("x"), generate_chunk_id("y")]}
    (both,) = truth_from(frames(ids)[kind], "chunk-level")
    assert both.relevant_chunk_ids == tuple(ids["chunk_id"])
    assert [query.text for query in queries_from(frames(SPANS)[kind])] == ["which numbers?", HOSTILE]
    result = TokenLevelEvaluation(CORPUS, frames(SPANS)[kind]).run(RecursiveCharacterChunker(10), Letters(), k=2)
    assert set(result.metrics) == {"span_recall", "span_precision", "span_iou"}


def test_what_pandas_has_for_nothing_is_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    rows = {"query": ["a?", "b?"], "doc_id": ["a.md", "a.md"], "start": [0.0, 4.0], "end": [3, 7]}
    frame = pandas.DataFrame(
        rows | {"text": ["one", None], "topic": [pandas.NA, "sums"], "seen": [pandas.NaT, pandas.NaT]}
    )
    first, second = truth_from(frame, "token-level")
    assert (first.query.metadata, second.query.metadata) == ({}, {"topic": "sums"})
    assert (first.relevant_spans[0].text, second.relevant_spans[0].start) == ("one", 4)


@pytest.mark.parametrize("columns", [{"question": ["a?"]}, {"query": [None]}])
def test_a_frame_without_queries_is_refused(columns: dict[str, list[Any]]) -> None:
    with pytest.raises(GroundTruthError, match=r"a row has no query: .*; give a column query"):
        queries_from(pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)))


class Letters:
    name = "letters"

    def embed(self, texts: Any) -> Any:
        return [[1.0 + text.count(letter) for letter in "etaoin"] for text in texts]


def result() -> RetrievalResult:
    retriever = CallableRetriever(
        lambda query, k: [("a.md", 0, 7), HOSTILE, "nowhere <b>at all</b>"][:k], name="places"
    )
    truth = truth_from(pl.DataFrame(SPANS), "token-level")
    return run_experiment(evaluation_type="token-level", corpus=CORPUS, ground_truth=truth, retriever=retriever, k=2)


def test_scores_and_hits_are_frames_of_polars_and_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    for table in (result().scores, result().hits):
        frame = table.to_polars()
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(table.to_pandas(), pandas.DataFrame)
        assert frame.to_dicts() == table.table.to_pylist()
        assert len(table.to_pandas()) == len(table) == frame.height > 0


def test_a_notebook_shows_hostile_text_as_text() -> None:
    found = result()
    for shown in (found, found.scores, found.hits):
        page = shown._repr_html_()
        assert page.startswith("<table>")
        assert "<script" not in page
        assert "<b>" not in page
