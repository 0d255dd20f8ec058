"""Finding where in a source the pieces of a chunker stand."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.base import Cut
from rag_eval.chunking.coverage import uncovered_characters
from rag_eval.chunking.foreign import Piece

_NOT_SPACE = re.compile(r"\S")

# Searches may together read this much of a source: enough for hundreds of misses in any document, and never quadratic.
_SCANS_OF_THE_SOURCE = 200
_CHARACTERS_AT_LEAST = 1_000_000_000
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


def place(source: str, pieces: Iterable[Piece]) -> list[Placement]:
    """Every piece with its place in the source, in the order given; ``ChunkerPositionAdapter`` states the rule."""
    pieces = list(pieces)
    placer = _Placer(source, prefer_overlap=False)
    nearest = [placer.place(piece) for piece in pieces]
    if not placer.passed_over_overlap or all(placement.cut for placement in nearest):
        return nearest
    # Taking an overlapping piece for a later copy of itself leads away from where the next ones stand.
    placer = _Placer(source, prefer_overlap=True)
    overlapping = [placer.place(piece) for piece in pieces]
    return min(nearest, overlapping, key=lambda placements: _left_over(source, placements))


class _Placer:
    def __init__(self, source: str, prefer_overlap: bool) -> None:
        self.source = source
        self.prefer_overlap = prefer_overlap
        self.passed_over_overlap = False
        self.previous: Cut = (-1, 0)
        self.skipped_since = 0
        self.allowance = max(_CHARACTERS_AT_LEAST, _SCANS_OF_THE_SOURCE * len(source))
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
        """The place nearest to the previous end, if there is one that starts inside the previous chunk."""
        previous_start, previous_end = self.previous
        before = self._last_start(text, previous_start + 1, previous_end)
        if before < 0 or self.prefer_overlap:
            return before
        # As near on the other side means new text, which is the likelier.
        after = self._find(self.source, text, previous_end, 2 * previous_end - before + len(text))
        self.passed_over_overlap |= after >= 0
        return after if after >= 0 else before

    def _elsewhere(self, text: str) -> int:
        """The first place in reach of the previous end; else the only one in the source."""
        previous_end = self.previous[1]
        stop = previous_end + self.skipped_since + _reach(text) + len(text)
        found = self._find(self.source, text, previous_end, stop)
        return found if found >= 0 else self._only_place(self.source, text, len(self.source))

    def _aligned_continuing(self, text: str, form: str) -> Cut | None:
        """The stretch that continues at the previous end, once aligned."""
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
        """The only stretch that starts inside the previous chunk, once aligned."""
        previous_start, previous_end = self.previous
        base = max(previous_start + 1, previous_end - _reach(text))
        window = self.source[base : previous_end + _reach(text)]
        if form not in aligned_form(window):
            return None
        nearby = AlignedText.of(window)
        first = self._only_place(nearby.form, form, int(nearby.form_index[previous_end - base]) + len(form) - 1)
        return _shifted(nearby.span(first, first + len(form)), base) if first >= 0 else None

    def _aligned_anywhere(self, form: str) -> Cut | None:
        """The only stretch of the whole source, once aligned."""
        if self.allowance <= 0:
            return None
        if self._aligned is None:
            self._aligned = AlignedText.of(self.source)
        first = self._only_place(self._aligned.form, form, len(self._aligned.form))
        return self._aligned.span(first, first + len(form)) if first >= 0 else None

    def _last_start(self, text: str, begin: int, stop: int) -> int:
        """The last place that starts in ``[begin, stop)``, or -1."""
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


def _left_over(source: str, placements: Sequence[Placement]) -> tuple[int, int]:
    cuts = [placement.cut for placement in placements if placement.cut]
    return uncovered_characters(source, cuts), len(placements) - len(cuts)


def _shifted(cut: Cut, by: int) -> Cut:
    return cut[0] + by, cut[1] + by


def _reach(text: str) -> int:
    """How far from the previous end a piece's neighbourhood goes: room for much more whitespace than it kept."""
    return 4 * len(text) + 1000
