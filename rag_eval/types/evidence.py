"""Queries, the ground truth for them, and what a run gives back: frozen values and plain records."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, TypedDict, TypeVar

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.formatting import html_table
from rag_eval.types.chunks import CharacterSpan, span_of
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId, QueryText, generate_query_id

Member = TypeVar("Member", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Query:
    """A question. The metadata is copied, one level deep.

    Raises ``GroundTruthError`` when the id or the text is not a str, or the text is empty.
    """

    id: QueryId
    text: QueryText
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise GroundTruthError(f"a query has the id {preview(repr(self.id))}: give a str, or use Query.from_text")
        if not isinstance(self.text, str) or not self.text.strip():
            raise GroundTruthError(f"the query {self.id!r} has the text {preview(repr(self.text))}: write the question")
        object.__setattr__(self, "metadata", dict(self.metadata))

    @classmethod
    def from_text(cls, text: str, metadata: Mapping[str, object] | None = None) -> "Query":
        """Return a query whose id is made from its text: the same question has the same id."""
        return cls(generate_query_id(text), QueryText(text), metadata or {})


@dataclass(frozen=True, slots=True)
class TokenLevelGroundTruth:
    """A query and the spans that answer it, in any number of documents.

    A span may have ``alternatives``: other spans that say the same, such as copies of it. Together they are one group
    of evidence, which counts once and is covered by its best covered member. ``origins`` tells for some spans where
    they come from, in a word of the caller's choice.

    A query that nothing in the corpus answers is declared ``unanswerable`` and has no spans; it is reported apart,
    outside the averages. Raises ``GroundTruthError`` when an unanswerable query has spans, or when a span is in two
    groups.
    """

    query: Query
    relevant_spans: Sequence[CharacterSpan]
    unanswerable: bool = False
    alternatives: Mapping[CharacterSpan, Sequence[CharacterSpan]] = field(default_factory=dict, hash=False)
    origins: Mapping[CharacterSpan, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _settle(self, "relevant_spans", "spans", span_name)

    @property
    def groups(self) -> list[tuple[CharacterSpan, ...]]:
        """The groups of evidence in the order of the relevant spans: each span with its alternatives."""
        return [(span, *self.alternatives.get(span, ())) for span in self.relevant_spans]


@dataclass(frozen=True, slots=True)
class ChunkLevelGroundTruth:
    """A query and the ids of the chunks that answer it, made with one chunker and true for no other.

    The chunker's name is in the query's metadata. Alternatives, origins and unanswerable queries are as in
    ``TokenLevelGroundTruth``, with chunk ids in place of spans.
    """

    query: Query
    relevant_chunk_ids: Sequence[ChunkId]
    unanswerable: bool = False
    alternatives: Mapping[ChunkId, Sequence[ChunkId]] = field(default_factory=dict, hash=False)
    origins: Mapping[ChunkId, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _settle(self, "relevant_chunk_ids", "chunk ids", repr)

    @property
    def groups(self) -> list[tuple[ChunkId, ...]]:
        """The groups of evidence in the order of the relevant chunk ids: each id with its alternatives."""
        return [(chunk_id, *self.alternatives.get(chunk_id, ())) for chunk_id in self.relevant_chunk_ids]

    @property
    def chunker(self) -> str | None:
        """The name of the chunker behind the ids: ``query.metadata["chunker"]``, None if it is not said."""
        name = self.query.metadata.get("chunker")
        return name if isinstance(name, str) else None


def _settle(truth: Any, field_name: str, kind: str, name: Callable[[Any], str]) -> None:
    """Copy what ground truth was given, and raise ``GroundTruthError`` when it contradicts itself."""
    relevant = tuple(getattr(truth, field_name))
    alternatives = {seed: tuple(members) for seed, members in truth.alternatives.items() if members}
    for field_to_set, value in ((field_name, relevant), ("alternatives", alternatives), ("origins", {**truth.origins})):
        object.__setattr__(truth, field_to_set, value)
    fault = unanswerable_fault(len(relevant), kind) if truth.unanswerable else None
    fault = fault or group_fault(relevant, alternatives, truth.origins, name)
    if fault:
        raise GroundTruthError(f"{truth.query.id}: {fault}")


def unanswerable_fault(answers: int, kind: str) -> str | None:
    """Return what to say of a query that is declared unanswerable and yet has answers; None when it has none."""
    if not answers:
        return None
    return f"it is declared unanswerable and has {answers} relevant {kind}: remove one or the other"


def group_fault(
    relevant: Sequence[Member],
    alternatives: Mapping[Member, Sequence[Member]],
    origins: Mapping[Member, str],
    name: Callable[[Member], str],
) -> str | None:
    """Return what is wrong with groups, None if every member is in one only; ``name`` says how a member is called."""
    if not alternatives and not origins:
        return None
    known = set(relevant)
    for seed in alternatives:
        if seed not in known:
            return f"{name(seed)} has alternatives and is not relevant itself: add it, or remove them"
    seen = set(known)
    for member in (member for group in alternatives.values() for member in group):
        if member in seen:
            return f"{name(member)} is in two groups, or twice in one: keep it once"
        seen.add(member)
    stray = next((member for member in origins if member not in seen), None)
    return None if stray is None else f"{name(stray)} has an origin and is in no group: add it, or remove the origin"


TRUTH_KINDS: Mapping[EvaluationType, Any] = {
    "token-level": TokenLevelGroundTruth,
    "chunk-level": ChunkLevelGroundTruth,
}

JUDGED = "judged"
"""The key of a query's metadata under which the passages are that were retrieved for it and judged, or wait for it."""

