"""The files of a run's report: ``report.html``, one page with all its data, ``report.md`` and ``scores.parquet``."""

import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.scores import keep_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.files import write_atomically
from rag_eval.errors import ConfigurationError
from rag_eval.reports import against
from rag_eval.reports.charts import COLOURS, MOST_CHARTED
from rag_eval.reports.html import asset, render_page
from rag_eval.reports.markdown import report_markdown
from rag_eval.reports.report import Report, build_report, facts, ledger
from rag_eval.types.ids import text_sha256

MARKDOWN_FILE = "report.md"
SUFFIXES = (".html", ".htm", ".md")
SCRIPTS = ("sections", "page", "offsets", "spans", "questions", "overlay", "list", "explorer", "charts", "start")
"""The parts of the page's script, in the order in which they build on each other."""


def keep_report(workspace: Workspace, outcome: BenchmarkOutcome) -> Report:
    """Write the three files of a run that has just ended.

    Raises ``ArtifactError`` when a table is gone or a file cannot be written.
    """
    report = build_report(workspace, outcome, keep_scores(workspace, outcome))
    write_report(workspace, report, workspace.runs / outcome.run / MARKDOWN_FILE)
    write_report(workspace, report, page_of(workspace, outcome))
    return report


def page_of(workspace: Workspace, outcome: BenchmarkOutcome, before: BenchmarkOutcome | None = None) -> Path:
    """Where the page of a run is, or the page that holds it against another."""
    name = "report" if before is None else f"report-against-{before.run}"
    return workspace.runs / outcome.run / f"{name}.html"


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


def report_html(report: Report, vega: str) -> str:
    """The page; ``vega`` is the script that draws the charts."""
    outcome, overlay = report.outcome, report.overlay
    return render_page(
        "report.html",
        style=asset("report.css"),
        script="\n".join(asset(f"{name}.js") for name in SCRIPTS),
        library=vega,
        report=report,
        against=against,
        most_charted=MOST_CHARTED,
        facts=facts(outcome),
        ledger=ledger(outcome),
        settings=json.dumps(outcome.config.model_dump(mode="json"), indent=2, ensure_ascii=False),
        manifest={
            "charts": [
                {
                    "id": chart.id,
                    "rows": chart.rows,
                    "fields": chart.fields,
                    "choices": chart.choices,
                    "spec": chart.spec | {"description": chart.title},  # which a screen reader calls the drawing
                }
                for chart in report.charts
            ],
            "colours": COLOURS,
            "overlay": overlay.manifest if overlay else {"configurations": []},
        },
        sections=overlay.sections if overlay else [],
    )


def vega_script(folder: Path) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; kept in the folder, since bundling takes seconds.

    A file that was altered no longer fits the digest in its name and is made again.
    """
    name = f"vega-{version('vl-convert-python')}-"
    for path in folder.glob(f"{name}*.js"):
        kept = path.read_bytes().decode(errors="replace")
        if path.stem == name + text_sha256(kept)[:32]:
            return kept
    script = _bundled()
    write_atomically(folder / f"{name}{text_sha256(script)[:32]}.js", script.encode())
    return script


@cache
def _bundled() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script
