"""The report of a run as one HTML file: its data, put into the template ``report.html``."""

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path

from rag_eval.disk.files import write_atomically
from rag_eval.reports import against
from rag_eval.reports.chart_data import MOST_CHARTED
from rag_eval.reports.charts import COLOURS
from rag_eval.reports.html import asset, render_page, script_of
from rag_eval.reports.provenance import facts, ledger
from rag_eval.reports.report import Report

SCRIPTS = ("sections", "page", "offsets", "spans", "questions", "overlay", "list", "explorer", "charts", "start")
"""The parts of the page's script, in the order in which they build on each other."""

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def report_html(report: Report, vega: str) -> str:
    """The page; ``vega`` is the script that draws the charts."""
    outcome, overlay = report.outcome, report.overlay
    return render_page(
        "report.html",
        style=asset("report.css"),
        scripts=[vega, script_of(*(asset(f"{name}.js") for name in SCRIPTS))],
        report=report,
        against=against,
        most_charted=MOST_CHARTED,
        facts=facts(outcome),
        ledger=ledger(outcome),
        settings=json.dumps(outcome.config.model_dump(mode="json"), indent=2, ensure_ascii=False),
        manifest={
            "charts": [chart.manifest() for chart in report.charts],
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
        content = path.read_bytes()
        if path.stem == name + _digest(content):
            return content.decode()
    script = _bundled()
    write_atomically(folder / f"{name}{_digest(script.encode())}.js", script.encode())
    return script


@cache
def _bundled() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET)
    return script


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
