"""Score tables: read passages and ground truth, apply the formulas, and write a row for each metric, cut and query.

The tables are read by ``rag_eval.metrics.table_rows``; the formulas are in ``rag_eval.metrics.formulas``. All cuts are
scored from one retrieval.

The missing rule: every answerable query has a row for each metric and cut; a query without hits gets the metric's value
for empty retrieval. A query without truth that is not declared unanswerable is an error. Unanswerable queries have
no rows. Values equal those of the metrics' ``calculate``.
"""

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.coverage import SpanCoverage, SpanRows, line_of, spans_outside, touching_chunks
from rag_eval.metrics.evaluate import QueryTexts, calculate_each
from rag_eval.metrics.groups import coverage_of
from rag_eval.metrics.metric import (
    LARGEST_CUT,
    MAX_MIN_K,
    MIN,
    Asked,
    Counts,
    Cut,
    MetricAtCut,
    MetricName,
    Values,
    needed,
    requested_metrics,
)
from rag_eval.metrics.passage_tokens import PassageTokens, TokenCount, count_each, is_merged
from rag_eval.metrics.table_rows import TableRows, read_rows, with_own_places
from rag_eval.tables import SCORES, TruthTables, check_schema, schema_of
from rag_eval.types.documents import Document, Documents, by_id
from rag_eval.types.ids import EvaluationType

AVERAGES = schema_of(metric=pa.string(), cut=pa.string(), size=pa.int32(), mean=pa.float64(), n=pa.int64())
"""A row for each metric and cut: the mean over n queries."""

# Few enough for the processor's cache, and enough to make the overhead of numpy calls negligible.
BLOCK_ROWS = 100_000

UnjudgedAs = Literal["irrelevant", "relevant"]


def score_passages(
    level: EvaluationType,
    passages: pa.Table,
    truth: TruthTables,
    metrics: Sequence[Any],
    ks: Sequence[int] = (),
    *,
    documents: Documents | None = None,
    chunks: pa.Table | None = None,
    block_rows: int = BLOCK_ROWS,
    count: TokenCount = count_each,
    unjudged: UnjudgedAs = "irrelevant",
) -> pa.Table:
    """Score passages by their places or chunk ids: a ``SCORES`` row for each metric, cut and answerable query.

    Args:
        level: What identifies passages and truth: places or chunk ids.
        passages: What was retrieved.
        truth: The queries and what answers them.
        metrics: Names or objects, with a cut (``chroma_iou@min``), or without one to be scored at each of ``ks``.
        ks: Numbers of hits.
        documents: At token level, needed for objects and for metrics that count tokens.
        chunks: All chunks of the corpus. ``precision_omega`` and ``@min`` need them, and budgets of tokens at chunk
            level.
        block_rows: How many rows are scored at a time, to bound memory.
        count: Counts tokens.
        unjudged: See ``rag_eval.metrics.formulas.Unjudged``.

    Raises:
        ConfigurationError: A metric or k cannot be used or lacks what it needs.
        TableError: A row has no characters, has a wrong rank or names an unknown query.
        GroundTruthError: A query without truth is not declared unanswerable.
    """
    requested = requested_metrics(metrics, ks, level)
    names = [metric for metric in requested if isinstance(metric, MetricName)]
    objects = [metric for metric in requested if isinstance(metric, MetricAtCut)]
    is_relevant = unjudged == "relevant"
    if is_relevant and objects:
        raise ConfigurationError(f"{objects[0]} is not built in: it cannot count unjudged text as relevant")
    tables = _Tables.read(level, passages, truth, requested, documents, chunks, count)
    values = {str(metric): np.empty(len(tables.rows.query_ids)) for metric in requested}
    for alike in _alike(names, by_cut=is_relevant):
        for block, coverage in tables.coverages(alike, block_rows, alike[0].cut if is_relevant else None):
            for name in alike:
                values[str(name)][block] = name.metric.score(coverage, name.cut)
    values |= tables.calculate(objects)
    return _score_table(requested, tables.rows.query_ids, values)


