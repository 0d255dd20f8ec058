"""Scores from tables: every metric, cut and query at once, all cuts from one retrieval.

The missing rule: every answerable query has a row for each metric and cut; a query without hits gets the metric's value
for empty retrieval. A query without truth that is not declared unanswerable is an error. Unanswerable queries have
no rows. Values equal those of the metrics' ``calculate``, whose formulas these are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.chroma import MAX_MIN_K, touching_chunks
from rag_eval.metrics.groups import best_members, has_groups
from rag_eval.metrics.metric import (
    ALL,
    DEFAULT_ENCODING,
    MIN,
    Counts,
    Cut,
    MetricName,
    check_cut,
    metric_names,
    needed,
    parse_metric_name,
)
from rag_eval.metrics.span_metrics import TokenUnit
from rag_eval.metrics.sweep import ChunkSweep, SpanRows, SpanSweep
from rag_eval.metrics.table_rows import RowOrder, match_rows, most_on_line, number_strings, span_rows
from rag_eval.tables import CHUNKS, PLACE, SCORES, TruthTables, check_schema, schema_of
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Document

AVERAGES = schema_of(metric=pa.string(), cut=pa.string(), size=pa.int32(), mean=pa.float64(), n=pa.int64())
"""A row for each metric and cut: the mean over n queries."""

# Few enough for the processor's cache, enough to forget what a numpy call costs.
BLOCK_ROWS = 100_000

RANKS_AT_ONCE = 5
"""How many hits of a query are tokenised before it is seen whether a budget has room for more."""


def score_token_level(
    hits: pa.Table,
    truth: TruthTables,
    metrics: Sequence[str | MetricName],
    ks: Sequence[int] = (),
    *,
    documents: Iterable[Document] | None = None,
    chunks: pa.Table | None = None,
    block_rows: int = BLOCK_ROWS,
) -> pa.Table:
    """Score hits against truth spans: a ``SCORES`` row for each metric, cut and answerable query, in this order.

    ``metrics`` are names without a number of hits (``span_recall``, ``span_recall(cl100k_base)``), which are scored at
    each of ``ks``, or with a cut of their own (``chroma_iou@min``, ``span_recall@2000tokens``). A ``MetricName`` is
    scored as it is. ``documents`` are needed for what is counted in tokens, ``chunks`` (all of the corpus, as a table)
    for ``precision_omega`` and ``@min``. ``block_rows`` bounds memory: so many rows of hits and truth are scored at a
    time.
    Raises ``ConfigurationError`` on a metric or k that cannot be used or lacks what it needs, ``TableError`` on a row
    that holds no character, has a wrong rank or names an unknown query, and ``GroundTruthError`` on a query without
    truth that is not declared unanswerable.
    """
    names = _requested(metrics, ks, metric_names("token-level"))
    read = None if documents is None else list(documents)
    if has_groups(truth):
        return _score_groups(
            names,
            hits,
            truth,
            {document.id: document.content for document in read or ()},
            lambda chosen, at: score_token_level(
                hits, chosen, at, documents=read, chunks=chunks, block_rows=block_rows
            ),
        )
    tables = _SpanTables(hits, truth, _deepest(names), read, chunks)
    views: dict[tuple[bool, str | None], list[MetricName]] = {}
    for name in names:
        views.setdefault(("chunks" in name.metric.reads, name.unit), []).append(name)
    scores = _Scores(names, tables.query_ids)
    for asked in views.values():
        view = tables.view(asked)
        last_end = int(max(view.hits.end.max(initial=0), view.truth.end.max(initial=0)))
        count = int(max(view.hits.doc.max(initial=0), view.truth.doc.max(initial=0))) + 1
        for first, last in _blocks(view.hits.offsets, view.truth.offsets, block_rows, most_on_line(count, last_end)):
            scores.fill(asked, first, last, view.sweep(first, last, count, last_end))
    return scores.table()


def score_chunk_level(
    hits: pa.Table,
    truth: TruthTables,
    metrics: Sequence[str | MetricName],
    ks: Sequence[int] = (),
    *,
    chunks: pa.Table | None = None,
    block_rows: int = BLOCK_ROWS,
) -> pa.Table:
    """Score the chunk ids of hits: a ``SCORES`` row for each metric, cut and answerable query, in this order.

    ``chunks`` (all that were searched) are needed for budgets of tokens.
    Metrics and errors are as for ``score_token_level``.
    """
    names = _requested(metrics, ks, metric_names("chunk-level"))
    if has_groups(truth):
        read = [] if chunks is None else chunks.select(["chunk_id", "content"]).to_pylist()
        return _score_groups(
            names,
            hits,
            truth,
            {row["chunk_id"]: row["content"] for row in read},
            lambda chosen, at: score_chunk_level(hits, chosen, at, chunks=chunks, block_rows=block_rows),
        )
    matched = match_rows(truth, hits, ["chunk_id"])
    hit_offsets, truth_offsets = matched.hits.offsets, matched.truth.offsets
    (hit_chunk, truth_chunk), ids = number_strings([hits.column("chunk_id"), truth.answers.column("chunk_id")])
    hit_chunk, truth_chunk = hit_chunk[matched.hits.rows], truth_chunk[matched.truth.rows]
    tokens = None
    for name in names:
        if name.reads_tokens and tokens is None:
            known = _known_tokens(hits)
            if known is None:
                tokens = _chunk_tokens(hit_chunk, ids, needed(chunks, str(name), "chunks"))
            else:
                tokens = known[matched.hits.rows]
    scores = _Scores(names, matched.query_ids)
    for first, last in _blocks(hit_offsets, truth_offsets, block_rows, block_rows):
        rows = slice(hit_offsets[first], hit_offsets[last])
        sweep = ChunkSweep(
            hit_chunk[rows],
            hit_offsets[first : last + 1] - hit_offsets[first],
            truth_chunk[truth_offsets[first] : truth_offsets[last]],
            truth_offsets[first : last + 1] - truth_offsets[first],
            len(ids),
            tokens=None if tokens is None else tokens[rows],
        )
        scores.fill(names, first, last, sweep)
    return scores.table()


def _score_groups(
    names: Sequence[MetricName],
    hits: pa.Table,
    truth: TruthTables,
    contents: Mapping[str, str],
    score: Callable[[TruthTables, list[MetricName]], pa.Table],
) -> pa.Table:
    """Score the metrics of each cut against the members of the groups that are best covered there."""
    by_cut: dict[Cut, list[MetricName]] = {}
    for name in names:
        by_cut.setdefault(name.cut, []).append(name)
    scores: dict[MetricName, pa.Table] = {}
    for cut, asked in by_cut.items():
        # Without texts a budget cannot be scored, which the scoring says itself.
        seen = cut if cut.kind != "tokens" or contents or _known_tokens(hits) is not None else ALL
        table = score(best_members(truth, hits, seen, contents), asked)
        count = table.num_rows // len(asked)
        scores |= {name: table.slice(number * count, count) for number, name in enumerate(asked)}
    return pa.concat_tables([scores[name] for name in names])


def average_scores(scores: pa.Table) -> pa.Table:
    """The mean and the number of queries for each metric and cut, in the order of their first rows."""
    import polars as pl  # here, because it takes longer to import than most runs take to score

    check_schema(scores, SCORES, "scores")
    frame = pl.from_arrow(scores.select(["metric", "cut", "size", "value"]))
    averages = frame.group_by("metric", "cut", "size", maintain_order=True).agg(  # type: ignore[union-attr]  # never a Series
        pl.col("value").mean().alias("mean"), pl.len().cast(pl.Int64).alias("n")
    )
    return averages.to_arrow().cast(AVERAGES)


def _requested(metrics: Sequence[str | MetricName], ks: Sequence[int], known: Collection[str]) -> list[MetricName]:
    for k in ks:
        check_cut(k, "ks")
    names: list[MetricName] = []
    for metric in metrics:
        if isinstance(metric, MetricName):
            metric.metric.check(metric.unit, metric.cut)
            names.append(metric)
            continue
        name = parse_metric_name(metric, known)
        if name.cut.kind == "hits":
            raise ConfigurationError(
                f"{name} names a number of hits: ask for {name.column} and give {name.cut.size} in ks"
            )
        if name.cut != ALL or "hits" not in name.metric.cuts:
            names.append(name)
        elif ks:
            names += [replace(name, cut=Cut("hits", k)) for k in ks]
        else:
            raise ConfigurationError(f"{name} needs a number of hits: give at least one k in ks")
    for asked in ([str(name) for name in names], list(ks)):
        if len(set(asked)) < len(asked):
            raise ConfigurationError(f"{asked} has an entry twice: ask for each metric and each k once")
    return names


def _deepest(names: Sequence[MetricName]) -> int | None:
    """How many hits of a query are looked at; None for all."""
    depths = [name.cut.hits if name.cut != MIN else MAX_MIN_K for name in names if "chunks" not in name.metric.reads]
    return None if None in depths else max((depth for depth in depths if depth is not None), default=0)


@dataclass(frozen=True)
class _View:
    """The hits and the truth that some metrics look at, in the unit they count in, and what else they read."""

    hits: SpanRows
    truth: SpanRows
    tokens: Counts | None = None
    fewest: Counts | None = None

    def sweep(self, first: int, last: int, documents: int, last_end: int) -> SpanSweep:
        rows = slice(self.hits.offsets[first], self.hits.offsets[last])
        return SpanSweep(
            self.hits.block(first, last),
            self.truth.block(first, last),
            documents,
            last_end,
            tokens=None if self.tokens is None else self.tokens[rows],
            fewest=None if self.fewest is None else self.fewest[first:last],
        )


class _SpanTables:
    """Hits and truth of the answerable queries; no cut is deeper than ``depth`` (None: any).

    ``documents`` and ``chunks`` are as ``score_token_level`` was given them.
    """

    def __init__(
        self,
        hits: pa.Table,
        truth: TruthTables,
        depth: int | None,
        documents: Iterable[Document] | None,
        chunks: pa.Table | None,
    ) -> None:
        matched = match_rows(truth, hits)
        self.query_ids = matched.query_ids
        self._documents = None if documents is None else list(documents)
        self._chunks = None if chunks is None else check_schema(chunks, CHUNKS, "chunks", PLACE)
        tables = [hits, truth.answers] if self._chunks is None else [hits, truth.answers, self._chunks]
        numbers, doc_ids = number_strings([table.column("doc_id") for table in tables])
        self._doc_ids: list[str] = doc_ids.to_pylist()
        rows = span_rows(hits, numbers[0], matched.hits, "hits")
        self._hits = rows if depth is None else rows.first(depth)
        self._passages = hits.select(["text", "tokens"])
        self._passage_rows = np.arange(hits.num_rows)[matched.hits.rows]
        if depth is not None and len(self._hits.doc) < len(rows.doc):
            self._passage_rows = self._passage_rows[rows.ranks() <= depth]
        self._truth = span_rows(truth.answers, numbers[1], matched.truth, "truth")
        self._chunk_doc = numbers[-1]

    def view(self, names: Sequence[MetricName]) -> _View:
        """What metrics of one unit look at; all or none of them read the chunks in place of the hits.

        Raises ``ConfigurationError`` when they need documents or chunks that were not given.
        """
        one = names[0]
        if "chunks" in one.metric.reads:
            return _View(self._touching(one), self._truth)
        hits, truth, tokens, fewest = self._hits, self._truth, None, None
        for name in names:
            if name.reads_tokens and tokens is None:
                tokens = self._tokens(name, names)
            if name.cut == MIN and fewest is None:
                fewest = np.minimum(np.diff(self._touching(name).offsets), MAX_MIN_K)
        if one.unit is not None and any("hits" in name.metric.reads for name in names):
            unit = TokenUnit(one.unit, needed(self._documents, str(one), "documents"))
            hits, truth = (_in_tokens(rows, self._doc_ids, unit) for rows in (hits, truth))
        return _View(hits, truth, tokens, fewest)

    def _tokens(self, name: MetricName, names: Sequence[MetricName]) -> Counts:
        """The tokens of each passage; a passage beyond every cut of the metrics that count them has 0.

        They are those that the table has, unless a tokenizer is named, or else those of its own text or of the slice at
        its place. A place that occurs often is tokenised once. Raises ``ConfigurationError`` when the text of a passage
        is not in the documents.
        """
        known = _known_tokens(self._passages)
        if known is not None and name.unit is None:
            return known[self._passage_rows]
        encoding = name.unit or DEFAULT_ENCODING
        own = self._own_texts()
        contents = {document.id: document.content for document in needed(self._documents, str(name), "documents")}
        texts = [contents.get(doc_id) for doc_id in self._doc_ids]  # type: ignore[call-overload]  # Arrow gives str
        cuts = [other.cut for other in names if other.reads_tokens]
        whole = max((cut.hits or 0 for cut in cuts), default=0)
        budget = max((cut.size for cut in cuts if cut.kind == "tokens"), default=-1)
        counts, ranks, query = np.diff(self._hits.offsets), self._hits.ranks() - 1, self._hits.numbers()
        places, which = self._places()
        tokens = np.full(len(places), -1, dtype=np.int64)
        costs = np.zeros(len(query), dtype=np.int64)
        for first in range(0, int(counts.max(initial=0)), RANKS_AT_ONCE):
            rows = np.flatnonzero((ranks >= first) & (ranks < first + RANKS_AT_ONCE))
            within = np.bincount(query, costs, len(counts))[query[rows]] <= budget
            rows = rows[within | (ranks[rows] < whole) | (ALL in cuts)]
            sliced = rows if not own else rows[[row not in own for row in rows.tolist()]]
            for place in np.unique(which[sliced][tokens[which[sliced]] < 0]).tolist():
                tokens[place] = count_tokens(self._text_at(places[place], texts, name), encoding)
            costs[sliced] = tokens[which[sliced]]
            for row in own.keys() & set(rows.tolist()):
                costs[row] = count_tokens(own[row], encoding)
        return costs

    def _own_texts(self) -> dict[int, str]:
        """The texts that are not the slices at their places, by the number of the hit."""
        texts = self._passages.column("text")
        if texts.null_count == len(texts):
            return {}
        ordered = texts.take(pa.array(self._passage_rows)).to_pylist()
        return {row: text for row, text in enumerate(ordered) if text is not None}

    def _places(self) -> tuple[Counts, Counts]:
        """The places of hits, each once, by document, start and end; and which of them each hit has."""
        hits = self._hits
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
                f"the documents have no text at [{first}, {last}) of {self._doc_ids[number]!r}, which was "
                f"retrieved: for {name} give the corpus that was searched"
            )
        return text[first:last]

    @cached_property
    def _touching_chunks(self) -> SpanRows | None:
        if self._chunks is None:
            return None
        all_rows = RowOrder(slice(None), np.array([0, len(self._chunk_doc)]))
        return touching_chunks(self._truth, span_rows(self._chunks, self._chunk_doc, all_rows, "chunks"))

    def _touching(self, name: MetricName) -> SpanRows:
        return needed(self._touching_chunks, str(name), "chunks")


def _in_tokens(rows: SpanRows, doc_ids: Sequence[str], unit: TokenUnit) -> SpanRows:
    start, end = np.empty_like(rows.start), np.empty_like(rows.end)
    order = np.argsort(rows.doc, kind="stable")
    borders = np.flatnonzero(np.diff(rows.doc[order], prepend=-1))
    for group in np.split(order, borders[1:]) if len(order) else []:
        doc_id = doc_ids[rows.doc[group[0]]]
        start[group] = unit.tokens_before(doc_id, rows.start[group])
        end[group] = unit.tokens_before(doc_id, rows.end[group])
    return SpanRows(rows.offsets, rows.doc, start, end)


def _known_tokens(passages: pa.Table) -> Counts | None:
    """The tokens that the table has; None where some are not counted."""
    tokens = passages.column("tokens")
    return None if tokens.null_count or not len(tokens) else tokens.to_numpy().astype(np.int64)


def _chunk_tokens(hit_chunk: Counts, ids: pa.Array, chunks: pa.Table) -> Counts:
    """The tokens of the content of each hit's chunk; raises ``ConfigurationError`` on a hit that is not a chunk."""
    check_schema(chunks, CHUNKS, "chunks")
    rows = {chunk_id: row for row, chunk_id in enumerate(chunks.column("chunk_id").to_pylist())}
    contents = chunks.column("content")
    tokens = np.zeros(len(ids), dtype=np.int64)
    for number in np.unique(hit_chunk).tolist():
        chunk_id = ids[number].as_py()
        if chunk_id not in rows:
            raise ConfigurationError(
                f"{chunk_id!r} was retrieved and is not among the chunks: give the chunks searched"
            )
        tokens[number] = count_tokens(contents[rows[chunk_id]].as_py(), DEFAULT_ENCODING)
    counted: Counts = tokens[hit_chunk]
    return counted


