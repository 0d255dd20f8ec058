"""Any chunker made position-aware: its pieces are found in the source, and what is not found is reported."""

import re
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.chunker import Cut, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import Piece, foreign_chunker
from rag_eval.errors import preview
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId


def uncovered_stretches(text: str, cuts: Iterable[Cut]) -> list[Cut]:
    """Return the stretches of the text outside all cuts, in order."""
    stretches = []
    covered = 0
    for start, end in sorted(cuts):
        if start > covered:
            stretches.append((covered, start))
        covered = max(covered, end)
    if covered < len(text):
        stretches.append((covered, len(text)))
    return stretches


def uncovered_characters(text: str, cuts: Iterable[Cut]) -> int:
    """Count the characters outside all cuts that are not whitespace."""
    return sum(count_characters(text[start:end]) for start, end in uncovered_stretches(text, cuts))


def count_characters(text: str) -> int:
    """Count the characters that are not whitespace."""
    return sum(map(len, text.split()))


_NOT_SPACE = re.compile(r"\S")

_GLIMPSE = 128


@dataclass(frozen=True, slots=True)
class Placement:
    """A piece and its place.

    ``cut`` is None where no place was found; ``exact`` says whether the source has the piece's very text there, and
    ``claim_is_wrong`` whether the chunker claimed a place that the source does not bear out.
    """

    piece: Piece
    cut: Cut | None
    exact: bool
    claim_is_wrong: bool


def search_allowance(length: int) -> int:
    """Return how many characters the searches in a source of this length may read together.

    Enough for hundreds of misses in any document, and never quadratic: 200 times the source, or 10⁹ if that is more.
    """
    return max(1_000_000_000, 200 * length)


def place(source: str, pieces: Iterable[Piece], allowance: int | None = None) -> list[Placement]:
    """Place every piece in the source, in the order given; ``ChunkerPositionAdapter`` states the rule.

    ``allowance`` is how many characters the searches may read, by default ``search_allowance`` of the source. When it
    is used up, pieces are found only next to the previous one.
    """
    pieces = list(pieces)
    allowance = search_allowance(len(source)) if allowance is None else allowance
    placer = _Placer(source, allowance, prefer_overlap=False)
    nearest = [placer.place(piece) for piece in pieces]
    if not placer.passed_over_overlap or all(placement.cut for placement in nearest):
        return nearest
    # Taking an overlapping piece for a later copy of itself leads away from where the next ones stand.
    placer = _Placer(source, allowance, prefer_overlap=True)
    overlapping = [placer.place(piece) for piece in pieces]
    cuts = [[placement.cut for placement in reading if placement.cut] for reading in (nearest, overlapping)]
    left_over = [(uncovered_characters(source, found), -len(found)) for found in cuts]
    return nearest if left_over[0] <= left_over[1] else overlapping


