"""Place the pieces of any chunker in the source, and count those that have no sure place."""

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
    """Count the characters that are not whitespace."""
    return sum(map(len, text.split()))


_NOT_SPACE = re.compile(r"\S")

_GLIMPSE = 128


@dataclass(frozen=True, slots=True)
class Placement:
    """A piece and its place: None where it has none; ``exact`` says whether the source has its very text there."""

    piece: Piece
    cut: Cut | None
    exact: bool


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
    texts = [piece.text for piece in pieces]
    if sum(map(len, texts)) <= len(source):
        placer = _Placer(source, allowance)
        placements = [placer.place(piece) for piece in pieces]
        # Blanks that the chunker left out hide an overlap, which the other characters tell.
        if _is_whole(source, placements) or sum(map(count_characters, texts)) <= count_characters(source):
            return placements
    return _OverlapPlacer(source, pieces, allowance).place_all()


def _is_whole(source: str, placements: list[Placement]) -> bool:
    """Return whether every piece has an exact place after the previous one, and no word is uncovered."""
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
    """A possible place of a piece, after a possible place of the one before.

    ``covered`` is how far the source is covered then and ``reach`` where its next word starts; ``cost`` is the sum of
    the squares of the overlaps, of which equal ones have the least.
    """

    start: int
    end: int
    covered: int
    reach: int
    cost: int = 0
    before: "_State | None" = None

    def start_after(self, length: int) -> int:
        """Return the earliest start of a piece of this length: the same place for a longer piece."""
        return self.start + (self.start + length <= self.end)


class _OverlapPlacer:
    """Places the pieces of a document together: without a gap where that can be, and then as evenly as can be.

    A piece can follow another where it starts after its start, with nothing but whitespace uncovered between them. Its
    possible places stay open until only one is left, or none for the next piece.
    """

    MOST_STATES = 16
    """So many possible places of a piece are kept: in text that repeats, those nearest to an even division."""

    def __init__(self, source: str, pieces: list[Piece], allowance: int) -> None:
        self.source = source
        self.pieces = pieces
        self.placer = _Placer(source, allowance)
        self.placements: list[Placement] = []
        self.offsets = list(accumulate((len(piece.text) for piece in pieces), initial=0))
        self.retries = 1000 + 8 * len(pieces)
        self.is_pruned = False
        self.settled = self._settled(0, 0)
        self.states = [self.settled]

    def place_all(self) -> list[Placement]:
        whole = len(self.pieces), len(self.source)
        for index, piece in enumerate(self.pieces):
            states = self._following(self.states, index, *whole) or self._retried(index)
            if states:
                self.states = states
                if len(states) == 1 and not self.is_pruned:
                    self._settle()
                continue
            self._settle()
            self.placements.append(self.placer.place(piece))
            if self.placements[-1].cut:
                self.settled = self._settled(*self.placer.previous)
                self.states = [self.settled]
        self._settle(at_end=True)
        return self.placements

    def _settled(self, start: int, end: int) -> _State:
        return _State(start, end, end, self.placer.next_word(end))

    def _settle(self, at_end: bool = False) -> None:
        """Decide where the pieces are that are still open; at the end of the document so that most is covered."""
        best = max(self.states, key=lambda state: (state.reach if at_end else 0, -state.cost, state.start))
        self.settled = replace(best, cost=0, before=None)
        self.states, self.is_pruned = [self.settled], False
        cuts, state = [], best
        while state.before is not None:
            cuts.append((state.start, state.end))
            state = state.before
        for cut in reversed(cuts):
            self.placements.append(Placement(self.pieces[len(self.placements)], cut, exact=True))
            self.placer.previous, self.placer.skipped_since = cut, 0

    def _following(self, states: list[_State], index: int, goal: int, goal_start: int) -> list[_State]:
        """Return the places of a piece after those of the one before, aiming for where the piece ``goal`` starts."""
        piece = self.pieces[index]
        text, length = piece.text, len(piece.text)
        if not text:
            return []
        first, last = states[0].start_after(length), max(state.reach for state in states)
        if piece.claim_holds(self.source):
            starts = [piece.claimed_start or 0]
        else:
            # What is left to overlap, divided evenly over the pieces up to the goal.
            overlaps = goal - index + (goal < len(self.pieces))
            surplus = self.offsets[goal] - self.offsets[index] - goal_start
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
        """Return where the text starts from ``first`` to ``last``; of many, the nearest to the likely place."""
        starts = self.placer.find_all(text, first, last, self.MOST_STATES + 1)
        if len(starts) <= self.MOST_STATES:
            return starts
        self.is_pruned = True
        half = self.MOST_STATES // 2
        likely = min(max(likely, first), last)
        before = self.placer.find_last(text, max(first, likely - 2 * len(text)), likely, half)
        # The first as well: what leads on is sometimes as dense as can be.
        return sorted({starts[0], *before, *self.placer.find_all(text, likely, last, half)})

    def _retried(self, index: int) -> list[_State]:
        """Return places of a piece that no open place of the one before leads to, by placing the open ones anew."""
        first = len(self.placements)
        if index == first or self.retries < index - first:
            return []
        text, start = self.pieces[index].text, self.settled.start + 1
        stop = self.settled.reach + self.offsets[index] - self.offsets[first] + _reach(text)
        for goal_start in self.placer.find_all(text, start, stop, 4) if text else ():
            states = [self.settled]
            for again in range(first, index + 1):
                self.retries -= 1
                states = self._following(states, again, index, goal_start)
                if not states:
                    break
            else:
                return states
        return []


