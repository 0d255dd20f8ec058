"""Certification: what a chunker does to text that breaks chunkers.

Six things are looked at on every text, and each result comes with its first counter-example. A chunker that never
returns is not caught.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from rag_eval.chunking.adapter import ChunkerPositionAdapter
from rag_eval.chunking.base import Cut, PositionAwareChunker
from rag_eval.chunking.certificate import Certificate, Check, CounterExample, Positions
from rag_eval.chunking.coverage import count_characters, uncovered_stretches
from rag_eval.chunking.cutting import trim
from rag_eval.chunking.foreign import ForeignChunker
from rag_eval.chunking.nasty_texts import nasty_texts
from rag_eval.chunking.placement import place
from rag_eval.chunking.size_limits import SizeLimit, find_size_limit
from rag_eval.errors import ConfigurationError, preview
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId, encode_utf8

CHECKS = ("runs", "exact slices", "increasing starts", "coverage", "determinism", "size limit")
_PREVIEW = 50


@dataclass(frozen=True, slots=True)
class _Seen:
    """A chunk as the chunker gave it: ``exact`` says whether the source has its text at its place."""

    text: str
    cut: Cut | None
    exact: bool
    positions: Positions
    note: str = ""


_Run = Callable[[str], list[_Seen]]


def certify(
    chunker: object,
    texts: Mapping[str, str] | Iterable[str] | None = None,
    fits: Callable[[str], bool] | None = None,
) -> Certificate:
    """Run a chunker on every text, twice, and check what it gives.

    Any chunker that ``as_position_aware`` accepts can be certified. Where it knows or claims positions, those are
    checked as they are; else the positions that ``ChunkerPositionAdapter`` finds for its pieces, and a piece that has
    none, or is not in the text to the letter, is not an exact slice. Counter-examples to order and coverage then say
    that the adapter found the places, and how many chunks it left out: the fault may be in the search. The checks:

    - *runs*: no text makes it raise;
    - *exact slices*: the text at a chunk's place is the chunk, no chunk is empty, and each names its document;
    - *increasing starts*: each chunk starts after the one before;
    - *coverage*: every character that is not whitespace is in a chunk;
    - *determinism*: a second run gives the same;
    - *size limit*: ``fits`` is true for every chunk. Without ``fits`` it is taken from the chunker's settings in its
      own measure (``find_size_limit``); where there is none, the check does not apply.

    ``texts`` are given by name, or get names by number; the default is ``nasty_texts()``.
    Raises ``ConfigurationError`` on something that is not a chunker or without texts, ``TextEncodingError`` on a text
    with a lone surrogate, and whatever ``fits`` raises.
    """
    named = _named(texts)
    run, name = _runner(chunker)
    tally = _Tally(fits, find_size_limit(_innermost(chunker)) if fits is None else None)
    for text_name, text in named.items():
        tally.look_at(text_name, text, run)
    return Certificate(name, tally.positions, len(named), tally.chunks, tally.skipped, tuple(tally.checks()))


class _Tally:
    def __init__(self, fits: Callable[[str], bool] | None, declared: SizeLimit | None) -> None:
        self.fits = fits
        self.declared = declared
        self.positions: Positions = "found"
        self.chunks = 0
        self.skipped = 0
        self.failures: Counter[str] = Counter()
        self.looked_at: Counter[str] = Counter()
        self.examples: dict[str, CounterExample] = {}

    def look_at(self, name: str, text: str, run: _Run) -> None:
        try:
            seen, again = run(text), run(text)
            too_large = [chunk for chunk in seen if self.declared and not self.declared.kept_by(chunk.text)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # foreign code; a panic in Rust is not even an Exception
            first_line = str(error).partition("\n")[0]
            self._count("runs", 1, [CounterExample(name, None, preview(f"{type(error).__name__}: {first_line}", 100))])
            return
        if self.fits is not None:
            too_large = [chunk for chunk in seen if not self.fits(chunk.text)]
        self.positions = seen[0].positions if seen else self.positions
        self.chunks += len(seen)
        self.skipped += sum(chunk.cut is None for chunk in seen)
        self._count("runs", 1, [])
        self._count("exact slices", len(seen), [_example(name, chunk) for chunk in seen if not chunk.exact])
        self._count("increasing starts", len(seen), list(_disorder(name, seen)))
        self._count("coverage", count_characters(text), list(_lost(name, text, seen)))
        self._count("determinism", 1, [] if again == seen else [CounterExample(name, None, "the second run differs")])
        self._count("size limit", len(seen), [_example(name, chunk) for chunk in too_large])

    def checks(self) -> Iterator[Check]:
        for check in CHECKS:
            applies = check != "size limit" or self.fits is not None or self.declared is not None
            yield Check(check, applies, self.failures[check], self.looked_at[check], self.examples.get(check))

    def _count(self, check: str, looked_at: int, failures: list[CounterExample]) -> None:
        self.looked_at[check] += looked_at
        self.failures[check] += sum(example.cases for example in failures)
        if failures:
            self.examples.setdefault(check, failures[0])


def _named(texts: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    if texts is None:
        return nasty_texts()
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ConfigurationError(f"texts is {preview(str(texts))}: give a list of texts, or texts by name")
    named = dict(texts) if isinstance(texts, Mapping) else {f"text {i}": text for i, text in enumerate(texts, 1)}
    if not named:
        raise ConfigurationError("there are no texts to certify on: give at least one, or leave texts out")
    for name, text in named.items():
        if not isinstance(text, str):
            raise ConfigurationError(f"the text {name!r} is {preview(repr(text))}: give strings")
        encode_utf8(text, f"the text {name!r}")
    return named


def _runner(chunker: object) -> tuple[_Run, str]:
    """How to ask the chunker, and its name."""
    if isinstance(chunker, ChunkerPositionAdapter):
        return partial(_found, chunker.chunker), chunker.name
    if not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker):
        return partial(_own, chunker), chunker.name
    foreign = chunker if isinstance(chunker, ForeignChunker) else ForeignChunker(chunker)
    return partial(_claimed_or_found, foreign), foreign.name


def _own(chunker: PositionAwareChunker, text: str) -> list[_Seen]:
    document = Document(DocumentId("certified"), text)
    seen = []
    for chunk in chunker.chunk_with_positions(document):
        note = "" if chunk.doc_id == document.id else f" (of {chunk.doc_id!r}, the document is {document.id!r})"
        exact = not note and _is_slice(text, chunk.content, chunk.start, chunk.end)
        seen.append(_Seen(chunk.content, (chunk.start, chunk.end), exact, "own", note))
    return seen


def _found(foreign: ForeignChunker, text: str) -> list[_Seen]:
    return [_Seen(found.piece.text, found.cut, found.exact, "found") for found in place(text, foreign.pieces(text))]


def _claimed_or_found(foreign: ForeignChunker, text: str) -> list[_Seen]:
    pieces = foreign.pieces(text)
    if not any(piece.has_claim for piece in pieces):
        return [_Seen(found.piece.text, found.cut, found.exact, "found") for found in place(text, pieces)]
    seen = []
    for piece in pieces:
        start, end = piece.claimed_start, piece.claimed_end
        cut = None if start is None else (start, start + len(piece.text) if end is None else end)
        seen.append(_Seen(piece.text, cut, piece.claim_holds(text), "claimed"))
    return seen


def _innermost(chunker: object) -> object:
    while isinstance(chunker, ChunkerPositionAdapter | ForeignChunker):
        chunker = chunker.chunker if isinstance(chunker, ChunkerPositionAdapter) else chunker.source
    return chunker


def _is_slice(text: str, content: str, start: int, end: int) -> bool:
    return 0 <= start < end <= len(text) and text[start:end] == content


def _lost(name: str, text: str, seen: list[_Seen]) -> Iterator[CounterExample]:
    cuts = (chunk.cut for chunk in seen if chunk.cut is not None)
    within = [(start, min(end, len(text))) for start, end in cuts if 0 <= start < end]
    for start, end in uncovered_stretches(text, within):
        first, last = trim(text, start, end)
        if first < last:
            lost = text[first:last]
            yield CounterExample(name, first, preview(lost, _PREVIEW) + _finder(seen), count_characters(lost))


def _disorder(name: str, seen: list[_Seen]) -> Iterator[CounterExample]:
    placed = [(chunk.cut, chunk) for chunk in seen if chunk.cut is not None]
    for (before, _), (cut, chunk) in pairwise(placed):
        if cut[0] <= before[0]:
            detail = f"after a start at {before[0]}: {preview(chunk.text, _PREVIEW)}{_finder(seen)}"
            yield CounterExample(name, cut[0], detail)


def _finder(seen: list[_Seen]) -> str:
    """Who found the places, where it was not the chunker: what is out of order or lost may be misplaced."""
    if not seen or seen[0].positions != "found":
        return ""
    skipped = sum(chunk.cut is None for chunk in seen)
    return f" (places found by the adapter, {skipped:,} of {len(seen):,} chunks without one)"


def _example(name: str, chunk: _Seen) -> CounterExample:
    return CounterExample(name, chunk.cut[0] if chunk.cut else None, preview(chunk.text, _PREVIEW) + chunk.note)
