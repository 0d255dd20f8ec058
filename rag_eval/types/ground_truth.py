"""What a run gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from rag_eval.errors import GroundTruthError
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId, QueryId, QueryText, generate_query_id


@dataclass(frozen=True, slots=True)
class Query:
    """A question. The metadata is copied, one level deep."""

    id: QueryId
    text: QueryText
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))

    @classmethod
    def from_text(cls, text: str, metadata: Mapping[str, object] | None = None) -> "Query":
        """A query whose id is made from its text: the same question has the same id."""
        return cls(generate_query_id(text), QueryText(text), metadata or {})


@dataclass(frozen=True, slots=True)
class TokenLevelGroundTruth:
    """A query and the spans that answer it, in any number of documents.

    A query that nothing in the corpus answers is declared ``unanswerable`` and has no spans; it is reported apart,
    outside the averages. Raises ``GroundTruthError`` when an unanswerable query has spans.
    """

    query: Query
    relevant_spans: Sequence[CharacterSpan]
    unanswerable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relevant_spans", tuple(self.relevant_spans))
        check_answerable(self.query, len(self.relevant_spans), "spans", self.unanswerable)


@dataclass(frozen=True, slots=True)
class ChunkLevelGroundTruth:
    """A query and the ids of the chunks that answer it, made with one chunker and true for no other.

    The chunker's name stands in the query's metadata. Unanswerable queries: as in ``TokenLevelGroundTruth``.
    """

    query: Query
    relevant_chunk_ids: Sequence[ChunkId]
    unanswerable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relevant_chunk_ids", tuple(self.relevant_chunk_ids))
        check_answerable(self.query, len(self.relevant_chunk_ids), "chunk ids", self.unanswerable)

    @property
    def chunker(self) -> str | None:
        """The name of the chunker behind the ids: ``query.metadata["chunker"]``, None if it is not said."""
        name = self.query.metadata.get("chunker")
        return name if isinstance(name, str) else None


def check_answerable(query: Query, answers: int, kind: str, unanswerable: bool) -> None:
    """Raise ``GroundTruthError`` when a query is declared unanswerable and yet has answers."""
    if unanswerable and answers:
        raise GroundTruthError(
            f"{query.id} is declared unanswerable and has {answers} relevant {kind}: remove one or the other"
        )


class QueryInputs(TypedDict):
    """What a dataset example asks."""

    query: str


class SpanRecord(TypedDict):
    """A character span as plain data."""

    doc_id: str
    start: int
    end: int
    text: str


class ChunkLevelOutputs(TypedDict):
    """What a chunk-level dataset example expects."""

    relevant_chunk_ids: list[str]


class TokenLevelOutputs(TypedDict):
    """What a token-level dataset example expects."""

    relevant_spans: list[SpanRecord]


@dataclass(frozen=True, slots=True)
class ChunkLevelDatasetExample:
    """A chunk-level example as plain data, the shape that dataset services store."""

    inputs: QueryInputs
    outputs: ChunkLevelOutputs
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLevelDatasetExample:
    """A token-level example as plain data, the shape that dataset services store."""

    inputs: QueryInputs
    outputs: TokenLevelOutputs
    metadata: Mapping[str, object] = field(default_factory=dict)


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
