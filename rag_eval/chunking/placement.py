"""Find the positions of the pieces of any chunker in the source."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.chunker import Cut, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import Piece, foreign_chunker
from rag_eval.errors import preview
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId


def count_characters(text: str) -> int:
    """Return the number of characters other than whitespace."""
    return sum(map(len, text.split()))


_NOT_SPACE = re.compile(r"\S")

_GLIMPSE = 128


@dataclass(frozen=True, slots=True)
class Placement:
    """A piece and its place, or None without one. ``exact`` is whether the source has exactly this text there."""

    piece: Piece
    cut: Cut | None
    exact: bool


def search_allowance(length: int) -> int:
    """Return how many characters the searches in a source of this length may read together.

    This is enough for hundreds of misses in any document, and never quadratic: 200 times the source, at least 10⁹.
    """
    return max(1_000_000_000, 200 * length)


def place(source: str, pieces: Iterable[Piece], allowance: int | None = None) -> list[Placement]:
    """Place every piece in the source, in order, by the rule in docs/notebook.md.

    ``allowance`` is how many characters the searches may read, by default ``search_allowance``. When it is used up,
    pieces are found only next to the previous one.
    """
    pieces = list(pieces)
    allowance = search_allowance(len(source)) if allowance is None else allowance
    texts = [piece.text for piece in pieces]
    if sum(map(len, texts)) <= len(source):
        placer = _Placer(source, allowance)
        placements = [placer.place(piece) for piece in pieces]
        # Whitespace that the chunker dropped may hide an overlap, so count the other characters.
        if _is_whole(source, placements) or sum(map(count_characters, texts)) <= count_characters(source):
            return placements
    return _OverlapPlacer(source, pieces, allowance).place_all()


def _is_whole(source: str, placements: list[Placement]) -> bool:
    """Return whether every piece has an exact place after the previous one, and every word is covered."""
    previous = (-1, 0)
    for placement in placements:
        if placement.cut is None or not placement.exact or placement.cut[0] <= previous[0]:
            return False
        if source[previous[1] : placement.cut[0]].strip():
            return False
        previous = placement.cut
    return not source[previous[1] :].strip()


@dataclass(frozen=True, slots=True)
class _State:
    """A possible place of a piece, given a possible place of the previous one.

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
        """Return the lowest start of a next piece of this length. A longer piece may start at the same place."""
        return self.start + (self.start + length <= self.end)


