"""Chunks that follow the structure of a Markdown text."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.cutting import cut_to_size, pack
from rag_eval.chunking.markdown_blocks import Block, markdown_blocks
from rag_eval.chunking.sizes import check_at_least
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.document import Document


@dataclass(frozen=True)
class MarkdownChunker(BuiltInChunker):
    """Sections cut into chunks of at most ``max_chunk_size`` characters, along their blocks.

    A chunk never reaches over a heading into the next section, except that a heading with nothing under it stays with
    the deeper heading that follows. Fenced code, tables, list items and paragraphs are kept whole where they fit, and
    grouped as long as the size allows; a longer one is cut at its line ends, then between words, then inside a word.
    Headings are ATX (``## Title``) and setext (underlined), none inside code, HTML comments or front matter.

    The metadata of a chunk holds the path of headings above it: ``{"headings": ["Title", "Section"]}``.
    Raises ``ConfigurationError`` when the size is below 1.
    """

    max_chunk_size: int = 1000

    def __post_init__(self) -> None:
        check_at_least("max_chunk_size", self.max_chunk_size, 1)

    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty."""
        return [cut for _, cuts in self._cut_sections(text) for cut in cuts]

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """The chunks in reading order with their places and, as metadata, the headings above them."""
        paths = (path for path, cuts in self._cut_sections(doc.content) for _ in cuts)
        chunks = super().chunk_with_positions(doc)
        return [replace(chunk, metadata={"headings": path}) for chunk, path in zip(chunks, paths, strict=True)]

    def _cut_sections(self, text: str) -> Iterator[tuple[list[str], list[Cut]]]:
        size = self.max_chunk_size
        for section in _sections(markdown_blocks(text)):
            pieces = [piece for block in section.blocks for piece in cut_to_size(text, block.start, block.end, size)]
            yield section.path, list(pack(pieces, size))


@dataclass
class _Section:
    path: list[str]
    blocks: list[Block] = field(default_factory=list)


def _sections(blocks: list[Block]) -> Iterator[_Section]:
    above: list[Block] = []
    section = _Section([])
    for block in blocks:
        if block.level:
            goes_deeper = bool(section.blocks) and 0 < section.blocks[-1].level < block.level
            above = [*(heading for heading in above if heading.level < block.level), block]
            path = [heading.title for heading in above]
            if goes_deeper:
                section.path = path
            else:
                yield section
                section = _Section(path)
        section.blocks.append(block)
    yield section
