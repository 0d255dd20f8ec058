"""Pool unjudged passages, have a model grade them, and add the relevant ones to the ground truth.

Pooled passages and their grades are in the metadata of the query, as ``rag_eval.types.evidence.JudgedPassage``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.chunking.sentence import trim
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
    Query,
    TokenLevelGroundTruth,
    judgements,
    with_judgements,
)
from rag_eval.types.ids import ChunkId, QueryId

Passage = CharacterSpan | ChunkId
Retrieved = list[tuple[Place, str, int]]
"""The hits of a query: place, configuration and rank."""

LONGEST, SHORTEST = 2_000, 20
"""Maximum and minimum number of characters of a pooled passage."""

ORIGIN = "judged by "
"""Prefix of the origin of passages that were judged relevant."""


def pool(
    truth: Iterable[Truth], retrieved: Mapping[str, pa.Table], k: int, documents: Mapping[str, Document]
) -> list[Truth]:
    """Add the retrieved passages that are neither in the ground truth nor judged.

    Overlapping hits become one passage of at most ``LONGEST`` characters; passages shorter than ``SHORTEST`` are
    skipped. Passages are ordered by the number of configurations that retrieved them, then by rank. Unanswerable
    queries do not change.

    Args:
        truth: The ground truth.
        retrieved: Tables of hits or passages by configuration.
        k: How many hits of each configuration to pool.
        documents: The documents of token-level ground truth.
    """
    by_query: dict[str, Retrieved] = {}
    for name, table in retrieved.items():
        near = as_passages(table).filter(pc.field("rank") <= k)
        columns = (near.column(c).to_pylist() for c in ("query_id", "doc_id", "start", "end", "chunk_id", "rank"))
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
    members: set[Passage] = {member for group in item.groups for member in group}
    taken = merge_places(map(_place, [*members, *(judged.passage for judged in before)]))
    places = [place for place, _, _ in hits]
    new: Iterable[Passage] = dict.fromkeys(ChunkId(chunk_id) for chunk_id, _, _ in places if chunk_id not in taken)
    if is_placed:
        trimmed = ((doc_id, *trim(documents[doc_id].content, *extent)) for doc_id, *extent in _pieces(places, taken))
        new = [documents[doc_id].span(start, end) for doc_id, start, end in trimmed if end - start >= SHORTEST]
    passages = [*before, *map(JudgedPassage, new)]
    counted = [judged if judged.passage in members else _counted(judged, hits) for judged in passages]
    ordered = sorted(counted, key=lambda judged: (-judged.configurations, judged.rank, _place(judged.passage)))
    return replace(item, query=with_judgements(item.query, ordered))


def _place(passage: Passage) -> Place:
    if isinstance(passage, CharacterSpan):
        return passage.doc_id, passage.start, passage.end
    return passage, 0, 1


def _counted(judged: JudgedPassage, hits: Retrieved) -> JudgedPassage:
    """Set the number of configurations that retrieved any part of a passage, and the best rank."""
    doc_id, start, end = _place(judged.passage)
    near = [(name, rank) for place, name, rank in hits if place[0] == doc_id and place[1] < end and start < place[2]]
    if not near:
        return judged
    return replace(judged, configurations=len({name for name, _ in near}), rank=min(rank for _, rank in near))


def _pieces(places: Iterable[Place], taken: Mapping[str, list[Interval]]) -> list[Place]:
    """Join overlapping places up to ``LONGEST`` characters, and remove text that is already covered."""
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
    """Draw ``count`` pooled passages for people to judge, replacing an earlier sample."""
    pooled = [
        (item.query.id, judged.passage) for item in truth for judged in judgements(item.query) if judged.is_pooled
    ]
    is_drawn = np.random.default_rng(seed).permutation(len(pooled)) < count
    drawn = {key for key, mark in zip(pooled, is_drawn, strict=True) if mark}

    def marked(query: Query) -> Query:
        passages = judgements(query)
        return with_judgements(query, [replace(one, sampled=(query.id, one.passage) in drawn) for one in passages])

    return [replace(item, query=marked(item.query)) for item in truth]


class PassageGrade(ModelAnswer):
    """How well a passage answers a question, from 0 to 3, and why."""

    reason: str
    grade: Literal[0, 1, 2, 3]


Grades = Mapping[tuple[QueryId, Passage], PassageGrade]


@part
class PassageJudge(TextWriter):
    """A model that grades passages."""

    prompt = "grade"


@dataclass(frozen=True)
class Judging:
    """The grades by a model, and the number of passages that its budget did not cover."""

    grades: Grades
    ungraded: int


def judge_passages(
    truth: Iterable[Truth], judge: PassageJudge, answers: Answers, texts: Mapping[ChunkId, str]
) -> Judging:
    """Have a model grade the pooled passages it has not graded, starting with those of the most configurations.

    Args:
        truth: The ground truth with pooled passages.
        judge: The model; its ``max_cost`` ends the grading.
        answers: Sends the requests, and caches the answers.
        texts: The texts of chunk ids.

    Raises:
        ServiceError: If the service fails; the answers so far are cached.
    """
    waiting = [
        (item.query, judged)
        for item in truth
        for judged in judgements(item.query)
        if judged.is_pooled and judge.model not in judged.grades
    ]
    waiting.sort(key=lambda pair: (-pair[1].configurations, pair[1].rank))
    requests = []
    for query, judged in waiting:
        text = judged.passage.text if isinstance(judged.passage, CharacterSpan) else texts[judged.passage]
        requests.append((query.text, judge.request(PassageGrade, question=query.text, passage=text)))
    replies = answers.of(judge, requests, PassageGrade, is_partial=True)
    pairs = zip(waiting, replies, strict=True)
    grades = {(query.id, judged.passage): reply for (query, judged), reply in pairs if reply is not None}
    return Judging(grades, len(waiting) - len(grades))


def with_grades(truth: Iterable[Truth], judge: str, grades: Grades) -> list[Truth]:
    """Record the grades of a judge, and add relevant passages to the ground truth.

    Passages that were added this way and are no longer relevant are removed, unless the query would lose its last
    evidence.
    """
    by_query: dict[QueryId, dict[Passage, PassageGrade]] = {}
    for (query_id, passage), grade in grades.items():
        by_query.setdefault(query_id, {})[passage] = grade
    return [_graded(item, judge, by_query[item.query.id]) if item.query.id in by_query else item for item in truth]


def _graded(item: Truth, judge: str, grades: Mapping[Passage, PassageGrade]) -> Truth:
    passages = [
        passage.graded(judge, grade.grade, grade.reason) if (grade := grades.get(passage.passage)) else passage
        for passage in judgements(item.query)
    ]
    origins: dict[Any, str] = {**item.origins}
    relevant = {passage.passage: passage for passage in passages if (passage.grade or 0) >= RELEVANT_GRADE}
    refused = {passage.passage for passage in passages if passage.grade is not None} - relevant.keys()
    groups: list[tuple[Any, ...]] = [
        group for group in item.groups if group[0] not in refused or not origins.get(group[0], "").startswith(ORIGIN)
    ]
    members = {member for group in groups for member in group}
    added: dict[Any, str] = {
        passage: f"{ORIGIN}{judged.judge}" for passage, judged in relevant.items() if passage not in members
    }
    groups = [*groups, *((passage,) for passage in added)] or list(item.groups)
    members = {member for group in groups for member in group}
    fields: dict[str, Any] = {
        "relevant_spans" if isinstance(item, TokenLevelGroundTruth) else "relevant_chunk_ids": [g[0] for g in groups],
        "alternatives": {group[0]: group[1:] for group in groups if len(group) > 1},
        "origins": {member: origin for member, origin in (origins | added).items() if member in members},
    }
    return replace(item, query=with_judgements(item.query, passages), **fields)
