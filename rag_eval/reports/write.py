"""Write the reports of a run: ``report.html``, ``report.md`` and ``scores.parquet`` in its folder."""

from pathlib import Path

from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.scores import keep_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ConfigurationError
from rag_eval.reports.markdown import report_markdown
from rag_eval.reports.page import report_html, vega_script
from rag_eval.reports.report import Report, build_report

MARKDOWN_FILE = "report.md"
SUFFIXES = (".html", ".htm", ".md")


def keep_report(workspace: Workspace, outcome: BenchmarkOutcome) -> Report:
    """Write the three files of a run that has just ended.

    Raises ``ArtifactError`` when a table is gone or a file cannot be written.
    """
    report = build_report(workspace, outcome, keep_scores(workspace, outcome))
    write_report(workspace, report, workspace.runs / outcome.run / MARKDOWN_FILE)
    write_report(workspace, report, page_of(workspace, outcome))
    return report


def page_of(workspace: Workspace, outcome: BenchmarkOutcome, against: BenchmarkOutcome | None = None) -> Path:
    """Where the page of a run is, or the page that holds it against another."""
    name = "report" if against is None else f"report-against-{against.run}"
    return workspace.runs / outcome.run / f"{name}.html"


def page_address(workspace: Workspace, outcome: BenchmarkOutcome) -> str:
    """The URI of a run's page: of the file, or of the object where the workspace is in a bucket."""
    page = page_of(workspace, outcome)
    if workspace.remote is None:
        return page.absolute().as_uri()
    return f"{workspace.remote.rstrip('/')}/{page.relative_to(workspace.root).as_posix()}"


def is_markdown(path: Path) -> bool:
    """Whether a report goes there as Markdown, by how the path ends; a page otherwise.

    Raises ``ConfigurationError`` on an ending that is neither's.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigurationError(f"the report cannot be written as {path.name!r}: end its name in .html or .md")
    return suffix == ".md"


def write_report(workspace: Workspace, report: Report, path: Path) -> None:
    """Write a report as a page, or as Markdown where the path ends in ``.md``.

    Raises ``ArtifactError`` when it cannot be written, and as ``is_markdown`` does.
    """
    if is_markdown(path):
        content = report_markdown(report)
    else:
        content = report_html(report, vega_script(workspace.root / "cache" / "report"))
    workspace.keep(path, content.encode())
