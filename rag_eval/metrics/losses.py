"""Where recall is lost on the way from the documents to what is handed on.

Every recall below is that of one query; at token level it is ``span_recall`` in characters, at chunk level
``chunk_recall``, and at every stage a group of evidence is covered by the member that is covered best there.
*Oracle@all* is the recall if every chunk were retrieved, *oracle@k* the best that any choice of k chunks could reach,
*allowed@k* the same with the chunks that the query's filter leaves: without a filter, oracle@k.
*Searched@k* is the recall of the first k hits of exact search, of several retrievers (or variants of a query) that of
the one that has most; *found@k* the same with the index that was really used; the others are those of the first k hits
after the stage, or of the first k passages.

==============  ============================  ========================================================================
part            formula                       what it tells
==============  ============================  ========================================================================
``uncovered``   1 - oracle@all                in no chunk at all: the chunker lost it, and nothing after can find it
``boundary``    oracle@all - oracle@k         spread over more than k chunks: cut otherwise, or retrieve more
``search``      allowed@k - searched@k        in chunks that would have fitted, but every retriever ranked others higher
``index``       searched@k - found@k          found by the exact search, missed by the approximate one
``fusion``      found@k - fused@k             a retriever had it in its first k, the fusion has not
``selection``   oracle@k - allowed@k +        kept from the search by a filter, and dropped by a threshold or as a
                fused@k - selected@k          near-duplicate
``reranker``    selected@k - reranked@k       moved out of the first k by the reranker
``return``      reranked@k - returned@k       lost by what is handed on in place of the hits
==============  ============================  ========================================================================

They add up to 1 - the final recall. The first three are never negative. From ``fusion`` on a negative part is a gain:
truth came into the first k that had not been there, such as that in a window around a hit. A negative ``index`` is
luck: a hit that the exact search ranks lower holds more truth than the one that was missed. The part of a stage that
there is not is 0.

A budget of tokens is a cut like k: the first k hits are those that fit into the budget, whole and best first, as
``recall_within_tokens`` takes them, and *oracle@k* is the best that any choice of chunks could reach that have no more
tokens together. ``boundary`` is then what only chunks hold that cost too much: cut smaller, or allow more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.coverage import SpanRows, SpanSweep, touching_chunks
from rag_eval.metrics.groups import GroupedSweep, WeightedSweep, sweep_of
from rag_eval.metrics.metric import ALL, LARGEST_CUT, Counts, Cut, Values, check_cut
from rag_eval.metrics.score_tables import TokenCount, count_each, numbered, tokens_of_rows
from rag_eval.metrics.table_rows import NO_SPANS, TableRows, read_rows
from rag_eval.tables import HITS, TruthTables, as_passages, check_schema, schema_of
from rag_eval.types.documents import Documents
from rag_eval.types.ids import EvaluationType

LATER = {"fused": "fusion", "selected": "selection", "reranked": "reranker"}
"""The stages after the first, by the name of their hits, and what each can lose; all others are searches."""

VARIANTS = "variants"
"""The hits of several variants of a query as one: a fusion too, of what may be fused already."""

LOSS_PARTS = ("uncovered", "boundary", "search", "index", *LATER.values(), "return")
"""The parts, in the order in which they come about."""

SHARES = (*LOSS_PARTS, "final_recall")

LOSSES = schema_of(query_id=pa.string(), k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()))
"""A row for each k, hits or tokens, and answerable query: the parts of 1 - ``final_recall``, and this."""

AVERAGE_LOSSES = schema_of(k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()), n=pa.int64())
"""A row for each k: the means over n queries."""

SEARCH_LOSSES = schema_of(query_id=pa.string(), k=pa.int32(), search=pa.string(), loss=pa.float64())
"""A row for each search, k and answerable query: allowed@k less the recall of this search alone."""

MOST_CHOICES = 64
"""So many choices of one member for each group are tried for oracle@k; of more, those that one chunk covers best."""


@dataclass(frozen=True)
class HitStages:
    """The hits of one retrieval by stage, ``HITS`` tables that are at least as deep as the largest k.

    Hits that are not those of a later stage (``LATER``) are those of a search; of several there is a fusion.
    ``exact`` has the hits of exact search in the place of searches by an approximate index; ``passages``, of the schema
    ``PASSAGES``, is left out where the hits themselves are handed on. A hit that was not fetched counts as not found.
    ``allowed`` has the documents that the filter of a query leaves, for queries that have one.
    """

    hits: Mapping[str, pa.Table]
    exact: Mapping[str, pa.Table] = field(default_factory=dict)
    passages: pa.Table | None = None
    allowed: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def searches(self) -> dict[str, pa.Table]:
        """The hits of every search, one for each variant of the queries; those of exact search in ``exact``."""
        return _by_variant({stage: table for stage, table in self.hits.items() if stage not in {*LATER, VARIANTS}})

    def tables(self) -> dict[str, pa.Table]:
        """All hits as passages, by a name for messages."""
        exact = {f"exact {name} hits": table for name, table in _by_variant(self.exact).items()}
        later = {f"{stage} hits": self.hits[stage] for stage in LATER if stage in self.hits}
        if VARIANTS in self.hits:  # in the place of what was fused for each variant apart
            later = later | {"fused hits": self.hits[VARIANTS]}
        every = {f"{name} hits": table for name, table in self.searches.items()} | exact | later
        passages = {} if self.passages is None else {"passages": self.passages}
        return {what: as_passages(table) for what, table in (every | passages).items()}


def _by_variant(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    found = {}
    for name, table in tables.items():
        variants = sorted(pc.unique(check_schema(table, HITS, "hits").column("variant")).to_pylist())
        if len(variants) < 2:
            found[name] = table
        for variant in variants if len(variants) > 1 else ():
            found[f"{name} of variant {variant}"] = table.filter(pc.field("variant") == variant)
    return found


@dataclass(frozen=True)
class Losses:
    """The parts of the loss, a ``LOSSES`` table, and the loss of each search alone, a ``SEARCH_LOSSES`` table."""

    parts: pa.Table
    searches: pa.Table


def average_losses(losses: pa.Table) -> pa.Table:
    """The mean of each part and of the final recall, and the number of queries, for each k in the order of its rows.

    The means of the parts add up to 1 - the mean final recall. No rows give no rows. Raises ``TableError`` when the
    table is not one of ``LOSSES``.
    """
    check_schema(losses, LOSSES, "losses")
    # On several threads the order of the groups would be left to chance.
    groups = losses.group_by("k", use_threads=False)
    means = groups.aggregate([*((name, "mean") for name in SHARES), ("k", "count")])
    columns = [means.column("k"), *(means.column(f"{name}_mean") for name in SHARES), means.column("k_count")]
    return pa.Table.from_arrays(columns, names=AVERAGE_LOSSES.names).cast(AVERAGE_LOSSES)


def check_ks(ks: Sequence[int]) -> None:
    """Raise ``ConfigurationError`` unless there are ks, whole numbers of 1 or more, each once."""
    if not ks or None in ks:
        raise ConfigurationError(f"ks is {list(ks)!r}: a loss is that of the first k hits, give at least one number")
    for k in ks:
        check_cut(k, "ks")
    if len(set(ks)) < len(ks):
        raise ConfigurationError(f"ks is {list(ks)!r}, with an entry twice: ask for each k once")


Costs = Callable[[SpanRows], Counts]
"""What chunks of the corpus cost in tokens."""


def losses_of(
    level: EvaluationType,
    chunks: pa.Table,
    truth: TruthTables,
    stages: HitStages,
    ks: Sequence[int],
    kind: Literal["hits", "tokens"] = "hits",
    documents: Documents | None = None,
    count: TokenCount = count_each,
) -> Losses:
    """The parts of the loss at one level, and the loss of each search alone, a row for each k and answerable query.

    ``chunks`` are all that were indexed; the oracle@k is exact. ``final_recall`` equals the ``span_recall``, or the
    ``chunk_recall``, of ``score_passages``; a query without hits has 0. Of ``kind`` tokens, ks are budgets of tokens of
    context; at token level ``documents`` have the texts that are counted, and the final recall equals
    ``recall_within_tokens``.
    Raises ``ConfigurationError`` on ks that cannot be used; ``TableError`` on a row that holds no character, has a
    wrong rank or names an unknown query, and on a hit that is not one of the chunks; ``GroundTruthError`` on a query
    without truth that is not declared unanswerable.
    """
    check_ks(ks)
    tables, most = stages.tables(), Cut(kind, max(ks))
    rows = read_rows(level, truth, tables, chunks, most.hits or LARGEST_CUT)

    def costs(spans: SpanRows, what: str | None = None) -> Counts:
        cut, passages = (ALL, None) if what is None else (most, (tables[what], rows.picked[what]))
        return tokens_of_rows(level, rows, spans, cut, documents, chunks, passages, count)

    priced = costs if kind == "tokens" else None
    everything = sweep_of(useful_chunks(rows.chunks, rows.truth), rows.truth)
    covered: dict[str, Any] = {}
    for what, hits in rows.hits.items():
        if what != "passages":
            _check_places(rows, what, level)
        sweep = sweep_of(hits, rows.truth, tokens=None if priced is None else costs(hits, what))
        covered[what] = np.stack([sweep.covered(Cut(kind, k)) for k in ks])
    oracle = _oracle(rows.chunks, rows.truth, ks, priced)
    allowed = oracle
    if stages.allowed:
        within = _within(rows, chunks, stages.allowed, level)
        allowed = _oracle(rows.chunks, within, ks, priced)
    found = {name: covered[f"{name} hits"] for name in stages.searches}
    searched = {name: covered.get(f"exact {name} hits", reached) for name, reached in found.items()}
    # No choice of chunks that was tried may reach less than one that was seen.
    seen = [*searched.values(), *(covered[what] for what in covered if what != "passages")]
    oracle, allowed = (np.maximum.reduce([one, *seen]) for one in (oracle, allowed))
    reached = [everything.truth, everything.covered(ALL), oracle, *(_most(one, oracle) for one in (searched, found))]
    for what in (*(f"{stage} hits" for stage in LATER), "passages"):
        reached.append(covered.get(what, reached[-1]))
    # Whole numbers until the one division: what is not lost is 0, not nearly 0.
    amounts = [more - less for more, less in pairwise(np.broadcast_arrays(*reached))]
    for part, sign in (("search", -1), ("selection", 1)):  # what a filter keeps from the search is not the search's
        amounts[LOSS_PARTS.index(part)] = amounts[LOSS_PARTS.index(part)] + sign * (oracle - allowed)
    parts = [amount / everything.truth for amount in amounts]
    ids = pa.chunked_array([rows.query_ids for _ in ks], pa.string())
    numbers = pa.array(np.repeat(np.array(ks, dtype=np.int32), len(rows.query_ids)))
    columns = [ids, numbers, *(pa.array(part.ravel()) for part in (*parts, reached[-1] / everything.truth))]
    by_search = [
        pa.Table.from_arrays(
            [ids, numbers, pa.repeat(name, len(numbers)), pa.array(((allowed - own) / everything.truth).ravel())],
            schema=SEARCH_LOSSES,
        )
        for name, own in searched.items()
    ]
    return Losses(pa.Table.from_arrays(columns, schema=LOSSES), pa.concat_tables(by_search))


def _oracle(chunks: SpanRows, truth: SpanRows, ks: Sequence[int], costs: Costs | None) -> Any:
    """The most that any k chunks, or chunks of k tokens, cover of each query's truth, a row for each k."""
    wanted = sweep_of(NO_SPANS.take(slice(0), np.zeros_like(truth.offsets)), truth)
    if isinstance(wanted, GroupedSweep):
        return _best_of_groups(chunks, wanted, ks, costs)
    return _cover(chunks, truth, ks, costs)


