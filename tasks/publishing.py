"""Publishing a run at its end."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.publishing.delivering import publish_run


@task(name="publish", task_run_name="publish to {dataset}", cache_policy=NO_CACHE)
def publish(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> None:
    """Put every configuration for an experiment on a LangSmith dataset, and send what can be sent now."""
    waiting = [one for one in publish_run(workspace, outcome, dataset) if one.url is None]
    if waiting:
        get_run_logger().info("%d experiments wait for rag-eval publish: %s", len(waiting), waiting[0].reason)
