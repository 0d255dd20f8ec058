"""What became of a generation: how much was asked, what was kept, what was dropped and why, and what it took."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from rag_eval.errors import preview
from rag_eval.ground_truth.locating import How
from rag_eval.llm.chat import AnswerFault
from rag_eval.llm.cost import LedgerEntry
from rag_eval.parts.settings import Record
from rag_eval.types.ids import EvaluationType

MOST_EXAMPLES = 5
EXAMPLE_CHARACTERS = 160
Kind = TypeVar("Kind", bound=str)

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


class Dropped(Record):
    """So many of a kind, and the first of them to look at, in printable characters."""

    count: int
    examples: tuple[str, ...]


class Upload(Record):
    """Where the ground truth went: ``sent`` to the dataset, or ``waiting`` in the outbox for a reason."""

    dataset_name: str
    state: Literal["sent", "waiting"]
    detail: str | None = None


class GenerationReport(Record):
    """Every question asked for is kept or dropped: asked = kept + Σ dropped.

    ``surplus`` counts questions of the model that nobody asked for; they are passed over. ``bad_answers`` counts
    answers that could not be used, by fault, of which another attempt may have brought a good one. ``unasked`` are
    questions for which no request was sent, because of what ``stopped`` says. ``excerpts`` counts how they were found.
    """

    evaluation_type: EvaluationType
    model: str
    documents: int
    asked: int
    kept: int
    unasked: int
    surplus: int
    dropped: dict[Reason, Dropped]
    bad_answers: dict[AnswerFault, Dropped]
    excerpts: dict[How, int]
    ledger: tuple[LedgerEntry, ...]
    stopped: str | None = None
    upload: Upload | None = None

    @property
    def total(self) -> LedgerEntry:
        """The whole ledger in one entry."""
        return self.ledger[-1]


def quoted(*parts: str) -> str:
    """Return an example to look at: each part in printable characters, and cut."""
    return ": ".join(preview(part, EXAMPLE_CHARACTERS) for part in parts)


def tallied(examples: Mapping[Kind, Sequence[str]], kinds: Iterable[Kind]) -> dict[Kind, Dropped]:
    """Return how many examples there are of each kind, in the order of ``kinds``, and the first of them."""
    return {
        kind: Dropped(count=len(examples[kind]), examples=tuple(examples[kind][:MOST_EXAMPLES]))
        for kind in kinds
        if kind in examples
    }
