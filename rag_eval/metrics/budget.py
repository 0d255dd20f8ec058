"""Recall at equal cost: what the first hits bring back within a budget of context tokens.

At equal k, large chunks win because they bring more text; a prompt is paid in tokens. So hits are taken best first,
whole, as long as they fit into the budget, and recall is that of what was taken. With t(r) the tokens of the first r
hits, each text tokenised on its own, and recall(r) theirs:

- ``recall_within_tokens@B`` is recall(r) for the largest r with t(r) <= B; 0 where not even the first hit fits;
- ``recall_token_area@B`` is the area under that curve, 1/B · ∫ recall over the budgets 0 to B, which is
  Σ gain(r) · max(0, B - t(r)) / B with gain(r) what hit r adds to recall;
- ``tokens_within_budget@B`` is t(r): where it stays far below B, the hits that were kept ended before the budget did.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Counts, MetricName, Values
from rag_eval.metrics.score_tables import SpanTables, match_rows, most_on_line, number_strings
from rag_eval.metrics.span_metrics import DEFAULT_ENCODING
from rag_eval.metrics.sweep import ChunkSweep, SpanSweep, running_sums
from rag_eval.tables import (
    CHUNKS,
    SCORES,
    TruthTables,
    check_schema,
)
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Document

BUDGETS = (250, 500, 1_000, 2_000, 4_000)
"""In cl100k tokens."""

RECALL_WITHIN, RECALL_AREA, TOKENS_WITHIN = "recall_within_tokens", "recall_token_area", "tokens_within_budget"

_BLOCK_ROWS = 100_000


def budget_cuts(budgets: Sequence[int] = BUDGETS) -> list[tuple[str, int]]:
    """The metrics and budgets, as k, in the order in which they are scored."""
    return [
        *((RECALL_WITHIN, budget) for budget in budgets),
        (RECALL_AREA, max(budgets)),
        *((TOKENS_WITHIN, budget) for budget in budgets),
    ]


def span_budget_scores(
    hits: pa.Table, truth: TruthTables, documents: Sequence[Document], budgets: Sequence[int] = BUDGETS
) -> pa.Table:
    """Token-level: recall in characters of the truth. A ``SCORES`` row for each metric, budget and answerable query.

    The area is at the largest budget only. Raises ``ConfigurationError`` on budgets that are none or when the
    documents lack a hit's text, and as ``score_token_level`` does.
    """
    _check(budgets)
    tables = SpanTables(hits, truth, int(hits.num_rows), documents, None)
    tokens = tables.token_costs(MetricName(RECALL_WITHIN), DEFAULT_ENCODING, max(budgets))
    offsets, queries = tables.hits.offsets, tables.hits.queries
    last_end = int(max(tables.hits.end.max(initial=0), tables.truth.end.max(initial=0)))
    depth = int(np.diff(offsets).max(initial=1)) or 1
    step = min(most_on_line(len(tables.doc_ids), last_end), max(1, _BLOCK_ROWS // depth))
    gains = np.zeros(len(tokens))
    for first in range(0, queries, step):
        last = min(first + step, queries)
        rows = tables.hits.block(first, last)
        sweep = SpanSweep(rows, tables.truth.block(first, last), len(tables.doc_ids), last_end)
        query = np.repeat(np.arange(last - first), np.diff(rows.offsets))
        gains[offsets[first] : offsets[last]] = sweep.gains(None)[rows.ranks() - 1, query] / sweep.truth[query]
    return _budget_scores(gains, tokens, offsets, tables.query_ids, budgets)


def chunk_budget_scores(
    hits: pa.Table, truth: TruthTables, chunks: pa.Table, budgets: Sequence[int] = BUDGETS
) -> pa.Table:
    """Chunk-level: the share of the relevant chunk ids. Rows and errors as for ``span_budget_scores``."""
    _check(budgets)
    check_schema(chunks, CHUNKS, "chunks")
    matched = match_rows(truth, hits, ["chunk_id"])
    columns = [table.column("chunk_id") for table in (hits, truth.answers, chunks)]
    (hit_chunk, truth_chunk, known_chunk), ids = number_strings(columns)
    hit_chunk, truth_chunk = hit_chunk[matched.hits.rows], truth_chunk[matched.truth.rows]
    offsets = matched.hits.offsets
    sweep = ChunkSweep(hit_chunk, offsets, truth_chunk, matched.truth.offsets, len(ids))
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rank = np.arange(len(hit_chunk)) - np.repeat(offsets[:-1], np.diff(offsets))
    gains = sweep.gains(None)[rank, query] / sweep.relevant[query] if len(rank) else np.zeros(0)
    place = np.full(len(ids), -1)
    place[known_chunk] = np.arange(len(known_chunk))
    hit_ids = np.unique(hit_chunk)
    if (place[hit_ids] < 0).any():
        missing = ids[int(hit_ids[place[hit_ids] < 0][0])].as_py()
        raise ConfigurationError(f"{missing!r} was retrieved and is not among the chunks: give the chunks searched")
    costs = np.zeros(len(ids), dtype=np.int64)
    for number in hit_ids.tolist():
        costs[number] = count_tokens(chunks.column("content")[int(place[number])].as_py(), DEFAULT_ENCODING)
    return _budget_scores(gains, costs[hit_chunk], offsets, matched.query_ids, budgets)


def _check(budgets: Sequence[int]) -> None:
    if not budgets or min(budgets) < 1 or len(set(budgets)) < len(budgets):
        raise ConfigurationError(f"the budgets are {list(budgets)}: give whole numbers of 1 or more, each once")


def _budget_scores(
    gains: Values, tokens: Counts, offsets: Counts, query_ids: pa.Array, budgets: Sequence[int]
) -> pa.Table:
    """From what each hit adds to recall and costs; hits stand by query, best first."""
    counts = np.diff(offsets)
    query = np.repeat(np.arange(len(counts)), counts)
    sums = running_sums(tokens)
    spent = sums[1:] - np.repeat(sums[offsets[:-1]], counts)
    largest = max(budgets)

    def by_query(amounts: Values | Counts) -> Values:
        return np.bincount(query, amounts, len(counts)).astype(np.float64, copy=False)

    # What rounding adds to a sum of gains must not lift recall above 1.
    values = [np.minimum(by_query(gains * (spent <= budget)), 1.0) for budget in budgets]
    values.append(by_query(gains * np.maximum(largest - spent, 0) / largest))
    values += [by_query(tokens * (spent <= budget)) for budget in budgets]
    return pa.concat_tables(
        pa.table(
            [query_ids, pa.repeat(metric, len(counts)), pa.repeat(pa.scalar(k, pa.int32()), len(counts)), column],
            schema=SCORES,
        )
        for (metric, k), column in zip(budget_cuts(budgets), values, strict=True)
    )