class _Placer:
    def __init__(self, source: str, allowance: int, prefer_overlap: bool) -> None:
        self.source = source
        self.prefer_overlap = prefer_overlap
        self.passed_over_overlap = False
        self.previous: Cut = (-1, 0)
        self.skipped_since = 0
        self.allowance = allowance
        self._aligned: AlignedText | None = None

    def place(self, piece: Piece) -> Placement:
        if piece.claim_holds(self.source):
            start = piece.claimed_start or 0
            self.previous = (start, start + len(piece.text))
            return Placement(piece, self.previous, exact=True, claim_is_wrong=False)
        cut, exact = self._search(piece.text) if piece.text else (None, False)
        self.skipped_since = 0 if cut else self.skipped_since + len(piece.text)
        self.previous = cut or self.previous
        return Placement(piece, cut, exact, claim_is_wrong=piece.has_claim)

    def _search(self, text: str) -> tuple[Cut | None, bool]:
        """Where the text is, and whether it is there to the letter."""
        form = aligned_form(text)
        start = self._continuing(text)
        if start < 0:
            if form and (cut := self._aligned_continuing(text, form)):
                return cut, False
            start = self._overlapping(text)
        if start < 0:
            if form and (cut := self._aligned_overlapping(text, form)):
                return cut, False
            start = self._elsewhere(text)
        if start >= 0:
            return (start, start + len(text)), True
        return (self._aligned_anywhere(form) if form else None), False

    def _continuing(self, text: str) -> int:
        previous_end = self.previous[1]
        found = _NOT_SPACE.search(self.source, previous_end)
        next_word = found.start() if found else len(self.source)
        leading = len(text) - len(text.lstrip())
        if leading == len(text):
            return self.source.find(text, previous_end, next_word)
        start = next_word - leading
        return start if start >= previous_end and self.source.startswith(text, start) else -1

    def _overlapping(self, text: str) -> int:
        """Return the place nearest to the previous end, if there is one that starts inside the previous chunk."""
        previous_start, previous_end = self.previous
        before = self._last_start(text, previous_start + 1, previous_end)
        if before < 0 or self.prefer_overlap:
            return before
        # As near on the other side means new text, which is the likelier.
        after = self._find(self.source, text, previous_end, 2 * previous_end - before + len(text))
        self.passed_over_overlap |= after >= 0
        return after if after >= 0 else before

    def _elsewhere(self, text: str) -> int:
        """Return the first place in reach of the previous end; else the only one in the source."""
        previous_end = self.previous[1]
        stop = previous_end + self.skipped_since + _reach(text) + len(text)
        found = self._find(self.source, text, previous_end, stop)
        return found if found >= 0 else self._only_place(self.source, text, len(self.source))

    def _aligned_continuing(self, text: str, form: str) -> Cut | None:
        """Return the stretch that continues at the previous end, once aligned."""
        end = self.previous[1]
        # Most pieces differ at once from what follows, which a few characters tell.
        glimpse = aligned_form(self.source[end : end + _GLIMPSE])[: min(_GLIMPSE // 8, len(form))]
        if not form.startswith(glimpse):
            return None
        window = self.source[end : end + _reach(text)]
        if not aligned_form(window).startswith(form):
            return None
        return _shifted(AlignedText.of(window).span(0, len(form)), end)

    def _aligned_overlapping(self, text: str, form: str) -> Cut | None:
        """Return the only stretch that starts inside the previous chunk, once aligned."""
        previous_start, previous_end = self.previous
        base = max(previous_start + 1, previous_end - _reach(text))
        window = self.source[base : previous_end + _reach(text)]
        if form not in aligned_form(window):
            return None
        nearby = AlignedText.of(window)
        first = self._only_place(nearby.form, form, int(nearby.form_index[previous_end - base]) + len(form) - 1)
        return _shifted(nearby.span(first, first + len(form)), base) if first >= 0 else None

    def _aligned_anywhere(self, form: str) -> Cut | None:
        """Return the only stretch of the whole source, once aligned."""
        if self.allowance <= 0:
            return None
        if self._aligned is None:
            self._aligned = AlignedText.of(self.source)
        first = self._only_place(self._aligned.form, form, len(self._aligned.form))
        return self._aligned.span(first, first + len(form)) if first >= 0 else None

    def _last_start(self, text: str, begin: int, stop: int) -> int:
        """Return the last place that starts in ``[begin, stop)``, or -1."""
        if self.allowance <= 0:
            begin = max(begin, stop - _reach(text))
        # Searched backwards in mirrored text, because rfind can take quadratic time and find cannot.
        mirrored = self.source[begin : stop + len(text) - 1][::-1]
        found = self._find(mirrored, text[::-1], 0, len(mirrored))
        return begin + len(mirrored) - found - len(text) if found >= 0 else -1

    def _only_place(self, haystack: str, text: str, stop: int) -> int:
        """Where the text is found before ``stop``, if that is in one place only and there is allowance to look."""
        if self.allowance <= 0:
            return -1
        found = self._find(haystack, text, 0, stop)
        return found if found >= 0 and self._find(haystack, text, found + 1, stop) < 0 else -1

    def _find(self, haystack: str, text: str, begin: int, stop: int) -> int:
        found = haystack.find(text, begin, stop)
        self.allowance -= (found if found >= 0 else min(stop, len(haystack))) - begin
        return found


def _shifted(cut: Cut, by: int) -> Cut:
    return cut[0] + by, cut[1] + by


def _reach(text: str) -> int:
    """How far from the previous end a piece's neighbourhood goes: room for much more whitespace than it kept."""
    return 4 * len(text) + 1000


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

    Accepted is what ``as_chunker`` accepts; ``name`` replaces the name found. A place that the chunker claims is used
    if the document has the text there; else the piece is looked for after the previous chunk's start, then anywhere,
    where it must be unique, and without regard to whitespace, Unicode form and quotes. Any other piece is left out with
    a ``SkippedChunkWarning``. Chunks keep the order in which they were given, and
    ``document.content[start:end] == chunk.content`` holds for each. docs/notebook.md states the rule and its limits.

    ``skipped_chunks``, ``wrong_claims`` and ``uncovered_share`` cover the documents seen so far, each as last chunked;
    ``reports`` has them one by one. One adapter may be used from several threads.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """

    def __init__(self, chunker: object, name: str | None = None) -> None:
        self.chunker = foreign_chunker(chunker, name)
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
        """Return the located chunks in the order given; warns (``SkippedChunkWarning``) of each one without a place."""
        chunks, skipped = self.placed(doc)
        for text in skipped:
            warnings.warn(
                f"{self.name} gave a chunk with no sure place in {doc.id!r}, which is left out: "
                f"{preview(text, _PREVIEW)}",
                SkippedChunkWarning,
                stacklevel=2,
            )
        return chunks

    def placed(self, doc: Document) -> tuple[list[PositionAwareChunk], list[str]]:
        """Return the located chunks in the order given, and the texts of those without a place."""
        placements = place(doc.content, self.chunker.pieces(doc.content))
        cuts = [placement.cut for placement in placements if placement.cut is not None]
        report = PlacementReport(
            doc_id=doc.id,
            given_chunks=len(placements),
            skipped_chunks=len(placements) - len(cuts),
            aligned_chunks=len(cuts) - sum(placement.exact for placement in placements),
            wrong_claims=sum(placement.claim_is_wrong for placement in placements),
            characters=count_characters(doc.content),
            uncovered_characters=uncovered_characters(doc.content, cuts),
        )
        with self._lock:
            self._reports[doc.id] = report
        skipped = [placement.piece.text for placement in placements if placement.cut is None]
        return [doc.chunk_at(*cut) for cut in cuts], skipped


def as_position_aware(chunker: object, name: str | None = None) -> PositionAwareChunker:
    """Return the object where it knows positions, else an adapter around it; raises ``ConfigurationError``."""
    if name is None and not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return chunker
    return ChunkerPositionAdapter(chunker, name)