def _score_table(requested: Sequence[Asked], query_ids: pa.Array, values: Mapping[str, Values]) -> pa.Table:
    # One Arrow chunk for each metric and cut, so that ids and labels are stored once.
    repeated = cache(lambda value: pa.repeat(value, len(query_ids)))
    names = [metric.name if isinstance(metric, MetricAtCut) else metric for metric in requested]
    columns: list[list[pa.Array]] = [
        [query_ids for _ in names],
        [repeated(name.base) for name in names],
        [repeated(name.cut.kind) for name in names],
        [repeated(pa.scalar(name.cut.size, pa.int32())) for name in names],
        [pa.array(values[str(name)]) for name in names],
    ]
    chunked = [pa.chunked_array(column, field.type) for column, field in zip(columns, SCORES, strict=True)]
    return pa.Table.from_arrays(chunked, schema=SCORES)


def _alike(names: Sequence[MetricName], *, by_cut: bool) -> list[list[MetricName]]:
    """Group metrics that are scored from the same counts: with the same input and, with ``by_cut``, the same cut."""
    groups: dict[tuple[object, ...], list[MetricName]] = {}
    for name in names:
        inputs = name.metric.reads & {"chunks", "judged"}
        groups.setdefault((inputs, name.cut if by_cut else None), []).append(name)
    return list(groups.values())


def held_shares(
    level: EvaluationType,
    passages: pa.Table,
    truth: TruthTables,
    cut: Cut,
    documents: Documents | None = None,
    chunks: pa.Table | None = None,
    count: TokenCount = count_each,
) -> Values:
    """Return for each row of the truth, by query, its share of what was retrieved within the cut.

    No two rows of a query overlap; arguments and errors are as for ``score_passages``.
    """
    precision = MetricName("span_precision" if level == "token-level" else "chunk_precision", cut)
    tables = _Tables.read(level, passages, truth, [precision], documents, chunks, count)
    shares = [np.zeros(0)]
    for _, coverage in tables.coverages([precision]):
        retrieved = np.maximum(coverage.retrieved(cut), 1)[coverage.spans.query]
        shares.append(coverage.by_span(slice(None)).covered(cut) / retrieved)
    return np.concatenate(shares)


def average_scores(scores: pa.Table) -> pa.Table:
    """Return the mean and the number of queries for each metric and cut, in the order of their first rows."""
    check_schema(scores, SCORES, "scores")
    sizes = scores.column("size").to_numpy().astype(np.int64)
    numbers = sizes - sizes.min(initial=0)
    for name in ("metric", "cut"):
        encoded = scores.column(name).combine_chunks().dictionary_encode()
        numbers += encoded.indices.to_numpy() * (numbers.max(initial=0) + 1)
    _, firsts, groups, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    values = scores.column("value").to_numpy()[np.argsort(groups, kind="stable")]
    means = [group.mean() for group in np.split(values, np.cumsum(counts)[:-1]) if len(group)]
    order = np.argsort(firsts)
    heads = scores.select(["metric", "cut", "size"]).take(pa.array(firsts[order]))
    figures = pa.array(np.array(means, np.float64)[order]), pa.array(counts[order].astype(np.int64))
    return pa.Table.from_arrays([*heads.columns, *figures], schema=AVERAGES)


def _depth(metric: Asked) -> int:
    """Return how many hits of a query a metric reads."""
    if isinstance(metric, MetricName) and "chunks" in metric.metric.reads:
        return 0
    return MAX_MIN_K if metric.cut == MIN else metric.cut.hits or LARGEST_CUT