def _cover(
    chunks: SpanRows, truth: SpanRows, ks: Sequence[int], costs: Costs | None, weights: Values | None = None
) -> Any:
    """``best_cover`` at every k, or ``best_within`` where chunks have costs; characters may have weights."""

    def sweep(some: SpanRows, tokens: Counts | None = None) -> SpanSweep:
        return (
            SpanSweep(some, truth, tokens=tokens)
            if weights is None
            else WeightedSweep(some, truth, weights, tokens=tokens)
        )

    if costs is not None:
        near = touching_chunks(truth, chunks)  # a chunk within another may be all that the budget has room for
        return best_within(sweep(near, costs(near)), ks)
    best = best_cover(sweep(useful_chunks(chunks, truth)), max(ks))
    return np.stack([best[min(k, len(best)) - 1] for k in ks])


def _within(rows: TableRows, chunks: pa.Table, allowed: Mapping[str, pa.Array], level: EvaluationType) -> SpanRows:
    """The truth, with what is in no document that a query's filter leaves put where no chunk is."""
    doc = rows.truth.doc.copy()
    masks: dict[int, Any] = {}
    for query, query_id in enumerate(rows.query_ids.to_pylist()):
        documents = allowed.get(query_id)
        if documents is not None:
            if id(documents) not in masks:  # most queries share theirs
                of = chunks.filter(pc.is_in(chunks.column("doc_id"), documents)).column("chunk_id")
                left = documents if level == "token-level" else of.combine_chunks()
                masks[id(documents)] = pc.is_in(rows.ids, left).to_numpy(zero_copy_only=False)
            part = slice(*rows.truth.offsets[query : query + 2])
            doc[part] = np.where(masks[id(documents)][doc[part]], doc[part], doc[part] + len(rows.ids))
    return replace(rows.truth, doc=doc)


