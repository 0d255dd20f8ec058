"""Score what was retrieved against the ground truth: the last step."""

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


@step(version=4, write=write_scores, packages=("tiktoken",))  # to count the tokens of budgets and contexts
def score(
    passages: pa.Table,
    truth: TruthTables,
    documents: Shards,
    chunks: Shards,
    metrics: Sequence[Any],
    ks: list[int],
    workspace: Workspace | None = None,
) -> tuple[pa.Table, Effort]:
    """Score every answerable query by every metric at every k; hits without passages are scored as passages."""
    found, effort = as_passages(passages), Effort.of(truth.queries.num_rows, "queries")
    all_chunks = pa.concat_tables(chunks) if chunks else None
    with token_counts(workspace) as counts:
        if has_places(truth.answers):
            doc_ids = [table.column("doc_id").unique() for table in (found, truth.answers)]
            read = StoredDocuments(documents, pa.concat_arrays(doc_ids).drop_null())
            scored = score_passages(
                "token-level", found, truth, metrics, ks, documents=read, chunks=all_chunks, count=counts
            )
            return scored, effort
        # The hits of a whole system have their texts, and it has no chunks.
        level_chunks = CHUNKS.empty_table() if all_chunks is None else all_chunks
        return score_passages("chunk-level", found, truth, metrics, ks, chunks=level_chunks, count=counts), effort
