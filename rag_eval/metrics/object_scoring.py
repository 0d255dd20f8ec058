"""Score queries whose spans or chunk ids are Python objects: the base classes of the built-in metrics.

Objects become the arrays that the tables are read into, so that both are scored by the formulas of
``rag_eval.metrics.formulas``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from rag_eval.errors import ConfigurationError, SpanMismatchError
from rag_eval.metrics.coverage import SpanRows, touching_chunks
from rag_eval.metrics.groups import coverage_of_places, ungrouped
from rag_eval.metrics.metric import (
    DEFAULT_ENCODING,
    MAX_MIN_K,
    MIN,
    Counts,
    Cut,
    MetricName,
    RetrievalMetric,
    Values,
    needed,
)
from rag_eval.metrics.span_sets import Place
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Documents, by_id
from rag_eval.types.ids import ChunkId, EvaluationType

_MOST_STARTS = 2**23
"""How many token starts ``TokenUnit`` keeps in memory."""

SpanOrGroup = CharacterSpan | tuple[CharacterSpan, ...]
IdOrGroup = ChunkId | tuple[ChunkId, ...]


class TokenUnit:
    """Measures spans in tokens of whole documents: a span holds the tokens that start in it.

    A token starts at the character that holds its first byte, so each token belongs to exactly one of two adjacent
    spans and counts once however spans overlap. Documents are tokenised on first use.

    Args:
        encoding: The name of a tiktoken encoding.
        documents: The documents that the spans were taken from.

    Raises:
        ConfigurationError: The encoding is unknown.
    """

    def __init__(self, encoding: str, documents: Documents) -> None:
        check_encoding(encoding)
        self.name = encoding
        self._documents = by_id(documents)
        self._known: dict[str, tuple[Counts, int]] = {}

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """Return the spans as intervals of token numbers; raise as ``tokens_before`` does."""
        places: list[Place] = []
        for span in spans:
            first, last = self.tokens_before(span.doc_id, np.array([span.start, span.end])).tolist()
            places.append((span.doc_id, first, last))
        return places

    def tokens_before(self, doc_id: str, positions: Counts) -> Counts:
        """Return how many tokens of the document start before each position.

        Raises:
            SpanMismatchError: A position is outside the document.
            ConfigurationError: The document was not given.
        """
        starts, length = self._known.get(doc_id) or self._token_starts(doc_id)
        if positions.size and positions.max() > length:
            raise SpanMismatchError(
                f"a span ends at {positions.max()} in {doc_id!r}, which has {length} characters: "
                "give the documents that the spans were taken from"
            )
        return np.searchsorted(starts, positions, side="left").astype(np.int64, copy=False)

    def _token_starts(self, doc_id: str) -> tuple[Counts, int]:
        if doc_id not in self._documents:
            raise ConfigurationError(
                f"cannot count tokens of {doc_id!r}: the document was not given; give the whole corpus"
            )
        text = self._documents[doc_id].content
        ends = token_ends(text, self.name)
        if sum(len(starts) for starts, _ in self._known.values()) > _MOST_STARTS:
            self._known.clear()
        self._known[doc_id] = np.concatenate([[0], ends[:-1]]) if len(ends) else ends, len(text)
        return self._known[doc_id]


class ChunkedCorpus:
    """All chunks of a corpus, to look up those that touch a reference: share a character or a border with it."""

    def __init__(self, chunks: Iterable[PositionAwareChunk]) -> None:
        self._places: dict[str, list[tuple[int, int]]] = {}
        for chunk in chunks:
            self._places.setdefault(chunk.doc_id, []).append((chunk.start, chunk.end))

    def touching(self, references: Sequence[CharacterSpan]) -> list[Place]:
        """Return the places of the chunks that touch a reference, each chunk once."""
        doc_ids = sorted({reference.doc_id for reference in references} & self._places.keys())
        chunks = [(number, *place) for number, doc_id in enumerate(doc_ids) for place in self._places[doc_id]]
        spans = [(doc_ids.index(span.doc_id), span.start, span.end) for span in references if span.doc_id in doc_ids]
        sides = (np.array(side, dtype=np.int64).reshape(-1, 3).T for side in (spans, chunks))
        rows = touching_chunks(*(SpanRows(np.array([0, side.shape[1]]), *side) for side in sides))
        columns = (rows.doc.tolist(), rows.start.tolist(), rows.end.tolist())
        return [(doc_ids[doc], start, end) for doc, start, end in zip(*columns, strict=True)]

    def min_k(self, references: Sequence[CharacterSpan]) -> int:
        """Return how many chunks touch a reference, at most 20: the meaning of k = "min"."""
        return min(len(self.touching(references)), MAX_MIN_K)


@dataclass(frozen=True)
class ChunkMetric(RetrievalMetric):
    """A metric on the first k chunk ids (None: all), or within a ``Cut``; raises ``ConfigurationError`` on others."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("chunk-level",)
    k: int | Cut | None = None

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[IdOrGroup]) -> float:
        """Return the metric for one query; a tuple of ids is a group. Raises as ``calculate_many`` does."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[tuple[Sequence[ChunkId], Sequence[IdOrGroup]]]) -> Values:
        """Return the metric for several queries; raises ``ConfigurationError`` at a budget, as ids have no tokens."""
        return score_ids(self, cases)


def score_ids(metric: RetrievalMetric, cases: Sequence[tuple[Sequence[ChunkId], Sequence[IdOrGroup]]]) -> Values:
    """Score chunk ids: each id is a document of one character."""
    if metric.cut.kind == "tokens":
        raise ConfigurationError(f"{metric.name} counts the tokens of chunks: score tables, with chunks=…")
    members = [ungrouped(truth) for _, truth in cases]
    sides = [hits for hits, _ in cases], [ids for ids, _ in members]
    hits, truth = ([[(str(chunk_id), 0, 1) for chunk_id in ids] for ids in side] for side in sides)
    return metric.score(coverage_of_places(hits, truth, groups=[numbers for _, numbers in members]), metric.cut)


class MetricOnSpans(RetrievalMetric):
    """A metric on character spans, with the ``unit`` it counts in and the chunks of the corpus where it needs them."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)
    unit: TokenUnit | None = None
    chunks: ChunkedCorpus | None = None

    @classmethod
    def from_name(
        cls, name: MetricName, documents: Documents | None, chunks: Iterable[PositionAwareChunk] | None
    ) -> Self:
        """Return the metric of a full name; raises ``ConfigurationError`` without documents or chunks it needs."""
        settings: dict[str, Any] = {} if name.k is None else {"k": name.k}
        if "chunks" in name.needs:
            settings["chunks"] = ChunkedCorpus(needed(chunks, str(name), "chunks"))
        if name.unit is not None and "hits" in cls.reads:
            settings["unit"] = TokenUnit(
                name.unit, needed(None if documents is None else by_id(documents), str(name), "documents")
            )
        elif name.unit is not None:
            settings["encoding"] = name.unit
        return cls(**settings)

    @property
    def unit_name(self) -> str | None:
        return None if self.unit is None else self.unit.name

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[SpanOrGroup]) -> float:
        """Return the metric for one query; a tuple of spans in the truth is a group of evidence."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[tuple[Sequence[CharacterSpan], Sequence[SpanOrGroup]]]) -> Values:
        """Return the metric for several queries, each with what was retrieved, best first, and what is relevant."""
        firsts = [[group[0] if isinstance(group, tuple) else group for group in truth] for _, truth in cases]
        if self.chunks is not None and "chunks" in self.reads:
            touching = [self.chunks.touching(spans) for spans in firsts]
            return self.score(coverage_of_places(touching, [self._places(spans) for spans in firsts]), self.cut)
        retrieved, members = [hits[: self.cut.hits] for hits, _ in cases], [ungrouped(truth) for _, truth in cases]
        tokens = None
        if self.cut.kind == "tokens" or "tokens" in self.reads:
            encoding = self.unit_name or DEFAULT_ENCODING
            tokens = [[count_tokens(span.text, encoding) for span in spans] for spans in retrieved]
        coverage = coverage_of_places(
            [self._places(spans) for spans in retrieved],
            [self._places(spans) for spans, _ in members],
            tokens,
            [self.chunks.min_k(spans) for spans in firsts] if self.cut == MIN and self.chunks is not None else None,
            [numbers for _, numbers in members],
        )
        return self.score(coverage, self.cut)

    def _places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        if self.unit is not None:
            return self.unit.places(spans)
        return [(span.doc_id, span.start, span.end) for span in spans]


@dataclass(frozen=True)
class SpanMetric(MetricOnSpans):
    """A metric on the first k spans (None: all), counted in characters or in tokens of a ``TokenUnit``.

    k is a number of hits, or a ``Cut`` for a budget of tokens: the tokens of each hit's own text, by the unit's
    tokenizer or else by cl100k_base. Raises ``ConfigurationError`` on a cut that the metric does not support.
    """

    has_unit = True
    k: int | Cut | None = None
    unit: TokenUnit | None = None


class MetricOnBoth(SpanMetric):
    """A metric on spans or on chunk ids."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")

    def calculate_many(self, cases: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Values:
        """Return the metric for several queries; raises ``ConfigurationError`` on ids at a budget of tokens."""
        if any(isinstance(item, str) for case in cases for side in case for item in ungrouped(side)[0]):
            return score_ids(self, cases)
        return super().calculate_many(cases)