PERSON = "person"
"""The judge whose grade counts before that of any model."""

HIGHEST_GRADE, RELEVANT_GRADE = 3, 2
"""A grade is 0 (irrelevant), 1 (about the subject), 2 (a part of the answer) or 3 (the answer); from 2 on relevant."""


@dataclass(frozen=True, slots=True)
class JudgedPassage:
    """A passage that was retrieved for a query, a span or a chunk id, and its grades by the name of the judge.

    Without a grade it waits to be judged. Of the configurations that were pooled, so many retrieved it, at ``rank``
    the one that ranked it best. A ``sampled`` one was drawn at random to be judged by people, and waits for them.
    """

    passage: CharacterSpan | ChunkId
    grades: Mapping[str, int] = field(default_factory=dict, hash=False)
    configurations: int = 0
    rank: int = 0
    sampled: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Why, by judge, where they said so."""

    @property
    def judge(self) -> str | None:
        """The judge whose grade counts: a person, or else the model that judged last; None while it waits."""
        if PERSON in self.grades:
            return PERSON
        return None if self.sampled else next(reversed([*self.grades]), None)

    @property
    def grade(self) -> int | None:
        """The grade that counts; None while it waits."""
        return None if self.judge is None else self.grades[self.judge]

    @property
    def is_pooled(self) -> bool:
        """Whether a configuration retrieved it, rather than a person removing or adding it in a review."""
        return self.configurations > 0

    def graded(self, judge: str, grade: int, reason: str = "") -> "JudgedPassage":
        """Return the passage with the grade of a judge."""
        reasons = {**self.reasons, judge: reason} if reason else self.reasons
        return replace(self, grades={**self.grades, judge: grade}, reasons=reasons)

    @property
    def place(self) -> dict[str, Any]:
        """What the passage is known by: its document, start and end, or its chunk id."""
        if isinstance(self.passage, CharacterSpan):
            return {name: getattr(self.passage, name) for name in ("doc_id", "start", "end")}
        return {"chunk_id": self.passage}

    def as_data(self) -> dict[str, object]:
        """Return it as metadata has it."""
        text = {"text": self.passage.text} if isinstance(self.passage, CharacterSpan) else {}
        counts = {name: value for name in ("configurations", "rank", "sampled") if (value := getattr(self, name))}
        reasons = {"reasons": dict(self.reasons)} if self.reasons else {}
        return self.place | text | counts | {"grades": dict(self.grades)} | reasons


def judgements(query: Query) -> list[JudgedPassage]:
    """Return what was retrieved for a query and judged, or is to be; raises ``GroundTruthError`` on what is neither."""
    stated = query.metadata.get(JUDGED, [])
    passages = []
    for item in stated if isinstance(stated, list) else [stated]:
        record = item if isinstance(item, dict) else {}
        chunk_id, grades, reasons = record.get("chunk_id"), record.get("grades", {}), record.get("reasons", {})
        counts = configurations, rank, sampled = [record.get(key, 0) for key in ("configurations", "rank", "sampled")]
        try:
            passage = ChunkId(chunk_id) if isinstance(chunk_id, str) else span_of(record)
            is_graded = all(type(grade) is int and 0 <= grade <= HIGHEST_GRADE for grade in dict(grades).values())
            is_graded = is_graded and all(isinstance(reason, str) for reason in dict(reasons).values())
        except (RagEvalError, TypeError, ValueError):
            is_graded = False
        if not is_graded or not all(isinstance(count, int) for count in counts):
            raise GroundTruthError(
                f"{query.id}: its metadata has {preview(repr(item))} under {JUDGED!r}: give doc_id, start, end and "
                f"text, or chunk_id, and grades by judge from 0 to {HIGHEST_GRADE}"
            )
        passages.append(JudgedPassage(passage, dict(grades), configurations, rank, bool(sampled), dict(reasons)))
    return passages


def with_judgements(query: Query, judged: Iterable[JudgedPassage]) -> Query:
    """Return the query with these judgements in the place of those it has."""
    data = [passage.as_data() for passage in judged]
    others = {key: value for key, value in query.metadata.items() if key != JUDGED}
    return replace(query, metadata=others | ({JUDGED: data} if data else {}))


def judged_spans(query: Query) -> list[CharacterSpan]:
    """Return the places of what was judged for a query, or is to be."""
    return [judged.passage for judged in judgements(query) if isinstance(judged.passage, CharacterSpan)]


def judged_at(query: Query, places: Mapping[CharacterSpan, CharacterSpan | None]) -> Query:
    """Return the query with its judged passages at their places; without one, a passage is unjudged again."""
    if not judged_spans(query):
        return query
    moved = [
        (judged, places.get(judged.passage) if isinstance(judged.passage, CharacterSpan) else judged.passage)
        for judged in judgements(query)
    ]
    return with_judgements(
        query, [replace(judged, passage=passage) for judged, passage in moved if passage is not None]
    )


def span_name(span: CharacterSpan) -> str:
    """Return the name of a span for a message: ``[12, 40) of 'guide.md'``."""
    return f"[{span.start}, {span.end}) of {span.doc_id!r}"


class SpanRecord(TypedDict):
    """A character span as plain data; in ground truth it may name its origin and its alternatives."""

    doc_id: str
    start: int
    end: int
    text: str
    origin: NotRequired[str]
    alternatives: NotRequired[list["SpanRecord"]]


@dataclass(frozen=True)
class _DatasetExample:
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)


class ChunkLevelDatasetExample(_DatasetExample):
    """An example as plain data, the shape that services store: ``query`` in, ``relevant_chunk_ids`` out."""


class TokenLevelDatasetExample(_DatasetExample):
    """The same with ``relevant_spans`` out, records of character spans."""


@dataclass(frozen=True, slots=True)
class ChunkLevelRunOutput:
    """What was retrieved for one query, best first, as chunk ids."""

    retrieved_chunk_ids: Sequence[ChunkId]

    def __post_init__(self) -> None:
        object.__setattr__(self, "retrieved_chunk_ids", tuple(self.retrieved_chunk_ids))


@dataclass(frozen=True, slots=True)
class TokenLevelRunOutput:
    """What was retrieved for one query, best first, as character spans."""

    retrieved_spans: Sequence[CharacterSpan]

    def __post_init__(self) -> None:
        object.__setattr__(self, "retrieved_spans", tuple(self.retrieved_spans))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The averages of a run by metric name, and the rows they come from."""

    metrics: Mapping[str, float]
    experiment_url: str | None = None
    raw_results: object = None

    def _repr_html_(self) -> str:
        return html_table(("metric", "mean"), list(self.metrics.items()))
