"""What an import gives: the ground truth, the documents, and a word on everything that did not go straight."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rag_eval.errors import GroundTruthError
from rag_eval.types.document import Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth


@dataclass(frozen=True, slots=True)
class ImportNotes:
    """What happened on the way, by kind; each entry says where."""

    left_out: dict[str, list[str]] = field(default_factory=dict)
    """What the source has and the ground truth has not."""
    mended: dict[str, list[str]] = field(default_factory=dict)
    """What was taken over otherwise than it stands in the source."""

    def leave_out(self, kind: str, where: str) -> None:
        """Note that something was left out."""
        self.left_out.setdefault(kind, []).append(where)

    def mend(self, kind: str, where: str) -> None:
        """Note that something was changed."""
        self.mended.setdefault(kind, []).append(where)


@dataclass(frozen=True, slots=True)
class ImportedTruth:
    """Ground truth of one type and, where the source has them, its documents."""

    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth]
    notes: ImportNotes
    documents: Sequence[Document] = ()
    corpus_folder: Path | None = None
    """Where the documents lie as files already; None when the source holds their texts itself, or has none."""

    @property
    def token_level(self) -> list[TokenLevelGroundTruth]:
        """The truth if it is character spans, else nothing."""
        return [item for item in self.truth if isinstance(item, TokenLevelGroundTruth)]

    @property
    def chunk_level(self) -> list[ChunkLevelGroundTruth]:
        """The truth if it is chunk ids, else nothing."""
        return [item for item in self.truth if isinstance(item, ChunkLevelGroundTruth)]


def imported(
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    notes: ImportNotes,
    documents: Sequence[Document] = (),
    corpus_folder: Path | None = None,
) -> ImportedTruth:
    """The outcome of a reader; raises ``GroundTruthError`` when no query is left, with the reasons."""
    if not truth:
        reasons = "; ".join(f"{kind}: {len(where)}, first {where[0]}" for kind, where in notes.left_out.items())
        raise GroundTruthError(f"no query could be imported ({reasons or 'there is none'}): check the source")
    return ImportedTruth(truth, notes, documents, corpus_folder)
