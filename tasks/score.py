"""Score what was retrieved against the ground truth."""

from typing import Any

from prefect import task

from rag_eval.pipeline import score_steps as steps
from rag_eval.pipeline.references import HitsRef, ScoresRef, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from tasks.caching import cached


@task(**cached(steps.score), tags=["score"], task_run_name="score {name}")
def score(
    hits: HitsRef,
    truth: TruthRef,
    documents: list[TableRef],
    metrics: list[Any],
    ks: list[int],
    name: str = "",
    *,
    workspace: Workspace,
) -> ScoresRef:
    """Score every query by every metric at every k.

    Args:
        hits: What was retrieved, from ``retrieve``.
        truth: The ground truth.
        documents: All documents, to count their tokens.
        metrics: Names of metrics, or metrics of your own.
        ks: The numbers of hits to score.
        name: The name of the task run.
        workspace: Where tables are read and written.

    Returns:
        The scores of every query, with their means.
    """
    return steps.score.run(workspace, hits.returned, truth, documents, hits.chunks, metrics, ks)
