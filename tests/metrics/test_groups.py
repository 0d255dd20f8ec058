"""Evidence that stands in several places counts once, at the place that is covered best."""

import math
from collections.abc import Iterable
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import ChunkLevelGroundTruth, Document, DocumentId, Query, TokenLevelGroundTruth, generate_chunk_id
from rag_eval.errors import ConfigurationError
from rag_eval.metrics.formulas import CompleteEvidence
from rag_eval.metrics.losses import LOSS_PARTS, HitStages, losses_of
from rag_eval.metrics.metric import Cut, built_in_metric
from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import as_passages, chunks_to_table, truth_to_tables
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan, Chunk
from tests.made_tables import placed_chunks, placed_hits, placed_passages, plain_hits, plain_passages

DOC = Document(DocumentId("a.md"), "the ferry leaves at noon; the ferry leaves at noon; coffee is served")
FIRST, COPY, COFFEE = DOC.span(0, 24), DOC.span(26, 50), DOC.span(52, 58)
ASKED, OTHER = Query.from_text("when?"), Query.from_text("what?")
TRUTH = truth_to_tables(
    [
        TokenLevelGroundTruth(ASKED, [FIRST, COFFEE], False, {FIRST: [COPY]}),
        TokenLevelGroundTruth(OTHER, [COFFEE]),
    ]
)


def recalls(*places: tuple[int, int], ks: list[int], metrics: tuple[str, ...] = ("span_recall",)) -> list[float]:
    """The recall of the first query at each k, the other one finding nothing."""
    passages = placed_passages([(ASKED.id, rank, DOC.id, *place) for rank, place in enumerate(places, start=1)])
    scores = score_passages("token-level", passages, TRUTH, metrics, ks, documents=[DOC])
    assert scores.column("query_id").to_pylist() == [ASKED.id, OTHER.id] * (scores.num_rows // 2)
    return [row["value"] for row in scores.to_pylist() if row["query_id"] == ASKED.id]


def test_a_group_is_covered_by_its_best_covered_member_and_counts_once() -> None:
    assert recalls((26, 50), ks=[1]) == [24 / 30]
    assert recalls((0, 24), (26, 50), ks=[1, 2]) == [24 / 30, 24 / 30]
    assert recalls((0, 12), (26, 50), (52, 58), ks=[1, 2, 3]) == [12 / 30, 24 / 30, 1.0]


def test_chunk_ids_have_groups_too() -> None:
    one, copy, two = (generate_chunk_id(text) for text in ("one", "ONE", "two"))
    truth = truth_to_tables([ChunkLevelGroundTruth(ASKED, [one, two], False, {one: [copy]})])
    passages = plain_passages([(ASKED.id, 1, copy), (ASKED.id, 2, one)])
    scores = score_passages("chunk-level", passages, truth, ["chunk_recall"], [1, 2])
    assert scores.column("value").to_pylist() == [0.5, 0.5]
    texts = {one: "one", copy: "ONE", two: "two"}
    chunks = chunks_to_table(Chunk(chunk_id, text, DOC.id) for chunk_id, text in texts.items())
    within = score_passages("chunk-level", passages, truth, ["chunk_recall@1tokens"], chunks=chunks)
    assert within.column("value").to_pylist() == [0.5]
    hits = plain_hits([(ASKED.id, 1, 1.0, DOC.id, 1, copy)])
    assert as_passages(hits).num_rows == 1
    assert losses_of("chunk-level", chunks, truth, HitStages({"vector": hits}), [1]).parts.column(
        "final_recall"
    ).to_pylist() == [0.5]


def test_complete_evidence_wants_every_group_nearly_whole() -> None:
    names = ("complete_evidence",)
    assert recalls((26, 48), (52, 58), ks=[1, 2], metrics=names) == [0, 1]
    assert recalls((26, 47), (52, 58), ks=[2], metrics=names) == [0]  # 21 of 24 characters are not 0.9
    assert recalls((0, 12), (38, 50), (52, 58), ks=[3], metrics=names) == [0]
    assert recalls((0, 50), (52, 58), ks=[], metrics=("complete_evidence@1tokens", "complete_evidence@100tokens")) == [
        0,
        1,
    ]
    assert CompleteEvidence(2).calculate([COPY, COFFEE], [(FIRST, COPY), COFFEE]) == 1
    one, copy, two = (generate_chunk_id(text) for text in ("one", "ONE", "two"))
    assert CompleteEvidence().calculate([copy, two], [(one, copy), two]) == 1
    assert CompleteEvidence(1).calculate([copy, two], [(one, copy), two]) == 0
    assert CompleteEvidence().calculate([], []) == 0
    with pytest.raises(ConfigurationError, match="counts the tokens of chunks"):
        CompleteEvidence(Cut("tokens", 5)).calculate([one], [one])


LENGTH = 18
LONG = Document(DocumentId("long.md"), "one two three four five six seven")
OTHERS = [LONG, Document(DocumentId("short.md"), "aa bb cc aa bb cc dd")]


@st.composite
def span(draw: st.DrawFn, length: int | None = None) -> CharacterSpan:
    document = draw(st.sampled_from(OTHERS))
    size = length or draw(st.integers(1, 8))
    start = draw(st.integers(0, LENGTH - size))
    return document.span(start, start + size)


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[CharacterSpan, ...]]:
    """Spans with alternatives of any length, no span in two groups; all of one length in half of the cases."""
    length = draw(st.none() | st.integers(1, 6))
    made: list[tuple[CharacterSpan, ...]] = []
    seen: set[CharacterSpan] = set()
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
        members = draw(st.lists(span(length), min_size=size, max_size=size, unique=True))
        members = [one for one in members if one not in seen]
        seen.update(members)
        made += [tuple(members)] if members else []
    return made


