"""Holes in ground truth: what was retrieved and nobody judged is pooled, judged, and enters the truth.

A pooled passage is kept in the metadata of its query (``rag_eval.types.evidence.JudgedPassage``), first without a
grade. A passage that is found relevant becomes a relevant span, or chunk id, whose origin says who judged it; one that
is not stays as judged. A model grades every passage twice, the passage after the question and before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.formatting import percent
from rag_eval.ground_truth.judgements import TruthJudgement
from rag_eval.ground_truth.records import SpanLine
from rag_eval.llm.chat import ModelAnswer
from rag_eval.llm.writing import Answers, TextWriter
from rag_eval.metrics.intervals import Interval, Place, merge_places
from rag_eval.parts import part
from rag_eval.tables import as_passages
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import (
    PERSON,
    RELEVANT_GRADE,
    ChunkLevelGroundTruth,
    JudgedPassage,
    TokenLevelGroundTruth,
    judgements,
    with_judgements,
)
from rag_eval.types.ids import ChunkId, QueryId

Truth = TokenLevelGroundTruth | ChunkLevelGroundTruth
Passage = CharacterSpan | ChunkId
Key = tuple[QueryId, Passage]
"""A passage that was retrieved for a query."""

LONGEST, SHORTEST = 2_000, 20
"""The most characters of a pooled passage, and the fewest: what is left beside judged text may be a word or a comma."""

ORIGIN = "judged by "
"""How the origin begins of what entered the truth because it was judged."""


def pool(
    truth: Iterable[Truth], retrieved: Mapping[str, pa.Table], k: int, documents: Mapping[str, Document]
) -> list[Truth]:
    """Return the truth with what the configurations retrieved within ``k`` hits and nobody judged, to be judged.

    ``retrieved`` are tables of hits or passages by configuration, ``documents`` those of token-level truth. Ranges of
    several chunkings that overlap are one passage, as long as it has ``LONGEST`` characters at most; what the truth
    holds or was pooled before is left out of it, and so is what then has fewer than ``SHORTEST``. The passages of a
    query are in the order of how many configurations retrieved them, and of the best rank. Unanswerable queries, and
    hits that have no place, are left alone.
    """
    by_query: dict[str, list[tuple[Place, str, int]]] = {}
    for name, table in retrieved.items():
        near = as_passages(table).filter(pc.field("rank") <= k)
        columns = (near.column(one).to_pylist() for one in ("query_id", "doc_id", "start", "end", "chunk_id", "rank"))
        for query_id, doc_id, start, end, chunk_id, rank in zip(*columns, strict=True):
            place = (chunk_id, 0, 1) if start is None else (doc_id, start, end)
            by_query.setdefault(query_id, []).append((place, name, rank))
    return [_pooled(item, by_query.get(item.query.id, []), documents) for item in truth]


def _pooled(item: Truth, found: list[tuple[Place, str, int]], documents: Mapping[str, Document]) -> Truth:
    is_placed = isinstance(item, TokenLevelGroundTruth)
    found = [one for one in found if one[0][0] is not None and (not is_placed or one[0][0] in documents)]
    if item.unanswerable or not found:
        return item
    before = judgements(item.query)
    members = [member for group in item.groups for member in group]
    taken = merge_places(map(_place, [*members, *(one.passage for one in before)]))
    passages: list[Passage] = [one.passage for one in before]
    if is_placed:
        for doc_id, start, end in _pieces([place for place, _, _ in found], taken):
            text = documents[doc_id].content[start:end]
            start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
            if end - start >= SHORTEST:
                passages.append(documents[doc_id].span(start, end))
    else:
        passages += dict.fromkeys(ChunkId(place[0]) for place, _, _ in found if place[0] not in taken)
    known = {one.passage: one for one in before}
    judged = [_counted(known.get(one, JudgedPassage(one)), found) for one in passages]
    ordered = sorted(judged, key=lambda one: (-one.configurations, one.rank, _place(one.passage)))
    return replace(item, query=with_judgements(item.query, ordered))


def _place(passage: Passage) -> Place:
    if isinstance(passage, CharacterSpan):
        return passage.doc_id, passage.start, passage.end
    return passage, 0, 1


def _counted(one: JudgedPassage, found: Sequence[tuple[Place, str, int]]) -> JudgedPassage:
    """Return a passage with how many configurations retrieved any of it, and the best rank; as it was without any."""
    doc_id, start, end = _place(one.passage)
    near = [(name, rank) for place, name, rank in found if place[0] == doc_id and place[1] < end and start < place[2]]
    if not near:
        return one
    return replace(one, configurations=len({name for name, _ in near}), rank=min(rank for _, rank in near))


def _pieces(places: Iterable[Place], taken: Mapping[str, list[Interval]]) -> list[Place]:
    """The places, those that overlap as one while it is not too long, without what is taken."""
    joined: list[tuple[str, int, int]] = []
    for doc_id, start, end in sorted(set(places)):
        if joined and joined[-1][0] == doc_id and start < joined[-1][2]:
            first, reached = joined[-1][1:]
            if end - first <= LONGEST:
                joined[-1] = doc_id, first, max(reached, end)
                continue
            start = reached
        joined += [(doc_id, at, min(at + LONGEST, end)) for at in range(start, end, LONGEST)]
    left: list[Place] = []
    for doc_id, start, end in joined:
        for low, high in taken.get(doc_id, []):
            if low < end and start < high:
                left += [(doc_id, start, low)] * (start < low)
                start = max(start, high)
        left += [(doc_id, start, end)] * (start < end)
    return left


def drawn(truth: Sequence[Truth], count: int, seed: int) -> list[Truth]:
    """Return the truth with so many pooled passages drawn at random for people, in place of those drawn before."""
    found = [judgements(item.query) for item in truth]
    sizes = [len(passages) for passages in found]
    marks = np.random.default_rng(seed).permutation(sum(sizes)) < count
    queries = [
        with_judgements(item.query, [replace(one, sampled=bool(mark)) for one, mark in zip(*pair, strict=True)])
        for item, *pair in zip(truth, found, np.split(marks, np.cumsum(sizes)[:-1]), strict=True)
    ]
    return [replace(item, query=query) for item, query in zip(truth, queries, strict=True)]


def graded(
    item: Truth, judge: str, grades: Mapping[Passage, int], reasons: Mapping[Passage, str] = MappingProxyType({})
) -> Truth:
    """Return the truth of a query with the grades that a judge gave its passages, and the reasons for them.

    What is relevant now enters the truth, with its origin; what entered it so and is no longer relevant leaves it,
    unless the query would have no truth left.
    """
    found = []
    for one in judgements(item.query):
        if one.passage in grades:
            why = {judge: reasons[one.passage]} if one.passage in reasons else {}
            one = replace(one, grades={**one.grades, judge: grades[one.passage]}, reasons={**one.reasons, **why})
        found.append(one)
    verdicts = {one.passage: one.grade >= RELEVANT_GRADE for one in found if one.grade is not None}
    held = [group for group in item.groups if verdicts.get(group[0], True) or not _entered(item, group[0])]
    members = {member for group in held for member in group}
    new: list[Any] = [one for one, is_relevant in verdicts.items() if is_relevant and one not in members]
    if not held and not new:
        held = list(item.groups)
    relevant = [*(group[0] for group in held), *new]
    origins: dict[Any, str] = {member: origin for member, origin in item.origins.items() if member in members}
    origins |= {one.passage: f"{ORIGIN}{_judge_of(one)}" for one in found if one.passage in new}
    kept: dict[str, Any] = {
        "relevant_spans" if isinstance(item, TokenLevelGroundTruth) else "relevant_chunk_ids": relevant,
        "alternatives": {group[0]: group[1:] for group in held if len(group) > 1},
        "origins": origins,
    }
    return replace(item, query=with_judgements(item.query, found), **kept)


def _entered(item: Truth, member: Any) -> bool:
    return str(item.origins.get(member, "")).startswith(ORIGIN)


def _judge_of(one: JudgedPassage) -> str:
    return next(judge for judge, grade in reversed([*one.grades.items()]) if grade == one.grade)


def offers(truth: Iterable[Truth]) -> list[TruthJudgement]:
    """Return the pooled passages that people are to judge in a review: those drawn for them, or else all that wait."""
    items = [(item, judgements(item.query)) for item in truth if isinstance(item, TokenLevelGroundTruth)]
    is_drawn = any(one.sampled for _, found in items for one in found)
    return [
        TruthJudgement(
            id=item.query.id,
            span=SpanLine(**one.place, text=one.passage.text, origin=f"{ORIGIN}{PERSON}"),
            decision="offered",
            by="rag-eval truth holes",
            at=datetime.now(UTC),
        )
        for item, found in items
        for one in found
        if isinstance(one.passage, CharacterSpan) and one.grade is None and one.sampled == is_drawn
    ]


class PassageGrade(ModelAnswer):
    """How far a passage answers a question, from 0 to 3, and why."""

    reason: str
    grade: Literal[0, 1, 2, 3]


@part
class PassageJudge(TextWriter):
    """A model that grades passages, each twice: the question before the passage and after it."""

    prompt = "grade"
    orders: ClassVar[tuple[str, str]] = ("grade", "grade_reversed")


@dataclass(frozen=True)
class ModelGrades:
    """The grades of a model: of each passage the two of both orders, and the reasons; ``unasked`` have none.

    A passage flips where one order finds it relevant and the other does not. Its grade is the mean of both, rounded
    down: what flips by one grade is not relevant.
    """

    both: Mapping[Key, tuple[PassageGrade, PassageGrade]]
    unasked: int

    @property
    def flips(self) -> int:
        """How many passages flip."""
        return sum(len({one.grade >= RELEVANT_GRADE for one in pair}) > 1 for pair in self.both.values())

    @property
    def flip_rate(self) -> float:
        """The share of the passages that flip; 0 of none."""
        return self.flips / len(self.both) if self.both else 0.0

    @property
    def grades(self) -> dict[Key, int]:
        return {key: (first.grade + second.grade) // 2 for key, (first, second) in self.both.items()}

    @property
    def reasons(self) -> dict[Key, str]:
        """The reason that was given for each, the question being first."""
        return {key: first.reason for key, (first, _) in self.both.items()}

    def __str__(self) -> str:
        return (
            f"{self.flips:,} of {len(self.both):,} passages ({percent(self.flip_rate, 1)}) are relevant in one order "
            "of question and passage and not in the other"
        )


def judge_by_model(
    truth: Iterable[Truth], judge: PassageJudge, answers: Answers, texts: Mapping[ChunkId, str]
) -> ModelGrades:
    """Have a model grade the pooled passages that it has not graded, those that most configurations retrieved first.

    ``texts`` are those of chunk ids. ``answers`` keeps what is answered, and ends asking at the judge's ``max_cost``:
    what was not asked then, in both orders, has no grade. Raises ``ServiceError`` when the service fails for good; what
    was answered is kept.
    """
    waiting = [(item.query, one) for item in truth for one in judgements(item.query) if judge.model not in one.grades]
    waiting.sort(key=lambda pair: (-pair[1].configurations, pair[1].rank))
    asked = []
    for query, one in waiting:
        text = one.passage.text if isinstance(one.passage, CharacterSpan) else texts[one.passage]
        asked += [
            (query.text, judge.request(PassageGrade, order=order, question=query.text, passage=text))
            for order in judge.orders
        ]
    found = answers.of(judge, asked, PassageGrade, is_partial=True)
    pairs = zip(waiting, found[::2], found[1::2], strict=True)
    both = {(query.id, one.passage): (a, b) for (query, one), a, b in pairs if a is not None and b is not None}
    return ModelGrades(both, len(waiting) - len(both))


def entered(
    truth: Iterable[Truth], judge: str, grades: Mapping[Key, int], reasons: Mapping[Key, str] = MappingProxyType({})
) -> list[Truth]:
    """Return the truth with the grades of a judge, as ``graded`` does for a query."""
    by_query: dict[QueryId, dict[Passage, int]] = {}
    for (query_id, passage), grade in grades.items():
        by_query.setdefault(query_id, {})[passage] = grade
    found = []
    for item in truth:
        own = by_query.get(item.query.id, {})
        why = {passage: reasons[item.query.id, passage] for passage in own if (item.query.id, passage) in reasons}
        found.append(graded(item, judge, own, why) if own else item)
    return found
