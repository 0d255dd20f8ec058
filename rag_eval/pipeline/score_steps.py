"""The last step: score what was retrieved against the ground truth."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rag_eval.metrics.metric import score_name
from rag_eval.metrics.score_tables import average_scores, score_passages
from rag_eval.pipeline.caches import token_counts
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.references import Effort, ScoresRef
from rag_eval.pipeline.step import Shards, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import CHUNKS, TruthTables, as_passages, has_places


def write_scores(workspace: Workspace, scores: pa.Table) -> ScoresRef:
    """Write scores, and return their reference with the means by metric."""
    averages = average_scores(scores).to_pylist()
    return ScoresRef(
        table=workspace.write_table("scores", scores),
        means={score_name(row["metric"], row["cut"], row["size"]): row["mean"] for row in averages},
        queries=averages[0]["n"] if averages else 0,
    )


@step(version=4, write=write_scores, packages=("tiktoken",))  # which counts the tokens of budgets and contexts
def score(
    passages: pa.Table,
    truth: TruthTables,
    documents: Shards,
    chunks: Shards,
    metrics: Sequence[Any],
    ks: list[int],
    workspace: Workspace | None = None,
) -> tuple[pa.Table, Effort]:
    """Score every answerable query by every metric at every k; hits stand for passages that are no more than hits."""
    found, effort = as_passages(passages), Effort.of(truth.queries.num_rows, "queries")
    table = pa.concat_tables(chunks) if chunks else None
    with token_counts(workspace) as counts:
        if has_places(truth.answers):
            named = [one.column("doc_id").unique() for one in (found, truth.answers)]
            read = StoredDocuments(documents, pa.concat_arrays(named).drop_null())
            scored = score_passages(
                "token-level", found, truth, metrics, ks, documents=read, chunks=table, count=counts
            )
            return scored, effort
        # A whole system has no chunks of ours: its hits bring their texts.
        given = CHUNKS.empty_table() if table is None else table
        return score_passages("chunk-level", found, truth, metrics, ks, chunks=given, count=counts), effort