def characters(*spans: CharacterSpan) -> set[tuple[str, int]]:
    return {(one.doc_id, place) for one in spans for place in range(one.start, one.end)}


class Twin:
    """What the metrics count, in sets of characters."""

    def __init__(self, evidence: list[tuple[CharacterSpan, ...]]) -> None:
        self.alone = characters(*(group[0] for group in evidence if len(group) == 1))
        self.several = [group for group in evidence if len(group) > 1]
        self.every = evidence
        self.written = [group[0] for group in evidence]
        self.members = characters(*(member for group in evidence for member in group))
        before, self.weights = set(self.alone), []
        for group in self.several:
            self.weights.append(len(characters(group[0]) - before))
            before |= characters(group[0])
        self.total = len(before)

    @staticmethod
    def share(group: tuple[CharacterSpan, ...], found: set[tuple[str, int]]) -> float:
        return max(len(characters(member) & found) / member.length for member in group)

    def covered(self, found: set[tuple[str, int]]) -> float:
        shares = [weight * self.share(group, found) for weight, group in zip(self.weights, self.several, strict=True)]
        return len(self.alone & found) + sum(shares)

    def ideal(self, k: int) -> float:
        amounts = []
        for document in OTHERS:
            held = [any(one.doc_id == document.id for one in group) for group in self.several]
            own = len([place for place in self.alone if place[0] == document.id])
            amounts.append(own + sum(w for w, is_held in zip(self.weights, held, strict=True) if is_held))
        bounds = [min(self.total, sum(sorted(amounts, reverse=True)[: m + 1])) for m in range(len(amounts))]
        return sum((b - a) / math.log2(m + 2) for m, (a, b) in enumerate(pairwise([0, *bounds])) if m < k)

    def values(self, hits: list[CharacterSpan], k: int, bound: int = 9) -> dict[str, float]:
        first = hits[:k]
        so_far = [characters(*first[:rank]) for rank in range(len(first) + 1)]
        found, paid = so_far[-1], sum(one.length for one in first)
        covered, relevant = self.covered(found), len(found & self.members)
        gains = [self.covered(new) - self.covered(old) for old, new in pairwise(so_far)]
        useful = [len(new & self.members) > len(old & self.members) for old, new in pairwise(so_far)]
        uncovered = sum(len(characters(group[0]) - found) for group in self.every if len(group) == 1)
        uncovered += sum(group[0].length * (1 - self.share(group, found)) for group in self.several)
        weighted = sum(gain * sum(useful[: rank + 1]) / (rank + 1) for rank, gain in enumerate(gains))
        gained = sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))
        ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
        return {
            "span_recall": covered / self.total,
            "span_precision": relevant / len(found) if found else 0,
            "span_iou": relevant / (len(found) + self.total - covered),
            "span_hit_rate": float(bool(ranks)),
            "span_mrr": 1 / ranks[0] if ranks else 0,
            "span_map": weighted / self.total,
            "span_ndcg": gained / self.ideal(bound),
            "chroma_recall": covered / sum(one.length for one in self.written),
            "chroma_precision": relevant / paid if paid else 0,
            "chroma_iou": relevant / (paid + uncovered),
            "complete_evidence": float(all(self.share(group, found) >= 0.9 for group in self.every)),
        }


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.lists(st.tuples(groups(), st.lists(span(), max_size=5)), min_size=1, max_size=3))
def test_every_metric_at_every_cut_is_that_of_sets_of_characters(
    cases: list[tuple[list[tuple[CharacterSpan, ...]], list[CharacterSpan]]],
) -> None:
    truth = []
    for number, (evidence, _) in enumerate(cases):
        others = {group[0]: group[1:] for group in evidence}
        truth.append(TokenLevelGroundTruth(Query.from_text(str(number)), list(others), False, others))
    passages = placed_passages(
        [
            (item.query.id, rank, one.doc_id, one.start, one.end)
            for item, (_, hits) in zip(truth, cases, strict=True)
            for rank, one in enumerate(hits, start=1)
        ]
    )
    twins = [Twin(evidence) for evidence, _ in cases]
    names = list(twins[0].values([], 1))
    ks, budgets = [1, 2, 3, 5], [1, 3, 6, 12]
    at_budgets = [f"{name}@{budget}tokens" for name in names for budget in budgets]
    within = [f"recall_within_tokens@{budget}" for budget in budgets]
    scores = score_passages(
        "token-level", passages, truth_to_tables(truth), [*names, *at_budgets, *within], ks, documents=OTHERS
    )
    found: dict[tuple[str, str, int], list[float]] = {}
    for row in scores.to_pylist():
        found.setdefault((row["metric"], row["cut"], row["size"]), []).append(row["value"])
    for number, (twin, (evidence, hits)) in enumerate(zip(twins, cases, strict=True)):
        spent = [sum(count_tokens(one.text, "cl100k_base") for one in hits[:rank]) for rank in range(len(hits) + 1)]
        fits = {budget: max(rank for rank, cost in enumerate(spent) if cost <= budget) for budget in budgets}
        for name in names:
            for k in ks:
                expected = twin.values(hits, k, k)[name]
                assert found[name, "hits", k][number] == pytest.approx(expected, abs=1e-12), (name, k)
                metric = built_in_metric(f"{name}@{k}", "token-level")
                assert metric.calculate(hits, evidence) == pytest.approx(expected, abs=1e-12), (name, k)
            for budget in budgets:
                expected = twin.values(hits, fits[budget])[name]
                assert found[name, "tokens", budget][number] == pytest.approx(expected, abs=1e-12), (name, budget)
        for budget in budgets:
            recalls = [twin.covered(characters(*hits[:rank])) / twin.total for rank in range(len(hits) + 1)]
            assert found["recall_within_tokens", "tokens", budget][number] == pytest.approx(recalls[fits[budget]])


