"""Pool what was retrieved and nobody judged, have a model judge it, and add what is relevant to the ground truth.

A pooled passage is in the metadata of its query (``rag_eval.types.evidence.JudgedPassage``), first without a grade. A
passage that is judged relevant becomes a relevant span, or chunk id, whose origin names the judge; any other stays as
judged, so that it is neither asked about again nor counted as unjudged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.ground_truth.truth_files import Truth
from rag_eval.llm.chat import ModelAnswer
from rag_eval.llm.writing import Answers, TextWriter
from rag_eval.metrics.span_sets import Interval, Place, merge_places
from rag_eval.parts import part
from rag_eval.tables import as_passages
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import (
    RELEVANT_GRADE,
    JudgedPassage,
    TokenLevelGroundTruth,
    judgements,
    with_judgements,
)
from rag_eval.types.ids import ChunkId, QueryId

Passage = CharacterSpan | ChunkId
Retrieved = list[tuple[Place, str, int]]
"""What was retrieved for a query: the place, the configuration and the rank."""

LONGEST, SHORTEST = 2_000, 20
"""The most characters of a pooled passage, and the fewest: what is left beside judged text may be a word or a comma."""

ORIGIN = "judged by "
"""The beginning of the origin of what entered the ground truth because it was judged relevant."""


def pool(
    truth: Iterable[Truth], retrieved: Mapping[str, pa.Table], k: int, documents: Mapping[str, Document]
) -> list[Truth]:
    """Return the ground truth with the passages to judge: what was retrieved and is neither in it nor judged.

    Overlapping ranges of several chunkings become one passage of ``LONGEST`` characters at most; what then has fewer
    than ``SHORTEST`` is left out. The passages of a query are ordered by the number of configurations that retrieved
    them, then by the best rank. Unanswerable queries, and hits without a place, are left alone.

    Args:
        truth: The ground truth.
        retrieved: Tables of hits or passages by configuration.
        k: How many hits of each configuration to pool.
        documents: The documents of token-level ground truth.
    """
    by_query: dict[str, Retrieved] = {}
    for name, table in retrieved.items():
        near = as_passages(table).filter(pc.field("rank") <= k)
        columns = (near.column(one).to_pylist() for one in ("query_id", "doc_id", "start", "end", "chunk_id", "rank"))
        for query_id, doc_id, start, end, chunk_id, rank in zip(*columns, strict=True):
            place = (chunk_id, 0, 1) if start is None else (doc_id, start, end)
            by_query.setdefault(query_id, []).append((place, name, rank))
    return [_pooled(item, by_query.get(item.query.id, []), documents) for item in truth]


def _pooled(item: Truth, retrieved: Retrieved, documents: Mapping[str, Document]) -> Truth:
    is_placed = isinstance(item, TokenLevelGroundTruth)
    hits = [hit for hit in retrieved if hit[0][0] is not None and (not is_placed or hit[0][0] in documents)]
    if item.unanswerable or not hits:
        return item
    before = judgements(item.query)
    members: set[Any] = {member for group in item.groups for member in group}
    taken = merge_places(map(_place, [*members, *(one.passage for one in before)]))
    new: list[JudgedPassage] = []
    if is_placed:
        for doc_id, start, end in _pieces([place for place, _, _ in hits], taken):
            text = documents[doc_id].content[start:end]
            start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
            if end - start >= SHORTEST:
                new.append(JudgedPassage(documents[doc_id].span(start, end)))
    else:
        ids = dict.fromkeys(ChunkId(place[0]) for place, _, _ in hits if place[0] not in taken)
        new += [JudgedPassage(chunk_id) for chunk_id in ids]
    counted = [one if one.passage in members else _counted(one, hits) for one in (*before, *new)]
    ordered = sorted(counted, key=lambda one: (-one.configurations, one.rank, _place(one.passage)))
    return replace(item, query=with_judgements(item.query, ordered))


def _place(passage: Passage) -> Place:
    if isinstance(passage, CharacterSpan):
        return passage.doc_id, passage.start, passage.end
    return passage, 0, 1


def _counted(judged: JudgedPassage, hits: Retrieved) -> JudgedPassage:
    """Return a passage with the number of configurations that retrieved any of it, and the best rank."""
    doc_id, start, end = _place(judged.passage)
    near = [(name, rank) for place, name, rank in hits if place[0] == doc_id and place[1] < end and start < place[2]]
    if not near:
        return judged
    return replace(judged, configurations=len({name for name, _ in near}), rank=min(rank for _, rank in near))


def _pieces(places: Iterable[Place], taken: Mapping[str, list[Interval]]) -> list[Place]:
    """Return the places without what is taken; overlapping ones are one, as long as it is not too long."""
    joined: list[Place] = []
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


def draw_sample(truth: Sequence[Truth], count: int, seed: int) -> list[Truth]:
    """Return the ground truth with ``count`` pooled passages drawn for people, in place of an earlier draw."""
    passages = [judgements(item.query) for item in truth]
    pooled = [(row, number) for row, found in enumerate(passages) for number, one in enumerate(found) if one.is_pooled]
    is_drawn = np.random.default_rng(seed).permutation(len(pooled)) < count
    drawn = {key for key, mark in zip(pooled, is_drawn, strict=True) if mark}
    return [
        replace(
            item,
            query=with_judgements(
                item.query, [replace(one, sampled=(row, number) in drawn) for number, one in enumerate(found)]
            ),
        )
        for row, (item, found) in enumerate(zip(truth, passages, strict=True))
    ]


class PassageGrade(ModelAnswer):
    """How far a passage answers a question, from 0 to 3, and why."""

    reason: str
    grade: Literal[0, 1, 2, 3]


Grades = Mapping[tuple[QueryId, Passage], PassageGrade]


@part
class PassageJudge(TextWriter):
    """A model that grades passages."""

    prompt = "grade"


@dataclass(frozen=True)
class Judging:
    """The grades that a model gave, and how many passages it was not asked about within its budget."""

    grades: Grades
    ungraded: int


def judge_passages(
    truth: Iterable[Truth], judge: PassageJudge, answers: Answers, texts: Mapping[ChunkId, str]
) -> Judging:
    """Have a model grade the pooled passages that it has not graded, those that most configurations retrieved first.

    Args:
        truth: The ground truth with pooled passages.
        judge: The model, which is asked until its ``max_cost`` is reached.
        answers: What asks, and stores every answer.
        texts: The texts of chunk ids.

    Raises:
        ServiceError: If the service fails for good; what was answered is stored.
    """
    waiting = [
        (item.query, one)
        for item in truth
        for one in judgements(item.query)
        if one.is_pooled and judge.model not in one.grades
    ]
    waiting.sort(key=lambda pair: (-pair[1].configurations, pair[1].rank))
    requests = []
    for query, one in waiting:
        text = one.passage.text if isinstance(one.passage, CharacterSpan) else texts[one.passage]
        requests.append((query.text, judge.request(PassageGrade, question=query.text, passage=text)))
    replies = answers.of(judge, requests, PassageGrade, is_partial=True)
    pairs = zip(waiting, replies, strict=True)
    grades = {(query.id, one.passage): reply for (query, one), reply in pairs if reply is not None}
    return Judging(grades, len(waiting) - len(grades))


def with_grades(truth: Iterable[Truth], judge: str, grades: Grades) -> list[Truth]:
    """Return the ground truth with the grades of a judge.

    What is relevant now enters it, with its origin; what entered it so and is no longer relevant leaves it, unless the
    query would have no evidence left.
    """
    by_query: dict[QueryId, dict[Passage, PassageGrade]] = {}
    for (query_id, passage), grade in grades.items():
        by_query.setdefault(query_id, {})[passage] = grade
    return [_graded(item, judge, by_query[item.query.id]) if item.query.id in by_query else item for item in truth]


def _graded(item: Truth, judge: str, grades: Mapping[Passage, PassageGrade]) -> Truth:
    judged = [
        one.graded(judge, grades[one.passage].grade, grades[one.passage].reason) if one.passage in grades else one
        for one in judgements(item.query)
    ]
    verdicts: dict[Any, bool] = {one.passage: one.grade >= RELEVANT_GRADE for one in judged if one.grade is not None}
    groups: list[tuple[Any, ...]] = [
        group for group in item.groups if verdicts.get(group[0], True) or not _was_added(item, group[0])
    ]
    members = {member for group in groups for member in group}
    relevant = [one for one in judged if verdicts.get(one.passage) and one.passage not in members]
    new: dict[Any, str] = {one.passage: f"{ORIGIN}{one.judge}" for one in relevant}
    groups = [*groups, *((passage,) for passage in new)] or list(item.groups)
    members = {member for group in groups for member in group}
    origins: dict[Any, str] = {**item.origins, **new}
    fields: dict[str, Any] = {
        "relevant_spans" if isinstance(item, TokenLevelGroundTruth) else "relevant_chunk_ids": [g[0] for g in groups],
        "alternatives": {group[0]: group[1:] for group in groups if len(group) > 1},
        "origins": {member: origin for member, origin in origins.items() if member in members},
    }
    return replace(item, query=with_judgements(item.query, judged), **fields)


def _was_added(item: Truth, member: Any) -> bool:
    return str(item.origins.get(member, "")).startswith(ORIGIN)