class _Placer:
    """Places pieces one by one, each next to the previous one if that can be."""

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
        """Return where the next word starts, or the end of the source."""
        begin, word = self._blank
        if not begin <= place <= word:
            match = _NOT_SPACE.search(self.source, place)
            word = match.start() if match else len(self.source)
            self._blank = (place, word)
        return word

    def find_all(self, text: str, first: int, last: int, most: int) -> list[int]:
        """Return where the text starts from ``first`` to ``last``, no more than ``most`` places."""
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
        """Return the place of the text, and whether it is there to the letter."""
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
        """Return the place nearest to the previous end, if there is one that starts inside the previous chunk."""
        previous_start, previous_end = self.previous
        last = self.find_last(text, previous_start + 1, previous_end, 1)
        if not last:
            return -1
        before = last[0]
        # As near on the other side means new text, which is the likelier.
        after = self._find(self.source, text, previous_end, 2 * previous_end - before + len(text))
        return after if after >= 0 else before

    def _elsewhere(self, text: str) -> int:
        """Return the first place in reach of the previous end; else the only one in the source."""
        previous_end = self.previous[1]
        stop = previous_end + self.skipped_since + _reach(text) + len(text)
        start = self._find(self.source, text, previous_end, stop)
        return start if start >= 0 else self._only_place(self.source, text, len(self.source))

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

    def find_last(self, text: str, begin: int, stop: int, most: int) -> list[int]:
        """Return the last places that start in ``[begin, stop)``, no more than ``most``, in order."""
        if self.allowance <= 0:
            begin = max(begin, stop - _reach(text))
        # Searched backwards in mirrored text, because rfind can take quadratic time and find cannot.
        mirrored, backwards = self.source[begin : stop + len(text) - 1][::-1], text[::-1]
        starts: list[int] = []
        place = -1
        while len(starts) < most and (place := self._find(mirrored, backwards, place + 1, len(mirrored))) >= 0:
            starts.append(begin + len(mirrored) - place - len(text))
        return starts[::-1]

    def _only_place(self, haystack: str, text: str, stop: int) -> int:
        """Return the only place of the text before ``stop``; -1 for several or none, or without allowance."""
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
    """Return how far from the previous end a piece may be: with room for much more whitespace than it has."""
    return 4 * len(text) + 1000


class SkippedChunkWarning(UserWarning):
    """A chunk has no sure place in its document and was left out."""


class ChunkerPositionAdapter:
    """Place the pieces of any chunker in the document, and leave out those without a sure place.

    Accepted is what ``as_chunker`` accepts; ``name`` replaces the chunker's own. A position that the chunker claims is
    used if the document has the text there; any other piece is searched for. docs/notebook.md states the rule and its
    limits. Chunks keep the order of the pieces, and ``document.content[start:end] == chunk.content`` holds for each.
    Several threads may share one adapter.

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
        """How many pieces were left out of the documents seen so far, each as last chunked."""
        return sum(self._skipped.copy().values())

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in the order of the pieces; warn with ``SkippedChunkWarning`` of each that is left out."""
        chunks, skipped = self.placed(doc)
        for text in skipped:
            warnings.warn(
                f"{self.name} gave a chunk with no sure place in {doc.id!r}, which is left out: {preview(text, 50)}",
                SkippedChunkWarning,
                stacklevel=2,
            )
        return chunks

    def placed(self, doc: Document) -> tuple[list[PositionAwareChunk], list[str]]:
        """Return the chunks in the order of the pieces, and the texts of the pieces that are left out."""
        placements = place(doc.content, self.chunker.pieces(doc.content))
        skipped = [placement.piece.text for placement in placements if placement.cut is None]
        self._skipped[doc.id] = len(skipped)
        return [doc.chunk_at(*placement.cut) for placement in placements if placement.cut], skipped


def as_position_aware(chunker: object, name: str | None = None) -> PositionAwareChunker:
    """Return the object where it knows positions, else an adapter around it; raises ``ConfigurationError``."""
    if name is None and not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return chunker
    return ChunkerPositionAdapter(chunker, name)
