"""What a run gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_eval.types.ids import ChunkId
from rag_eval.types.span import CharacterSpan


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
