"""What was retrieved and nobody judged: its share, and what it leaves open of the other metrics."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rag_eval import ChunkLevelGroundTruth, Document, DocumentId, Query, TokenLevelGroundTruth
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.metrics.metric import built_in_metric, metric_names, metric_of
from rag_eval.metrics.score_tables import UnjudgedAs, score_passages
from rag_eval.tables import truth_to_tables
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import PERSON, JudgedPassage, judgements, with_judgements
from rag_eval.types.ids import ChunkId
from tests.made_tables import placed_passages, plain_passages

DOC = Document(DocumentId("a.md"), "the ferry leaves at noon; the ferry leaves at noon; coffee is served")
OTHER = Document(DocumentId("b.md"), DOC.content[::-1])
ASKED = Query.from_text("when?")


def truth_of(
    spans: Sequence[CharacterSpan],
    judged: Iterable[CharacterSpan] = (),
    alternatives: dict[CharacterSpan, list[CharacterSpan]] | None = None,
) -> TokenLevelGroundTruth:
    grades = [JudgedPassage(span, {"model": 0}) for span in judged]
    return TokenLevelGroundTruth(with_judgements(ASKED, grades), spans, False, alternatives or {})


def value(
    metric: str, hits: Sequence[CharacterSpan], truth: TokenLevelGroundTruth, unjudged: UnjudgedAs = "irrelevant"
) -> float:
    passages = placed_passages([(ASKED.id, rank, h.doc_id, h.start, h.end) for rank, h in enumerate(hits, start=1)])
    found = score_passages(
        "token-level", passages, truth_to_tables([truth]), [metric], documents=[DOC, OTHER], unjudged=unjudged
    )
    return float(found.column("value")[0].as_py())


def test_what_is_in_no_group_and_not_judged_is_unjudged() -> None:
    hits = [DOC.span(0, 40), DOC.span(30, 60)]
    truth = truth_of([DOC.span(0, 10)], [DOC.span(20, 35)], {DOC.span(0, 10): [DOC.span(50, 68)]})
    assert value("unjudged@1", hits, truth) == 15 / 40
    assert value("unjudged@2", hits, truth) == (10 + 15) / 60
    assert value("unjudged@12tokens", hits, truth) == value("unjudged@1", hits, truth)
    assert value("unjudged@2", [], truth) == 0.0
    waiting = with_judgements(ASKED, [JudgedPassage(DOC.span(20, 35))])
    assert value("unjudged@1", hits, TokenLevelGroundTruth(waiting, [DOC.span(0, 10)])) == 30 / 40


def test_chunk_ids_are_judged_like_places() -> None:
    ids = [ChunkId(f"chunk_{number:012}") for number in range(5)]
    query = with_judgements(ASKED, [JudgedPassage(ids[1], {PERSON: 0}), JudgedPassage(ids[2])])
    truth = truth_to_tables([ChunkLevelGroundTruth(query, [ids[0], ids[4]])])
    passages = plain_passages([(ASKED.id, rank, one) for rank, one in enumerate(ids[:4], start=1)])
    metrics = ["unjudged", "chunk_precision", "chunk_recall", "chunk_mrr"]
    low = score_passages("chunk-level", passages, truth, metrics, [2, 4]).column("value").to_pylist()
    high = (
        score_passages("chunk-level", passages, truth, metrics, [2, 4], unjudged="relevant").column("value").to_pylist()
    )
    assert low == [0.0, 0.5, 0.5, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert high == [0.0, 0.5, 0.5, 0.75, 0.5, 3 / 4, 1.0, 1.0]


def test_a_metric_of_ones_own_has_no_such_value() -> None:
    class Mine:
        name = "mine"

        def calculate(self, retrieved: object, ground_truth: object) -> float:
            return 1.0

    passages = placed_passages([(ASKED.id, 1, DOC.id, 0, 10)])
    with pytest.raises(ConfigurationError, match="mine@1 is not built in"):
        score_passages(
            "token-level",
            passages,
            truth_to_tables([truth_of([DOC.span(0, 5)])]),
            [Mine()],
            [1],
            documents=[DOC],
            unjudged="relevant",
        )


@pytest.mark.parametrize(
    "wrong",
    [
        "all",
        {"doc_id": "a.md", "start": 3, "end": 3, "grades": {}},
        {"chunk_id": "x", "grades": {"me": 4}},
        {"chunk_id": "x", "grades": {"me": True}},
        {"chunk_id": "x", "grades": [1]},
        {"chunk_id": "x", "rank": "first"},
        {"chunk_id": 3},
    ],
)
def test_what_is_no_judgement_is_said_so(wrong: object) -> None:
    with pytest.raises(GroundTruthError, match="under 'judged': give doc_id"):
        judgements(Query.from_text("when?", {"judged": [wrong]}))


def test_judgements_come_back_and_a_persons_counts_first() -> None:
    given = [
        JudgedPassage(DOC.span(0, 3), {PERSON: 0, "m": 3}, 2, 1, True),
        JudgedPassage(ChunkId("x"), {"m": 1, "n": 2}),
    ]
    query = with_judgements(Query.from_text("when?", {"kind": "time"}), given)
    assert judgements(query) == given
    assert [one.grade for one in given] == [0, 2]
    assert JudgedPassage(ChunkId("x")).grade is None
    assert with_judgements(query, []).metadata == {"kind": "time"}


places = st.tuples(st.sampled_from([DOC, OTHER]), st.integers(0, 60), st.integers(1, 12)).map(
    lambda given: given[0].span(given[1], min(given[1] + given[2], len(DOC.content)))
)
some = st.lists(places, min_size=1, max_size=4)


def characters(spans: Iterable[CharacterSpan]) -> set[tuple[str, int]]:
    return {(span.doc_id, place) for span in spans for place in range(span.start, span.end)}


def spans_of(characters: set[tuple[str, int]]) -> list[CharacterSpan]:
    """The characters as spans, as few as there can be."""
    found = []
    for document in (DOC, OTHER):
        own = sorted(place for doc_id, place in characters if doc_id == document.id)
        cuts = [0, *(n for n, (a, b) in enumerate(pairwise(own), start=1) if b > a + 1), len(own)]
        found += [document.span(own[a], own[b - 1] + 1) for a, b in pairwise(cuts) if b > a]
    return found


@settings(deadline=None, max_examples=150)
@given(some, some, st.lists(places, max_size=3), st.integers(1, 4), st.data())
def test_no_truth_is_outside_of_the_bounds(
    hits: list[CharacterSpan],
    spans: list[CharacterSpan],
    judged: list[CharacterSpan],
    k: int,
    data: st.DataObject,
) -> None:
    """Against sets of characters: the share, the value with all relevant, and the value by any truth there could be."""
    spans = list(dict.fromkeys(spans))
    alternatives = {spans[0]: [spans[1]]} if len(spans) > 1 and data.draw(st.booleans()) else {}
    truth = truth_of([span for span in spans if span not in alternatives.get(spans[0], [])], judged, alternatives)
    retrieved = characters(hits[:k])
    unjudged = retrieved - characters(spans) - characters(judged)
    assert value(f"unjudged@{k}", hits, truth) == len(unjudged) / len(retrieved)
    elsewhere = characters([DOC.span(0, len(DOC.content))]) - retrieved - characters(spans) - characters(judged)
    really = {one for one in sorted(unjudged) if data.draw(st.booleans())}
    missed = {one for one in sorted(elsewhere) if data.draw(st.booleans())} if data.draw(st.booleans()) else set()
    given = [(span, *truth.alternatives.get(span, ())) for span in truth.relevant_spans]
    grouped = [group if len(group) > 1 else group[0] for group in given]
    for label in metric_names("token-level"):
        metric = metric_of(label)
        name = f"{label}@{k}" if "hits" in metric.cuts else f"{label}@30" if "tokens" in metric.cuts else label
        if metric.bounds == "neither" or metric.number == "tokens":
            continue
        twin = built_in_metric(name, "token-level")
        low, high = value(name, hits, truth), value(name, hits, truth, "relevant")
        assert high == pytest.approx(twin.calculate(hits, [*grouped, *spans_of(unjudged)]))
        complete = twin.calculate(hits, [*grouped, *spans_of(really), *spans_of(missed)])
        assert complete <= high + 1e-12, name
        if metric.bounds == "both":
            assert low - 1e-12 <= complete, name


@settings(deadline=None, max_examples=50)
@given(some, some, st.integers(5, 40))
def test_the_bound_within_a_budget_is_that_of_the_hits_within_it(
    hits: list[CharacterSpan], spans: list[CharacterSpan], budget: int
) -> None:
    truth = truth_of(spans)
    within = [k for k in range(len(hits) + 1) if value(f"tokens_retrieved@{k or 1}", hits, truth) * bool(k) <= budget]
    assume(max(within) > 0)
    expected = value(f"span_recall@{max(within)}", hits, truth, "relevant")
    assert value(f"recall_within_tokens@{budget}", hits, truth, "relevant") == expected