@settings(deadline=None, derandomize=True, max_examples=80)
@given(groups(), st.lists(span(), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=4))
def test_losses_of_groups_are_those_of_every_choice_of_chunks(
    evidence: list[tuple[CharacterSpan, ...]], chunks: list[CharacterSpan], order: list[int]
) -> None:
    others = {group[0]: group[1:] for group in evidence}
    truth = truth_to_tables([TokenLevelGroundTruth(ASKED, list(others), False, others)])
    hits = [chunks[number % len(chunks)] for number in order]
    table = placed_chunks([(f"c{n}", one.doc_id, one.start, one.end, one.text) for n, one in enumerate(chunks)])
    found = placed_hits(
        [(ASKED.id, rank, 1.0, one.doc_id, one.start, one.end, "c") for rank, one in enumerate(hits, start=1)]
    )
    twin, ks, budgets = Twin(evidence), [1, 2, 3], [1, 4, 9]

    def cost(some: Iterable[CharacterSpan]) -> int:
        return sum(count_tokens(one.text, "cl100k_base") for one in some)

    stages = HitStages({"words": found})
    rows = losses_of("token-level", table, truth, stages, ks).parts.to_pylist()
    rows += losses_of("token-level", table, truth, stages, budgets, "tokens", OTHERS).parts.to_pylist()
    choices = [some for size in range(len(chunks) + 1) for some in combinations(chunks, size)]
    within = [([some for some in choices if len(some) <= k], hits[:k]) for k in ks]
    for budget in budgets:
        fit = next((n for n in range(len(hits)) if cost(hits[: n + 1]) > budget), len(hits))
        within.append(([some for some in choices if cost(some) <= budget], hits[:fit]))
    for row, (every, first) in zip(rows, within, strict=True):
        best = max(twin.covered(characters(*some)) for some in every)
        reached = [twin.total, twin.covered(characters(*chunks)), best, twin.covered(characters(*first))]
        expected = [(more - less) / twin.total for more, less in pairwise(reached)]
        assert [row[part] for part in LOSS_PARTS[:3]] == pytest.approx(expected, abs=1e-9)
        assert sum(row[part] for part in LOSS_PARTS) == pytest.approx(1 - row["final_recall"], abs=1e-12)


def test_more_members_than_can_be_tried_leave_the_losses_in_order() -> None:
    text = "abcdef " * 40
    document = Document(DocumentId("many.md"), text)
    spans = [document.span(7 * number, 7 * number + 6) for number in range(40)]
    three = {spans[0]: spans[1:13], spans[13]: spans[14:26], spans[26]: spans[27:39]}
    truth = truth_to_tables([TokenLevelGroundTruth(ASKED, list(three), False, three)])
    places = [(start, start + 20) for start in range(3, 260, 20)]
    chunks = placed_chunks([(f"c{start}", document.id, start, end, "…") for start, end in places])
    hits = [(ASKED.id, rank, 1.0, document.id, *place, "c") for rank, place in enumerate(places[::-1], start=1)]
    rows = losses_of("token-level", chunks, truth, HitStages({"words": placed_hits(hits)}), [1, 2, 3]).parts.to_pylist()
    assert all(min(row[part] for part in LOSS_PARTS[:3]) >= 0 for row in rows)
    assert [1 - row["uncovered"] - row["boundary"] for row in rows] == pytest.approx([1 / 3, 2 / 3, 1])