def _blocks(
    hit_offsets: Counts, truth_offsets: Counts, block_rows: int, most_queries: int
) -> Iterator[tuple[int, int]]:
    """Ranges of queries that together have about ``block_rows`` rows."""
    rows = hit_offsets + truth_offsets
    queries = len(rows) - 1
    first = 0
    while first < queries:
        last = int(np.searchsorted(rows, rows[first] + block_rows, side="right")) - 1
        last = max(first + 1, min(last, first + most_queries, queries))
        yield first, last
        first = last


class _Scores:
    """The values of every metric, filled block by block."""

    def __init__(self, names: Sequence[MetricName], query_ids: pa.Array) -> None:
        self._query_ids = query_ids
        self._values = {name: np.empty(len(query_ids)) for name in names}

    def fill(self, names: Sequence[MetricName], first: int, last: int, sweep: SpanSweep | ChunkSweep) -> None:
        """Score the queries of a sweep, which are those from ``first`` to before ``last``."""
        for name in names:
            self._values[name][first:last] = name.metric.score(sweep, name.cut)

    def table(self) -> pa.Table:
        # A chunk for each metric and cut: ids and labels are stored once, however many scores there are.
        repeated = cache(lambda value: pa.repeat(value, len(self._query_ids)))
        columns: list[list[pa.Array]] = [
            [self._query_ids for _ in self._values],
            [repeated(name.column) for name in self._values],
            [repeated(name.cut.kind) for name in self._values],
            [repeated(pa.scalar(name.cut.size, pa.int32())) for name in self._values],
            [pa.array(values) for values in self._values.values()],
        ]
        chunked = [pa.chunked_array(column, field.type) for column, field in zip(columns, SCORES, strict=True)]
        return pa.Table.from_arrays(chunked, schema=SCORES)