@dataclass(frozen=True)
class _Tables:
    """Passages and their rows, and the location of their texts: the documents, or the chunks."""

    level: EvaluationType
    passages: pa.Table
    rows: TableRows
    documents: Mapping[str, Document] | None
    tokens: PassageTokens

    @classmethod
    def read(
        cls,
        level: EvaluationType,
        passages: pa.Table,
        truth: TruthTables,
        metrics: Sequence[Asked],
        documents: Documents | None,
        chunks: pa.Table | None,
        count: TokenCount,
    ) -> "_Tables":
        """Read as many hits as the metrics need, and all chunks if one of them needs these."""
        reading = next((name for name in metrics if isinstance(name, MetricName) and name.needs_chunks), None)
        corpus = None if reading is None else needed(chunks, str(reading), "chunks")
        depth = max(map(_depth, metrics), default=0)
        known: Any = None
        if level == "token-level":
            passages, apart = with_own_places(passages)
            known = None if documents is None else by_id(documents)
            known = ChainMap(dict(by_id(apart)), known) if apart and known is not None else known
        rows = read_rows(level, truth, {"hits": passages}, corpus, depth)
        return cls(level, passages, rows, known, PassageTokens(level, rows.ids, known, chunks, count))

    def coverages(
        self, names: Sequence[MetricName], block_rows: int = BLOCK_ROWS, relevant_within: Cut | None = None
    ) -> Iterator[tuple[slice, SpanCoverage]]:
        """Yield ranges of queries that together have about ``block_rows`` rows, and the coverage of each.

        ``names`` are metrics that read the same input. Unjudged text that was retrieved within the cut
        ``relevant_within`` counts as relevant. Raises ``ConfigurationError`` when documents or chunks are missing.
        """
        reads = names[0].metric.reads
        hits, judged = self.rows.hits["hits"], self.rows.judged
        truth = judged if "judged" in reads else self.rows.truth
        counted = next((name for name in names if name.needs_tokens), None)
        hits = hits if counted is None else self._with_tokens(counted)
        fewest = None
        if any(name.needs_chunks for name in names):
            # Of a group, only the first member: which chunks touch the truth does not depend on the hits.
            touching = touching_chunks(truth.first_members(), self.rows.chunks)
            fewest = np.minimum(np.diff(touching.offsets), MAX_MIN_K)
            if "chunks" in reads:
                hits, truth = touching, truth.first_members()
        reach = None
        if relevant_within is not None and not reads & {"chunks", "judged"}:
            reach = fewest if relevant_within == MIN else hits_within(hits, relevant_within)
        offsets, most = hits.offsets + truth.offsets, line_of(hits, judged)[2]
        first, queries = 0, len(offsets) - 1
        while first < queries:
            last = int(np.searchsorted(offsets, offsets[first] + block_rows, side="right")) - 1
            last = max(first + 1, min(last, first + most, queries))
            block, relevant = hits.block(first, last), truth.block(first, last)
            if reach is not None:
                within = block.select(np.flatnonzero(block.rank <= reach[first:last][block.query]))
                relevant = relevant.join(spans_outside(within, judged.block(first, last)))
            least = None if fewest is None else fewest[first:last]
            yield slice(first, last), coverage_of(block, relevant, least, is_merged(self.passages))
            first = last

    def _with_tokens(self, name: MetricName) -> SpanRows:
        """Return the hits with the tokens of their texts; an error about missing texts names the metric."""
        hits = self.rows.hits["hits"]
        tokens = self.tokens.of_passages(self.passages, self.rows.picked["hits"], hits, str(name))
        return replace(hits, tokens=tokens)

    def calculate(self, objects: Sequence[MetricAtCut]) -> dict[str, Values]:
        """Return the values of metrics that are objects, by their full names; raises ``ConfigurationError``."""
        if not objects:
            return {}
        rows, values = self.rows, {}
        documents = needed(self.documents, str(objects[0]), "documents") if self.level == "token-level" else {}
        texts = QueryTexts(self.level, rows.ids.to_pylist(), documents)
        for cut in dict.fromkeys(metric.cut for metric in objects):
            at_cut = [metric for metric in objects if metric.cut == cut]
            hits = self._with_tokens(at_cut[0].name) if cut.kind == "tokens" else rows.hits["hits"]
            truth, reach = best_members(hits, rows.truth, cut), hits_within(hits, cut)
            for metric in at_cut:
                values[str(metric)] = calculate_each(metric, hits, truth, reach, texts, rows.query_ids)
        return values


def best_members(hits: SpanRows, truth: SpanRows, cut: Cut) -> SpanRows:
    """Return the truth with one member of each group: the one that the hits at the cut cover best.

    Of equal members, that is the first.
    """
    if truth.group is None:
        return truth
    covered = SpanCoverage(hits, truth).by_span(slice(None)).covered(cut)
    group = np.repeat(np.arange(len(truth.firsts)), truth.group_sizes)
    order = np.lexsort((-covered / truth.lengths, group))
    return replace(truth.select(order[truth.firsts]), group=None)


def hits_within(hits: SpanRows, cut: Cut) -> Counts:
    """Return how many hits of each query are within a cut."""
    counts: Counts = np.diff(hits.offsets)
    if cut.kind != "tokens":
        return counts if cut.hits is None else np.minimum(counts, cut.hits)
    spent = SpanCoverage(hits, hits).spent[1:]
    within: Counts = np.sum(np.maximum.accumulate(spent, axis=0) <= cut.size, axis=0)
    return np.minimum(within, counts)
