"""The redundancy-penalised metrics that Chroma published, beside the merged ones.

B. Smith, A. Troynikov, *Evaluating Chunking Strategies for Retrieval*, Chroma Technical Report, 2024.
N is the number of truth characters that the retrieved chunks cover, each counted once. Sums are over chunks and
references as they are given: text that is retrieved twice is paid for twice. With k = "min" a query gets as many hits
as there are chunks that touch one of its references, at most 20.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.formulas import IoU, ratio
from rag_eval.metrics.intervals import Place, overlapping_pairs
from rag_eval.metrics.metric import MIN, Counts, Cut, Depth, MetricName, RetrievalMetric, Values, needed
from rag_eval.metrics.span_metrics import CHARACTERS, SpanCase, token_counts
from rag_eval.metrics.sweep import SpanRows, SpanSweep, sweep_places
from rag_eval.metrics.table_rows import most_on_line
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

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


def touching_chunks(truth: SpanRows, chunks: SpanRows) -> SpanRows:
    """For each query the chunks that touch its truth, each once; ``chunks`` are those of the whole corpus."""
    # One more than the last end: a chunk at the end of one document does not touch the next.
    last = int(max(chunks.end.max(initial=0), truth.end.max(initial=0))) + 1
    most_on_line(int(max(chunks.doc.max(initial=0), truth.doc.max(initial=0))) + 1, last)
    length = last + 1
    line = ChunkLine.build(chunks.doc * length + chunks.start, chunks.doc * length + chunks.end)
    reference, chunk = line.touching(truth.doc * length + truth.start, truth.doc * length + truth.end)
    query = truth.numbers()[reference]
    count = len(line.starts) + 1
    query, chunk = np.divmod(np.unique(query * count + chunk), count)
    offsets = np.searchsorted(query, np.arange(truth.queries + 1))
    doc, start = np.divmod(line.starts[chunk], length)
    return SpanRows(offsets, doc, start, line.ends[chunk] - doc * length)


@dataclass(frozen=True)
class ChromaMetric(RetrievalMetric):
    """A metric on the first k spans retrieved; k is a number, "min" (which needs the chunks), a ``Cut`` or None.

    Raises ``ConfigurationError`` on another k, and on "min" without chunks.
    """

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    cuts = frozenset({"all", "hits", "tokens", "min"})
    k: Depth = None
    chunks: ChunkedCorpus | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut == MIN and self.chunks is None:
            raise ConfigurationError(f"{self.name} counts the chunks that touch a reference: give it the chunks")

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Iterable[Document] | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """The metric of a full name; raises ``ConfigurationError`` when its cut is ``min`` without chunks."""
        is_min = name.cut == MIN
        return cls(name.depth, ChunkedCorpus(needed(chunks, str(name), "chunks")) if is_min else None)

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[SpanCase]) -> Values:
        """The metric for several queries at once."""
        hits = [retrieved[: self.cut.hits] for retrieved, _ in cases]
        tokens = token_counts(hits, None) if self.parsed_name.reads_tokens else None
        fewest = None if self.chunks is None else [self.chunks.min_k(relevant) for _, relevant in cases]
        truth = [CHARACTERS.places(relevant) for _, relevant in cases]
        return self.score(sweep_places([CHARACTERS.places(spans) for spans in hits], truth, tokens, fewest), self.cut)


class ChromaRecall(ChromaMetric):
    """N / Σ|reference|; 0 on empty truth."""

    label = "chroma_recall"
    only_rises = True

    @classmethod
    def _formula(cls, hits: SpanSweep, cut: Cut) -> Values:
        return ratio(hits.covered(cut), hits.truth_total, cls.empty)


class ChromaPrecision(ChromaMetric):
    """N / Σ|chunk| over all retrieved chunks, of whatever document; 0 on empty retrieval."""

    label = "chroma_precision"

    @classmethod
    def _formula(cls, hits: SpanSweep, cut: Cut) -> Values:
        return ratio(hits.covered(cut), hits.retrieved_total(cut), cls.empty)


class ChromaIoU(ChromaMetric):
    """N / (Σ|chunk| + Σ|uncovered part of a reference|); 1 when both sides are empty, 0 when one is."""

    label = "chroma_iou"
    empty = 1.0

    @classmethod
    def _formula(cls, hits: SpanSweep, cut: Cut) -> Values:
        return ratio(hits.covered(cut), hits.retrieved_total(cut) + hits.uncovered_total(cut), cls.empty)


@dataclass(frozen=True)
class PrecisionOmega(IoU):
    """The precision that perfect retrieval would reach with these chunks: a property of the chunking alone.

    With C the union of all chunks that touch a reference: |C ∩ truth| / |C ∪ truth|. What was retrieved plays no part.
    0 on empty truth, and when no chunk touches it.
    """

    label = "precision_omega"
    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    only_rises = True
    empty = 0.0
    cuts = frozenset({"all"})
    reads = frozenset({"chunks"})
    chunks: ChunkedCorpus

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Iterable[Document] | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """The metric of a full name; raises ``ConfigurationError`` when it is without chunks."""
        return cls(ChunkedCorpus(needed(chunks, str(name), "chunks")))

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query; ``retrieved`` is not looked at."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[SpanCase]) -> Values:
        """The metric for several queries at once."""
        truth = [relevant for _, relevant in cases]
        touching = [self.chunks.touching(relevant) for relevant in truth]
        return self.score(sweep_places(touching, [CHARACTERS.places(spans) for spans in truth]), self.cut)
