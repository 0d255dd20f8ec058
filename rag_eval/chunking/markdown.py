"""Parse Markdown into blocks and headings, and cut chunks along them."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from rag_eval.chunking.chunker import BuiltInChunker, Cut
from rag_eval.chunking.sentence import cut_to_size, pack, trim
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Count
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|\Z)")
_SETEXT = re.compile(r" {0,3}(?:(=+)|-+)[ \t]*\Z")
_FENCE = re.compile(r"([ \t]*)(?:(`{3,})[^`]*|(~{3,}).*)\Z", re.DOTALL)
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])(?=[ \t]|\Z)")
_DELIMITER_ROW = re.compile(r" {0,3}\|?[ \t]*:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*\Z")
_HTML = re.compile(r" {0,3}(?:(<!--)|<(pre|script|style|textarea)(?=[ \t>]|\Z))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block at ``[start, end)``. Headings have a level from 1 to 6, other blocks level 0."""

    start: int
    end: int
    level: int = 0
    title: str = ""


class _Open(Enum):
    """The kind of block that the previous line belongs to."""

    NOTHING = auto()
    PARAGRAPH = auto()
    ITEM = auto()
    TABLE = auto()


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str

    @property
    def indented(self) -> bool:
        """Whether the line is indented like code, by a tab or four spaces."""
        return self.text.startswith(("    ", "\t", " \t", "  \t", "   \t"))


def markdown_blocks(text: str) -> list[Block]:
    """Return the blocks of a text in order. Only whitespace lies outside of them."""
    reader = _Reader(text)
    at = reader.front_matter()
    while at < len(reader.lines):
        at = reader.read_line(at)
    reader.close(at)
    return reader.blocks


def front_matter(text: str) -> str:
    """Return the text between the dashes at the start of a document, or an empty text without front matter."""
    if not text.removeprefix("\ufeff").startswith("---"):
        return ""
    reader = _Reader(text)
    return "\n".join(line.text for line in reader.lines[1 : max(1, reader.front_matter() - 1)])


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = [_Line(m.start(), m.end(), m[0].rstrip("\r\n")) for m in _LINE.finditer(text)]
        # Ignore a byte-order mark, unless the line has nothing else.
        if text.startswith("\ufeff") and (rest := self.lines[0].text[1:]).strip():
            self.lines[0] = _Line(0, self.lines[0].end, rest)
        self.blocks: list[Block] = []
        self.open = _Open.NOTHING
        self.opened_at = 0
        self.in_list = False

    def read_line(self, at: int) -> int:
        """Read a line, and the rest of its block if that has an explicit end. Return the number of the next line."""
        line = self.lines[at]
        if not line.text.strip():
            self.close(at)
        elif is_last := self._verbatim(line):
            self.close(at)
            after = next((n for n in range(at, len(self.lines)) if is_last(self.lines[n], n == at)), len(self.lines))
            after = min(after + 1, len(self.lines))
            self._add(at, after)
            return after
        elif not self._read_heading(at):
            self._read_text(at)
        return at + 1

    def _read_heading(self, at: int) -> bool:
        """Read a line that is a heading or underlines one. Return whether it was one."""
        text = self.lines[at].text
        if heading := _ATX.match(text):
            self.close(at)
            self._add(at, at + 1, len(heading[1]), _atx_title(text[heading.end() :]))
            self.in_list = False
            return True
        underline = _SETEXT.match(text) if self.open is _Open.PARAGRAPH else None
        if underline:
            title = " ".join(above.text.strip() for above in self.lines[self.opened_at : at])
            self._add(self.opened_at, at + 1, 1 if underline[1] else 2, title)
            self.open = _Open.NOTHING
        return underline is not None

    def _read_text(self, at: int) -> None:
        """Read a line that starts or continues a table, a list item or a paragraph."""
        line = self.lines[at]
        if self._starts_table(at):
            self.close(at - 1)
            self.open, self.opened_at = _Open.TABLE, at - 1
        elif _ITEM.match(line.text) and (self.in_list or not line.indented):
            self.close(at)
            self.open, self.opened_at = _Open.ITEM, at
            self.in_list = True
        elif self.open is _Open.NOTHING:
            self.open, self.opened_at = _Open.PARAGRAPH, at
            self.in_list = self.in_list and line.text[0] in " \t"

    def close(self, at: int) -> None:
        if self.open is not _Open.NOTHING and at > self.opened_at:
            self._add(self.opened_at, at)
        self.open = _Open.NOTHING

    def _add(self, first: int, after: int, level: int = 0, title: str = "") -> None:
        self.blocks.append(Block(self.lines[first].start, self.lines[after - 1].end, level, title))

    def _starts_table(self, at: int) -> bool:
        line = self.lines[at].text
        return (
            self.open is _Open.PARAGRAPH
            and "|" in line
            and "|" in self.lines[at - 1].text
            and _DELIMITER_ROW.match(line) is not None
        )

    def _verbatim(self, line: _Line) -> Callable[[_Line, bool], bool] | None:
        """Return a function that recognises the last line of the fenced code or raw HTML opened by a line, or None.

        The function takes a line and whether it is the first one.
        """
        if (fence := _FENCE.match(line.text)) and (self.in_list or not line.indented):
            marker = fence[2] or fence[3]
            deep = self.in_list

            def closes(candidate: _Line, is_first: bool) -> bool:
                bare = candidate.text.strip(" \t")
                long_enough = len(bare) >= len(marker) and not bare.strip(marker[0])
                return long_enough and not is_first and (deep or not candidate.indented)

            return closes
        if html := _HTML.match(line.text):
            end = "-->" if html[1] else f"</{html[2].lower()}>"
            return lambda candidate, _: end in candidate.text.lower()
        return None

    def front_matter(self) -> int:
        if not self.lines or self.lines[0].text.rstrip() != "---":
            return 0
        for at in range(1, len(self.lines)):
            if self.lines[at].text.rstrip() in ("---", "..."):
                self._add(0, at + 1)
                return at + 1
            if not self.lines[at].text.strip():
                break
        return 0