def _most(reached: Mapping[str, Any], oracle: Any) -> Any:
    """What the search reaches that reaches most, of each query."""
    return np.maximum.reduce(list(reached.values())) if reached else np.zeros_like(oracle)


def _best_of_groups(chunks: SpanRows, wanted: GroupedSweep, ks: Sequence[int], costs: Costs | None) -> Any:
    """As ``_cover``, where one member of each group is to be covered: the best over the choices of members."""
    sizes = np.diff(np.append(wanted.begins, len(wanted.members)))
    in_query = np.split(np.arange(len(sizes)), np.searchsorted(wanted.of, np.arange(1, len(wanted.truth))))
    of_group = [list(range(begin, begin + size)) for begin, size in zip(wanted.begins, sizes, strict=True)]
    ways = [[of_group[group] for group in groups] for groups in in_query]
    if any(prod(map(len, one)) > MOST_CHOICES for one in ways):
        each = wanted.given.take(wanted.members, np.arange(len(wanted.members) + 1))
        by_one = best_cover(SpanSweep(useful_chunks(chunks, each), each), 1)[0] / wanted.lengths
        for one in ways:
            _shorten(one, by_one)
    query, doc, start, end = wanted.alone.merged_truth()
    begins = np.searchsorted(query, np.arange(len(wanted.truth) + 1))
    alone = [np.arange(begin, stop) for begin, stop in pairwise(begins)]
    choices = [(number, np.array(choice, np.int64)) for number, one in enumerate(ways) for choice in product(*one)]
    # The pieces of groups of one stand first, then all members: a choice is some of these rows.
    picked = [np.concatenate([alone[number], len(query) + choice]) for number, choice in choices]
    rows, members = np.concatenate(picked), wanted.given.take(wanted.members, wanted.given.offsets)
    sides = zip((doc, start, end), (members.doc, members.start, members.end), strict=True)
    columns = [np.concatenate(side)[rows] for side in sides]
    truth = SpanRows(np.cumsum([0, *map(len, picked)]), *columns)
    weights = np.concatenate([np.ones(len(query)), wanted.weights / wanted.lengths])[rows]
    best = _cover(chunks, truth, ks, costs, weights)
    return np.maximum.reduceat(best, np.searchsorted([number for number, _ in choices], np.arange(len(ways))), axis=1)


