"""General experiments as Prefect tasks."""

from collections.abc import Sequence
from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from rag_eval.experiments.outputs.page import experiment_markdown
from rag_eval.experiments.running import run_file
from rag_eval.experiments.scores import MinimumAverage
from rag_eval.experiments.settings import Session
from rag_eval.experiments.types import ExperimentResult
from tasks.artifacts import best_effort


# Finished samples are kept by the experiment itself, so that a retry continues it.
@task(name="experiment", cache_policy=NO_CACHE, persist_result=False)
def experiments_of(file: str, concurrency: int, minimums: Sequence[MinimumAverage]) -> list[ExperimentResult]:
    """Run the experiments of a file, with so many calls under way at once; 0: as many as it says itself."""
    return run_file(Path(file), Session(concurrency=concurrency or None, raises=False, minimums=minimums))


def show_experiments(results: Sequence[ExperimentResult]) -> None:
    """The averages of experiments, to look at in the UI."""
    with best_effort():
        create_markdown_artifact(markdown="\n\n".join(map(experiment_markdown, results)), key="experiment")
