"""Certification: what a chunker does to text that breaks chunkers.

Six things are looked at on every text, and each result comes with its first counter-example. A chunker that never
returns is not caught.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, cast

from rag_eval.chunking.chunker import BuiltInChunker, Cut, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import ForeignChunker, foreign_chunker
from rag_eval.chunking.placement import ChunkerPositionAdapter, count_characters, place, uncovered_stretches
from rag_eval.chunking.sentence import trim
from rag_eval.errors import ConfigurationError, preview
from rag_eval.tokens import ENCODINGS, count_tokens
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId, encode_utf8

Positions = Literal["own", "claimed", "found"]
"""Whose positions were checked: the chunker's own, those it claims, or those the adapter found for it."""

POSITIONS = {
    "own": "its own positions",
    "claimed": "the positions it claims",
    "found": "positions found by ChunkerPositionAdapter",
}
"""The same, in words."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    """Where a check failed: the text's name, the place if there is one, and what was seen, escaped.

    ``cases`` says how many failures it is for: the characters of a stretch that no chunk holds, else 1.
    """

    text_name: str
    start: int | None
    detail: str
    cases: int = 1

    def __str__(self) -> str:
        where = self.text_name if self.start is None else f"{self.text_name} at {self.start}"
        return f"{where}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Check:
    """One property over all texts: how many cases were looked at, how many failed, and the first that did."""

    name: str
    applies: bool
    failures: int
    looked_at: int
    example: CounterExample | None

    @property
    def status(self) -> Literal["passed", "failed", "not applicable"]:
        """What the check came to; passed when there was nothing to look at."""
        if not self.applies:
            return "not applicable"
        return "failed" if self.failures else "passed"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The checks of one chunker, and what they were made on."""

    chunker: str
    positions: Positions
    texts: int
    chunks: int
    skipped_chunks: int
    """Chunks without a place: not claimed, or not found."""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.status != "failed" for check in self.checks)

    def __str__(self) -> str:
        skipped = f", {self.skipped_chunks:,} without a place" if self.skipped_chunks else ""
        seen = f"{self.texts:,} texts, {self.chunks:,} chunks{skipped}; {POSITIONS[self.positions]}"
        lines = [f"{self.chunker}: {'passed' if self.passed else 'FAILED'} ({seen})"]
        for check in self.checks:
            failures = f", {check.failures:,} of {check.looked_at:,}, first {check.example}" if check.failures else ""
            lines.append(f"{check.name}: {check.status}{failures}")
        return "\n".join(lines)


Fits = Callable[[str], bool]
"""Whether a chunk is within a limit of its size."""


def find_size_limit(chunker: object) -> Fits | None:
    """Return the limit that the chunker's own settings declare, in its own measure; None where it cannot be told.

    - our chunkers: ``max_chunk_size`` characters, ``chunk_size`` characters, or tokens where they have an ``encoding``;
    - LangChain: ``chunk_size`` in the splitter's length function;
    - chonkie: ``chunk_size`` in the chunker's tokenizer;
    - semchunk: ``chunk_size`` in its token counter.

    Windows of a document's tokens (``FixedTokenChunker``, LangChain's ``TokenTextSplitter``) have no such limit: a
    window's text, encoded alone, may be a token or two more.
    """
    if isinstance(chunker, BuiltInChunker):
        encoding = getattr(chunker, "encoding", None)
        count = partial(count_tokens, encoding=encoding) if encoding in ENCODINGS else len
        return _limit(chunker, "max_chunk_size", count) or _limit(chunker, "chunk_size", count)
    tokenizer = getattr(chunker, "tokenizer", None)
    length_function = getattr(chunker, "_length_function", None)
    # LangChain's token splitters leave the length function at characters and count in their tokenizer.
    if length_function is len and hasattr(chunker, "_tokenizer"):
        length_function = None
    for size_name, measure in (
        ("_chunk_size", length_function),
        ("chunk_size", getattr(tokenizer, "count_tokens", None)),
        ("chunk_size", getattr(chunker, "token_counter", None)),
    ):
        if callable(measure) and (limit := _limit(chunker, size_name, measure)):
            return limit
    return None


def _limit(chunker: object, name: str, measure: Callable[[str], Any]) -> Fits | None:
    size = getattr(chunker, name, None)
    return (lambda text: bool(measure(text) <= size)) if isinstance(size, int) else None


_MEGABYTE = 1_000_000


