"""What a metric says of itself holds for its values, and a budget of tokens is a cut like any other."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.metrics import METRIC
from rag_eval.metrics.formulas import (
    ChromaIoU,
    ChunkRecall,
    SpanRecall,
    TokensRetrieved,
    strip_metrics,
)
from rag_eval.metrics.metric import (
    ALL,
    LOWER_IS_BETTER,
    MIN,
    Cut,
    MetricName,
    built_in_metric,
    higher_is_better,
    metric_names,
    metric_of,
)
from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import PASSAGES, QUERIES, TruthTables, chunks_to_table, table_of, truth_to_tables
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText, generate_pa_chunk_id
from tests.made_tables import chunk_truth, placed_passages, plain_chunks, plain_passages

TWIN = settings(deadline=None, derandomize=True, max_examples=100)
DOCUMENTS = [
    Document(DocumentId("a.md"), "Née 👩🏽‍🚀 in 漢字, a café <|endoftext|> here"),
    Document(DocumentId("b.md"), "aa aa aa aa international aa"),
]
IDS = [ChunkId(letter) for letter in "abcdefg"]
COSTS = {chunk_id: count_tokens("word " * number, "cl100k_base") for number, chunk_id in enumerate(IDS, start=1)}

COSTING = {"tokens_retrieved", "tokens_fetched"}
AT_BUDGETS = {"recall_within_tokens"}


@st.composite
def a_span(draw: st.DrawFn) -> CharacterSpan:
    document = draw(st.sampled_from(DOCUMENTS))
    start = draw(st.integers(0, len(document.content) - 1))
    return document.span(start, draw(st.integers(start + 1, min(start + 12, len(document.content)))))


some_spans = st.lists(a_span(), max_size=6)
some_ids = st.lists(st.sampled_from(IDS), max_size=9)


def chunk(span: CharacterSpan) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id(span.text), span.text, span.doc_id, span.start, span.end)


ON_OBJECTS = [name for name in METRIC.types if "chunks" not in metric_of(name).reads]


def made(name: str) -> Any:
    """The metric on all hits, or at a budget that no test exceeds."""
    return built_in_metric(f"{name}@100000" if name in AT_BUDGETS else name, metric_of(name).levels[0])


@pytest.mark.parametrize(
    ("name", "tokens", "chunks"),
    [
        ("span_recall@5", False, False),
        ("chunk_recall@5", False, False),
        ("chroma_iou@min", False, True),
        ("precision_omega", False, True),
        ("tokens_retrieved@5", True, False),
        ("chunk_recall@5tokens", True, False),
        ("recall_within_tokens@5", True, False),
    ],
)
def test_a_metric_says_what_it_needs_beside_hits_and_truth(name: str, tokens: bool, chunks: bool) -> None:
    parsed = MetricName.parse(name)
    assert (parsed.needs_tokens, parsed.needs_chunks) == (tokens, chunks)
    if chunks:
        with pytest.raises(ConfigurationError, match=f"{name} needs the chunks of the corpus: score tables"):
            built_in_metric(name, "token-level").calculate([], [])


def test_the_name_of_a_metric_that_is_not_built_in_tells_which_way_is_better() -> None:
    for name in ("mine", "mine@5", "Mine (of all)@9tokens", ""):
        assert (metric_of(name).measures, metric_of(name).higher_is_better) == ("number", True)
    assert not higher_is_better(f"mine{LOWER_IS_BETTER}@5")
    assert higher_is_better("tokens_retrieved_by_me")


@pytest.mark.parametrize("name", ON_OBJECTS)
def test_the_empty_value_is_the_one_of_two_empty_sides(name: str) -> None:
    metric = made(name)
    assert metric.calculate([], []) == metric.empty


@given(some_spans, some_spans, some_ids, some_ids)
@TWIN
def test_what_only_rises_never_falls_with_further_hits_and_shares_stay_in_their_range(
    hits: list[CharacterSpan], truth: list[CharacterSpan], ids: list[ChunkId], relevant: list[ChunkId]
) -> None:
    for name in ON_OBJECTS:
        metric = made(name)
        retrieved, answers = (ids, relevant) if metric.levels == ("chunk-level",) else (hits, truth)
        values = [metric.calculate(retrieved[:k], answers) for k in range(len(retrieved) + 1)]
        if metric.only_rises:
            assert all(later >= earlier for earlier, later in pairwise(values)), name
        if metric.measures == "share":
            assert all(0 <= value <= 1 + 1e-12 for value in values), name


def fitting(costs: list[int], budget: int) -> int:
    taken = 0
    while taken < len(costs) and sum(costs[: taken + 1]) <= budget:
        taken += 1
    return taken


@given(some_spans, some_spans, st.integers(1, 25))
@TWIN
def test_a_budget_is_the_hits_that_fit_into_it(
    hits: list[CharacterSpan], truth: list[CharacterSpan], budget: int
) -> None:
    fit = hits[: fitting([count_tokens(hit.text, "cl100k_base") for hit in hits], budget)]
    for name in metric_names("token-level"):
        if "hits" in metric_of(name).cuts:
            whole, cut = built_in_metric(name, "token-level"), built_in_metric(f"{name}@{budget}tokens", "token-level")
            assert cut.calculate(hits, truth) == whole.calculate(fit, truth), name
    within = built_in_metric(f"recall_within_tokens@{budget}", "token-level").calculate(hits, truth)
    assert within == pytest.approx(SpanRecall().calculate(fit, truth), abs=1e-12)
    spent = built_in_metric(f"tokens_retrieved@{budget}tokens", "token-level").calculate(hits, truth)
    assert spent == TokensRetrieved().calculate(fit, [])


@given(st.lists(st.tuples(some_ids, some_ids), min_size=1, max_size=4), st.integers(1, 25), st.sampled_from([1, 100]))
@TWIN
def test_chunk_ids_are_cut_by_the_tokens_of_their_chunks(
    run: list[tuple[list[ChunkId], list[ChunkId]]], budget: int, block: int
) -> None:
    run = [(ids, relevant or [IDS[0]]) for ids, relevant in run]
    hits = [(f"q{n}", rank, hit) for n, (ids, _) in enumerate(run) for rank, hit in enumerate(ids, start=1)]
    truth = [(f"q{n}", one) for n, (_, relevant) in enumerate(run) for one in dict.fromkeys(relevant)]
    queries = table_of(QUERIES, [(f"q{n}", "?", False, "{}") for n in range(len(run))])
    chunks = plain_chunks([(one, "a.md", place, "word " * (place + 1)) for place, one in enumerate(IDS)])
    names = [f"{name}@{budget}tokens" for name in metric_names("chunk-level") if name not in AT_BUDGETS | COSTING]
    scores = score_passages(
        "chunk-level",
        plain_passages(hits),
        TruthTables(queries, chunk_truth(truth)),
        names,
        chunks=chunks,
        block_rows=block,
    )
    expected = []
    for name in names:
        metric = built_in_metric(name.partition("@")[0], "chunk-level")
        for ids, relevant in run:
            expected.append(metric.calculate(ids[: fitting([COSTS[one] for one in ids], budget)], relevant))
    assert scores.column("value").to_pylist() == expected


def test_a_chunk_id_does_not_tell_its_tokens() -> None:
    with pytest.raises(ConfigurationError, match=r"chunk_recall@9tokens counts the tokens of chunks: score tables"):
        ChunkRecall(Cut("tokens", 9)).calculate([IDS[0]], [])


def test_a_chunk_within_a_longer_one_that_ends_a_character_before_the_reference_does_not_touch_it() -> None:
    document = DOCUMENTS[1]
    reference, longer = document.span(10, 20), document.span(0, 25)
    truth = truth_to_tables([TokenLevelGroundTruth(Query(QueryId("q"), QueryText("?")), [reference])])
    hits = [document.span(0, 2), document.span(3, 4), document.span(10, 20)]
    passages = placed_passages([("q", rank, hit.doc_id, hit.start, hit.end) for rank, hit in enumerate(hits, 1)])

    def precision_at_min(*chunks: CharacterSpan) -> float:
        table = chunks_to_table([chunk(span) for span in chunks])
        scores = score_passages("token-level", passages, truth, ["chroma_precision@min"], chunks=table)
        return float(scores.column("value")[0].as_py())

    assert [precision_at_min(longer, document.span(5, 9), document.span(2, end)) for end in (9, 10, 11)] == [0, 0, 0]
    touching = document.span(5, 10)
    assert [precision_at_min(longer, touching, document.span(2, end)) for end in (9, 10, 11)] == [0, 10 / 13, 10 / 13]
    # And on the other side: a chunk that starts where the reference ends touches it, one character later it does not.
    assert [precision_at_min(longer, touching, document.span(start, 25)) for start in (20, 21)] == [10 / 13, 0]


def test_cuts_of_metrics_and_of_their_names_are_equal() -> None:
    assert built_in_metric("span_recall@5tokens", "token-level") == SpanRecall(Cut("tokens", 5))
    assert (SpanRecall().cut, SpanRecall(5).cut, ChromaIoU("min").cut) == (ALL, Cut("hits", 5), MIN)
    assert [Cut("hits", 5).hits, Cut("tokens", 5).hits, MIN.hits, ALL.hits] == [5, None, None, None]


def test_a_passage_costs_its_own_text_or_the_tokens_it_was_given() -> None:
    document = DOCUMENTS[1]
    truth = truth_to_tables([TokenLevelGroundTruth(Query(QueryId("q"), QueryText("?")), [document.span(0, 8)])])
    rows = [("q", 2, "b.md", 6, 11), ("q", 1, "b.md", 0, 5), ("q", 3, "b.md", 12, 20)]
    passages = placed_passages(rows)
    sliced = [count_tokens(document.content[start:end], "cl100k_base") for start, end in ((0, 5), (6, 11), (12, 20))]

    def cost(table: pa.Table, name: str = "tokens_retrieved@2") -> float:
        scores = score_passages("token-level", table, truth, [MetricName.parse(name)], documents=DOCUMENTS)
        return float(scores.column("value")[0].as_py())

    assert [cost(passages, f"tokens_retrieved@{k}") for k in (1, 2, 3)] == np.cumsum(sliced).tolist()
    window = "a window around the hit, which is longer"
    texts = pa.array([window, None, None], pa.large_string())
    widened = passages.set_column(passages.column_names.index("text"), PASSAGES.field("text"), texts)
    assert cost(widened) == sliced[0] + count_tokens(window, "cl100k_base")
    tokens = pa.array([700, 1_000, 7], pa.int32())
    counted = widened.set_column(passages.column_names.index("tokens"), PASSAGES.field("tokens"), tokens)
    assert [cost(counted, f"tokens_retrieved@{budget}tokens") for budget in (999, 1_000, 1_699, 1_700, 1_707)] == [
        0,
        1_000,
        1_000,
        1_700,
        1_707,
    ]


def test_chunk_ids_cost_the_tokens_that_their_passages_were_given() -> None:
    tables = TruthTables(table_of(QUERIES, [("q", "?", False, "{}")]), chunk_truth([("q", "a"), ("q", "b")]))
    passages = plain_passages([("q", 2, "b"), ("q", 1, "a")])
    tokens = pa.array([30, 20], pa.int32())
    counted = passages.set_column(passages.column_names.index("tokens"), PASSAGES.field("tokens"), tokens)
    names = [MetricName.parse(f"chunk_recall@{budget}tokens") for budget in (19, 20, 49, 50)]
    assert score_passages("chunk-level", counted, tables, names).column("value").to_pylist() == [0, 0.5, 0.5, 1]
    with pytest.raises(ConfigurationError, match=r"chunk_recall@19tokens needs the chunks of the corpus"):
        score_passages("chunk-level", passages, tables, names)


def test_chunk_ids_cost_the_text_that_their_passages_have_in_place_of_the_chunk() -> None:
    tables = TruthTables(table_of(QUERIES, [("q", "?", False, "{}")]), chunk_truth([("q", "a"), ("q", "b")]))
    passages = plain_passages([("q", 2, "b"), ("q", 1, "a"), ("q", 3, "a")])
    window = "a window around the hit, which is longer"
    texts = pa.array([None, window, None], pa.large_string())
    widened = passages.set_column(passages.column_names.index("text"), PASSAGES.field("text"), texts)
    chunks = plain_chunks([("a", "a.md", 0, "hit"), ("b", "a.md", 1, "one two three")])
    scores = score_passages(
        "chunk-level", widened, tables, [MetricName.parse("tokens_retrieved@99tokens")], chunks=chunks
    )
    costs = [count_tokens(text, "cl100k_base") for text in (window, "one two three", "hit")]
    assert scores.column("value").to_pylist() == [sum(costs)]
    with pytest.raises(
        ConfigurationError, match="'b' was retrieved but is not among the chunks: give the chunks that were searched"
    ):
        score_passages("chunk-level", passages, tables, strip_metrics(), chunks=chunks.slice(0, 1))
    nothing = score_passages("chunk-level", plain_passages([]), tables, strip_metrics(), chunks=chunks)
    assert set(nothing.column("value").to_pylist()) == {0.0}
