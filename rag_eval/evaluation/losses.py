"""Where recall is lost on the way from the documents to the hits.

Every recall below is that of one query; at token level it is ``span_recall`` in characters, at chunk level
``chunk_recall``. *Oracle@all* is the recall if every chunk were retrieved, *oracle@k* the best that any choice of k
chunks could reach, *exact@k*, *approximate@k* and *final@k* those of the first k hits of exact search, of the index
that was really used, and after the reranker.

==============  ============================  ========================================================================
part            formula                       what it tells
==============  ============================  ========================================================================
``uncovered``   1 - oracle@all                in no chunk at all: the chunker lost it, and nothing after can find it
``cut``         oracle@all - oracle@k         spread over more than k chunks: cut otherwise, or retrieve more
``embedder``    oracle@k - exact@k            in chunks that would have fitted, but others were nearer to the query
``index``       exact@k - approximate@k       found by the exact search, missed by the approximate one
``reranker``    approximate@k - final@k       moved out of the first k by the reranker
==============  ============================  ========================================================================

The five add up to 1 - final@k. The first three are never negative. A negative ``reranker`` is a gain: it brought truth
into the first k that had not been there. A negative ``index`` is luck: a hit that the exact search ranks lower holds
more truth than the one that was missed. Without an approximate index, or without a reranker, that part is 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.base import check_cut
from rag_eval.metrics.formulas import Counts
from rag_eval.tables import check_schema

LOSS_PARTS = ("uncovered", "cut", "embedder", "index", "reranker")
"""The parts, in the order in which they come about."""

SHARES = (*LOSS_PARTS, "final_recall")

_K = pa.field("k", pa.int32(), nullable=False)
_SHARE_FIELDS = [pa.field(name, pa.float64(), nullable=False) for name in SHARES]

LOSSES = pa.schema([pa.field("query_id", pa.string(), nullable=False), _K, *_SHARE_FIELDS])
"""A row for each k and answerable query: the parts of 1 - ``final_recall``, and this."""

AVERAGE_LOSSES = pa.schema([_K, *_SHARE_FIELDS, pa.field("n", pa.int64(), nullable=False)])
"""A row for each k: the means over n queries."""


@dataclass(frozen=True)
class HitStages:
    """The hits of one retrieval at its three stages, each at least as deep as the largest k.

    They are ``HITS`` tables at token level and ``CHUNK_HITS`` tables at chunk level.
    ``approximate`` is left out where the search is exact, ``final`` where nothing is reranked. A hit that was not
    fetched counts as not found: where the exact hits are fewer than k, that is the embedder's loss.
    """

    exact: pa.Table
    approximate: pa.Table | None = None
    final: pa.Table | None = None

    def tables(self) -> dict[str, pa.Table]:
        """The hits by the name of their stage; a stage that was left out has those of the one before."""
        approximate = self.exact if self.approximate is None else self.approximate
        final = approximate if self.final is None else self.final
        return {"exact": self.exact, "approximate": approximate, "final": final}


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


def losses_table(
    query_ids: pa.Array,
    ks: Sequence[int],
    truth: Counts,
    present: Counts,
    oracle: Counts,
    reached: Mapping[str, Counts],
) -> pa.Table:
    """The ``LOSSES`` table from counts.

    ``truth`` and ``present`` are, by query, how much there is to find and how much of it all chunks hold together.
    ``oracle`` and the stages of ``reached`` have a row for each k: how much of it k chunks could reach, and did.
    """
    steps = np.broadcast_arrays(truth, present, oracle, reached["exact"], reached["approximate"], reached["final"])
    # Whole numbers until the one division: what is not lost is 0, not nearly 0.
    parts = [(more - less) / truth for more, less in pairwise(steps)]
    columns = [
        pa.chunked_array([query_ids for _ in ks], pa.string()),
        pa.array(np.repeat(np.array(ks, dtype=np.int32), len(query_ids))),
        *(pa.array(part.ravel()) for part in (*parts, reached["final"] / truth)),
    ]
    return pa.Table.from_arrays(columns, schema=LOSSES)


def check_ks(ks: Sequence[int]) -> None:
    """Raise ``ConfigurationError`` unless there are ks, whole numbers of 1 or more, each once."""
    if not ks or None in ks:
        raise ConfigurationError(f"ks is {list(ks)!r}: a loss is that of the first k hits, give at least one number")
    for k in ks:
        check_cut(k, "ks")
    if len(set(ks)) < len(ks):
        raise ConfigurationError(f"ks is {list(ks)!r}, with an entry twice: ask for each k once")
