"""Scores from tables: every metric, cut and query at once, all cuts from one retrieval.

The missing rule: every answerable query has a row for each metric and cut; a query without hits gets the metric's value
for empty retrieval. A query without truth that is not declared unanswerable is an error. Unanswerable queries have
no rows. Values equal those of the metrics' ``calculate``, whose formulas these are.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.coverage import SpanRows, SpanSweep, line_of, spans_outside, touching_chunks
from rag_eval.metrics.groups import sweep_of
from rag_eval.metrics.metric import (
    ALL,
    DEFAULT_ENCODING,
    LARGEST_CUT,
    MAX_MIN_K,
    MIN,
    Counts,
    Cut,
    MetricAtCut,
    MetricName,
    RetrievalMetric,
    Values,
    metric_of,
    needed,
    requested_metrics,
)
from rag_eval.metrics.own_metrics import QueryTexts, calculate_each
from rag_eval.metrics.span_metrics import TokenUnit
from rag_eval.metrics.table_rows import Rows, TableRows, read_rows, with_own_places
from rag_eval.tables import CHUNKS, PASSAGES, SCORES, TruthTables, check_schema, schema_of
from rag_eval.tokens import count_slices
from rag_eval.types.documents import Document, Documents, by_id
from rag_eval.types.ids import EvaluationType

AVERAGES = schema_of(metric=pa.string(), cut=pa.string(), size=pa.int32(), mean=pa.float64(), n=pa.int64())
"""A row for each metric and cut: the mean over n queries."""

# Few enough for the processor's cache, enough to forget what a numpy call costs.
BLOCK_ROWS = 100_000

RANKS_AT_ONCE = 5
"""How many hits of a query are tokenised before it is seen whether a budget has room for as many more."""


class Slices(NamedTuple):
    """Places in one text, which is read when it has to be."""

    read: Callable[[], str]
    """Gives the text; raises ``ConfigurationError`` when it is not there, or has no such places."""
    places: Counts
    """A row of start and end for each."""
    sha256: str | None = None
    """Of the text, where it is known without reading it."""


UnjudgedAs = Literal["irrelevant", "relevant"]

TokenCount = Callable[[Iterable[Slices], str], Iterable[Counts]]
"""Gives how many tokens each slice of the texts is in an encoding; of the texts one at a time is in memory."""


def count_each(slices: Iterable[Slices], encoding: str) -> Iterator[Counts]:
    """Count the tokens of each slice."""
    for one in slices:
        yield count_slices(one.read(), one.places, encoding)


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
    """Score the places of passages, or their chunk ids: a ``SCORES`` row for each metric, cut and answerable query.

    ``metrics`` are names without a cut (``span_recall``, ``span_recall(cl100k_base)``), which are scored at each of
    ``ks``, or with a cut of their own (``chroma_iou@min``, ``span_recall@2000tokens``), and objects likewise. A
    ``MetricName`` or a ``MetricAtCut`` is scored as it is. At token level ``documents`` are needed for objects and for
    what is counted in tokens, ``chunks`` (all of the corpus, as a table) for ``precision_omega`` and ``@min``; at chunk
    level ``chunks`` for budgets of tokens. ``block_rows`` bounds memory: so many rows of passages and truth are scored
    at a time. ``count`` counts tokens. What was retrieved within a cut and nobody judged counts as ``unjudged`` says:
    see ``rag_eval.metrics.span_metrics.Unjudged``.
    Raises ``ConfigurationError`` on a metric or k that cannot be used or lacks what it needs, ``TableError`` on a row
    that holds no character, has a wrong rank or names an unknown query, and ``GroundTruthError`` on a query without
    truth that is not declared unanswerable.
    """
    read: Any = None
    if level == "token-level":
        passages, apart = with_own_places(passages)
        known: Any = None if documents is None else by_id(documents)
        read = ChainMap(dict(by_id(apart)), known) if apart and known is not None else known
    asked = requested_metrics(metrics, ks, level)
    names = [one for one in asked if isinstance(one, MetricName)]
    objects = [one for one in asked if isinstance(one, MetricAtCut)]
    reading = [name for name in names if "chunks" in name.needs]
    corpus = needed(chunks, str(reading[0]), "chunks") if reading else None
    cuts = [name.cut for name in names if "chunks" not in name.metric.reads]
    cuts += [one.name.cut for one in objects]
    depth = max((MAX_MIN_K if cut == MIN else cut.hits or LARGEST_CUT for cut in cuts), default=0)
    tables = _Tables(level, passages, read_rows(level, truth, {"hits": passages}, corpus, depth), read, chunks, count)
    is_relevant = unjudged == "relevant"
    if is_relevant and objects:
        raise ConfigurationError(f"{objects[0]} is not built in, and has no value for unjudged text that is relevant")
    alike: dict[tuple[Any, ...], list[MetricName]] = {}
    for name in names:
        inputs = name.metric.reads & {"chunks", "judged"}
        alike.setdefault((inputs, name.unit, name.cut if is_relevant else None), []).append(name)
    query_ids = tables.rows.query_ids
    values: dict[str, Values] = {str(name): np.empty(len(query_ids)) for name in names}
    for some in alike.values():
        for first, last, sweep in tables.sweeps(some, block_rows, is_relevant):
            for name in some:
                values[str(name)][first:last] = name.metric.score(sweep, name.cut)
    values |= tables.calculated(objects)
    # A chunk for each metric and cut: ids and labels are stored once, however many scores there are.
    repeated = cache(lambda value: pa.repeat(value, len(query_ids)))
    told = [one.name if isinstance(one, MetricAtCut) else one for one in asked]
    columns: list[list[pa.Array]] = [
        [query_ids for _ in told],
        [repeated(name.column) for name in told],
        [repeated(name.cut.kind) for name in told],
        [repeated(pa.scalar(name.cut.size, pa.int32())) for name in told],
        [pa.array(values[str(name)]) for name in told],
    ]
    chunked = [pa.chunked_array(column, field.type) for column, field in zip(columns, SCORES, strict=True)]
    return pa.Table.from_arrays(chunked, schema=SCORES)


def tokens_of_rows(
    level: EvaluationType,
    rows: TableRows,
    hits: SpanRows,
    cut: Cut,
    documents: Documents | None,
    chunks: pa.Table,
    passages: tuple[pa.Table, Rows] | None = None,
    count: TokenCount = count_each,
) -> Counts:
    """The tokens of each hit, as the scores count them; of one beyond a budget 0.

    ``passages`` are the table that the hits are of, and which rows; without it they are chunks of the corpus.
    """
    table, picked = (PASSAGES.empty_table(), slice(None)) if passages is None else passages
    own = replace(rows, hits={"hits": hits}, picked={"hits": picked})
    read = None if documents is None else by_id(documents)
    return _Tables(level, table, own, read, chunks, count)._tokens([MetricName("tokens_retrieved", None, cut)], None)


def held_shares(
    level: EvaluationType,
    hits: pa.Table,
    truth: TruthTables,
    cut: Cut,
    documents: Documents | None = None,
    chunks: pa.Table | None = None,
    count: TokenCount = count_each,
) -> Values:
    """For each row of the truth, by query, the share of what was retrieved within the cut that it holds.

    No two rows of a query overlap; arguments and errors are as for ``score_passages``.
    """
    hits = with_own_places(hits)[0] if level == "token-level" else hits
    read = None if documents is None else by_id(documents)
    tables = _Tables(level, hits, read_rows(level, truth, {"hits": hits}), read, chunks, count)
    label = "span_precision" if level == "token-level" else "chunk_precision"
    found = [np.zeros(0)]
    for _, _, sweep in tables.sweeps([MetricName(label, None, cut)], BLOCK_ROWS):
        retrieved = np.maximum(sweep.retrieved(cut), 1)[sweep.given.query]
        found.append(sweep.apart(slice(None)).covered(cut) / retrieved)
    return np.concatenate(found)


def average_scores(scores: pa.Table) -> pa.Table:
    """The mean and the number of queries for each metric and cut, in the order of their first rows."""
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


@dataclass(frozen=True)
class _Tables:
    """Passages and their rows, and where their texts are: in the documents, or in the chunks."""

    level: EvaluationType
    passages: pa.Table
    rows: TableRows
    documents: Mapping[str, Document] | None
    chunks: pa.Table | None
    count: TokenCount = count_each

    def sweeps(
        self, names: Sequence[MetricName], block_rows: int, is_relevant: bool = False
    ) -> Iterator[tuple[int, int, SpanSweep]]:
        """Ranges of queries that together have about ``block_rows`` rows, and the sweep of each.

        The metrics are of one unit and of one input; where what is unjudged ``is_relevant``, of one cut too. What
        touches the truth is what touches the first member of a group, as it was written: that is the same whatever was
        retrieved.
        Raises ``ConfigurationError`` when they need documents or chunks that are not given.
        """
        rows, one, tokens, fewest = self.rows, names[0], None, None
        hits, judged = rows.hits["hits"], rows.judged
        truth = judged if "judged" in one.metric.reads else rows.truth
        if any(name.reads_tokens for name in names):
            tokens = self._tokens(names, one.unit)
        if any("chunks" in name.needs for name in names):
            touching = touching_chunks(truth.as_written(), rows.chunks)
            fewest = np.minimum(np.diff(touching.offsets), MAX_MIN_K)
            if "chunks" in one.metric.reads:
                hits, truth = touching, truth.as_written()
        if one.unit is not None and any("hits" in name.metric.reads for name in names):
            unit, doc_ids = TokenUnit(one.unit, needed(self.documents, str(one), "documents")), rows.ids.to_pylist()
            hits, truth, judged = (_in_tokens(side, doc_ids, unit) for side in (hits, truth, judged))
        reach = fewest if one.cut == MIN else hits_within(hits, one.cut, tokens) if is_relevant else None
        offsets, most = hits.offsets + truth.offsets, line_of(hits, judged)[2]
        first, queries = 0, len(rows.query_ids)
        while first < queries:
            last = int(np.searchsorted(offsets, offsets[first] + block_rows, side="right")) - 1
            last = max(first + 1, min(last, first + most, queries))
            spent = None if tokens is None else tokens[hits.offsets[first] : hits.offsets[last]]
            least = None if fewest is None else fewest[first:last]
            block, relevant = hits.block(first, last), truth.block(first, last)
            if is_relevant and reach is not None and not one.metric.reads & {"chunks", "judged"}:
                within = block.of(np.flatnonzero(block.rank <= reach[first:last][block.query]))
                relevant = relevant.joined(spans_outside(within, judged.block(first, last)))
            yield first, last, sweep_of(block, relevant, tokens=spent, fewest=least, is_merged=self._is_merged)
            first = last

    @property
    def _is_merged(self) -> bool:
        """Whether passages that overlap or touch are one: those that are more than their hits."""
        ranks = self.passages.column("hit_ranks")
        return bool(ranks.null_count < len(ranks))

    def calculated(self, objects: Sequence[MetricAtCut]) -> dict[str, Values]:
        """The values of metrics that are objects, by their full names; raises ``ConfigurationError`` as they do."""
        rows, found = self.rows, {}
        if not objects:
            return {}
        hits, is_placed = rows.hits["hits"], self.level == "token-level"
        documents = needed(self.documents, str(objects[0]), "documents") if is_placed else {}
        texts = QueryTexts(self.level, rows.ids.to_pylist(), documents)
        for cut in dict.fromkeys(one.name.cut for one in objects):
            some = [one for one in objects if one.name.cut == cut]
            tokens = self._tokens([one.name for one in some], None) if cut.kind == "tokens" else None
            chosen = best_members(hits, rows.truth, cut, tokens)
            for one in some:
                # A built-in one cuts for itself, by what it was made with, and knows groups.
                own = cut if not isinstance(one.metric, RetrievalMetric) or cut.hits else ALL
                truth = rows.truth if metric_of(str(one)) is type(one.metric) else chosen
                reach = hits_within(hits, own, tokens)
                found[str(one)] = calculate_each(one, hits, truth, reach, texts, rows.query_ids)
        return found

    def _tokens(self, names: Sequence[MetricName], unit: str | None) -> Counts:
        """The tokens of each passage; a passage beyond every cut of the metrics that count them has 0.

        They are those that the table has, unless a tokenizer is named, or else those of its own text, or of the slice
        at its place (at chunk level: of its chunk). A place that occurs often is tokenised once.
        Raises ``ConfigurationError`` when the text of a passage is not there.
        """
        hits, picked, known = self.rows.hits["hits"], self.rows.picked["hits"], self.passages.column("tokens")
        if unit is None and len(known) and not known.null_count:
            counts: Counts = known.to_numpy().astype(np.int64)[picked]
            return counts
        name = next(name for name in names if name.reads_tokens)
        written = self.passages.column("text")
        doc, own = hits.doc.copy(), {}
        if written.null_count < len(written):
            own = {row: text for row, text in enumerate(written.to_numpy()[picked]) if text is not None}
            # A text of its own is no other's: a place of its own.
            doc[list(own)] = len(self.rows.ids) + np.array(list(own), dtype=np.int64)
        cuts = [other.cut for other in names if other.reads_tokens]
        whole = max((cut.hits or 0 for cut in cuts), default=0)
        budget = max((cut.size for cut in cuts if cut.kind == "tokens"), default=-1)
        if self._is_merged:
            return self._added_tokens(name, unit, LARGEST_CUT if ALL in cuts else whole, budget)
        size = int(hits.end.max(initial=0)) + 1
        # Numbered starts leave room for the end in one integer.
        place = numbered(numbered(doc * size + hits.start) * size + hits.end)
        firsts = np.empty(place.max(initial=-1) + 1, dtype=np.int64)
        firsts[place[::-1]] = np.arange(len(place))[::-1]
        counted = np.full(len(firsts), -1, dtype=np.int64)
        costs = np.zeros(len(doc), dtype=np.int64)
        deepest, first, last = int(hits.rank.max(initial=0)), 0, RANKS_AT_ONCE
        while first < deepest:
            last = deepest if ALL in cuts else last
            due = np.flatnonzero((hits.rank > first) & (hits.rank <= last))
            within = np.bincount(hits.query, costs, len(self.rows.query_ids))[hits.query[due]] <= budget
            due = due[within | (hits.rank[due] <= whole) | (ALL in cuts)]
            is_due = np.zeros(len(firsts), bool)
            is_due[place[due]] = True
            new = np.flatnonzero(is_due & (counted < 0))
            new = new[np.argsort(doc[firsts[new]], kind="stable")]
            rows = firsts[new]
            counted[new] = self._counted(doc[rows], hits.start[rows], hits.end[rows], name, unit, own)
            costs[due] = counted[place[due]]
            first, last = last, 2 * last
        return costs

    def _added_tokens(self, name: MetricName, unit: str | None, whole: int, budget: int) -> Counts:
        """What each passage adds to the tokens of those before it; 0 beyond ``whole`` ranks and the ``budget``."""
        hits = self.rows.hits["hits"]
        docs, starts, ends = (column.tolist() for column in (hits.doc, hits.start, hits.end))
        changes: list[tuple[int, int, tuple[int, int, int]]] = []  # to which row the tokens of a place add, or take
        for first, last in pairwise(hits.offsets.tolist()):
            merged: dict[int, list[tuple[int, int]]] = {}
            for row in range(first, last):
                doc, start, end = docs[row], starts[row], ends[row]
                before = merged.setdefault(doc, [])
                near = [one for one in before if one[0] <= end and start <= one[1]]
                if near:
                    if near[0][0] <= start and end <= near[0][1]:
                        continue  # inside of what was handed on before, and so beside no other
                    before[:] = [one for one in before if one not in near]
                    changes += [(row, -1, (doc, *one)) for one in near]
                    start, end = min(start, *(one[0] for one in near)), max(end, *(one[1] for one in near))
                before.append((start, end))
                changes.append((row, 1, (doc, start, end)))
        places = sorted({place for _, _, place in changes})
        doc_of, start_of, end_of = np.array(places, dtype=np.int64).reshape(-1, 3).T
        counts = self._counted(doc_of, start_of, end_of, name, unit).tolist()
        tokens, added = dict(zip(places, counts, strict=True)), [0] * len(docs)
        for row, sign, place in changes:
            added[row] += sign * tokens[place]
        costs: Counts = np.array(added, dtype=np.int64)
        for first, last in pairwise(hits.offsets.tolist()):
            spent = np.cumsum(costs[first:last]) - costs[first:last]
            beyond = np.flatnonzero((spent > budget) & (np.arange(last - first) >= whole))
            costs[first:last][beyond[0] if len(beyond) else last - first :] = 0
        return costs

    def _counted(
        self,
        doc: Counts,
        start: Counts,
        end: Counts,
        name: MetricName,
        unit: str | None,
        own: Mapping[int, str] = MappingProxyType({}),
    ) -> Counts:
        """The tokens of places in the order of their documents, which are read one after another.

        Documents past the known ones are texts that passages have of their own.
        """
        texts, ids = self._texts(name), self.rows.ids.to_pylist()
        known: Mapping[str, str] = getattr(self.documents, "digests", {})

        def read(doc_id: str, last: Counts) -> str:
            text = texts(doc_id)
            if self.level == "token-level" and (text is None or last[1] > len(text)):
                raise ConfigurationError(
                    f"the documents have no text at [{last[0]}, {last[1]}) of {doc_id!r}, which was retrieved: "
                    f"for {name} give the corpus that was searched"
                )
            if text is None:
                raise ConfigurationError(f"{doc_id!r} was retrieved and is not among the chunks: give those searched")
            return text

        def slices() -> Iterator[Slices]:
            for part in np.split(np.arange(len(doc)), np.flatnonzero(np.diff(doc)) + 1) if len(doc) else ():
                number, places = int(doc[part[0]]), np.stack([start[part], end[part]], axis=1)
                last = places[places[:, 1].argmax()]
                if number < len(ids) and self.level == "token-level":
                    yield Slices(partial(read, ids[number], last), places, known.get(ids[number]))
                else:
                    text = read(ids[number], last) if number < len(ids) else own[number - len(ids)]
                    yield Slices(partial(str, text), np.array([[0, len(text)]]))

        found = self.count(slices(), unit or DEFAULT_ENCODING)
        return np.concatenate([np.empty(0, np.int64), *found])

    def _texts(self, name: MetricName) -> Callable[[str], str | None]:
        """What gives the text of a document, or of a chunk that was retrieved, by its id."""
        if self.level == "token-level":
            documents = needed(self.documents, str(name), "documents")
            return lambda doc_id: documents[doc_id].content if doc_id in documents else None
        chunks = check_schema(needed(self.chunks, str(name), "chunks"), CHUNKS, "chunks")
        used = chunks.filter(pc.is_in(chunks.column("chunk_id"), self.rows.ids)).select(["chunk_id", "content"])
        return dict(zip(*(column.to_pylist() for column in used.columns), strict=True)).get


def best_members(hits: SpanRows, truth: SpanRows, cut: Cut, tokens: Counts | None) -> SpanRows:
    """The truth with one member of each group: that of which the hits at the cut cover the largest share, or the first.

    ``tokens`` are those of each hit, for a cut by tokens.
    """
    if truth.group is None:
        return truth
    at = Cut("hits", MAX_MIN_K) if cut == MIN else cut
    covered = SpanSweep(hits, truth, tokens=tokens).apart(slice(None)).covered(at)
    group = np.repeat(np.arange(len(truth.firsts)), np.diff(np.append(truth.firsts, len(truth.doc))))
    order = np.lexsort((-covered / (truth.end - truth.start), group))
    return replace(truth.of(order[truth.firsts]), group=None)


def hits_within(hits: SpanRows, cut: Cut, tokens: Counts | None) -> Counts:
    """How many hits of each query are within a cut; ``tokens`` are those of each hit, for a cut by tokens."""
    counts: Counts = np.diff(hits.offsets)
    if cut.kind != "tokens" or tokens is None:
        return counts if cut.hits is None else np.minimum(counts, cut.hits)
    spent = SpanSweep(hits, hits, tokens=tokens).spent[1:]
    within: Counts = np.sum(np.maximum.accumulate(spent, axis=0) <= cut.size, axis=0)
    return np.minimum(within, counts)


def numbered(values: Counts) -> Counts:
    """Return a number for each value, the same for equal ones, from 0 without a gap.

    ``np.unique`` would sort them, which takes five times as long.
    """
    numbers: Counts = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _in_tokens(rows: SpanRows, doc_ids: Sequence[str], unit: TokenUnit) -> SpanRows:
    start, end = np.empty_like(rows.start), np.empty_like(rows.end)
    order = np.argsort(rows.doc, kind="stable")
    borders = np.flatnonzero(np.diff(rows.doc[order], prepend=-1))
    for group in np.split(order, borders[1:]) if len(order) else []:
        doc_id = doc_ids[rows.doc[group[0]]]
        start[group] = unit.tokens_before(doc_id, rows.start[group])
        end[group] = unit.tokens_before(doc_id, rows.end[group])
    return replace(rows, start=start, end=end)
