"""Generating ground truth as Prefect tasks.

Nothing of it is cached by Prefect: every answer is kept by its request, which is finer and survives a killed task.
"""

from collections.abc import Sequence
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.questions import Assignment
from rag_eval.generation.report import GenerationReport
from rag_eval.llm.asking import Asker, Reply
from rag_eval.reports.markdown import generation_markdown
from tasks.artifacts import as_each_completes, best_effort

MOST_TASKS = 100
"""However many requests there are: each task run is written to the server several times."""

Generator = SyntheticDatasetGenerator[Any]
Replies = list[Reply | None]


@task(name="plan", cache_policy=NO_CACHE)
def plan(generator: Generator, queries_per_doc: int) -> list[Assignment]:
    """List what the model will be asked."""
    return generator.plan(queries_per_doc)


@task(name="ask", task_run_name="{name}", cache_policy=NO_CACHE)
def ask(asker: Asker, batch: Sequence[Assignment], name: str) -> Replies:
    """Ask for a batch, one request after the other."""
    return [asker.ask(assignment) for assignment in batch]


@task(name="verify", cache_policy=NO_CACHE)
def verify(generator: Generator, replies: Replies) -> list[Assignment]:
    """List what the model will be asked about questions that are said to have no answer."""
    return generator.verifications(replies)


@task(name="assemble", cache_policy=NO_CACHE)
def assemble(generator: Generator, assignments: list[Assignment], replies: Replies, verdicts: Replies) -> list[Any]:
    """Place, filter and count what came back."""
    return generator.assemble(assignments, replies, verdicts)


def ask_all(generator: Generator, assignments: Sequence[Assignment]) -> Replies:
    """Return the replies to all assignments, in their order; raises what asking raised, once all batches have ended."""
    size = -(-len(assignments) // MOST_TASKS) or 1
    batches = [assignments[first : first + size] for first in range(0, len(assignments), size)]
    try:
        futures = [ask.submit(generator.asker, batch, batch[0].about[:80]) for batch in batches]
        for _ in as_each_completes(futures, "asked", "Requests answered"):
            pass
    except BaseException:
        generator.asker.stop()
        raise
    return [reply for future in futures for reply in future.result()]


def show_report(report: GenerationReport) -> None:
    """Show what was kept, what was dropped and what it took."""
    with best_effort():
        create_markdown_artifact(markdown=generation_markdown(report), key="generation")
