"""The table form: the same values as the object form, a row for everything, and clear errors."""

import random
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError, GroundTruthError, TableError
from rag_eval.metrics.formulas import TokensRetrieved
from rag_eval.metrics.metric import built_in_metric, metric_names, metric_of, score_name
from rag_eval.metrics.score_tables import AVERAGES, average_scores, score_passages
from rag_eval.tables import (
    SCORES,
    TruthTables,
    check_schema,
    chunks_to_table,
    truth_to_tables,
)
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText, generate_pa_chunk_id
from tests.made_tables import placed_passages, plain_passages

TEXTS = {
    "a.md": "Née 👩🏽‍🚀 in 漢字, a\u0301 café\r\n<|endoftext|> here",
    "b.md": "aa aa aa\u2028aa aa international",
    "": "x y z",
}
DOCUMENTS = [Document(DocumentId(doc_id), text) for doc_id, text in TEXTS.items()]
KS = [1, 2, 3, 7]
BUDGETS = [1, 4, 9, 30]
AT_HITS = [name for name in metric_names("token-level") if "hits" in metric_of(name).cuts]
NAMES = [
    *AT_HITS,
    *(f"{name}@{budget}tokens" for name in AT_HITS for budget in BUDGETS),
    *(
        f"{name}@{budget}"
        for name in metric_names("token-level")
        if metric_of(name).cuts == {"tokens"}
        for budget in BUDGETS
    ),
]


def query(number: int) -> Query:
    return Query(QueryId(f"query_{number}"), QueryText(f"question {number}"))


def chunk(span: CharacterSpan) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id(span.text), span.text, span.doc_id, span.start, span.end)


def hits_table(found: Sequence[tuple[str, int, CharacterSpan]]) -> pa.Table:
    return placed_passages([(q, rank, hit.doc_id, hit.start, hit.end) for q, rank, hit in found])


def chunk_hits_table(found: Sequence[tuple[str, int, ChunkId]]) -> pa.Table:
    return plain_passages(found)


@st.composite
def a_span(draw: st.DrawFn) -> CharacterSpan:
    document = draw(st.sampled_from(DOCUMENTS))
    start = draw(st.integers(0, len(document.content) - 1))
    return document.span(start, draw(st.integers(start + 1, min(start + 14, len(document.content)))))


@st.composite
def token_level_runs(draw: st.DrawFn) -> tuple[list[TokenLevelGroundTruth], list[list[CharacterSpan]]]:
    retrieved = draw(st.lists(st.lists(a_span(), max_size=6), min_size=1, max_size=5))
    truth = []
    for number in range(len(retrieved)):
        unanswerable = draw(st.booleans()) and draw(st.booleans())
        spans = [] if unanswerable else draw(st.lists(a_span(), min_size=1, max_size=4))
        truth.append(TokenLevelGroundTruth(query(number), spans, unanswerable))
    return truth, retrieved


def as_hits(
    truth: Sequence[TokenLevelGroundTruth], retrieved: Sequence[Sequence[CharacterSpan]]
) -> list[tuple[str, int, CharacterSpan]]:
    pairs = zip(truth, retrieved, strict=True)
    return [(one.query.id, rank, span) for one, spans in pairs for rank, span in enumerate(spans, start=1)]


def values(scores: pa.Table) -> dict[tuple[str, str], float]:
    rows = scores.to_pylist()
    by_key = {(row["query_id"], score_name(row["metric"], row["cut"], row["size"])): row["value"] for row in rows}
    assert len(by_key) == len(rows), "a query, metric and k has one row"
    return by_key


@given(token_level_runs(), st.randoms(use_true_random=False), st.sampled_from([1, 3, 100]))
@settings(deadline=None, derandomize=True, max_examples=75)
def test_token_level_scores_equal_those_of_the_objects(
    run: tuple[list[TokenLevelGroundTruth], list[list[CharacterSpan]]],
    shuffler: random.Random,
    block: int,
) -> None:
    truth, retrieved = run
    hits = as_hits(truth, retrieved)
    shuffler.shuffle(hits)
    scores = score_passages(
        "token-level",
        hits_table(hits),
        truth_to_tables(truth),
        NAMES,
        KS,
        documents=DOCUMENTS,
        block_rows=block,
    )
    check_schema(scores, SCORES, "scores")
    expected = {}
    for name in NAMES:
        cuts = [name] if "@" in name else [f"{name}@{k}" for k in KS]
        for cut in cuts:
            metric = built_in_metric(cut, "token-level")
            for one, spans in zip(truth, retrieved, strict=True):
                if not one.unanswerable:
                    expected[one.query.id, cut] = metric.calculate(spans, one.relevant_spans)
    assert values(scores) == expected


some_ids = st.lists(st.sampled_from("abcde").map(ChunkId), max_size=8)


