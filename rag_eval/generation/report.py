"""What became of a generation: how much was asked, what was kept, what was dropped and why, and what it took."""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rag_eval.errors import preview
from rag_eval.ground_truth.locating import How
from rag_eval.llm.cost import LedgerEntry
from rag_eval.types.ids import EvaluationType

MOST_EXAMPLES = 5
EXAMPLE_CHARACTERS = 160

Reason = Literal[
    "no usable answer",
    "left out by the model",
    "unusable question",
    "no excerpt",
    "excerpt not found",
    "excerpt ambiguous",
    "unknown document",
    "unknown chunk id",
    "one document only",
    "answered by the corpus",
    "not verified",
    "excerpt too short",
    "excerpt too long",
    "copies the excerpt",
    "excerpt not relevant",
    "near duplicate",
]
"""Why a question that was asked for is not in the ground truth."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Dropped(_Frozen):
    """So many of a kind, and the first of them to look at, in printable characters."""

    count: int
    examples: tuple[str, ...]


class Upload(_Frozen):
    """Where the ground truth went: ``sent`` to the dataset, or ``waiting`` in the outbox for a reason."""

    dataset_name: str
    state: Literal["sent", "waiting"]
    detail: str | None = None


class GenerationReport(_Frozen):
    """Every question asked for is kept or dropped: asked = kept + Σ dropped.

    ``surplus`` counts questions of the model that nobody asked for; they are passed over. ``bad_answers`` counts
    answers that could not be used, by fault, of which another attempt may have brought a good one. ``unasked`` are
    questions for which no request was sent, because of what ``stopped`` says. ``excerpts`` counts how they were found.
    """

    evaluation_type: EvaluationType
    model: str
    documents: int
    blank_documents: int
    asked: int
    kept: int
    unasked: int
    surplus: int
    dropped: dict[Reason, Dropped]
    bad_answers: dict[str, Dropped]
    excerpts: dict[How, int]
    ledger: tuple[LedgerEntry, ...]
    stopped: str | None = None
    upload: Upload | None = None

    @property
    def total(self) -> LedgerEntry:
        """The whole ledger in one entry."""
        return self.ledger[-1]


class Counter:
    """Counts by kind, with the first examples."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, *example: str) -> None:
        """Count one; of its parts each is quoted, escaped and cut."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        kept = self._examples.setdefault(kind, [])
        if len(kept) < MOST_EXAMPLES:
            kept.append(": ".join(preview(part, EXAMPLE_CHARACTERS) for part in example))

    def counted(self, kinds: Iterable[str]) -> dict[str, Dropped]:
        """Return what was counted, in the order of ``kinds``."""
        return {
            kind: Dropped(count=self._counts[kind], examples=tuple(self._examples[kind]))
            for kind in kinds
            if kind in self._counts
        }
