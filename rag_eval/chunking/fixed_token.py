"""Windows of a fixed number of tokens over one encoding of the whole text.

The tokens' ends are mapped to code points and the source is sliced there; nothing is decoded, so nothing can come back
different. An end inside a code point moves left, to where the code point starts.
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
    """Windows of ``tokens_per_chunk`` tokens, each ``chunk_overlap`` tokens into the one before; whitespace is kept.

    The last window ends with the text and may be shorter. A window that the moved ends leave empty, or inside another,
    is left out.

    Raises ``ConfigurationError`` on sizes that are not whole numbers, ``tokens_per_chunk`` < 1, ``chunk_overlap``
    outside [0, tokens_per_chunk), or an unknown encoding.
    """

    packages = ("tiktoken",)

    tokens_per_chunk: Annotated[Count, Shown, Field(description="The tokens of a chunk.")] = 100
    chunk_overlap: Annotated[Whole, Shown, Field(description="The tokens shared with the chunk before.")] = 0
    encoding: Encoding = "cl100k_base"

    def __post_init__(self) -> None:
        check_overlap("tokens_per_chunk", self.tokens_per_chunk, self.chunk_overlap)
        check_encoding(self.encoding)

    def cuts(self, text: str) -> list[Cut]:
        """Return the places of the chunks, ends rising too; raises ``TextEncodingError`` on a lone surrogate."""
        if not text:
            return []
        borders = np.concatenate(([0], token_ends(text, self.encoding)))
        tokens, step = len(borders) - 1, self.tokens_per_chunk - self.chunk_overlap
        # A window that starts in the overlap of one that reaches the end would add nothing.
        first = np.arange(0, max(tokens - self.chunk_overlap, 1), step)
        starts, ends = borders[first], borders[np.minimum(first + self.tokens_per_chunk, tokens)]
        last_of_start = np.append(starts[1:] > starts[:-1], True)
        starts, ends = starts[last_of_start], ends[last_of_start]
        first_of_end = np.append(True, ends[1:] > ends[:-1]) & (starts < ends)
        return list(zip(starts[first_of_end].tolist(), ends[first_of_end].tolist(), strict=True))