def _shorten(ways: list[list[int]], by_one: Values) -> None:
    """Leave fewer members in the groups of a query that has too many choices: those of which one chunk has most."""
    for group in ways if prod(map(len, ways)) > MOST_CHOICES else ():
        group.sort(key=lambda member: -by_one[member])
    while prod(map(len, ways)) > MOST_CHOICES:
        max(ways, key=len).pop()


def _check_places(rows: TableRows, what: str, level: EvaluationType) -> None:
    """Raise ``TableError`` unless every hit is at the place of a chunk: no oracle bounds what is not."""
    chunks, hits = rows.chunks, rows.hits[what]
    size = int(max(chunks.end.max(initial=0), hits.end.max(initial=0))) + 1
    start = np.append(chunks.doc, hits.doc) * size + np.append(chunks.start, hits.start)
    # Numbered starts leave room for the end in one integer.
    place = numbered(numbered(start) * size + np.append(chunks.end, hits.end))
    is_chunk = np.zeros(place.max(initial=-1) + 1, dtype=np.bool_)
    is_chunk[place[: len(chunks.doc)]] = True
    strange = np.flatnonzero(~is_chunk[place[len(chunks.doc) :]])
    if len(strange):
        row = int(strange[0])
        of_document = f"[{hits.start[row]}, {hits.end[row]}) of " if level == "token-level" else ""
        raise TableError(
            f"the {what} have {of_document}{rows.ids[int(hits.doc[row])].as_py()!r}, "
            f"which is not a chunk ({len(strange)} such hits): give the chunks that were searched"
        )


