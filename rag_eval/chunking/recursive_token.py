"""Recursive splitting with sizes in tokens: the cuts of LangChain's splitter, at exact places.

The pieces are the same as those of the recursive character chunker, but a piece is as long as the number of tokens it
is on its own. Places are then counted in tokens, summed over the pieces, and joined in the same way. The text is
encoded once; how many tokens a paragraph, a line or a word is, is read off that encoding (see ``token_counts``).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.merging import listed_borders, merge
from rag_eval.chunking.separators import (
    DEFAULT_SEPARATORS,
    add_stripped,
    add_unsplit,
    check_separators,
    choose_separator,
)
from rag_eval.chunking.sizes import check_size_and_overlap
from rag_eval.chunking.token_counts import TokenCounter
from rag_eval.tokens import check_encoding


@dataclass(frozen=True)
class RecursiveTokenChunker(BuiltInChunker):
    """Chunks of pieces with at most ``chunk_size`` tokens together, cut at the coarsest separator that allows it.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the same settings and the
    number of tokens as its length function; the rules are those of ``RecursiveCharacterChunker``. Tokens are counted
    for each piece on its own: a chunk, encoded as a whole, usually has fewer and now and then a few more.
    Text that looks like a special token is text.

    Raises ``ConfigurationError`` on sizes that are not whole numbers, ``chunk_size`` < 1, ``chunk_overlap`` outside
    [0, chunk_size), no separators, or an unknown encoding.
    """

    chunk_size: int = 400
    chunk_overlap: int = 0
    separators: Sequence[str] = DEFAULT_SEPARATORS
    encoding: str = "cl100k_base"

    def __post_init__(self) -> None:
        check_size_and_overlap("chunk_size", self.chunk_size, self.chunk_overlap)
        object.__setattr__(self, "separators", check_separators(self.separators))
        check_encoding(self.encoding)

    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty.

        Raises ``TextEncodingError`` on a lone surrogate.
        """
        cuts: list[Cut] = []
        if text:
            self._split(TokenCounter(text, self.encoding), 0, len(text), self.separators, cuts)
        return cuts

    def _split(self, counter: TokenCounter, start: int, end: int, separators: Sequence[str], cuts: list[Cut]) -> None:
        text = counter.text
        separator, finer = choose_separator(separators, text, start, end)
        borders = counter.borders(separator, start, end)
        totals = [0, *counter.counts(borders, separator).cumsum().tolist()]
        in_tokens = listed_borders(totals[:-1], totals[-1])
        for low, high, oversize in merge(in_tokens, 0, totals[-1], self.chunk_size, self.chunk_overlap):
            left, right = int(borders[bisect_left(totals, low)]), int(borders[bisect_left(totals, high)])
            if not oversize:
                add_stripped(cuts, text, left, right)
            elif finer:
                self._split(counter, left, right, finer, cuts)
            else:
                add_unsplit(cuts, text, left, right)