@given(
    st.lists(st.tuples(some_ids, some_ids, st.booleans()), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 4, 100]),
)
@settings(deadline=None, derandomize=True, max_examples=150)
def test_chunk_level_scores_equal_those_of_the_objects(
    run: list[tuple[list[ChunkId], list[ChunkId], bool]], shuffler: random.Random, block: int
) -> None:
    truth = [
        ChunkLevelGroundTruth(query(number), [] if unanswerable else (ids or [ChunkId("z")]), unanswerable)
        for number, (_, ids, unanswerable) in enumerate(run)
    ]
    hits = [
        (one.query.id, rank, hit)
        for one, (ids, _, _) in zip(truth, run, strict=True)
        for rank, hit in enumerate(ids, 1)
    ]
    shuffler.shuffle(hits)
    names = [name for name in metric_names("chunk-level") if name.startswith("chunk_")]
    scores = score_passages("chunk-level", chunk_hits_table(hits), truth_to_tables(truth), names, KS, block_rows=block)
    expected = {
        (one.query.id, metric.name): metric.calculate(ids, one.relevant_chunk_ids)
        for metric in [built_in_metric(f"{name}@{k}", "chunk-level") for name in names for k in KS]
        for one, (ids, _, _) in zip(truth, run, strict=True)
        if not one.unanswerable
    }
    assert values(scores) == expected


A, B = DOCUMENTS[0], DOCUMENTS[1]
TRUTH = [TokenLevelGroundTruth(query(0), [A.span(0, 5)]), TokenLevelGroundTruth(query(1), [B.span(3, 9), A.span(1, 2)])]


def case(**changes: object) -> SimpleNamespace:
    """A small run that can be scored, with something changed."""
    found = [("query_0", 1, A.span(2, 8)), ("query_1", 1, B.span(0, 4)), ("query_1", 2, B.span(4, 6))]
    usual = {"hits": hits_table(found), "truth": truth_to_tables(TRUTH), "metrics": ["span_recall"], "ks": [1, 2]}
    return SimpleNamespace(**{**usual, **changes})


def score(run: SimpleNamespace) -> pa.Table:
    return score_passages("token-level", run.hits, run.truth, run.metrics, run.ks)


def test_every_metric_k_and_answerable_query_has_a_row_in_order() -> None:
    truth = truth_to_tables([*TRUTH, TokenLevelGroundTruth(query(2), [], unanswerable=True)])
    scores = score(case(truth=truth, hits=hits_table([]), metrics=["span_iou", "span_mrr"]))
    rows = [tuple(row[name] for name in ("metric", "cut", "size", "query_id", "value")) for row in scores.to_pylist()]
    asked = [(metric, "hits", k) for metric in ("span_iou", "span_mrr") for k in (1, 2)]
    assert rows == [(*one, name, 0.0) for one in asked for name in ("query_0", "query_1")]


def test_hits_of_an_unanswerable_query_are_set_aside() -> None:
    truth = truth_to_tables([TRUTH[0], TokenLevelGroundTruth(query(1), [], unanswerable=True)])
    assert set(score(case(truth=truth)).column("query_id").to_pylist()) == {"query_0"}


def test_a_dataset_without_queries_has_no_scores() -> None:
    empty = score(case(truth=truth_to_tables([]), hits=hits_table([])))
    assert (empty.num_rows, empty.schema) == (0, SCORES)
    assert average_scores(empty).num_rows == 0


def test_averages_have_the_mean_and_the_number_of_queries() -> None:
    averages = average_scores(score(case(metrics=["span_recall", "span_precision"])))
    assert averages.schema == AVERAGES
    rows = [tuple(row.values()) for row in averages.to_pylist()]
    assert rows == [
        ("span_recall", "hits", 1, pytest.approx((3 / 5 + 1 / 7) / 2), 2),
        ("span_recall", "hits", 2, pytest.approx((3 / 5 + 3 / 7) / 2), 2),
        ("span_precision", "hits", 1, pytest.approx((3 / 6 + 1 / 4) / 2), 2),
        ("span_precision", "hits", 2, pytest.approx((3 / 6 + 3 / 6) / 2), 2),
    ]


def test_a_query_without_truth_is_an_error_with_its_name_and_the_count() -> None:
    truth = truth_to_tables([TRUTH[0], TokenLevelGroundTruth(query(1), []), TokenLevelGroundTruth(query(5), [])])
    with pytest.raises(GroundTruthError, match=r"'query_1' has no ground truth \(2 such queries\)"):
        score(case(truth=truth))


def test_truth_of_an_unanswerable_query_is_an_error() -> None:
    tables = truth_to_tables(TRUTH)
    flags = pa.array([False, True])
    queries = tables.queries.set_column(2, tables.queries.schema.field("unanswerable"), flags)
    with pytest.raises(GroundTruthError, match="'query_1' is declared unanswerable"):
        score(case(truth=TruthTables(queries, tables.answers)))


