"""The metrics against a naive twin that counts sets of characters, or of chunk ids, one by one."""

import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.metrics.formulas import (
    ChromaIoU,
    ChromaPrecision,
    ChromaRecall,
    ChunkF1,
    ChunkHitRate,
    ChunkMAP,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
    SpanF1,
    SpanHitRate,
    SpanIoU,
    SpanMAP,
    SpanMRR,
    SpanNDCG,
    SpanPrecision,
    SpanRecall,
    TokensRetrieved,
)
from rag_eval.metrics.metric import built_in_metric
from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import chunks_to_table, truth_to_tables
from rag_eval.tokens import get_encoding
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, generate_pa_chunk_id
from tests.made_tables import placed_passages

ENCODING = "cl100k_base"
TEXTS = {
    "a.md": "Née 👩🏽‍🚀 in 漢字, a\u0301 café\r\n<|endoftext|> here",
    "b.md": "aa aa aa\u2028aa international aa\x00a",
    "c.md": "the same, the same, the same.",
}
DOCUMENTS = {doc_id: Document(DocumentId(doc_id), text) for doc_id, text in TEXTS.items()}
TWIN = settings(deadline=None, derandomize=True, max_examples=150)

Spans = list[CharacterSpan]
Units = set[tuple[str, int]]


@st.composite
def a_span(draw: st.DrawFn) -> CharacterSpan:
    document = DOCUMENTS[draw(st.sampled_from(sorted(DOCUMENTS)))]
    start = draw(st.integers(0, len(document.content) - 1))
    return document.span(start, draw(st.integers(start + 1, min(start + 12, len(document.content)))))


some_spans = st.lists(a_span(), max_size=6)
a_cut = st.one_of(st.none(), st.integers(1, 7))


def characters(spans: Sequence[CharacterSpan]) -> Units:
    return {(span.doc_id, place) for span in spans for place in range(span.start, span.end)}


def share(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty


def twin_gains(retrieved: Spans, truth: Spans) -> list[int]:
    left, gains = characters(truth), []
    for span in retrieved:
        gains.append(len(left & characters([span])))
        left -= characters([span])
    return gains


def twin(retrieved: Spans, truth: Spans, k: int | None) -> dict[str, float]:
    hits = retrieved[:k]
    found, wanted = characters(hits), characters(truth)
    gains = twin_gains(hits, truth)
    useful = [rank for rank, gain in enumerate(gains, start=1) if gain]
    documents = sorted((len([1 for doc_id, _ in wanted if doc_id == one]) for one in DOCUMENTS), reverse=True)
    ideal = sum(amount / math.log2(rank + 1) for rank, amount in enumerate(documents[:k], start=1))
    return {
        "span_recall": share(len(found & wanted), len(wanted)),
        "span_precision": share(len(found & wanted), len(found)),
        "span_iou": share(len(found & wanted), len(found | wanted), empty=1.0),
        "span_f1": share(2 * len(found & wanted), len(found) + len(wanted)),
        "span_hit_rate": float(bool(useful)),
        "span_mrr": 1 / useful[0] if useful else 0.0,
        "span_map": share(
            sum(gains[rank - 1] * sum(other <= rank for other in useful) / rank for rank in useful), len(wanted)
        ),
        "span_ndcg": share(sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1)), ideal),
    }


SPAN_METRICS = [SpanRecall, SpanPrecision, SpanIoU, SpanF1, SpanHitRate, SpanMRR, SpanMAP, SpanNDCG]


@given(some_spans, some_spans, a_cut)
@TWIN
def test_every_span_metric_equals_its_twin(retrieved: Spans, truth: Spans, k: int | None) -> None:
    expected = twin(retrieved, truth, k)
    for metric in SPAN_METRICS:
        value = metric(k).calculate(retrieved, truth)
        assert value == pytest.approx(expected[metric.label], abs=1e-12), metric.label
        assert 0.0 <= value <= 1.0 + 1e-12


@given(some_spans, some_spans, a_cut)
@TWIN
def test_the_chroma_family_equals_its_twin(retrieved: Spans, truth: Spans, k: int | None) -> None:
    hits = retrieved[:k]
    covered = len(characters(hits) & characters(truth))
    paid = sum(span.length for span in hits)
    uncovered = sum(len(characters([span]) - characters(hits)) for span in truth)
    assert ChromaRecall(k).calculate(retrieved, truth) == share(covered, sum(span.length for span in truth))
    assert ChromaPrecision(k).calculate(retrieved, truth) == share(covered, paid)
    assert ChromaIoU(k).calculate(retrieved, truth) == share(covered, paid + uncovered, empty=1.0)


def chunk(span: CharacterSpan) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id(span.text), span.text, span.doc_id, span.start, span.end)


