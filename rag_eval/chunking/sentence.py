"""Split text into sentences, and make chunks of whole sentences."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from rag_eval.chunking.chunker import BuiltInChunker, Cut
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Count, Whole

_LINE = re.compile(r"[^\r\n\u2028\u2029]+")
_NOT_SPACE = re.compile(r"\S")


def trim(text: str, start: int, end: int) -> Cut:
    """Return ``[start, end)`` without the whitespace at its ends. It is empty if there is nothing else."""
    piece = text[start:end]
    stripped = piece.lstrip()
    left = start + len(piece) - len(stripped)
    return left, left + len(stripped.rstrip())


def cut_to_size(text: str, start: int, end: int, size: int) -> list[Cut]:
    """Cut ``[start, end)`` into trimmed pieces of at most ``size`` characters: at line ends, else between words.

    Words longer than ``size`` are cut. Whitespace alone gives no pieces.
    """
    start, end = trim(text, start, end)
    if end - start <= size:
        return [(start, end)] if end > start else []
    pieces: list[Cut] = []
    for line in _LINE.finditer(text, start, end):
        first, last = trim(text, *line.span())
        if last > first:
            pieces.extend(_words(text, first, last, size))
    return pieces


def pack(pieces: Sequence[Cut], size: int, overlap: int = 0) -> Iterator[Cut]:
    """Join consecutive pieces, with the text between them, up to ``size`` characters.

    Each group after the first one starts with up to ``overlap`` pieces of the previous group, as long as a new piece
    fits too. No piece may be longer than ``size``.
    """
    first = 0
    while first < len(pieces):
        start = pieces[first][0]
        after = first + 1
        while after < len(pieces) and pieces[after][1] - start <= size:
            after += 1
        yield start, pieces[after - 1][1]
        if after == len(pieces):
            return
        first = max(first + 1, after - overlap)
        while pieces[after][1] - pieces[first][0] > size:
            first += 1


def _words(text: str, start: int, end: int, size: int) -> Iterator[Cut]:
    while end - start > size:
        limit = start + size
        if text[limit].isspace() or text[limit - 1].isspace():
            cut = limit
        else:
            *before, last_word = text[start:limit].rsplit(None, 1)
            cut = limit - len(last_word) if before else limit
        yield trim(text, start, cut)
        following = _NOT_SPACE.search(text, cut, end)
        if following is None:
            return
        start = following.start()
    yield start, end


# Stops that always end a sentence: CJK, Arabic, Urdu, Devanagari, Armenian, Ethiopic, Khmer, Burmese.
_FIRM_STOPS = frozenset("。｡！？؟۔।॥։።។။‼⁇⁈⁉")
_CLOSERS = re.escape("\"'”’»›)]}）］｝」』】》〉〕")
_CANDIDATE = re.compile(
    rf"(?P<stop>[.!?…．{''.join(sorted(_FIRM_STOPS))}]+)[{_CLOSERS}]*"
    r"|(?P<paragraph>(?:\r\n|[\n\r\u2028\x85])[^\S\r\n\u2028\x85]*(?:\r\n|[\n\r\u2028\x85])|\u2029)"
)

# Abbreviations that never end a sentence.
_TITLES_AND_LATIN = """
mr mrs ms mx dr prof st mt ft rev hon gov sen rep pres capt gen col maj lt sgt cmdr messrs mme mlle
e.g i.e cf vs viz al approx ca resp
"""
_NUMBERED_THINGS = "no nos fig figs eq eqs vol vols pp p ch chap sec sect art para tab ver v"
_ALWAYS_GO_ON = frozenset(_TITLES_AND_LATIN.split())
_GO_ON_BEFORE_DIGITS = frozenset(_NUMBERED_THINGS.split())
_LONGEST_WORD_LOOKED_AT = 16


def sentence_cuts(text: str) -> list[Cut]:
    """Return the sentences of a text, without the whitespace between them.

    A sentence ends

    - at a blank line, or at U+2029;
    - after ``。！？؟।`` and similar stops with closing quotes and brackets, whatever follows;
    - after ``. ! ? …`` with closing quotes and brackets, if whitespace or the end of the text follows, unless the next
      character is a lowercase letter, or the full stop belongs to a title or Latin abbreviation (``Dr.``, ``e.g.``), to
      ``No.``, ``Fig.`` and the like before a digit, to a single capital letter (``J. Smith``, ``U.S.``), or to a number
      at the start of a line (``1. First``).

    So decimals, versions and addresses stay whole. A sentence that really ends in ``U.S.`` continues into the next one,
    and text in lowercase only is divided only at blank lines.
    """
    borders = [0]
    for candidate in _CANDIDATE.finditer(text):
        if candidate["paragraph"] is not None or _ends_sentence(text, candidate):
            borders.append(candidate.end())
    borders.append(len(text))
    cuts = (trim(text, start, end) for start, end in pairwise(borders))
    return [(start, end) for start, end in cuts if start < end]


@part
class SentenceChunker(BuiltInChunker):
    """Group whole sentences, as many as fit in ``max_chunk_size`` characters.

    The limit is always kept: longer sentences are cut at line ends, then between words, then inside a word. Each chunk
    starts with the last ``sentence_overlap`` sentences of the previous one, as long as a new sentence fits too.
    ``sentence_cuts`` defines sentences.
    """

    max_chunk_size: Annotated[Count, Shown, Field(description="Maximum number of characters per chunk.")] = 1000
    sentence_overlap: Annotated[
        Whole, Shown, Field(description="Number of sentences shared with the previous chunk.")
    ] = 0

    def cuts(self, text: str) -> list[Cut]:
        size = self.max_chunk_size
        pieces = [piece for start, end in sentence_cuts(text) for piece in cut_to_size(text, start, end, size)]
        return list(pack(pieces, size, self.sentence_overlap))


def _ends_sentence(text: str, candidate: re.Match[str]) -> bool:
    stop, end = candidate["stop"], candidate.end()
    if not _FIRM_STOPS.isdisjoint(stop):
        return True
    if end == len(text):
        return True
    if stop.endswith("．"):
        return not text[end].isdigit()
    following = _NOT_SPACE.search(text, end)
    if following is None:
        return True
    if following.start() == end or following[0].islower():
        return False
    return stop != "." or end - candidate.start() > 1 or not _is_abbreviation(text, candidate.start(), following[0])


def _is_abbreviation(text: str, stop: int, following: str) -> bool:
    before = text[max(0, stop - _LONGEST_WORD_LOOKED_AT) : stop]
    words = before.split()
    if not words or before[-1].isspace():
        return False
    word = words[-1].lstrip("([{\"'“‘«")
    if word.isdigit():
        line_start = stop - len(words[-1])
        return len(word) <= 3 and (line_start == 0 or text[line_start - 1] in "\r\n\u2028\u2029")
    if word.lower() in _ALWAYS_GO_ON:
        return True
    if word.lower() in _GO_ON_BEFORE_DIGITS:
        return following.isdigit()
    last_letter = word.rpartition(".")[2]
    return len(last_letter) == 1 and last_letter.isupper()