def _atx_title(rest: str) -> str:
    title = rest.strip(" \t")
    without_closing = title.rstrip("#")
    if not without_closing or without_closing[-1] in " \t":
        return without_closing.rstrip(" \t")
    return title


class Outline:
    """The headings of a document, as ``MarkdownChunker`` finds them. A text without headings is one section."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @cached_property
    def headings(self) -> list[Block]:
        return [block for block in markdown_blocks(self._document.content) if block.level]

    @cached_property
    def title(self) -> str:
        """The title in the metadata, else the first heading of the highest level, else the name of the file."""
        stated = self._document.metadata.get("title")
        if isinstance(stated, str) and stated.strip():
            return stated.strip()
        highest = min(self.headings, key=lambda heading: heading.level, default=None)
        return highest.title if highest and highest.title else PurePosixPath(self._document.id).stem

    def path(self, start: int, end: int) -> list[str]:
        """Return the titles above the first visible character of ``[start, end)``, from the highest level."""
        at, _ = self._filled(start, end)
        above: list[Block] = []
        for heading in self.headings[: bisect_right(self.headings, at, key=lambda block: block.start)]:
            above = _under(above, heading)
        return [heading.title for heading in above if heading.title]

    def section(self, start: int, end: int, level: int) -> tuple[int, int]:
        """Return the place of the sections that contain ``[start, end)``.

        A section extends from a heading to the next one of at most this level.
        """
        at, last = self._filled(start, end)
        starts = [heading.start for heading in self.headings if heading.level <= level]
        borders = [0, *starts, len(self._document.content)]
        first = borders[bisect_right(borders[:-1], at) - 1]
        after = borders[bisect_right(borders[:-1], last - 1)]
        return min(first, start), max(after, end)

    def _filled(self, start: int, end: int) -> tuple[int, int]:
        """Return the range without surrounding whitespace, or unchanged if it has nothing else."""
        first, last = trim(self._document.content, start, end)
        return (first, last) if first < last else (start, end)


@part
class MarkdownChunker(BuiltInChunker):
    """Split sections into chunks of at most ``max_chunk_size`` characters, at block boundaries.

    A chunk never crosses a heading, but a heading without text stays with the deeper heading that follows. Fenced code,
    tables, list items and paragraphs are kept whole if they fit, and grouped up to the size. Longer ones are cut at
    line ends, then between words, then inside a word. Headings are ATX (``## Title``) and setext (underlined); those
    inside code, HTML comments or front matter do not count.

    The metadata of a chunk has the headings above it: ``{"headings": ["Title", "Section"]}``.
    """

    max_chunk_size: Annotated[Count, Shown, Field(description="Maximum number of characters per chunk.")] = 1000

    def cuts(self, text: str) -> list[Cut]:
        return [cut for _, cuts in self._cut_sections(text) for cut in cuts]

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in reading order, with their positions and the headings above them as metadata."""
        sections = self._cut_sections(doc.content)
        return [doc.chunk_at(*cut, {"headings": path}) for path, cuts in sections for cut in cuts]

    def _cut_sections(self, text: str) -> Iterator[tuple[list[str], list[Cut]]]:
        size = self.max_chunk_size
        for path, blocks in _sections(markdown_blocks(text)):
            pieces = [piece for block in blocks for piece in cut_to_size(text, block.start, block.end, size)]
            yield path, list(pack(pieces, size))


def _sections(blocks: list[Block]) -> Iterator[tuple[list[str], list[Block]]]:
    """Yield the titles above each section, and its blocks."""
    above: list[Block] = []
    section: list[Block] = []
    for block in blocks:
        if block.level:
            goes_deeper = bool(section) and 0 < section[-1].level < block.level
            if not goes_deeper:
                yield [heading.title for heading in above], section
                section = []
            above = _under(above, block)
        section.append(block)
    yield [heading.title for heading in above], section


def _under(above: list[Block], heading: Block) -> list[Block]:
    """Return the headings above the text that follows a heading, from the highest level."""
    return [*(upper for upper in above if upper.level < heading.level), heading]
