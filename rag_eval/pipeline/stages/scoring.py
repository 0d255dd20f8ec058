"""Scores."""

from rag_eval.metrics.table import score_chunk_level, score_token_level
from rag_eval.pipeline.references import Effort, TableRef, TruthRef
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import ChunkLevelTruthTables, TokenLevelTruthTables, documents_from_table


@stage(version=1)
def score(
    workspace: Workspace,
    hits: TableRef,
    truth: TruthRef,
    documents: TableRef,
    chunks: TableRef,
    metrics: list[str],
    ks: list[int],
) -> TableRef:
    """Score every answerable query by every metric at every k."""
    found = workspace.read_table(hits)
    queries, answers = workspace.read_table(truth.queries), workspace.read_table(truth.answers)
    if truth.evaluation_type == "token-level":
        scores = score_token_level(
            found,
            TokenLevelTruthTables(queries, answers),
            metrics,
            ks,
            documents=documents_from_table(workspace.read_table(documents)),
            chunks=workspace.read_table(chunks),
        )
    else:
        scores = score_chunk_level(found, ChunkLevelTruthTables(queries, answers), metrics, ks)
    effort = Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries")
    return workspace.write_table("scores", scores, effort)