def useful_chunks(chunks: SpanRows, truth: SpanRows) -> SpanRows:
    """For each query the chunks that reach its truth, without those that lie within another chunk.

    ``chunks`` are those of the corpus, as the rows of one query. A chunk within another covers nothing that the other
    does not: leaving it out changes no oracle.
    """
    size = int(chunks.end.max(initial=0)) + 1
    start, end = chunks.doc * size + chunks.start, chunks.doc * size + chunks.end
    order = np.lexsort((-end, start))
    reach = np.maximum.accumulate(end[order])
    widest = order[np.append(True, reach[1:] > reach[:-1])[: len(order)]]
    return touching_chunks(truth, chunks.take(widest, np.array([0, len(widest)])))


def best_cover(chunks: SpanSweep, most: int) -> Any:
    """How much of the truth 1, 2, … chunks of a query can cover together at most, a row a number; hits are the chunks.

    The truth of a query without its gaps is one line, and a chunk covers an interval of it.
    There are at most ``most`` rows; where there are fewer, further chunks add nothing to the last row.

    With B(j, x) the most that j chunks cover before position x, and s the earliest start of all chunks that hold the
    character before x: B(j, x) is the larger of B(j, x') at the border x' before x, and B(j - 1, s) + x - s, for if
    that character is covered at all, then no chunk does it better than the one that starts at s. Only the borders of
    chunks are looked at, and a character within two chosen chunks counts once.
    """
    first, last = np.cumsum(chunks.truth + 1) - chunks.truth - 1, np.cumsum(chunks.truth + 1) - 1
    start, end = chunks.on_truth()
    reach = np.maximum.accumulate(end)
    border = np.unique(np.concatenate([first, start, end]))
    # The first chunk, by start, that reaches a border holds the character before it, or none does.
    earliest = np.append(start, border[-1:])[np.searchsorted(reach, border)]
    held = np.flatnonzero(earliest < border)
    before, gain = np.searchsorted(border, earliest[held]), border[held] - earliest[held]
    # A query's amounts are counted from its first position: none before can pass them.
    nothing = first[np.searchsorted(first, border, side="right") - 1].astype(border.dtype)
    at_last = np.searchsorted(border, last, side="right") - 1
    best = nothing
    rows: list[Any] = []
    for _ in range(most):
        reached = nothing.copy()
        reached[held] = best[before] + gain
        reached = np.maximum.accumulate(reached)
        if rows and np.array_equal(reached, best):
            break
        best = reached
        rows.append(best[at_last] - first)
    return np.stack(rows)


def best_within(chunks: SpanSweep, budgets: Sequence[int]) -> Any:
    """How much of the truth chunks of a query can cover together that have no more tokens than a budget, a row each.

    As ``best_cover``, with B(c, x) the most that chunks of c tokens together cover before position x: the larger of
    B(c, x') at the border x' before x, and the best B(c - t, s) + x - s of all chunks that hold the character before x,
    a chunk of t tokens that starts at s. Where all chunks fit, that is what they cover.
    """
    (start, end), cost, most = chunks.on_truth(), chunks.costs(), max(budgets)
    offsets, queries = chunks.hit_offsets, len(chunks.truth)
    of = np.repeat(np.arange(queries), np.diff(offsets))
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1])[: len(end)]
    covered = np.bincount(of, np.maximum(end - np.maximum(start, before), 0), queries).astype(start.dtype)
    found = np.tile(covered, (len(budgets), 1))
    for query in np.flatnonzero(np.bincount(of, cost, queries) > min(budgets)).tolist():
        own = np.arange(offsets[query], offsets[query + 1])
        own = own[(end[own] > start[own]) & (cost[own] <= most)]
        reached = np.zeros(most + 1, start.dtype)
        best: dict[float, Any] = {}
        for border in np.unique(np.concatenate([start[own], end[own]])).tolist():
            for one in own[(start[own] < border) & (end[own] >= border)].tolist():
                spent, begin = int(cost[one]), start[one].item()
                with_it = best[begin][: most + 1 - spent] + (border - begin)
                reached = np.append(reached[:spent], np.maximum(reached[spent:], with_it))
            best[border] = reached
        found[:, query] = reached[list(budgets)]
    return found
