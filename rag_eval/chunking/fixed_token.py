"""Chunks of a fixed number of tokens.

The text is encoded once, the ends of the tokens are mapped to code points, and the source is sliced there. No token is
decoded, so chunks are always exact. An end inside a code point moves left to the start of that code point.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from rag_eval.chunking.chunker import BuiltInChunker, Cut, Encoding, check_overlap
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Count, Whole
from rag_eval.tokens import check_encoding, token_ends


@part
class FixedTokenChunker(BuiltInChunker):
    """Windows of ``tokens_per_chunk`` tokens that overlap by ``chunk_overlap`` tokens. Whitespace is kept.

    The last window ends with the text and may be shorter. Ends that move left can make a window empty or put it inside
    another one; such windows are dropped.
    """

    packages = ("tiktoken",)

    tokens_per_chunk: Annotated[Count, Shown, Field(description="Number of tokens per chunk.")] = 100
    chunk_overlap: Annotated[Whole, Shown, Field(description="Number of tokens shared with the previous chunk.")] = 0
    encoding: Encoding = "cl100k_base"

    def __post_init__(self) -> None:
        check_overlap("tokens_per_chunk", self.tokens_per_chunk, self.chunk_overlap)
        check_encoding(self.encoding)

    def cuts(self, text: str) -> list[Cut]:
        """Return the places of the chunks, with increasing ends. Raises ``TextEncodingError`` on a lone surrogate."""
        if not text:
            return []
        borders = np.concatenate(([0], token_ends(text, self.encoding)))
        tokens, step = len(borders) - 1, self.tokens_per_chunk - self.chunk_overlap
        # Windows that start within the overlap of the last one would add nothing.
        first = np.arange(0, max(tokens - self.chunk_overlap, 1), step)
        starts, ends = borders[first], borders[np.minimum(first + self.tokens_per_chunk, tokens)]
        last_of_start = np.append(starts[1:] > starts[:-1], True)
        starts, ends = starts[last_of_start], ends[last_of_start]
        first_of_end = np.append(True, ends[1:] > ends[:-1]) & (starts < ends)
        return list(zip(starts[first_of_end].tolist(), ends[first_of_end].tolist(), strict=True))
