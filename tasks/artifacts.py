"""Show a run in Prefect: its tables, reports and the verdict of the gate, as artifacts.

The results do not depend on artifacts: if the server refuses one, the error is logged and the run continues.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from rag_eval.errors import GateFailedError, as_sentence
from rag_eval.formatting import escape_markdown
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.pipeline.ground_truth_steps import truth_file
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.gate_report import gate_markdown
from rag_eval.reports.markdown_report import (
    generation_markdown,
    ground_truth_markdown,
    trend_markdown,
)
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.write import MARKDOWN_FILE, keep_report, page_of
from rag_eval.results.gate import run_gate
from rag_eval.results.history import history
from rag_eval.results.outcome import GROUND_TRUTH, BenchmarkOutcome
from rag_eval.results.runs import BASELINE, data_differences, has_baseline, read_run
from rag_eval.retry import BRIEF

if TYPE_CHECKING:
    from rag_eval.generation.candidates import GenerationReport

LARGEST_REPORT = 200_000
"""Maximum number of characters of a report sent to the server; the run's folder has the whole report."""

logger = logging.getLogger("rag_eval.tasks")


@contextmanager
def log_errors(what: str) -> Iterator[None]:
    """Log errors raised in the block and continue: a failure to present results must not fail hours of work."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        logger.warning("%s: %s", what, as_sentence(error))


best_effort = partial(log_errors, "the artifacts of the run in Prefect are incomplete")


def benchmark_run_name() -> str:
    """Return the name of a benchmark run that starts now: its corpus folder and the time."""
    return f"{flow_run.parameters['config'].corpus.name} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


@task(cache_policy=NO_CACHE, task_run_name="report")
def report(sources: Sequence[Any], outcome: BenchmarkOutcome, *, workspace: Workspace) -> None:
    """Write the report of a run, and show its ranking with the recommendation and a link to the report.

    Errors are logged: the results do not depend on the report.

    Args:
        sources: The sources of its ground truth.
        outcome: The run.
        workspace: Where the run is stored.
    """
    description = f"Ranked by {outcome.ranking_metric}"
    with log_errors(f"the report of {outcome.run} could not be written"):
        words = keep_report(workspace, outcome).words
        page = link_to(workspace, page_of(workspace, outcome))
        description = f"{escape_markdown(str(words))} [Open the report]({page})"
    with best_effort():
        rows = ConfigurationRanking.of(outcome).records()
        create_table_artifact(table=rows, key="comparison", description=description)
        files = {source.title: str(path) for source in sources if (path := truth_file(workspace, source))}
        scored = link_to(workspace, workspace.runs / outcome.run / GROUND_TRUTH)
        create_markdown_artifact(markdown=ground_truth_markdown(outcome, files, scored), key="ground-truth")


def show_generation(report: "GenerationReport | None") -> None:
    """Show how many questions were kept and dropped, and the cost; nothing if the model was not asked."""
    if report is not None:
        with best_effort():
            create_markdown_artifact(markdown=generation_markdown(report), key="generation")


@task(cache_policy=NO_CACHE, task_run_name="upload to {dataset}")
def upload_truth(truth: Path, dataset: str) -> None:
    """Send a token-level ground-truth file to a LangSmith dataset."""
    from rag_eval.generation.generator import uploaded  # imported here, because most runs upload nothing

    upload = uploaded(dataset, read_token_level(truth))
    if upload.state == "sent":
        get_run_logger().info("the ground truth is in the LangSmith dataset %s: %s", dataset, upload.detail)
    else:
        again = f"rag-eval truth push {truth} --dataset {dataset}"
        get_run_logger().warning("the ground truth was not sent (%s): %s sends it", upload.detail, again)


def link_to(workspace: Workspace, path: Path) -> str:
    """Return the address of a file of a run: below ``RAG_EVAL_RUNS_URL`` if set, else of the file or object itself."""
    name = path.relative_to(workspace.runs).as_posix()
    if served := os.environ.get("RAG_EVAL_RUNS_URL"):
        return f"{served}/{name}"
    return path.absolute().as_uri() if workspace.remote is None else f"{workspace.address}/runs/{name}"


def show_report(workspace: Workspace, outcome: BenchmarkOutcome, note: str) -> None:
    """Show the report as an artifact of this run, and log the best configuration and where the report is."""
    file = workspace.runs / outcome.run / MARKDOWN_FILE
    report = file.read_text(encoding="utf-8") if file.is_file() else ""
    computed, cached = outcome.work()
    # A page on a server cannot link to a local file.
    link = link_to(workspace, page_of(workspace, outcome))
    where = f"[Every question and its text]({link}), stored in" if link.startswith("http") else "Stored in"
    folder = f"{workspace.address}/runs/{outcome.run}"
    markdown = f"{report[:LARGEST_REPORT]}\n\n{where} `{folder}`\n"
    with best_effort():
        create_markdown_artifact(markdown=markdown, key="report", description=escape_markdown(note) or None)
    if outcome.configurations:
        get_run_logger().info("best by %s: %s", outcome.ranking_metric, outcome.ranked()[0].name)
    get_run_logger().info("%d steps computed, %d cached; the report is %s/report.html", computed, cached, folder)


def check_gate(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    metric: str,
    max_drop: float,
    *,
    allow_different: bool = False,
    fail_on_warn: bool = False,
) -> str:
    """Show the verdict of the gate and the trend as an artifact of this run, and return the verdict.

    Without a baseline, or if documents or questions differ and ``allow_different`` is not set, the artifact shows the
    reason instead of a verdict.

    Raises:
        GateFailedError: The gate fails.
        ConfigurationError: There is no such metric.
    """
    gate, reason = None, ""
    accept = f"rag-eval gate {outcome.run} --accept"
    baseline = read_run(workspace, BASELINE, outcome) if has_baseline(workspace, outcome.config.name) else None
    if baseline is None:
        reason = f"There is no baseline: {accept} makes this run the baseline."
    elif (differences := data_differences(baseline, outcome, workspace)) and not allow_different:
        reason = f"Not compared with the baseline: {'; '.join(differences)}. {accept} makes this run the baseline."
    else:
        by = metric or baseline.ranking_metric
        gate = run_gate(
            workspace, baseline, outcome, by, max_drop, allow_different=allow_different, fail_on_warn=fail_on_warn
        )
    verdict = gate.verdict if gate else None
    get_run_logger().info(verdict or reason)
    with best_effort():
        trend = trend_markdown(history(workspace, metric or None))
        comparison = gate_markdown(gate) if gate else escape_markdown(reason)
        markdown = f"# Against the baseline\n\n{comparison}\n\n# Over time\n\n{trend}\n"
        create_markdown_artifact(markdown=markdown, key="gate", description=verdict)
    if gate is not None and not gate.passed:
        raise GateFailedError(f"{gate.verdict} See the artifact 'gate' of this run")
    return verdict or reason


@task(cache_policy=NO_CACHE, task_run_name="publish to {dataset}")
def publish_run(outcome: BenchmarkOutcome, dataset: str, *, workspace: Workspace) -> None:
    """Publish a run to a LangSmith dataset, and log what could not be sent."""
    from rag_eval.results import publishing  # imported here, because most runs publish nothing

    for reason in publishing.publish_run(workspace, outcome, [dataset], BRIEF):
        get_run_logger().warning("not published: %s; rag-eval publish %s sends it", reason, outcome.run)
