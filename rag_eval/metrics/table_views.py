"""The tables of a token-level evaluation as numbers, looked at in the way each metric needs."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.base import MetricName
from rag_eval.metrics.chroma import PrecisionOmega
from rag_eval.metrics.chunked_corpus import MAX_MIN_K, ChunkLine
from rag_eval.metrics.formulas import Counts
from rag_eval.metrics.registry import needed
from rag_eval.metrics.span_sweep import SpanRows
from rag_eval.metrics.table_input import RowOrder, match_rows, most_on_line, number_strings, span_rows
from rag_eval.metrics.units import TokenUnit
from rag_eval.tables import CHUNKS, TRUTH_SPANS, TokenLevelTruthTables, check_schema
from rag_eval.tokens import count_tokens
from rag_eval.types.document import Document

RANKS_AT_ONCE = 5
"""How many hits of a query are tokenised before it is seen whether a budget has room for more."""


class SpanTables:
    """Hits and truth of the answerable queries; no cut is deeper than ``depth``.

    ``documents`` and ``chunks`` are as ``score_token_level`` was given them.

    Raises ``TableError`` or ``GroundTruthError`` when a table cannot be used.
    """

    def __init__(
        self,
        hits: pa.Table,
        truth: TokenLevelTruthTables,
        depth: int,
        documents: Iterable[Document] | None,
        chunks: pa.Table | None,
    ) -> None:
        check_schema(truth.spans, TRUTH_SPANS, "truth spans")
        matched = match_rows(truth.queries, hits, truth.spans)
        self.query_ids = matched.query_ids
        self._documents = None if documents is None else list(documents)
        self._chunks = None if chunks is None else check_schema(chunks, CHUNKS, "chunks")
        tables = [hits, truth.spans] if self._chunks is None else [hits, truth.spans, self._chunks]
        numbers, doc_ids = number_strings([table.column("doc_id") for table in tables])
        self.doc_ids: list[str] = doc_ids.to_pylist()
        self._all_hits = span_rows(hits, numbers[0], matched.hits, "hits")
        self.hits = self._all_hits.first(depth)
        self.truth = span_rows(truth.spans, numbers[1], matched.truth, "truth spans")
        self._chunk_doc = numbers[-1]

    def view_of(self, name: MetricName) -> str:
        """Metrics with the same answer look at the same hits and truth."""
        if name.base == PrecisionOmega.label:
            return "touching chunks"
        return "min" if name.k == "min" else name.unit or "characters"

    def view(self, name: MetricName) -> tuple[SpanRows, SpanRows]:
        """The hits and the truth that the metric of this name looks at.

        Raises ``ConfigurationError`` when it needs documents or chunks that were not given.
        """
        if name.base == PrecisionOmega.label:
            return self._touching(name), self.truth
        if name.k == "min":
            counts = np.diff(self._touching(name).offsets)
            return self._all_hits.first(np.minimum(counts, MAX_MIN_K)), self.truth
        if name.unit is None:
            return self.hits, self.truth
        unit = TokenUnit(name.unit, needed(self._documents, str(name), "documents"))
        return _in_tokens(self.hits, self.doc_ids, unit), _in_tokens(self.truth, self.doc_ids, unit)

    def token_costs(self, name: MetricName, encoding: str, most: int | None = None) -> Counts:
        """The tokens of each hit's own text; a hit that comes after ``most`` tokens of its query counts 0.

        A place that occurs often is tokenised once. Raises ``ConfigurationError`` when the text of a hit is not in the
        documents.
        """
        contents = {document.id: document.content for document in needed(self._documents, str(name), "documents")}
        texts = [contents.get(doc_id) for doc_id in self.doc_ids]  # type: ignore[call-overload]  # Arrow gives str
        counts, ranks = np.diff(self.hits.offsets), self.hits.ranks() - 1
        places, which = self._places()
        tokens = np.full(len(places), -1, dtype=np.int64)
        query = np.repeat(np.arange(len(counts)), counts)
        costs = np.zeros(len(query), dtype=np.int64)
        at_once = RANKS_AT_ONCE if most is not None else int(counts.max(initial=1))
        for first in range(0, int(counts.max(initial=0)), at_once):
            rows = np.flatnonzero((ranks >= first) & (ranks < first + at_once))
            if most is not None:
                rows = rows[np.bincount(query, costs, len(counts))[query[rows]] <= most]
            for place in np.unique(which[rows][tokens[which[rows]] < 0]).tolist():
                tokens[place] = count_tokens(self._text_at(places[place], texts, name), encoding)
            costs[rows] = tokens[which[rows]]
        return costs

    def _places(self) -> tuple[Counts, Counts]:
        """The places of hits, each once, by document, start and end; and which of them each hit has."""
        hits = self.hits
        order = np.lexsort((hits.end, hits.start, hits.doc))
        sorted_ = np.stack([hits.doc, hits.start, hits.end], axis=1)[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (sorted_[1:] != sorted_[:-1]).any(axis=1)
        which = np.empty(len(order), dtype=np.int64)
        which[order] = np.cumsum(is_new) - 1
        return sorted_[is_new], which

    def _text_at(self, place: Counts, texts: list[str | None], name: MetricName) -> str:
        number, first, last = map(int, place)
        text = texts[number]
        if text is None or last > len(text):
            raise ConfigurationError(
                f"the documents have no text at [{first}, {last}) of {self.doc_ids[number]!r}, which was "
                f"retrieved: for {name} give the corpus that was searched"
            )
        return text[first:last]

    @cached_property
    def _touching_chunks(self) -> SpanRows | None:
        if self._chunks is None:
            return None
        all_rows = RowOrder(slice(None), np.array([0, len(self._chunk_doc)]))
        return touching_chunks(self.truth, span_rows(self._chunks, self._chunk_doc, all_rows, "chunks"))

    def _touching(self, name: MetricName) -> SpanRows:
        return needed(self._touching_chunks, str(name), "chunks")


def touching_chunks(truth: SpanRows, chunks: SpanRows) -> SpanRows:
    """For each query the chunks that touch its truth, each once; ``chunks`` are those of the whole corpus."""
    # One more than the last end: a chunk at the end of one document does not touch the next.
    last = int(max(chunks.end.max(initial=0), truth.end.max(initial=0))) + 1
    most_on_line(int(max(chunks.doc.max(initial=0), truth.doc.max(initial=0))) + 1, last)
    length = last + 1
    line = ChunkLine.build(chunks.doc * length + chunks.start, chunks.doc * length + chunks.end)
    reference, chunk = line.touching(truth.doc * length + truth.start, truth.doc * length + truth.end)
    query = np.repeat(np.arange(truth.queries), np.diff(truth.offsets))[reference]
    count = len(line.starts) + 1
    query, chunk = np.divmod(np.unique(query * count + chunk), count)
    offsets = np.searchsorted(query, np.arange(truth.queries + 1))
    doc, start = np.divmod(line.starts[chunk], length)
    return SpanRows(offsets, doc, start, line.ends[chunk] - doc * length)


def _in_tokens(rows: SpanRows, doc_ids: Sequence[str], unit: TokenUnit) -> SpanRows:
    start, end = np.empty_like(rows.start), np.empty_like(rows.end)
    order = np.argsort(rows.doc, kind="stable")
    borders = np.flatnonzero(np.diff(rows.doc[order], prepend=-1))
    for group in np.split(order, borders[1:]) if len(order) else []:
        doc_id = doc_ids[rows.doc[group[0]]]
        start[group] = unit.tokens_before(doc_id, rows.start[group])
        end[group] = unit.tokens_before(doc_id, rows.end[group])
    return SpanRows(rows.offsets, rows.doc, start, end)