def test_rows_of_an_unknown_query_are_errors() -> None:
    with pytest.raises(TableError, match=r"hits table names 1 queries.*'query_9'"):
        score(case(hits=hits_table([("query_9", 1, A.span(0, 1))])))
    tables = truth_to_tables([*TRUTH, TokenLevelGroundTruth(query(7), [A.span(0, 1)])])
    with pytest.raises(TableError, match=r"truth table names 1 queries.*'query_7'"):
        score(case(truth=TruthTables(truth_to_tables(TRUTH).queries, tables.answers)))


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 3)])
def test_a_row_that_holds_no_character_is_an_error(start: int, end: int) -> None:
    hits = case().hits
    for name, place in (("start", start), ("end", end)):
        column = pa.array([place, 0 if name == "start" else 4, 0 if name == "start" else 4])
        hits = hits.set_column(hits.schema.get_field_index(name), hits.schema.field(name), column)
    with pytest.raises(TableError, match=rf"row 0 of the hits table has the span \[{start}, {end}\) of 'a.md'"):
        score(case(hits=hits))


@pytest.mark.parametrize("ranks", [(2, 3), (1, 1), (1, 3)])
def test_ranks_have_no_gaps_and_no_repetitions(ranks: tuple[int, int]) -> None:
    found = [("query_0", rank, A.span(rank, rank + 2)) for rank in ranks]
    with pytest.raises(TableError, match="'query_0' have the rank"):
        score(case(hits=hits_table(found)))


def test_two_queries_of_one_id_are_an_error() -> None:
    tables = truth_to_tables(TRUTH)
    twice = TruthTables(pa.concat_tables([tables.queries, tables.queries]), tables.answers)
    with pytest.raises(TableError, match="'query_0' 2 times"):
        score(case(truth=twice))


def test_ends_that_cannot_be_numbered_are_an_error() -> None:
    hits = case().hits
    far = pa.array([2**62, 4, 6])
    with pytest.raises(TableError, match="more than can be numbered"):
        score(case(hits=hits.set_column(4, hits.schema.field("end"), far)))


def test_chunks_are_checked_like_hits() -> None:
    run, chunks = case(metrics=["precision_omega"], ks=[]), chunks_to_table([chunk(A.span(0, 5)), chunk(B.span(2, 3))])
    for ends, message in (([5, 2], "row 1 of the chunks table"), ([5, 2**62], "more than can be numbered")):
        altered = chunks.set_column(3, chunks.schema.field("end"), pa.array(ends))
        with pytest.raises(TableError, match=message):
            score_passages("token-level", run.hits, run.truth, run.metrics, run.ks, chunks=altered)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["span_recall", "span_recall@1"]}, "twice"),
        ({"metrics": ["chunk_recall"]}, "no metric 'chunk_recall'"),
        ({"metrics": ["span_recall", "span_recall"]}, "twice"),
        ({"ks": [1, 1]}, "twice"),
        ({"ks": [0]}, "whole number"),
        ({"ks": [2**31]}, "whole number of 1 to 2147483647"),
        ({"ks": []}, "at least one k"),
        ({"metrics": ["precision_omega"]}, "needs the chunks"),
        ({"metrics": ["chroma_iou@min"]}, "needs the chunks"),
        ({"metrics": ["tokens_retrieved"]}, "needs the documents"),
    ],
)
def test_what_cannot_be_asked_for_is_said(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        score(case(**changes))


def test_tokens_retrieved_need_the_text_of_every_hit() -> None:
    run = case()
    with pytest.raises(ConfigurationError, match=r"no text at \[0, 4\) of 'b\.md'"):
        score_passages("token-level", run.hits, run.truth, ["tokens_retrieved"], [1], documents=[A])
    scores = score_passages("token-level", run.hits, run.truth, ["tokens_retrieved"], [2], documents=DOCUMENTS)
    assert scores.column("value").to_pylist() == [
        TokensRetrieved().calculate([A.span(2, 8)], []),
        TokensRetrieved().calculate([B.span(0, 4), B.span(4, 6)], []),
    ]


def test_tables_in_several_pieces_score_as_in_one() -> None:
    run = case()
    pieces = pa.concat_tables([run.hits.slice(0, 1), run.hits.slice(1, 0), run.hits.slice(1)])
    assert pieces.column("start").num_chunks > 1
    assert np.array_equal(score(case(hits=pieces)).column("value"), score(run).column("value"))


def test_a_cut_beyond_the_most_that_min_stands_for_reads_all_its_hits() -> None:
    document = Document(DocumentId("long.md"), "0123456789" * 6)
    truth = truth_to_tables([TokenLevelGroundTruth(query(0), [document.span(0, 50)])])
    hits = hits_table([(query(0).id, rank, document.span(rank - 1, rank)) for rank in range(1, 51)])
    for k in (20, 21, 40):
        scores = score_passages("token-level", hits, truth, ["span_recall"], ks=[k])
        assert scores.column("value").to_pylist() == [k / 50]
