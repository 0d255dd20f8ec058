"""What becomes of truth when its documents change."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_eval.types.ground_truth import TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId
from rag_eval.types.span import CharacterSpan

Status = Literal["kept", "moved", "altered", "lost"]
"""The same text at the same place; the same text at another place; other text, in part; nothing to point at."""

LostReason = Literal["deleted", "rewritten", "ambiguous", "not-found", "document-gone"]
"""Nothing stands in its place; what stands there has little in common with it; it stands in several places that cannot
be told apart; it stands nowhere, and the old document is not at hand; the corpus has no such document."""

Way = Literal["unchanged", "diff", "text", "gone"]
"""How the spans of a document were carried: it bears them all out; through the difference to the version they were
made on; without that version, by looking for their text; not at all, the corpus has no such document."""

STATUSES: tuple[Status, ...] = ("kept", "moved", "altered", "lost")


@dataclass(frozen=True, slots=True)
class SpanOutcome:
    """One span of the truth: as it was, what became of it, and as it is; ``reason`` says why it is lost."""

    query_id: QueryId
    old: CharacterSpan
    status: Status
    new: CharacterSpan | None
    reason: LostReason | None = None


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """One document that the truth points into: how its spans were carried, and how many had which outcome."""

    doc_id: DocumentId
    way: Way
    counts: dict[Status, int]


@dataclass(frozen=True, slots=True)
class ReanchorReport:
    """Truth that fits the corpus again, and the outcome of each document and span, in the order of the truth.

    A lost span is left out of the truth. ``unanswered`` are the queries that lost every span and are left out too.
    """

    truth: Sequence[TokenLevelGroundTruth]
    unanswered: Sequence[TokenLevelGroundTruth]
    documents: Sequence[DocumentOutcome]
    spans: Sequence[SpanOutcome]

    @property
    def counts(self) -> dict[Status, int]:
        """How many spans had which outcome."""
        return counted_statuses(self.spans)

    @property
    def is_unchanged(self) -> bool:
        """Whether the truth is what it was."""
        return self.counts["kept"] == len(self.spans)

    def lost_truth(self) -> list[TokenLevelGroundTruth]:
        """Every query that lost a span, with the spans it lost as they were."""
        lost: dict[QueryId, list[CharacterSpan]] = {}
        for outcome in self.spans:
            if outcome.status == "lost":
                lost.setdefault(outcome.query_id, []).append(outcome.old)
        queries = {item.query.id: item.query for item in (*self.truth, *self.unanswered)}
        return [TokenLevelGroundTruth(queries[query_id], spans) for query_id, spans in lost.items()]


def counted_statuses(spans: Sequence[SpanOutcome]) -> dict[Status, int]:
    """How many of the spans had which outcome, none left out."""
    found = Counter(span.status for span in spans)
    return {status: found[status] for status in STATUSES}
