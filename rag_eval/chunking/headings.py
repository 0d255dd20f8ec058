"""The headings of a document: which stand above a place, and the section that holds it."""

from bisect import bisect_right
from functools import cached_property
from pathlib import PurePosixPath

from rag_eval.chunking.markdown import Block, markdown_blocks
from rag_eval.types.documents import Document


class Outline:
    """The headings of a document, found as ``MarkdownChunker`` finds them; a text without any is one section."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @cached_property
    def headings(self) -> list[Block]:
        """The headings, in order."""
        return [block for block in markdown_blocks(self._document.content) if block.level]

    @cached_property
    def title(self) -> str:
        """The title in the metadata, or else the first heading of the highest level, or else the name of the file."""
        told = self._document.metadata.get("title")
        if isinstance(told, str) and told.strip():
            return told.strip()
        highest = min(self.headings, key=lambda one: one.level, default=None)
        return highest.title if highest and highest.title else PurePosixPath(self._document.id).stem

    def path(self, start: int, end: int) -> list[str]:
        """Return the titles above the first character of ``[start, end)`` that is no whitespace, the highest first."""
        at, _ = self._filled(start, end)
        above: list[Block] = []
        for heading in self.headings[: bisect_right(self.headings, at, key=lambda one: one.start)]:
            above = [*(one for one in above if one.level < heading.level), heading]
        return [one.title for one in above if one.title]

    def section(self, start: int, end: int, level: int) -> tuple[int, int]:
        """Return the place of the section, or of the sections, that hold ``[start, end)``.

        A section reaches from a heading to the next; headings below ``level`` end none.
        """
        at, last = self._filled(start, end)
        borders = [0, *(one.start for one in self.headings if one.level <= level), len(self._document.content)]
        first = borders[bisect_right(borders[:-1], at) - 1]
        after = borders[bisect_right(borders[:-1], last - 1)]
        return min(first, start), max(after, end)

    def _filled(self, start: int, end: int) -> tuple[int, int]:
        """The place without the whitespace around it; as it is where it holds nothing else."""
        text = self._document.content[start:end]
        before, after = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
        return (start + before, end - after) if text.strip() else (start, end)
