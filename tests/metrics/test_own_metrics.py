"""A user's metric is asked with the hits within a cut, and one member of each group of evidence."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import (
    CharacterSpan,
    ChunkLevelGroundTruth,
    ChunkLevelMetric,
    ChunkRecall,
    Document,
    DocumentId,
    Query,
    SpanIoU,
    SpanPrecision,
    SpanRecall,
    TokenLevelGroundTruth,
    TokenLevelMetric,
    evaluate_token_level,
    generate_chunk_id,
)
from rag_eval.errors import ConfigurationError
from rag_eval.metrics import METRIC
from rag_eval.metrics.evaluate import ForeignMetric, taken_metric
from rag_eval.metrics.metric import column_of, higher_is_better
from rag_eval.metrics.score_tables import score_passages
from rag_eval.parts.part_settings import Place
from rag_eval.tables import truth_to_tables
from rag_eval.tokens import count_tokens
from tests.made_tables import placed_passages, plain_passages

TEXT = "the ferry leaves at noon; the ferry leaves at noon; coffee is served, and tea"
DOC = Document(DocumentId("a.md"), TEXT)
ASKED = Query.from_text("when?")


class Own:
    """A built-in metric in the clothes of a user's: not known by its name, and asked query by query."""

    def __init__(self, metric: Any, name: str) -> None:
        self.metric, self.name = metric, f"own_{name}"

    def calculate(self, retrieved: Sequence[Any], ground_truth: Sequence[Any]) -> float:
        return float(self.metric.calculate(retrieved, ground_truth))


def spans(most: int, *, unique: bool) -> st.SearchStrategy[list[CharacterSpan]]:
    place = st.tuples(st.integers(0, len(TEXT) - 1), st.integers(1, 30))
    span = place.map(lambda one: DOC.span(one[0], min(len(TEXT), sum(one))))
    return st.lists(span, min_size=1, max_size=most, unique=unique)


@settings(max_examples=60, deadline=None)
@given(hits=spans(6, unique=False), members=spans(8, unique=True), size=st.integers(1, 3))
def test_it_sees_the_hits_of_every_cut_and_the_best_covered_member_of_every_group(
    hits: list[CharacterSpan], members: list[CharacterSpan], size: int
) -> None:
    groups = [members[first : first + size] for first in range(0, len(members), size)]
    truth = TokenLevelGroundTruth(ASKED, [one[0] for one in groups], False, {one[0]: one[1:] for one in groups})
    rows = [(ASKED.id, rank, one.doc_id, one.start, one.end) for rank, one in enumerate(hits, start=1)]
    table, tables = placed_passages(rows), truth_to_tables([truth])
    metrics: dict[str, Any] = {"span_recall": SpanRecall(), "span_precision": SpanPrecision(), "span_iou": SpanIoU()}
    own = [
        Own(one, name) for name, one in (metrics | {f"{name}@5tokens": one for name, one in metrics.items()}).items()
    ]
    scores = score_passages("token-level", table, tables, own, [1, 2, 6], documents=[DOC])
    fitting = 0
    while fitting < len(hits) and sum(count_tokens(one.text, "cl100k_base") for one in hits[: fitting + 1]) <= 5:
        fitting += 1
    for row in scores.to_pylist():
        retrieved = hits[: row["size"] if row["cut"] == "hits" else fitting]
        found = {at for one in retrieved for at in range(one.start, one.end)}
        chosen = [
            max(group, key=lambda one: len(found & {*range(one.start, one.end)}) / len(one.text)) for group in groups
        ]
        assert row["value"] == metrics[row["metric"].removeprefix("own_")].calculate(retrieved, chosen)
    if size == 1:
        built_in = [one.name.removeprefix("own_") for one in own]
        ours = score_passages("token-level", table, tables, built_in, [1, 2, 6], documents=[DOC])
        assert scores.column("value").to_pylist() == ours.column("value").to_pylist()
        assert scores.select(["cut", "size"]).equals(ours.select(["cut", "size"]))


