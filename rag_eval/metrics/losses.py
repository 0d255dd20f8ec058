"""Attribute lost recall to the steps from the documents to the returned passages.

Each recall is of one query: ``span_recall`` in characters at token level, ``chunk_recall`` at chunk level. At every
stage a group of evidence is covered by its best covered member. *Oracle@all* is the recall if every chunk were
retrieved, *oracle@k* the maximum for any k chunks, *allowed@k* the same with the chunks that the query's filter leaves
(without a filter, oracle@k). *Searched@k* is the recall of the first k hits of exact search, for several retrievers (or
variants of a query) the largest one; *found@k* the same with the index that was used; the others are those of the first
k hits after the stage, or of the first k passages.

==============  ============================  ========================================================================
part            formula                       what was lost
==============  ============================  ========================================================================
``uncovered``   1 - oracle@all                in no chunk: the chunker lost it
``boundary``    oracle@all - oracle@k         spread over more than k chunks: change the chunks, or retrieve more
``search``      allowed@k - searched@k        every retriever ranked other chunks higher
``index``       searched@k - found@k          found by exact search, missed by the approximate index
``fusion``      found@k - fused@k             in the first k of a retriever, but not of the fusion
``selection``   oracle@k - allowed@k +        excluded by a filter, or dropped by a threshold or as a
                fused@k - selected@k          near-duplicate
``reranker``    selected@k - reranked@k       moved out of the first k by the reranker
``return``      reranked@k - returned@k       missing in the passages returned for the hits
==============  ============================  ========================================================================

They add up to 1 - the final recall. The first three are never negative. From ``fusion`` on, a negative part is a gain:
truth entered the first k, for example in a window around a hit. A negative ``index`` is luck: a hit that exact search
ranks lower holds more truth than the one that was missed. The part of a missing stage is 0.

A budget of tokens is a cut like k: the first k hits are those that fit into the budget, as in ``recall_within_tokens``,
and *oracle@k* is the maximum for chunks that fit into it together. ``boundary`` is then in chunks that cost too much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.coverage import SpanRows
from rag_eval.metrics.groups import coverage_of
from rag_eval.metrics.metric import ALL, LARGEST_CUT, Counts, Cut, check_cut
from rag_eval.metrics.oracle import Amounts, most_covered, useful_chunks
from rag_eval.metrics.passage_tokens import PassageTokens, TokenCount, count_each, numbered
from rag_eval.metrics.table_rows import TableRows, read_rows
from rag_eval.tables import HITS, TruthTables, as_passages, check_schema, schema_of
from rag_eval.types.documents import Documents, by_id
from rag_eval.types.ids import EvaluationType

LATER = {"fused": "fusion", "selected": "selection", "reranked": "reranker"}
"""The stages after the searches, by the name of their hits, and the part that each can lose."""

VARIANTS = "variants"
"""The fused hits of several variants of a query."""

LOSS_PARTS = ("uncovered", "boundary", "search", "index", *LATER.values(), "return")
"""The parts, in the order of the pipeline."""

SHARES = (*LOSS_PARTS, "final_recall")

LOSSES = schema_of(query_id=pa.string(), k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()))
"""A row for each k (hits or tokens) and answerable query: the parts and ``final_recall``, which add up to 1."""

AVERAGE_LOSSES = schema_of(k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()), n=pa.int64())
"""A row for each k: the means over n queries."""

SEARCH_LOSSES = schema_of(query_id=pa.string(), k=pa.int32(), search=pa.string(), loss=pa.float64())
"""A row for each search, k and answerable query: allowed@k minus the recall of this search alone."""


@dataclass(frozen=True)
class HitStages:
    """The hits of one retrieval by stage, ``HITS`` tables that are at least as deep as the largest k.

    Hits of other stages than ``LATER`` are those of searches; several searches have a fusion. ``exact`` has the hits of
    exact search for searches by an approximate index; ``passages`` is None if the hits themselves are returned. A hit
    that was not fetched counts as not found. ``allowed`` has the documents that the filter of a query leaves.
    """

    hits: Mapping[str, pa.Table]
    exact: Mapping[str, pa.Table] = field(default_factory=dict)
    passages: pa.Table | None = None
    allowed: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def searches(self) -> dict[str, pa.Table]:
        """The hits of every search, separately for each variant of the queries."""
        return _by_variant({stage: table for stage, table in self.hits.items() if stage not in {*LATER, VARIANTS}})

    def tables(self) -> dict[str, pa.Table]:
        """Return all hits as passages, by their name in messages."""
        exact = {f"exact {name} hits": table for name, table in _by_variant(self.exact).items()}
        later = {f"{stage} hits": self.hits[stage] for stage in LATER if stage in self.hits}
        if VARIANTS in self.hits:  # replaces the fusion of each variant
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
    """Return the mean of each part and of the final recall, and the number of queries, for each k.

    The means of the parts add up to 1 - the mean final recall. No rows give no rows. Raises ``TableError`` when the
    table is not one of ``LOSSES``.
    """
    check_schema(losses, LOSSES, "losses")
    # With several threads the order of the groups would be random.
    groups = losses.group_by("k", use_threads=False)
    means = groups.aggregate([*((name, "mean") for name in SHARES), ("k", "count")])
    columns = [means.column("k"), *(means.column(f"{name}_mean") for name in SHARES), means.column("k_count")]
    return pa.Table.from_arrays(columns, names=AVERAGE_LOSSES.names).cast(AVERAGE_LOSSES)


def check_ks(ks: Sequence[int]) -> None:
    """Raise ``ConfigurationError`` unless ks contains at least one whole number of 1 or more, each once."""
    if not ks or None in ks:
        raise ConfigurationError(f"ks is {list(ks)!r}: give at least one number of hits")
    for k in ks:
        check_cut(k, "ks")
    if len(set(ks)) < len(ks):
        raise ConfigurationError(f"ks is {list(ks)!r}, with a repeated entry: list each k once")


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
    """Return the parts of the loss, and the loss of each search alone, a row for each k and answerable query.

    Args:
        level: What identifies chunks and hits: places or chunk ids.
        chunks: All that were indexed.
        truth: The queries and what answers them.
        stages: The hits of every stage.
        ks: Numbers of hits; of ``kind`` tokens, budgets of tokens of context.
        kind: What ks count. ``final_recall`` equals ``span_recall`` (``chunk_recall``) or ``recall_within_tokens``.
        documents: The texts whose tokens are counted, at token level.
        count: Counts tokens.

    Raises:
        ConfigurationError: The ks cannot be used.
        TableError: A row has no characters, has a wrong rank or names an unknown query, or a hit is not a chunk.
        GroundTruthError: A query without truth is not declared unanswerable.
    """
    check_ks(ks)
    tables, most = stages.tables(), Cut(kind, max(ks))
    rows = read_rows(level, truth, tables, chunks, most.hits or LARGEST_CUT)
    known = None if documents is None else by_id(documents)
    tokens = PassageTokens(level, rows.ids, known, chunks, count)

    def costs(spans: SpanRows) -> Counts:
        return tokens.of_places(spans.doc, spans.start, spans.end, "tokens_retrieved")

    covered: dict[str, Amounts] = {}
    for what, hits in rows.hits.items():
        if what != "passages":
            _check_places(rows, what, level)
        if kind == "tokens":
            spent = tokens.of_passages(tables[what], rows.picked[what], hits, "tokens_retrieved")
            hits = replace(hits, tokens=spent)
        coverage = coverage_of(hits, rows.truth)
        covered[what] = np.stack([coverage.covered(Cut(kind, k)) for k in ks])
    priced = costs if kind == "tokens" else None
    oracle = allowed = most_covered(rows.chunks, rows.truth, ks, priced)
    if stages.allowed:
        allowed = most_covered(rows.chunks, _within(rows, chunks, stages.allowed, level), ks, priced)
    everything = coverage_of(useful_chunks(rows.chunks, rows.truth), rows.truth)
    reached = _Reached(everything.truth, everything.covered(ALL), oracle, allowed, covered, list(stages.searches))
    return reached.losses(rows.query_ids, ks)


@dataclass
class _Reached:
    """How much of the truth of each query is reached at each stage; ``covered`` is by the name of the hits."""

    truth: Counts
    everything: Amounts
    oracle: Amounts
    allowed: Amounts
    covered: Mapping[str, Amounts]
    searches: Sequence[str]

    def losses(self, query_ids: pa.Array, ks: Sequence[int]) -> Losses:
        used = {name: self.covered[f"{name} hits"] for name in self.searches}
        exact = {name: self.covered.get(f"exact {name} hits", reached) for name, reached in used.items()}
        # The oracle tries a limited number of choices, so the retrieved hits are a lower bound.
        retrieved = [*exact.values(), *(reached for what, reached in self.covered.items() if what != "passages")]
        oracle, allowed = (np.maximum.reduce([best, *retrieved]) for best in (self.oracle, self.allowed))
        reached = [self.truth, self.everything, oracle, *(_largest(some, oracle) for some in (exact, used))]
        for what in (*(f"{stage} hits" for stage in LATER), "passages"):
            reached.append(self.covered.get(what, reached[-1]))
        # Divide last: without a loss a part is exactly 0.
        amounts = [more - less for more, less in pairwise(np.broadcast_arrays(*reached))]
        for part, sign in (("search", -1), ("selection", 1)):  # what a filter excludes is not a loss of the search
            amounts[LOSS_PARTS.index(part)] = amounts[LOSS_PARTS.index(part)] + sign * (oracle - allowed)
        parts = [amount / self.truth for amount in (*amounts, reached[-1])]
        heads = [
            pa.chunked_array([query_ids for _ in ks], pa.string()),
            pa.array(np.repeat(np.array(ks, dtype=np.int32), len(query_ids))),
        ]
        by_search = []
        for name, alone in exact.items():
            loss = pa.array(((allowed - alone) / self.truth).ravel())
            columns = [*heads, pa.repeat(name, len(loss)), loss]
            by_search.append(pa.Table.from_arrays(columns, schema=SEARCH_LOSSES))
        table = pa.Table.from_arrays([*heads, *(pa.array(part.ravel()) for part in parts)], schema=LOSSES)
        return Losses(table, pa.concat_tables(by_search))


def _largest(reached: Mapping[str, Amounts], oracle: Amounts) -> Amounts:
    """Return the largest amount that any search reaches, for each query."""
    return np.maximum.reduce(list(reached.values())) if reached else np.zeros_like(oracle)


def _within(rows: TableRows, chunks: pa.Table, allowed: Mapping[str, pa.Array], level: EvaluationType) -> SpanRows:
    """Return the truth, moving spans that a query's filter excludes to documents without chunks."""
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


def _check_places(rows: TableRows, what: str, level: EvaluationType) -> None:
    """Raise ``TableError`` unless every hit is a chunk, because an oracle over chunks bounds nothing else."""
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
