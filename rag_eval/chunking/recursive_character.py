"""Recursive splitting with sizes in characters: the cuts of LangChain's splitter, at exact places.

The text is cut before each occurrence of the first separator it holds. Neighbouring pieces are joined as long as they
fit the size; a piece that fills a chunk alone is split by the separators that are left. As pieces touch, a length is
a difference of two places: ``str.rfind`` gives the furthest border that fits, and words are never listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.merging import borders_before, merge
from rag_eval.chunking.separators import (
    DEFAULT_SEPARATORS,
    add_stripped,
    add_unsplit,
    check_separators,
    choose_separator,
)
from rag_eval.chunking.sizes import check_size_and_overlap


@dataclass(frozen=True)
class RecursiveCharacterChunker(BuiltInChunker):
    r"""Chunks of at most ``chunk_size`` characters, cut at the coarsest separator that allows it.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the same settings:
    separators stay at the start of the piece they precede, chunks are stripped of whitespace, and a piece that no
    separator can split is kept as it is, whatever its length. There are two differences, both rare:

    - where two of LangChain's chunks start at the same place, only the longer, which holds the other, is kept; that
      happens when the overlap holds all of a chunk but the whitespace before it;
    - chunks of whitespace alone are always dropped, which LangChain does except for pieces it cannot split.

    Raises ``ConfigurationError`` on sizes that are not whole numbers, ``chunk_size`` < 1, ``chunk_overlap`` outside
    [0, chunk_size), or no separators.
    """

    chunk_size: int = 1000
    chunk_overlap: int = 200
    separators: Sequence[str] = DEFAULT_SEPARATORS

    def __post_init__(self) -> None:
        check_size_and_overlap("chunk_size", self.chunk_size, self.chunk_overlap)
        object.__setattr__(self, "separators", check_separators(self.separators))

    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty."""
        cuts: list[Cut] = []
        self._split(text, 0, len(text), self.separators, cuts)
        return cuts

    def _split(self, text: str, start: int, end: int, separators: Sequence[str], cuts: list[Cut]) -> None:
        separator, finer = choose_separator(separators, text, start, end)
        borders = borders_before(separator, text, start, end)
        for left, right, oversize in merge(borders, start, end, self.chunk_size, self.chunk_overlap):
            if not oversize:
                add_stripped(cuts, text, left, right)
            elif finer:
                self._split(text, left, right, finer, cuts)
            else:
                add_unsplit(cuts, text, left, right)
