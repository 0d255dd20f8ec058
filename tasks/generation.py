"""Asking for ground truth as Prefect tasks.

Nothing of it is cached by Prefect: every answer is kept by its request, which is finer and survives a killed task.
"""

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from rag_eval.generation.asking import Asker
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.questions import Assignment, Reply
from rag_eval.generation.report import GenerationReport
from rag_eval.reports.markdown import generation_markdown
from tasks.artifacts import as_a_convenience

MOST_TASKS = 100
"""However many requests there are: each task run is written to the server several times."""

Generator = SyntheticDatasetGenerator[Any]
Replies = list[Reply | None]


def batches_at_once() -> Any:
    """A task runner with threads enough: how many requests are under way at once is for the generator to say."""
    return ThreadPoolTaskRunner(max_workers=64)


@task(name="plan", cache_policy=NO_CACHE)
def plan(generator: Generator, queries_per_doc: int) -> list[Assignment]:
    """What the model will be asked."""
    return generator.plan(queries_per_doc)


@task(name="ask", task_run_name="{name}", cache_policy=NO_CACHE)
def ask(asker: Asker, batch: Sequence[Assignment], name: str) -> Replies:
    """Ask for a batch, one request after the other."""
    return asker.ask_in_turn(batch)


@task(name="verify", cache_policy=NO_CACHE)
def verify(generator: Generator, replies: Replies) -> list[Assignment]:
    """What the model will be asked about questions that are said to have no answer."""
    return generator.verifications(replies)


@task(name="assemble", cache_policy=NO_CACHE)
def assemble(generator: Generator, assignments: list[Assignment], replies: Replies, verdicts: Replies) -> list[Any]:
    """Place, filter and count what came back."""
    return generator.assemble(assignments, replies, verdicts)


def ask_all(generator: Generator, assignments: Sequence[Assignment]) -> Replies:
    """The replies to all assignments, in their order; raises what asking raised, when all batches have ended."""
    size = -(-len(assignments) // MOST_TASKS) or 1
    batches = [assignments[first : first + size] for first in range(0, len(assignments), size)]
    try:
        futures = [ask.submit(generator.asker, batch, batch[0].about[:80]) for batch in batches]
        _wait(futures)
    except BaseException:
        generator.asker.stop()
        raise
    return [reply for future in futures for reply in future.result()]


def show_report(report: GenerationReport) -> None:
    """What was kept, what was dropped and what it took, to look at in the UI."""
    with as_a_convenience():
        create_markdown_artifact(markdown=generation_markdown(report), key="generation")


def _wait(futures: Sequence[PrefectFuture[Replies]]) -> None:
    progress: UUID | None = None
    with as_a_convenience():
        progress = cast("UUID", create_progress_artifact(0.0, key="asked", description="Requests answered"))
    for number, future in enumerate(as_completed(list(futures)), start=1):
        future.wait()
        with as_a_convenience():
            if progress is not None:
                update_progress_artifact(progress, 100 * number / len(futures))