def nasty_texts() -> dict[str, str]:
    """Return the texts by name; every one can be written as UTF-8. The same at every call."""
    sentence = "The quick brown fox jumps over the lazy dog, again and again. "
    paragraph = "Repeated paragraphs are where a search finds the first copy instead of the right one.\n\n"
    return {
        "empty": "",
        "whitespace only": " \t\r\n\u2028\u00a0\u3000\n\n " * 20,
        "one character": "x",
        "plain English": "".join(f"Sentence number {i} says something about topic {i % 7}. " for i in range(400)),
        "repeated paragraphs": paragraph * 60,
        "repeated words": "aa aa aa " * 300,
        "emoji": "👍🏽 fine 👩\u200d👩\u200d👧\u200d👦 family 🇳🇱🇧🇪 flags ❤️\u200d🔥 1️⃣ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 " * 60,
        "emoji without spaces": "👍🏽👩🏿\u200d🚀" * 200,
        "combining marks": (
            "e\u0301a\u0323\u0302o\u0308 " + "z" + "\u0300\u0301\u0316\u0327" * 6 + " naïve nai\u0308ve "
        )
        * 60,
        "compatibility characters": "ﬁne ofﬁce ½ № ™ Ⅷ ﷺ ｆｕｌｌ ｗｉｄｔｈ ﾊﾟ … “quotes” ‘here’ " * 60,
        "CRLF": ("First line\r\nsecond line.\r\n\r\n" + sentence + "\r\n") * 40,
        "lone CR": ("First line\rsecond line.\r\r" + sentence + "\r") * 40,
        "odd line ends": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\n\n" * 60,
        "Chinese and Japanese": "汉字没有空格。句子很长，分词很难！真的吗？「はい。」と彼は言った。" * 50,
        "Thai, no spaces": "ภาษาไทยเขียนติดกันโดยไม่เว้นวรรค" * 60,
        "Hindi": "यह एक वाक्य है। क्या यह दूसरा है? हाँ॥ " * 60,
        "right to left": "مرحبا بالعالم؟ هذا نص طويل. שלום עולם! \u202eabc\u202c \u200fمزيج mixed עברית " * 50,
        "special tokens": "<|endoftext|> text <|fim_prefix|>more<|endofprompt|> </s><s>[INST] <pad>\n\n" * 50,
        "NUL and control characters": "before\x00after \x00\x00 \x07bell\x1b[31mred\x1b[0m \x7f \ufffd\n" * 60,
        "byte-order marks": "\ufeff\r\n"
        + "\ufeff# Title\n\nText with one\ufeff inside and zero\u200bwidth\u00adsoft parts.\n" * 30,
        "Markdown": _MARKDOWN * 12,
        "source code": _CODE * 20,
        "long blank runs": ("word" + " " * 700 + "word\n" + "\n" * 300) * 5,
        "one word": "a" * 5000,
        "many short lines": "".join(f"{i}\n" for i in range(3000)),
        "1 MB line": "".join(f"word{i * 7919 % 99991} " for i in range(_MEGABYTE // 9))[:_MEGABYTE],
    }


_MARKDOWN = """# Title #

Setext heading
--------------

Some *text* with a [link](https://example.com/a_(b)) and `code`.

- item one
- item two
  continued

````python
# not a heading
```
def f(x):

    return x  # <|endoftext|>
````

| name | value |
|:-----|------:|
| a    |     1 |
| b    |     2 |

> quoted text. Ends here?

"""

_CODE = '''def transform(rows: list[dict[str, float]]) -> dict[str, float]:
\t"""Doc."""
\tfor row in rows:
\t\tif row["value"] != 0.5e-3:
\t\t\tyield {**row, "key": f"{row['name']!r:>10}"}


'''


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


def certify(chunker: object, texts: Mapping[str, str] | Iterable[str] | None = None) -> Certificate:
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
    - *size limit*: every chunk keeps to the limit in the chunker's settings, in its own measure (``find_size_limit``);
      where there is none, the check does not apply.

    ``texts`` are given by name, or get names by number; the default is ``nasty_texts()``.
    Raises ``ConfigurationError`` on something that is not a chunker or without texts, ``TextEncodingError`` on a text
    with a lone surrogate.
    """
    named = _named(texts)
    knows_places = not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker)
    used = cast("PositionAwareChunker", chunker) if knows_places else foreign_chunker(chunker)
    tally = _Tally(find_size_limit(_innermost(chunker)))
    for text_name, text in named.items():
        tally.look_at(text_name, text, partial(_look, used))
    return Certificate(used.name, tally.positions, len(named), tally.chunks, tally.skipped, tuple(tally.checks()))


class _Tally:
    def __init__(self, fits: Fits | None) -> None:
        self.fits = fits
        self.positions: Positions = "found"
        self.chunks = 0
        self.skipped = 0
        self.failures: Counter[str] = Counter()
        self.looked_at: Counter[str] = Counter()
        self.examples: dict[str, CounterExample] = {}

    def look_at(self, name: str, text: str, run: _Run) -> None:
        try:
            seen, again = run(text), run(text)
            too_large = [chunk for chunk in seen if self.fits and not self.fits(chunk.text)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # foreign code; a panic in Rust is not even an Exception
            raised = error.__cause__ or error  # what the chunker itself raised
            told = preview(f"{type(raised).__name__}: {str(raised).partition(chr(10))[0]}", 100)
            self._count("runs", 1, [CounterExample(name, None, told)])
            return
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
            applies = check != "size limit" or self.fits is not None
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


def _look(chunker: PositionAwareChunker | ForeignChunker, text: str) -> list[_Seen]:
    """What a chunker gives for a text, with its own places, those it claims, or those that are found for it."""
    foreign = chunker.chunker if isinstance(chunker, ChunkerPositionAdapter) else chunker
    seen = []
    if not isinstance(foreign, ForeignChunker):
        document = Document(DocumentId("certified"), text)
        for chunk in foreign.chunk_with_positions(document):
            start, end = chunk.start, chunk.end
            note = "" if chunk.doc_id == document.id else f" (of {chunk.doc_id!r}, the document is {document.id!r})"
            exact = not note and 0 <= start < end <= len(text) and text[start:end] == chunk.content
            seen.append(_Seen(chunk.content, (start, end), exact, "own", note))
        return seen
    pieces = foreign.pieces(text)
    if foreign is not chunker or not any(piece.has_claim for piece in pieces):
        return [_Seen(found.piece.text, found.cut, found.exact, "found") for found in place(text, pieces)]
    for piece in pieces:
        claimed, after = piece.claimed_start, piece.claimed_end
        cut = None if claimed is None else (claimed, claimed + len(piece.text) if after is None else after)
        seen.append(_Seen(piece.text, cut, piece.claim_holds(text), "claimed"))
    return seen


def _innermost(chunker: object) -> object:
    while isinstance(chunker, ChunkerPositionAdapter | ForeignChunker):
        chunker = chunker.chunker if isinstance(chunker, ChunkerPositionAdapter) else chunker.source
    return chunker


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
