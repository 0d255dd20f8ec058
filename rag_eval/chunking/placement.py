"""Find the positions of any chunker's pieces in the source."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import methodcaller

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.chunker import Cut, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import Piece, foreign_chunker
from rag_eval.errors import preview
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

_NOT_SPACE = re.compile(r"\S")
_GLIMPSE = 128


def count_characters(text: str) -> int:
    """Return the number of characters other than whitespace."""
    return sum(map(len, text.split()))


def place(source: str, pieces: Iterable[Piece], allowance: int | None = None) -> list[Cut | None]:
    """Return the position of every piece in the source, in order, or None, by the rule in docs/notebook.md.

    ``allowance`` is the number of characters that all searches together may read. When it is used up, pieces are found
    only next to the previous one. The default is enough for hundreds of misses in any document and keeps the time
    linear.
    """
    pieces = list(pieces)
    allowance = max(1_000_000_000, 200 * len(source)) if allowance is None else allowance
    texts = [piece.text for piece in pieces]
    if sum(map(len, texts)) <= len(source):
        placer = _Placer(source, allowance)
        cuts = [placer.place(piece) for piece in pieces]
        # Whitespace that the chunker dropped may hide an overlap, so count only the other characters.
        if _is_whole(source, texts, cuts) or sum(map(count_characters, texts)) <= count_characters(source):
            return cuts
    return _OverlapPlacer(source, pieces, allowance).place_all()


def _is_whole(source: str, texts: list[str], cuts: list[Cut | None]) -> bool:
    """Return whether every text has an exact position after the previous one, and every word is covered."""
    last, covered = -1, 0
    for text, cut in zip(texts, cuts, strict=True):
        if cut is None or cut[0] <= last or source[covered : cut[0]].strip() or source[slice(*cut)] != text:
            return False
        last, covered = cut
    return not source[covered:].strip()


@dataclass(frozen=True, slots=True)
class _State:
    """A possible position of a piece, given a possible position of the previous one.

    ``covered`` is the end of the covered part of the source and ``reach`` the start of the next word. ``cost`` is the
    sum of the squares of the overlaps, which is lowest for even overlaps.
    """

    start: int
    end: int
    covered: int
    reach: int
    cost: int = 0
    before: "_State | None" = None

    def start_after(self, length: int) -> int:
        """Return the lowest start of a next piece of this length. A longer piece may start there too."""
        return self.start + (self.start + length <= self.end)

    def cost_of_next(self, start: int) -> int:
        """Return the cost of a next piece that starts here."""
        return self.cost + max(0, self.covered - start) ** 2


class _OverlapPlacer:
    """Places overlapping pieces together: without gaps if possible, and then as evenly as possible.

    A piece can follow another one if it starts later and only whitespace between them stays uncovered. All possible
    positions are kept until only one is left, or until the next piece has none.
    """

    MOST_STATES = 16
    """The number of possible positions to keep: in repetitive text, those nearest to an even division."""

    def __init__(self, source: str, pieces: list[Piece], allowance: int) -> None:
        self.source = source
        self.pieces = pieces
        self.placer = _Placer(source, allowance)
        self.cuts: list[Cut | None] = []
        self.offsets = list(accumulate((len(piece.text) for piece in pieces), initial=0))
        self.states = [_State(0, 0, 0, self.placer.next_word(0))]

    def place_all(self) -> list[Cut | None]:
        """Return the position of every piece, None where a piece cannot be placed.

        All possible positions are kept until no piece can follow them. Then the best are chosen, and the next piece is
        placed alone.
        """
        for index, piece in enumerate(self.pieces):
            if states := self._following(index):
                self.states = states
                continue
            self._settle()
            cut = self.placer.place(piece)
            self.cuts.append(cut)
            if cut:
                self.states = [_State(*cut, cut[1], self.placer.next_word(cut[1]))]
        self._settle(at_end=True)
        return self.cuts

    def _settle(self, at_end: bool = False) -> None:
        """Choose the positions of the undecided pieces; at the end of the document, cover as much of it as possible."""
        best = max(self.states, key=lambda state: (state.reach if at_end else 0, -state.cost, state.start))
        self.states = [replace(best, cost=0, before=None)]
        cuts: list[Cut] = []
        while best.before is not None:
            cuts.append((best.start, best.end))
            best = best.before
        if cuts:
            self.cuts += reversed(cuts)
            self.placer.previous, self.placer.skipped_since = cuts[0], 0

    def _following(self, index: int) -> list[_State]:
        """Return the possible positions of a piece after those of the previous one."""
        length, following = len(self.pieces[index].text), []
        for start in self._starts(index):
            fitting = [state for state in self.states if state.start_after(length) <= start <= state.reach]
            if fitting:
                before = min(reversed(fitting), key=methodcaller("cost_of_next", start))
                covered = max(before.covered, start + length)
                reach, cost = self.placer.next_word(covered), before.cost_of_next(start)
                following.append(_State(start, start + length, covered, reach, cost, before))
        return following

    def _starts(self, index: int) -> list[int]:
        """Return where a piece may start; of many positions, those nearest to an even division of the overlap."""
        piece, states = self.pieces[index], self.states
        if not piece.text or piece.claim_holds(self.source):
            return [piece.claimed_start or 0] if piece.text else []
        first, last = states[0].start_after(len(piece.text)), max(state.reach for state in states)
        starts = self.placer.find_all(piece.text, first, last, self.MOST_STATES + 1)
        if len(starts) <= self.MOST_STATES:
            return starts
        remaining = len(self.pieces) - index
        surplus = self.offsets[-1] - self.offsets[index] - len(self.source)
        cheapest = min(states, key=lambda state: state.cost + max(0, state.covered + surplus) ** 2 / remaining)
        likely = cheapest.covered - round(max(0, cheapest.covered + surplus) / remaining)
        likely = min(max(likely, first), last)
        half = self.MOST_STATES // 2
        before = self.placer.find_last(piece.text, max(first, likely - 2 * len(piece.text)), likely, half)
        # Keep the first one too, because pieces are sometimes as dense as possible.
        return sorted({starts[0], *before, *self.placer.find_all(piece.text, likely, last, half)})


class _Placer:
    """Places pieces one by one, next to the previous one if possible."""

    def __init__(self, source: str, allowance: int) -> None:
        self.source = source
        self.previous: Cut = (-1, 0)
        self.skipped_since = 0
        self.allowance = allowance
        self._aligned: AlignedText | None = None
        self._blank: Cut = (-1, -1)

    def place(self, piece: Piece) -> Cut | None:
        """Return the position of the next piece, or None."""
        if piece.claim_holds(self.source):
            start = piece.claimed_start or 0
            self.previous = (start, start + len(piece.text))
            return self.previous
        cut = self._search(piece.text) if piece.text else None
        self.skipped_since = 0 if cut else self.skipped_since + len(piece.text)
        self.previous = cut or self.previous
        return cut

    def next_word(self, place: int) -> int:
        """Return the start of the next word, or the end of the source."""
        begin, word = self._blank
        if not begin <= place <= word:
            match = _NOT_SPACE.search(self.source, place)
            word = match.start() if match else len(self.source)
            self._blank = (place, word)
        return word

    def find_all(self, text: str, first: int, last: int, most: int) -> list[int]:
        """Return the occurrences of the text that start from ``first`` to ``last``, at most ``most``."""
        if self.allowance <= 0:
            first = max(first, last - _near(text))
        starts: list[int] = []
        last = min(last, len(self.source) - len(text))
        while len(starts) < most and first <= last:
            start = self._find(self.source, text, first, last + len(text))
            if start < 0:
                break
            starts.append(start)
            first = start + 1
        return starts

    def find_last(self, text: str, begin: int, stop: int, most: int) -> list[int]:
        """Return the last occurrences that start in ``[begin, stop)``, at most ``most``, in order."""
        if self.allowance <= 0:
            begin = max(begin, stop - _near(text))
        # Search mirrored text, because rfind can be quadratic and find is not.
        mirrored, backwards = self.source[begin : stop + len(text) - 1][::-1], text[::-1]
        starts: list[int] = []
        place = -1
        while len(starts) < most and (place := self._find(mirrored, backwards, place + 1, len(mirrored))) >= 0:
            starts.append(begin + len(mirrored) - place - len(text))
        return starts[::-1]

    def _search(self, text: str) -> Cut | None:
        """Return the nearest occurrence: exact before aligned, and new text before overlapping text."""
        form = aligned_form(text)
        start = self._continuing(text)
        if start < 0:
            if form and (cut := self._aligned_continuing(text, form)):
                return cut
            start = self._overlapping(text)
        if start < 0:
            if form and (cut := self._aligned_overlapping(text, form)):
                return cut
            start = self._elsewhere(text)
        if start < 0:
            return self._aligned_anywhere(form) if form else None
        return start, start + len(text)

    def _continuing(self, text: str) -> int:
        previous_end = self.previous[1]
        next_word = self.next_word(previous_end)
        leading = len(text) - len(text.lstrip())
        if leading == len(text):
            return self.source.find(text, previous_end, next_word)
        start = next_word - leading
        return start if start >= previous_end and self.source.startswith(text, start) else -1

    def _overlapping(self, text: str) -> int:
        """Return the occurrence nearest to the previous end if one starts inside the previous chunk, else -1."""
        previous_start, previous_end = self.previous
        last = self.find_last(text, previous_start + 1, previous_end, 1)
        if not last:
            return -1
        # An equally near place on the other side is new text, which is more likely.
        after = self._find(self.source, text, previous_end, 2 * previous_end - last[0] + len(text))
        return after if after >= 0 else last[0]

    def _elsewhere(self, text: str) -> int:
        """Return the first occurrence near the previous end, else the only one in the source, or -1."""
        previous_end = self.previous[1]
        stop = previous_end + self.skipped_since + _near(text) + len(text)
        start = self._find(self.source, text, previous_end, stop)
        return start if start >= 0 else self._only_place(self.source, text, len(self.source))

    def _aligned_continuing(self, text: str, form: str) -> Cut | None:
        """Return the range that continues at the previous end, in aligned form, or None."""
        end = self.previous[1]
        # For most pieces, the first few characters already differ.
        glimpse = aligned_form(self.source[end : end + _GLIMPSE])[: min(_GLIMPSE // 8, len(form))]
        window = self.source[end : end + _near(text)]
        if not form.startswith(glimpse) or not aligned_form(window).startswith(form):
            return None
        start, stop = AlignedText.of(window).span(0, len(form))
        return start + end, stop + end

    def _aligned_overlapping(self, text: str, form: str) -> Cut | None:
        """Return the only range that starts inside the previous chunk, in aligned form, or None."""
        previous_start, previous_end = self.previous
        base = max(previous_start + 1, previous_end - _near(text))
        window = self.source[base : previous_end + _near(text)]
        if form not in aligned_form(window):
            return None
        nearby = AlignedText.of(window)
        first = self._only_place(nearby.form, form, int(nearby.form_index[previous_end - base]) + len(form) - 1)
        if first < 0:
            return None
        start, stop = nearby.span(first, first + len(form))
        return start + base, stop + base

    def _aligned_anywhere(self, form: str) -> Cut | None:
        """Return the only range in the whole source, in aligned form, or None."""
        if self.allowance <= 0:
            return None
        if self._aligned is None:
            self._aligned = AlignedText.of(self.source)
        first = self._only_place(self._aligned.form, form, len(self._aligned.form))
        return self._aligned.span(first, first + len(form)) if first >= 0 else None

    def _only_place(self, haystack: str, text: str, stop: int) -> int:
        """Return the only occurrence of the text before ``stop``.

        Returns -1 if there is none or several, or if the allowance is used up.
        """
        if self.allowance <= 0:
            return -1
        place = self._find(haystack, text, 0, stop)
        return place if place >= 0 and self._find(haystack, text, place + 1, stop) < 0 else -1

    def _find(self, haystack: str, text: str, begin: int, stop: int) -> int:
        place = haystack.find(text, begin, stop)
        self.allowance -= (place if place >= 0 else min(stop, len(haystack))) - begin
        return place


def _near(text: str) -> int:
    """Return how far from the previous end a piece may be, allowing for much more whitespace than it has."""
    return 4 * len(text) + 1000


class SkippedChunkWarning(UserWarning):
    """A chunk has no certain position in its document and was skipped."""


class ChunkerPositionAdapter:
    """Finds the positions of the pieces of any chunker, and skips those without a certain one.

    ::

        ChunkerPositionAdapter(str.split).chunk_with_positions(document)

    A position that the chunker states is used if the document has the text there. Other pieces are searched for;
    docs/notebook.md describes the rule and its limits. Chunks keep the order of the pieces, and
    ``document.content[start:end]`` is the content of each. An adapter is thread-safe.

    Args:
        chunker: Anything that ``as_chunker`` accepts.
        name: Replaces the name of the chunker.

    Raises:
        ConfigurationError: The object is not a chunker.
    """

    def __init__(self, chunker: object, name: str | None = None) -> None:
        self.chunker = foreign_chunker(chunker, name)
        self._skipped: dict[DocumentId, int] = {}

    @property
    def name(self) -> str:
        """``PositionAdapter(<name of the chunker>)``."""
        return f"PositionAdapter({self.chunker.name})"

    @property
    def skipped_chunks(self) -> int:
        """The number of skipped pieces in all documents so far, counting each document once."""
        return sum(self._skipped.copy().values())

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in order. Warn with ``SkippedChunkWarning`` about each skipped piece."""
        chunks, skipped = self.placed(doc)
        for text in skipped:
            warnings.warn(
                f"{self.name} returned a chunk without a certain position in {doc.id!r}, skipped: {preview(text, 50)}",
                SkippedChunkWarning,
                stacklevel=2,
            )
        return chunks

    def placed(self, doc: Document) -> tuple[list[PositionAwareChunk], list[str]]:
        """Return the chunks in order, and the texts of the skipped pieces."""
        pieces = self.chunker.pieces(doc.content)
        cuts = place(doc.content, pieces)
        skipped = [piece.text for piece, cut in zip(pieces, cuts, strict=True) if cut is None]
        self._skipped[doc.id] = len(skipped)
        return [doc.chunk_at(*cut) for cut in cuts if cut], skipped


def as_position_aware(chunker: object, name: str | None = None) -> PositionAwareChunker:
    """Return a position-aware chunker unchanged, and any other one in an adapter.

    Raises ``ConfigurationError`` if the object is not a chunker.
    """
    if name is None and not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return chunker
    return ChunkerPositionAdapter(chunker, name)
