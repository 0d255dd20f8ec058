"""Where the chunks of a corpus stand, and which of them touch a reference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rag_eval.metrics.formulas import Counts
from rag_eval.metrics.intervals import Place
from rag_eval.metrics.span_sweep import overlapping_pairs
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.span import CharacterSpan

MAX_MIN_K = 20
"""The most hits that k = "min" takes."""


@dataclass(frozen=True)
class ChunkLine:
    """Chunks on one line of positions, sorted by start; ends need not be in order."""

    starts: Counts
    ends: Counts

    @classmethod
    def build(cls, starts: Counts, ends: Counts) -> "ChunkLine":
        """The line of the given chunks, in any order."""
        order = np.lexsort((ends, starts))
        return cls(starts[order], ends[order])

    def touching(self, starts: Counts, ends: Counts) -> tuple[Counts, Counts]:
        """The pairs (reference, chunk), by number, that share a position or a border."""
        return overlapping_pairs(self.starts, self.ends, starts - 1, ends + 1)


class ChunkedCorpus:
    """All chunks of a corpus, to be asked which of them touch a reference.

    A chunk touches a reference of its document when they share a character or one ends where the other begins:
    Chroma counts it so, and its published figures depend on it.
    """

    def __init__(self, chunks: Iterable[PositionAwareChunk]) -> None:
        places: dict[str, list[tuple[int, int]]] = {}
        for chunk in chunks:
            places.setdefault(chunk.doc_id, []).append((chunk.start, chunk.end))
        self._lines = {
            doc_id: ChunkLine.build(*np.array(spans, dtype=np.int64).T.copy()) for doc_id, spans in places.items()
        }

    def touching(self, references: Sequence[CharacterSpan]) -> list[Place]:
        """The places of the chunks that touch a reference, each chunk once."""
        places: list[Place] = []
        for doc_id in sorted({reference.doc_id for reference in references}):
            line = self._lines.get(doc_id)
            if line is None:
                continue
            spans = [(r.start, r.end) for r in references if r.doc_id == doc_id]
            _, chunks = line.touching(*np.array(spans, dtype=np.int64).T)
            numbers = np.unique(chunks)
            pairs = zip(line.starts[numbers].tolist(), line.ends[numbers].tolist(), strict=True)
            places.extend((doc_id, start, end) for start, end in pairs)
        return places

    def min_k(self, references: Sequence[CharacterSpan]) -> int:
        """How many chunks touch a reference, at most 20: what k = "min" stands for."""
        return min(len(self.touching(references)), MAX_MIN_K)
