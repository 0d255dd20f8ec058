"""Define queries, ground truth, relevance judgements, and the outputs of a run."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, TypedDict, TypeVar

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.formatting import html_table
from rag_eval.types.chunks import CharacterSpan, span_of
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, QueryText, generate_query_id

Member = TypeVar("Member", bound=Hashable)
Groups = Mapping[Member, Sequence[Member]]


@dataclass(frozen=True, slots=True)
class Query:
    """A question.

    ::

        Query.from_text("When does the ferry leave?").id  # 'query_' and 8 hex digits

    Args:
        id: The id.
        text: The question.
        metadata: Anything else, copied one level deep.

    Raises:
        GroundTruthError: The id or the text is not a str, or the text is blank.
    """

    id: QueryId
    text: QueryText
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise GroundTruthError(f"a query has the id {preview(repr(self.id))}: use a str, or Query.from_text")
        if not isinstance(self.text, str) or not self.text.strip():
            raise GroundTruthError(f"the query {self.id!r} has the text {preview(repr(self.text))}: write the question")
        object.__setattr__(self, "metadata", dict(self.metadata))

    @classmethod
    def from_text(cls, text: str, metadata: Mapping[str, object] | None = None) -> "Query":
        """Return a query with an id derived from its text: equal questions have equal ids."""
        return cls(generate_query_id(text), QueryText(text), metadata or {})


@dataclass(frozen=True, slots=True)
class TokenLevelGroundTruth:
    """A query and the spans that answer it, in any number of documents.

    ::

        TokenLevelGroundTruth(Query.from_text("When does the ferry leave?"), [document.span(4, 25)])

    Args:
        query: The question.
        relevant_spans: The spans that answer it.
        unanswerable: Declares that nothing in the corpus answers the query. It is then reported separately and not
            scored.
        alternatives: For a relevant span, other spans with the same evidence, such as copies. A span and its
            alternatives form a group, which counts once and is covered by its best covered member.
        origins: For some spans, where they come from, in any words.

    Raises:
        GroundTruthError: An unanswerable query has spans, or a span is in two groups.
    """

    query: Query
    relevant_spans: Sequence[CharacterSpan]
    unanswerable: bool = False
    alternatives: Groups[CharacterSpan] = field(default_factory=dict, hash=False)
    origins: Mapping[CharacterSpan, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "relevant_spans", tuple(self.relevant_spans))
        alternatives = {member: tuple(others) for member, others in self.alternatives.items() if others}
        object.__setattr__(self, "alternatives", alternatives)
        object.__setattr__(self, "origins", dict(self.origins))
        _check(self, self.relevant_spans, "spans")

    @property
    def groups(self) -> list[tuple[CharacterSpan, ...]]:
        """The groups of evidence: each relevant span with its alternatives."""
        return [(span, *self.alternatives.get(span, ())) for span in self.relevant_spans]


@dataclass(frozen=True, slots=True)
class ChunkLevelGroundTruth:
    """A query and the ids of the chunks that answer it. They are valid for one chunker only.

    The arguments are those of ``TokenLevelGroundTruth``, with chunk ids instead of spans.
    """

    query: Query
    relevant_chunk_ids: Sequence[ChunkId]
    unanswerable: bool = False
    alternatives: Groups[ChunkId] = field(default_factory=dict, hash=False)
    origins: Mapping[ChunkId, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.relevant_chunk_ids, str):
            ids = preview(self.relevant_chunk_ids)
            raise GroundTruthError(f"{self.query.id}: the relevant chunk ids are the text {ids}: give a list of ids")
        object.__setattr__(self, "relevant_chunk_ids", tuple(self.relevant_chunk_ids))
        alternatives = {member: tuple(others) for member, others in self.alternatives.items() if others}
        object.__setattr__(self, "alternatives", alternatives)
        object.__setattr__(self, "origins", dict(self.origins))
        _check(self, self.relevant_chunk_ids, "chunk ids")

    @property
    def groups(self) -> list[tuple[ChunkId, ...]]:
        """The groups of evidence: each relevant chunk id with its alternatives."""
        return [(chunk_id, *self.alternatives.get(chunk_id, ())) for chunk_id in self.relevant_chunk_ids]

    @property
    def chunker(self) -> str | None:
        """The name of the chunker that made the chunks, from ``query.metadata["chunker"]``."""
        name = self.query.metadata.get("chunker")
        return name if isinstance(name, str) else None


def _check(truth: TokenLevelGroundTruth | ChunkLevelGroundTruth, relevant: Sequence[Hashable], kind: str) -> None:
    """Raise ``GroundTruthError`` if an unanswerable query has answers, or a member is not in exactly one group."""
    fault = ""
    if truth.unanswerable and relevant:
        fault = f"it is declared unanswerable and has {len(relevant)} relevant {kind}: remove one or the other"
    elif truth.alternatives or truth.origins:
        fault = _group_fault(relevant, truth.alternatives, truth.origins)
    if fault:
        raise GroundTruthError(f"{truth.query.id}: {fault}")


def _group_fault(relevant: Sequence[Hashable], alternatives: Groups[Any], origins: Mapping[Any, str]) -> str:
    counts = Counter({*relevant}) + Counter(member for members in alternatives.values() for member in members)
    for member in alternatives:
        if member not in relevant:
            return f"{_name(member)} has alternatives and is not relevant itself: add it, or remove them"
    for member, count in counts.items():
        if count > 1:
            return f"{_name(member)} is in two groups, or twice in one: keep it once"
    for member in origins:
        if member not in counts:
            return f"{_name(member)} has an origin and is in no group: add it, or remove the origin"
    return ""


def _name(member: object) -> str:
    return f"[{member.start}, {member.end}) of {member.doc_id!r}" if isinstance(member, CharacterSpan) else repr(member)


TRUTH_KINDS: Mapping[EvaluationType, Any] = {
    "token-level": TokenLevelGroundTruth,
    "chunk-level": ChunkLevelGroundTruth,
}

JUDGED = "judged"
"""Key in the metadata of a query for the retrieved passages that are judged or wait for a judgement."""

PERSON = "person"
"""The judge whose grade overrides the grade of any model."""

HIGHEST_GRADE, RELEVANT_GRADE = 3, 2
"""Grades are 0 (irrelevant), 1 (related), 2 (part of the answer) and 3 (the answer); 2 and 3 count as relevant."""


@dataclass(frozen=True, slots=True)
class JudgedPassage:
    """A passage that was retrieved for a query, and its grades. Without a grade, it waits to be judged.

    Args:
        passage: The span or the chunk id.
        grades: The grades by judge.
        configurations: How many of the pooled configurations retrieved it.
        rank: Its best rank in these configurations.
        sampled: Whether it was drawn at random to be judged by people. Grades of models do not count for it.
        reasons: The judges' reasons, if they gave any.
    """

    passage: CharacterSpan | ChunkId
    grades: Mapping[str, int] = field(default_factory=dict, hash=False)
    configurations: int = 0
    rank: int = 0
    sampled: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def judge(self) -> str | None:
        """The judge whose grade counts: a person, or else the last model. None if the passage waits."""
        if PERSON in self.grades:
            return PERSON
        return None if self.sampled else next(reversed([*self.grades]), None)

    @property
    def grade(self) -> int | None:
        """The grade that counts, or None if the passage waits."""
        return None if self.judge is None else self.grades[self.judge]

    @property
    def is_pooled(self) -> bool:
        """Whether a configuration retrieved it. Otherwise, a person added or removed it in a review."""
        return self.configurations > 0

    def graded(self, judge: str, grade: int, reason: str = "") -> "JudgedPassage":
        """Return the passage with one more grade."""
        reasons = {**self.reasons, judge: reason} if reason else self.reasons
        return replace(self, grades={**self.grades, judge: grade}, reasons=reasons)

    @property
    def place(self) -> dict[str, Any]:
        """The document, start and end of the passage, or its chunk id."""
        if isinstance(self.passage, CharacterSpan):
            return {name: getattr(self.passage, name) for name in ("doc_id", "start", "end")}
        return {"chunk_id": self.passage}

    def as_data(self) -> dict[str, object]:
        """Return the passage as metadata of its query."""
        text = {"text": self.passage.text} if isinstance(self.passage, CharacterSpan) else {}
        counts = {name: value for name in ("configurations", "rank", "sampled") if (value := getattr(self, name))}
        reasons = {"reasons": dict(self.reasons)} if self.reasons else {}
        return self.place | text | counts | {"grades": dict(self.grades)} | reasons


def judgements(query: Query) -> list[JudgedPassage]:
    """Return the judged passages of a query, and those that wait for a judgement.

    Raises:
        GroundTruthError: The metadata of the query has something else under ``judged``.
    """
    stated = query.metadata.get(JUDGED, [])
    return [_judged_passage(query.id, item) for item in (stated if isinstance(stated, list) else [stated])]


def _judged_passage(query_id: QueryId, item: object) -> JudgedPassage:
    try:
        passage = _passage(item if isinstance(item, dict) else {})
    except (RagEvalError, TypeError, ValueError):
        passage = None
    if passage is None:
        raise GroundTruthError(
            f"{query_id}: its metadata has {preview(repr(item))} under {JUDGED!r}: give doc_id, start, end and text, "
            f"or chunk_id, and grades by judge from 0 to {HIGHEST_GRADE}"
        )
    return passage


def _passage(record: Mapping[str, Any]) -> JudgedPassage | None:
    chunk_id = record.get("chunk_id")
    place = ChunkId(chunk_id) if isinstance(chunk_id, str) else span_of(record)
    grades, reasons = dict(record.get("grades", {})), dict(record.get("reasons", {}))
    counts = (record.get("configurations", 0), record.get("rank", 0), record.get("sampled", False))
    is_valid = all(type(grade) is int and 0 <= grade <= HIGHEST_GRADE for grade in grades.values())
    is_valid = is_valid and all(isinstance(reason, str) for reason in reasons.values())
    is_valid = is_valid and all(isinstance(count, int) for count in counts)
    configurations, rank, sampled = counts
    return JudgedPassage(place, grades, configurations, rank, sampled, reasons) if is_valid else None


def with_judgements(query: Query, judged: Iterable[JudgedPassage]) -> Query:
    """Return the query with these judged passages in place of its own."""
    data = [passage.as_data() for passage in judged]
    others = {key: value for key, value in query.metadata.items() if key != JUDGED}
    return replace(query, metadata=others | ({JUDGED: data} if data else {}))


def judged_spans(query: Query) -> list[CharacterSpan]:
    """Return the spans of the judged passages of a query."""
    return [judged.passage for judged in judgements(query) if isinstance(judged.passage, CharacterSpan)]


def judged_at(query: Query, places: Mapping[CharacterSpan, CharacterSpan | None]) -> Query:
    """Return the query with its judged spans moved. Those without a new place are dropped."""
    if not judged_spans(query):
        return query
    moved = [
        (judged, places.get(judged.passage) if isinstance(judged.passage, CharacterSpan) else judged.passage)
        for judged in judgements(query)
    ]
    return with_judgements(
        query, [replace(judged, passage=passage) for judged, passage in moved if passage is not None]
    )


class SpanRecord(TypedDict):
    """A character span as plain data. In ground truth, it may have an origin and alternatives."""

    doc_id: str
    start: int
    end: int
    text: str
    origin: NotRequired[str]
    alternatives: NotRequired[list["SpanRecord"]]


class _DatasetExample(TypedDict):
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    metadata: NotRequired[Mapping[str, object]]


class ChunkLevelDatasetExample(_DatasetExample):
    """An example as services store it: the input ``query`` and the output ``relevant_chunk_ids``."""


class TokenLevelDatasetExample(_DatasetExample):
    """An example as services store it: the input ``query`` and the output ``relevant_spans``."""


@dataclass(frozen=True, slots=True)
class ChunkLevelRunOutput:
    """The chunk ids that were retrieved for a query, best first."""

    retrieved_chunk_ids: Sequence[ChunkId]

    def __post_init__(self) -> None:
        object.__setattr__(self, "retrieved_chunk_ids", tuple(self.retrieved_chunk_ids))


@dataclass(frozen=True, slots=True)
class TokenLevelRunOutput:
    """The spans that were retrieved for a query, best first."""

    retrieved_spans: Sequence[CharacterSpan]

    def __post_init__(self) -> None:
        object.__setattr__(self, "retrieved_spans", tuple(self.retrieved_spans))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Averages of a run by metric, and the rows from which they are computed."""

    metrics: Mapping[str, float]
    experiment_url: str | None = None
    raw_results: object = None

    def _repr_html_(self) -> str:
        return html_table(("metric", "mean"), list(self.metrics.items()))