def test_chunk_ids_likewise() -> None:
    first, copy, other = (generate_chunk_id(text) for text in ("a", "b", "c"))
    truth = truth_to_tables([ChunkLevelGroundTruth(ASKED, [first, other], False, {first: [copy]})])
    hits = plain_passages([(ASKED.id, 1, copy), (ASKED.id, 2, other)])
    seen: list[tuple[Sequence[str], Sequence[str]]] = []

    def both(retrieved: Sequence[str], ground_truth: Sequence[str]) -> float:
        seen.append((retrieved, ground_truth))
        return ChunkRecall().calculate(retrieved, ground_truth)

    scores = score_passages("chunk-level", hits, truth, [ForeignMetric(both)], [1, 2])
    assert scores.column("value").to_pylist() == [0.5, 1.0]
    assert seen == [([copy], [copy, other]), ([copy, other], [copy, other])]


class Waits:
    higher_is_better = False

    async def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        await asyncio.sleep(0)
        return float(len(retrieved))


def test_coroutines_functions_and_classes_are_taken_and_named() -> None:
    waits = taken_metric(Waits, "token-level")
    assert (waits.name, column_of(waits), waits.calculate([DOC.span(0, 3)], [])) == (
        "Waits",
        "Waits(lower is better)",
        1.0,
    )
    assert not higher_is_better("Waits(lower is better)@5")
    assert taken_metric(len, "token-level").name == "len"
    results = [{"retrieved": [DOC.span(0, 3)], "ground_truth": [DOC.span(0, 6)]}]
    found = evaluate_token_level(results, [Waits, "span_recall", lambda retrieved, truth: 2.0])
    assert found == {"Waits": 1.0, "span_recall": 0.5, "<lambda>": 2.0}


def test_a_metric_of_a_module_has_its_settings_in_its_name_and_its_code_in_its_identity(tmp_path: Path) -> None:
    module = tmp_path / "scored.py"
    module.write_text("def near(retrieved, ground_truth, within=3):\n    return float(within)\n")
    place = Place(folder=tmp_path)
    first = METRIC.make({"type": "scored:near", "within": 7}, place)
    assert (first.name, first.calculate([], [])) == ("near within=7", 7.0)
    module.write_text("def near(retrieved, ground_truth, within=3):  # the same\n    return float(within)\n")
    assert METRIC.make({"type": "scored:near", "within": 7}, place).identity == first.identity
    module.write_text("def near(retrieved, ground_truth, within=3):\n    return float(within) + 1\n")
    assert METRIC.make({"type": "scored:near", "within": 7}, place).identity != first.identity


class OfSpans(TokenLevelMetric):
    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        return 1.0


class OfIds(ChunkLevelMetric):
    def calculate(self, retrieved: Sequence[str], ground_truth: Sequence[str]) -> float:
        return 1.0


def test_a_metric_of_the_other_level_is_refused() -> None:
    assert taken_metric(OfSpans(), "token-level").name == "OfSpans"
    for wrong in (OfIds(), ChunkRecall(), OfIds, ChunkRecall):
        with pytest.raises(ConfigurationError, match="is a chunk-level metric and this is a token-level evaluation"):
            taken_metric(wrong, "token-level")


def test_a_metric_that_raises_or_gives_no_number_is_named() -> None:
    truth = truth_to_tables([TokenLevelGroundTruth(ASKED, [DOC.span(0, 3)])])
    table = placed_passages([(ASKED.id, 1, DOC.id, 0, 5)])

    def broken(retrieved: object, ground_truth: object) -> float:
        raise KeyError("page")

    for metric, reason in (
        (ForeignMetric(broken), r"the metric broken failed \(.*page.*\)"),
        (ForeignMetric(lambda retrieved, truth: None, name="none"), f"none.calculate returned 'None' for {ASKED.id}"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            score_passages("token-level", table, truth, [metric], [5], documents=[DOC])
