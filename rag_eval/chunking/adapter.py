"""Any chunker as a position-aware one: its pieces are found in the source, and what is not found is said."""

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.chunking.base import PositionAwareChunker
from rag_eval.chunking.coverage import count_characters, uncovered_characters
from rag_eval.chunking.foreign import ForeignChunker
from rag_eval.chunking.placement import Placement, place
from rag_eval.errors import preview
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

_PREVIEW = 50


class SkippedChunkWarning(UserWarning):
    """A chunk has no sure place in its document and was left out."""


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """What became of the chunks of one document. Characters are those that are not whitespace."""

    doc_id: DocumentId
    given_chunks: int
    skipped_chunks: int
    aligned_chunks: int
    """Placed although the chunker had changed whitespace, Unicode form or quotes."""
    wrong_claims: int
    """Places claimed by the chunker that the document does not bear out."""
    characters: int
    uncovered_characters: int

    @property
    def uncovered_share(self) -> float:
        """The share of the document's characters that no located chunk holds; 0 for a document without any."""
        return self.uncovered_characters / self.characters if self.characters else 0.0


class ChunkerPositionAdapter:
    """Finds the place of each piece that another chunker gives.

    Accepted: an object with ``name`` and ``chunk(text)``, a LangChain text splitter, a chonkie chunker, or a function
    from a text to a list of strings; ``name`` replaces the name found. The rule, piece by piece:

    1. A place that the chunker claims (``start_index``) is used if the document has exactly this text there. Other
       claims are counted in ``wrong_claims`` and the piece is searched like any other.
    2. Candidates start after the previous chunk's start. One that continues at the previous end, with only whitespace
       between, wins; else the nearest to that end (of two as near, the later). A candidate further past that end than
       1,000 characters, four times the piece and the pieces left out since is no neighbour: it counts under 3.
    3. If there is none, the document is searched from the beginning, and only a unique match is accepted.
    4. A piece whose whitespace, Unicode normal form or quotes were changed is compared in a form that these do not
       change (NFKD, straight quotes, no whitespace). It is placed where it continues at the previous end, where it is
       the only match that starts inside the previous chunk, or where it is the only match in the document. Such a match
       next to the previous chunk is preferred to an exact one further away. The chunk is the document's own text there.
    5. Any other piece is left out with a ``SkippedChunkWarning`` and counted in ``skipped_chunks``.

    Where 2 preferred a place after the previous end to one inside the previous chunk, and some piece of the document
    found no place, all are placed a second time preferring the one inside, as overlapping chunks need it; of the two
    readings the one that leaves fewer characters uncovered is kept, then the one that leaves fewer pieces out.

    Chunks keep the order in which they were given, and ``document.content[start:end] == chunk.content`` holds for each.

    Limits. In text that repeats, a chunk that overlaps the previous one can be taken for a copy of itself that
    continues there, and a verified claim can still point at the wrong copy. Words that the chunker added, dropped,
    lowercased or reordered inside a piece make it unfindable. The searches of one reading may together go through the
    document 200 times, or through 10⁹ characters if that is more; after that a piece is found only next to the previous
    one, so that the cost stays in proportion to the text.

    ``skipped_chunks``, ``wrong_claims`` and ``uncovered_share`` cover the documents seen so far, each as last chunked;
    ``reports`` has them one by one. One adapter may be used from several threads.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """

    def __init__(self, chunker: object, name: str | None = None) -> None:
        self.chunker = (
            chunker if name is None and isinstance(chunker, ForeignChunker) else ForeignChunker(chunker, name)
        )
        self._reports: dict[DocumentId, PlacementReport] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """``PositionAdapter(<name of the chunker>)``."""
        return f"PositionAdapter({self.chunker.name})"

    @property
    def reports(self) -> dict[DocumentId, PlacementReport]:
        """What became of each document's chunks, by document id."""
        with self._lock:
            return dict(self._reports)

    @property
    def skipped_chunks(self) -> int:
        """How many pieces were left out because they have no sure place."""
        return sum(report.skipped_chunks for report in self.reports.values())

    @property
    def wrong_claims(self) -> int:
        """How many places claimed by the chunker were not what the document has there."""
        return sum(report.wrong_claims for report in self.reports.values())

    @property
    def uncovered_share(self) -> float:
        """The share of all documents' characters, whitespace apart, that no located chunk holds; 0 without any."""
        reports = self.reports.values()
        characters = sum(report.characters for report in reports)
        return sum(report.uncovered_characters for report in reports) / characters if characters else 0.0

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """The located chunks in the order given, with their places; warns of each one that has none."""
        content = doc.content
        placements = place(content, self.chunker.pieces(content))
        report = _report(doc, placements)
        with self._lock:
            self._reports[doc.id] = report
        chunks = []
        for placement in placements:
            if placement.cut is None:
                self._warn(doc.id, placement.piece.text)
                continue
            start, end = placement.cut
            piece = content[start:end]
            chunks.append(PositionAwareChunk(generate_pa_chunk_id(piece), piece, doc.id, start, end))
        return chunks

    def _warn(self, doc_id: DocumentId, text: str) -> None:
        warnings.warn(
            f"{self.name} gave a chunk with no sure place in {doc_id!r}, which is left out: {preview(text, _PREVIEW)}",
            SkippedChunkWarning,
            stacklevel=3,
        )


def as_position_aware(chunker: object, name: str | None = None) -> PositionAwareChunker:
    """The object itself where it knows positions (``chunk_with_positions``), else an adapter around it.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """
    if name is None and not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return chunker
    return ChunkerPositionAdapter(chunker, name)


def _report(doc: Document, placements: Sequence[Placement]) -> PlacementReport:
    cuts = [placement.cut for placement in placements if placement.cut is not None]
    return PlacementReport(
        doc_id=doc.id,
        given_chunks=len(placements),
        skipped_chunks=len(placements) - len(cuts),
        aligned_chunks=len(cuts) - sum(placement.exact for placement in placements),
        wrong_claims=sum(placement.claim_is_wrong for placement in placements),
        characters=count_characters(doc.content),
        uncovered_characters=uncovered_characters(doc.content, cuts),
    )
