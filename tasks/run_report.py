"""What a deployed run shows on its own page in the Prefect UI: why it ran, and its report."""

import os

from prefect.artifacts import create_markdown_artifact
from prefect.logging import get_run_logger

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown import comparison_rows, escape_markdown
from rag_eval.reports.write import MARKDOWN_FILE, page_of
from tasks.artifacts import as_a_convenience

LARGEST_REPORT = 200_000
"""How many characters of a report go to the server; the whole of it is in the run's folder."""


def show_report(workspace: Workspace, outcome: BenchmarkOutcome, note: str) -> None:
    """Show the report as an artifact of this run, and say in its log what came first and where all of it is kept.

    ``RAG_EVAL_RUNS_URL`` of the environment is where the folders of runs are served, for a link to the whole report.
    """
    kept, page = workspace.runs / outcome.run / MARKDOWN_FILE, page_of(workspace, outcome)
    report = kept.read_text(encoding="utf-8") if kept.is_file() else ""
    computed, reused = outcome.work()
    served = os.environ.get("RAG_EVAL_RUNS_URL")
    where = f"[Every question and its text]({served}/{outcome.run}/{page.name}), kept in" if served else "Kept in"
    markdown = f"{report[:LARGEST_REPORT]}\n\n{where} `{page.parent}`\n"
    with as_a_convenience():
        create_markdown_artifact(markdown=markdown, key="report", description=escape_markdown(note) or None)
    if outcome.configurations:
        best = comparison_rows(outcome)[0]
        get_run_logger().info("best by %s: %s", outcome.ranking_metric, best["configuration"])
    get_run_logger().info("%d stages computed, %d reused; the report is %s", computed, reused, page)
