"""Write a run's report: ``report.html``, one page with all its data, ``report.md`` and ``scores.parquet``."""

import json
from pathlib import Path
from urllib.parse import quote

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import split_name
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports import against, wording
from rag_eval.reports.html import asset, render_page
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.report import MOST_CHARTED, Report, build_report, facts
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import keep_scores

MARKDOWN_FILE = "report.md"
SCRIPTS = ("page", "questions", "spans", "ladder", "list", "explorer", "charts", "why", "start")
"""The parts of the page's script, in the order in which they build on each other."""


def keep_report(workspace: Workspace, outcome: BenchmarkOutcome) -> Report:
    """Write the three files of a run that has just ended.

    Raises ``ArtifactError`` if a table is missing or a file cannot be written.
    """
    report = build_report(workspace, outcome, keep_scores(workspace, outcome))
    write_report(workspace, report, workspace.runs / outcome.run / MARKDOWN_FILE)
    write_report(workspace, report, page_of(workspace, outcome))
    return report


def page_of(workspace: Workspace, outcome: BenchmarkOutcome, before: BenchmarkOutcome | None = None) -> Path:
    """Return the path of a run's page, or of the page that compares it with an earlier run."""
    name = "report" if before is None else f"report-against-{before.run}"
    return workspace.runs / outcome.run / f"{name}.html"


def is_markdown(path: Path) -> bool:
    """Return whether a report is written as Markdown; raises ``ConfigurationError`` unless it ends in .html or .md."""
    suffix = path.suffix.lower()
    if suffix not in (".html", ".htm", ".md"):
        raise ConfigurationError(f"the report cannot be written as {path.name!r}: end its name in .html or .md")
    return suffix == ".md"


def write_report(workspace: Workspace, report: Report, path: Path) -> None:
    """Write a report as a page, or as Markdown if the path ends in ``.md``; raises ``ArtifactError``."""
    content = report_markdown(report) if is_markdown(path) else report_html(report)
    workspace.write_file(path, content.encode())


def report_html(report: Report) -> str:
    """Return the page."""
    outcome, overlay, verdict = report.outcome, report.overlay, report.verdict
    roles: dict[str, list[str]] = {}
    for role, name in (("ship", verdict.shipped), ("runner-up", verdict.runner_up), ("cheapest", verdict.cheapest)):
        if name:
            roles.setdefault(name, []).append(role)
    return render_page(
        "report.html",
        style=asset("report.css"),
        script="\n".join(asset(f"{name}.js") for name in SCRIPTS),
        report=report,
        against=against,
        roles=roles,
        addresses=_addresses(report),
        wording=wording,
        most_charted=MOST_CHARTED,
        facts=facts(outcome),
        settings=json.dumps(outcome.config.model_dump(mode="json"), indent=2, ensure_ascii=False),
        manifest={"charts": report.charts, "overlay": overlay.manifest if overlay else {"configurations": []}},
        sections=overlay.sections if overlay else [],
    )


def _addresses(report: Report) -> dict[tuple[str, str, str], str]:
    """Return where the page shows a configuration beside its earlier version, by both names and the metric."""
    if report.compared is None or report.overlay is None:
        return {}
    manifest, run = report.overlay.manifest, report.compared.before.run
    sides = {side["name"]: number for number, side in enumerate(manifest["configurations"])}
    shown = {metric["name"] for metric in manifest["metrics"]}
    return {
        (row.before, row.after, row.metric): f"a={sides[row.after]}&b={sides[earlier]}&{_metric_address(row.metric)}"
        for row in report.compared.rows
        if {row.after, earlier := f"{row.before} (in {run})"} <= sides.keys() and row.metric in shown
    }


def _metric_address(metric: str) -> str:
    column, cut = split_name(metric)
    if not cut.size:
        return f"by={quote(metric)}"
    return f"cut={cut.size}{'t' * (cut.kind == 'tokens')}&by={quote(column)}"