class _OverlapPlacer:
    """Places overlapping pieces together: without gaps if possible, and then as evenly as possible.

    A piece can follow another one if it starts after its start, with only whitespace uncovered between them. The
    possible places of the pieces stay open until only one is left, or the next piece has none.
    """

    MOST_STATES = 16
    """The number of possible places to keep: in repetitive text, those nearest to an even division."""

    def __init__(self, source: str, pieces: list[Piece], allowance: int) -> None:
        self.source = source
        self.pieces = pieces
        self.placer = _Placer(source, allowance)
        self.placements: list[Placement] = []
        self.offsets = list(accumulate((len(piece.text) for piece in pieces), initial=0))
        self.states = [self._settled(0, 0)]

    def place_all(self) -> list[Placement]:
        for index, piece in enumerate(self.pieces):
            if states := self._following(index):
                self.states = states
                continue
            self._settle()
            self.placements.append(self.placer.place(piece))
            if self.placements[-1].cut:
                self.states = [self._settled(*self.placer.previous)]
        self._settle(at_end=True)
        return self.placements

    def _settled(self, start: int, end: int) -> _State:
        return _State(start, end, end, self.placer.next_word(end))

    def _settle(self, at_end: bool = False) -> None:
        """Choose the places of the open pieces; at the end of the document, so that most of it is covered."""
        best = max(self.states, key=lambda state: (state.reach if at_end else 0, -state.cost, state.start))
        self.states = [replace(best, cost=0, before=None)]
        cuts, state = [], best
        while state.before is not None:
            cuts.append((state.start, state.end))
            state = state.before
        for cut in reversed(cuts):
            self.placements.append(Placement(self.pieces[len(self.placements)], cut, exact=True))
            self.placer.previous, self.placer.skipped_since = cut, 0

    def _following(self, index: int) -> list[_State]:
        """Return the possible places of a piece after those of the previous one."""
        piece, states = self.pieces[index], self.states
        text, length = piece.text, len(piece.text)
        if not text:
            return []
        first, last = states[0].start_after(length), max(state.reach for state in states)
        if piece.claim_holds(self.source):
            starts = [piece.claimed_start or 0]
        else:
            # The remaining overlap, divided evenly among the remaining pieces.
            overlaps = len(self.pieces) - index
            surplus = self.offsets[-1] - self.offsets[index] - len(self.source)
            likely = min(states, key=lambda state: state.cost + max(0, state.covered + surplus) ** 2 / overlaps)
            overlap = max(0, likely.covered + surplus) / overlaps
            starts = self._starts(text, first, last, likely.covered - round(overlap))
        following = []
        for start in starts:
            least, chosen = 0, None
            for state in states:
                if state.start_after(length) <= start <= state.reach:
                    cost = state.cost + max(0, state.covered - start) ** 2
                    if chosen is None or cost <= least:
                        least, chosen = cost, state
            if chosen is not None:
                covered = max(chosen.covered, start + length)
                reach = self.placer.next_word(covered)
                following.append(_State(start, start + length, covered, reach, least, chosen))
        return following

    def _starts(self, text: str, first: int, last: int, likely: int) -> list[int]:
        """Return where the text starts from ``first`` to ``last``; of many places, those nearest to ``likely``."""
        starts = self.placer.find_all(text, first, last, self.MOST_STATES + 1)
        if len(starts) <= self.MOST_STATES:
            return starts
        half = self.MOST_STATES // 2
        likely = min(max(likely, first), last)
        before = self.placer.find_last(text, max(first, likely - 2 * len(text)), likely, half)
        # Keep the first one too, because pieces are sometimes as dense as possible.
        return sorted({starts[0], *before, *self.placer.find_all(text, likely, last, half)})