@given(st.lists(a_span(), max_size=12), some_spans, some_spans)
@TWIN
def test_precision_omega_and_min_equal_their_twin(chunks: Spans, retrieved: Spans, truth: Spans) -> None:
    truth = list(dict.fromkeys(truth)) or [DOCUMENTS["a.md"].span(0, 1)]
    touching = [
        one
        for one in chunks
        if any(one.doc_id == ref.doc_id and one.start <= ref.end and ref.start <= one.end for ref in truth)
    ]
    both, either = characters(touching) & characters(truth), characters(touching) | characters(truth)
    table = chunks_to_table([chunk(span) for span in chunks])
    assert from_table("precision_omega", retrieved, truth, table) == share(len(both), len(either))
    k = min(len(touching), 20)
    for name in ("chroma_recall", "chroma_precision", "chroma_iou"):
        expected = built_in_metric(name, "token-level").calculate(retrieved[:k], truth)
        assert from_table(f"{name}@min", retrieved, truth, table) == expected


def from_table(name: str, retrieved: Spans, truth: Spans, chunks: pa.Table) -> float:
    """The value of a metric that needs the chunks of the corpus."""
    query = Query.from_text("?")
    passages = placed_passages([(query.id, rank, s.doc_id, s.start, s.end) for rank, s in enumerate(retrieved, 1)])
    tables = truth_to_tables([TokenLevelGroundTruth(query, truth)])
    return float(score_passages("token-level", passages, tables, [name], chunks=chunks).column("value")[0].as_py())


def test_min_takes_no_more_than_twenty() -> None:
    document = DOCUMENTS["a.md"]
    ones = [document.span(place, place + 1) for place in range(30)]
    table = chunks_to_table([chunk(span) for span in ones])
    assert from_table("chroma_recall@min", ones, [document.span(0, 30)], table) == 20 / 30


@given(some_spans, a_cut)
@TWIN
def test_tokens_retrieved_are_what_the_texts_cost_one_by_one(retrieved: Spans, k: int | None) -> None:
    expected = sum(len(get_encoding(ENCODING).encode_ordinary(span.text)) for span in retrieved[:k])
    assert TokensRetrieved(k).calculate(retrieved, []) == expected


@pytest.mark.parametrize(
    ("metric", "both_empty", "no_truth", "no_hits"),
    [
        (SpanRecall(), 0, 0, 0),
        (SpanPrecision(), 0, 0, 0),
        (SpanIoU(), 1, 0, 0),
        (SpanHitRate(), 0, 0, 0),
        (SpanMRR(), 0, 0, 0),
        (SpanMAP(), 0, 0, 0),
        (SpanNDCG(), 0, 0, 0),
        (ChromaRecall(), 0, 0, 0),
        (ChromaPrecision(), 0, 0, 0),
        (ChromaIoU(), 1, 0, 0),
        (TokensRetrieved(), 0, 1, 0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_empty_sides(metric: SpanRecall, both_empty: float, no_truth: float, no_hits: float) -> None:
    span = DOCUMENTS["a.md"].span(0, 3)
    assert metric.calculate([], []) == both_empty
    assert metric.calculate([DOCUMENTS["c.md"].span(0, 3)], []) == no_truth
    assert metric.calculate([], [span]) == no_hits


def test_one_hit_that_covers_two_truths_of_a_document_is_a_perfect_ranking() -> None:
    document = DOCUMENTS["a.md"]
    assert SpanNDCG(5).calculate([document.span(0, 30)], [document.span(2, 5), document.span(20, 22)]) == 1.0


def test_touching_a_reference_is_no_hit_except_for_chroma() -> None:
    document = DOCUMENTS["c.md"]
    reference, neighbour = document.span(5, 10), document.span(10, 20)
    assert SpanHitRate().calculate([neighbour], [reference]) == 0.0
    both = chunks_to_table([chunk(document.span(0, 10)), chunk(neighbour)])
    assert from_table("precision_omega", [], [reference], both) == 5 / 20


some_ids = st.lists(st.sampled_from("abcdefg").map(ChunkId), max_size=9)


@given(some_ids, some_ids, st.one_of(st.none(), st.integers(1, 10)))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_every_chunk_metric_equals_its_naive_twin(
    retrieved: list[ChunkId], truth: list[ChunkId], k: int | None
) -> None:
    hits, relevant = retrieved[:k], set(truth)
    useful = [rank for rank, one in enumerate(hits, start=1) if one in relevant and one not in hits[: rank - 1]]
    precision = len(set(hits) & relevant) / len(set(hits)) if hits else 0.0
    recall = len(set(hits) & relevant) / len(relevant) if relevant else 0.0
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, len(relevant) + 1) if k is None or rank <= k)
    expected = {
        ChunkRecall: recall,
        ChunkPrecision: precision,
        ChunkF1: 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        ChunkHitRate: float(bool(useful)),
        ChunkMRR: 1 / useful[0] if useful else 0.0,
        ChunkMAP: sum((n + 1) / rank for n, rank in enumerate(useful)) / len(relevant) if relevant else 0.0,
        ChunkNDCG: sum(1 / math.log2(rank + 1) for rank in useful) / ideal if ideal else 0.0,
    }
    for metric, value in expected.items():
        assert metric(k).calculate(retrieved, truth) == pytest.approx(value, abs=1e-12), metric.label
