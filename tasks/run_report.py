"""What a deployed run shows on its own page in the Prefect UI: why it ran, the verdict, the trend, and its report."""

from prefect.artifacts import create_markdown_artifact
from prefect.logging import get_run_logger

from rag_eval.errors import GateFailedError
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown import comparison_rows, escape_markdown
from rag_eval.reports.over_time_markdown import gate_markdown, trend_markdown
from rag_eval.reports.write import MARKDOWN_FILE, page_address, page_of
from rag_eval.results.gate import Gate, run_gate
from rag_eval.results.history import history
from rag_eval.results.runs import BASELINE, has_baseline, read_run
from rag_eval.results.sameness import data_differences
from tasks.artifacts import as_a_convenience, page_link

LARGEST_REPORT = 200_000
"""How many characters of a report go to the server; the whole of it is in the run's folder."""


def show_report(workspace: Workspace, outcome: BenchmarkOutcome, note: str) -> None:
    """Show the report as an artifact of this run, and say in its log what came first and where all of it is kept."""
    kept, page = workspace.runs / outcome.run / MARKDOWN_FILE, page_of(workspace, outcome)
    report = kept.read_text(encoding="utf-8") if kept.is_file() else ""
    computed, reused = outcome.work()
    # A page of a server cannot link to a file.
    link = page_link(workspace, outcome)
    where = f"[Every question and its text]({link}), kept in" if link.startswith("http") else "Kept in"
    place = str(page) if workspace.remote is None else page_address(workspace, outcome)
    markdown = f"{report[:LARGEST_REPORT]}\n\n{where} `{place.rpartition('/')[0]}`\n"
    with as_a_convenience():
        create_markdown_artifact(markdown=markdown, key="report", description=escape_markdown(note) or None)
    if outcome.configurations:
        best = comparison_rows(outcome)[0]
        get_run_logger().info("best by %s: %s", outcome.ranking_metric, best["configuration"])
    get_run_logger().info("%d stages computed, %d reused; the report is %s", computed, reused, place)


def hold_against_baseline(
    workspace: Workspace, outcome: BenchmarkOutcome, metric: str, max_drop: float, *, allow_different: bool = False
) -> None:
    """Show the verdict of the gate and the trend as an artifact of this run.

    Without a baseline, and on other documents or questions than its own where that is not allowed, there is no verdict,
    and that is said.
    Raises ``GateFailedError`` when the gate fails, ``ConfigurationError`` when there is no such metric.
    """
    gate, why_not = None, ""
    choose = f"`rag-eval baseline set {outcome.run}`"
    baseline = read_run(workspace, BASELINE) if has_baseline(workspace) else None
    if baseline is None:
        why_not = f"There is no baseline: {choose} makes this run the one to hold others against."
    elif (differences := data_differences(baseline, outcome)) and not allow_different:
        why_not = f"Not held against the baseline: {'; '.join(differences)}. {choose} makes this run the new one."
    else:
        by = metric or baseline.ranking_metric
        gate = run_gate(workspace, baseline, outcome, by, max_drop, allow_different=allow_different)
    _show_verdict(workspace, gate, why_not, metric)
    if gate is not None and not gate.passed:
        raise GateFailedError(f"{gate.verdict} See the artifact 'gate' of this run")


def _show_verdict(workspace: Workspace, gate: Gate | None, why_not: str, metric: str) -> None:
    verdict = gate_markdown(gate) if gate else why_not
    get_run_logger().info(gate.verdict if gate else why_not)
    with as_a_convenience():
        trend = trend_markdown(history(workspace, metric or None))
        markdown = f"# Against the baseline\n\n{verdict}\n\n# Over time\n\n{trend}\n"
        create_markdown_artifact(markdown=markdown, key="gate", description=gate.verdict if gate else None)
