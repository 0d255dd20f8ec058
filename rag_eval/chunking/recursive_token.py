"""Recursive splitting with sizes in tokens: the cuts of LangChain's splitter, at exact places.

The pieces are the same as those of the recursive character chunker, but a piece is as long as the number of tokens it
is on its own. Places are then counted in tokens, summed over the pieces, and joined in the same way. Each paragraph is
encoded once; the tokens of the lines and words in a long one are read off that encoding (see ``token_counts``).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.merging import listed_borders, merge
from rag_eval.chunking.separators import (
    DEFAULT_SEPARATORS,
    add_stripped,
    check_separators,
    choose_separator,
    piece_borders,
)
from rag_eval.chunking.sizes import check_size_and_overlap
from rag_eval.chunking.token_counts import SHORT, EncodedPiece, TokenCounter, counts_before
from rag_eval.tokens import check_encoding, longest_token
from rag_eval.types.ids import encode_utf8


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
        encode_utf8(text)
        cuts: list[Cut] = []
        if text:
            self._split(TokenCounter(text, self.encoding), None, 0, len(text), self.separators, cuts)
        return cuts

    def _split(
        self,
        counter: TokenCounter,
        whole: EncodedPiece | None,
        start: int,
        end: int,
        separators: Sequence[str],
        cuts: list[Cut],
    ) -> None:
        text = counter.text
        separator, finer = choose_separator(separators, text, start, end)
        borders = piece_borders(separator, text, start, end)
        places = borders.tolist()
        encoded: dict[int, EncodedPiece] = {}
        if whole is not None and counts_before(separator[:1]):
            counts = whole.counts(borders, separator[0])
        else:
            counts = self._encode_each(counter, places, encoded)
        totals = [0, *np.cumsum(counts).tolist()]
        for left, right, oversize in merge(listed_borders(totals), 0, totals[-1], self.chunk_size, self.chunk_overlap):
            left, right = places[bisect_left(totals, left)], places[bisect_left(totals, right)]
            if not oversize:
                add_stripped(cuts, text, left, right)
            elif finer:
                self._split(counter, encoded.get(left, whole), left, right, finer, cuts)
            else:
                cuts.append((left, right))

    def _encode_each(
        self, counter: TokenCounter, places: list[int], encoded: dict[int, EncodedPiece]
    ) -> NDArray[np.int64]:
        """The tokens of each piece between the places; those of oversize pieces are kept in ``encoded``."""
        certain = self.chunk_size * longest_token(self.encoding)
        counts = np.empty(len(places) - 1, dtype=np.int64)
        for i, (start, end) in enumerate(zip(places, places[1:], strict=False)):
            if end - start <= SHORT:
                counts[i] = counter.count(start, end)
            elif end - start >= certain:
                counts[i] = self.chunk_size  # oversize whatever its tokens are: they need not be known
            else:
                piece = EncodedPiece(counter, start, end)
                counts[i] = len(piece)
                if len(piece) >= self.chunk_size:
                    encoded[start] = piece
        return counts