class _Placer:
    """Places pieces one by one, next to the previous one if possible."""

    def __init__(self, source: str, allowance: int) -> None:
        self.source = source
        self.previous: Cut = (-1, 0)
        self.skipped_since = 0
        self.allowance = allowance
        self._aligned: AlignedText | None = None
        self._blank: Cut = (-1, -1)

    def place(self, piece: Piece) -> Placement:
        if piece.claim_holds(self.source):
            start = piece.claimed_start or 0
            self.previous = (start, start + len(piece.text))
            return Placement(piece, self.previous, exact=True)
        cut, exact = self._search(piece.text) if piece.text else (None, False)
        self.skipped_since = 0 if cut else self.skipped_since + len(piece.text)
        self.previous = cut or self.previous
        return Placement(piece, cut, exact)

    def next_word(self, place: int) -> int:
        """Return the start of the next word, or the end of the source."""
        begin, word = self._blank
        if not begin <= place <= word:
            match = _NOT_SPACE.search(self.source, place)
            word = match.start() if match else len(self.source)
            self._blank = (place, word)
        return word

    def find_all(self, text: str, first: int, last: int, most: int) -> list[int]:
        """Return where the text starts from ``first`` to ``last``, at most ``most`` places."""
        if self.allowance <= 0:
            first = max(first, last - _reach(text))
        starts: list[int] = []
        last = min(last, len(self.source) - len(text))
        while len(starts) < most and first <= last:
            start = self._find(self.source, text, first, last + len(text))
            if start < 0:
                break
            starts.append(start)
            first = start + 1
        return starts

    def _search(self, text: str) -> tuple[Cut | None, bool]:
        """Return the place of the text, and whether it is exact."""
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
        next_word = self.next_word(previous_end)
        leading = len(text) - len(text.lstrip())
        if leading == len(text):
            return self.source.find(text, previous_end, next_word)
        start = next_word - leading
        return start if start >= previous_end and self.source.startswith(text, start) else -1

    def _overlapping(self, text: str) -> int:
        """Return the place nearest to the previous end if one starts inside the previous chunk, or -1."""
        previous_start, previous_end = self.previous
        last = self.find_last(text, previous_start + 1, previous_end, 1)
        if not last:
            return -1
        before = last[0]
        # An equally near place on the other side is new text, which is more likely.
        after = self._find(self.source, text, previous_end, 2 * previous_end - before + len(text))
        return after if after >= 0 else before

    def _elsewhere(self, text: str) -> int:
        """Return the first place in reach of the previous end, else the only one in the source, or -1."""
        previous_end = self.previous[1]
        stop = previous_end + self.skipped_since + _reach(text) + len(text)
        start = self._find(self.source, text, previous_end, stop)
        return start if start >= 0 else self._only_place(self.source, text, len(self.source))

    def _aligned_continuing(self, text: str, form: str) -> Cut | None:
        """Return the range that continues at the previous end, in aligned form, or None."""
        end = self.previous[1]
        # For most pieces, a few characters show that they differ from what follows.
        glimpse = aligned_form(self.source[end : end + _GLIMPSE])[: min(_GLIMPSE // 8, len(form))]
        if not form.startswith(glimpse):
            return None
        window = self.source[end : end + _reach(text)]
        if not aligned_form(window).startswith(form):
            return None
        return _shifted(AlignedText.of(window).span(0, len(form)), end)

    def _aligned_overlapping(self, text: str, form: str) -> Cut | None:
        """Return the only range that starts inside the previous chunk, in aligned form, or None."""
        previous_start, previous_end = self.previous
        base = max(previous_start + 1, previous_end - _reach(text))
        window = self.source[base : previous_end + _reach(text)]
        if form not in aligned_form(window):
            return None
        nearby = AlignedText.of(window)
        first = self._only_place(nearby.form, form, int(nearby.form_index[previous_end - base]) + len(form) - 1)
        return _shifted(nearby.span(first, first + len(form)), base) if first >= 0 else None

    def _aligned_anywhere(self, form: str) -> Cut | None:
        """Return the only range in the whole source, in aligned form, or None."""
        if self.allowance <= 0:
            return None
        if self._aligned is None:
            self._aligned = AlignedText.of(self.source)
        first = self._only_place(self._aligned.form, form, len(self._aligned.form))
        return self._aligned.span(first, first + len(form)) if first >= 0 else None

    def find_last(self, text: str, begin: int, stop: int, most: int) -> list[int]:
        """Return the last places that start in ``[begin, stop)``, at most ``most``, in order."""
        if self.allowance <= 0:
            begin = max(begin, stop - _reach(text))
        # Search mirrored text, because rfind can be quadratic and find is not.
        mirrored, backwards = self.source[begin : stop + len(text) - 1][::-1], text[::-1]
        starts: list[int] = []
        place = -1
        while len(starts) < most and (place := self._find(mirrored, backwards, place + 1, len(mirrored))) >= 0:
            starts.append(begin + len(mirrored) - place - len(text))
        return starts[::-1]

    def _only_place(self, haystack: str, text: str, stop: int) -> int:
        """Return the only place of the text before ``stop``, or -1 if there are none, several, or no allowance."""
        if self.allowance <= 0:
            return -1
        place = self._find(haystack, text, 0, stop)
        return place if place >= 0 and self._find(haystack, text, place + 1, stop) < 0 else -1

    def _find(self, haystack: str, text: str, begin: int, stop: int) -> int:
        place = haystack.find(text, begin, stop)
        self.allowance -= (place if place >= 0 else min(stop, len(haystack))) - begin
        return place


def _shifted(cut: Cut, by: int) -> Cut:
    return cut[0] + by, cut[1] + by


def _reach(text: str) -> int:
    """Return how far from the previous end a piece may be, with room for much more whitespace than it has."""
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
        placements = place(doc.content, self.chunker.pieces(doc.content))
        skipped = [placement.piece.text for placement in placements if placement.cut is None]
        self._skipped[doc.id] = len(skipped)
        return [doc.chunk_at(*placement.cut) for placement in placements if placement.cut], skipped


def as_position_aware(chunker: object, name: str | None = None) -> PositionAwareChunker:
    """Return a position-aware chunker unchanged, and any other one in an adapter.

    Raises ``ConfigurationError`` if the object is not a chunker.
    """
    if name is None and not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return chunker
    return ChunkerPositionAdapter(chunker, name)
