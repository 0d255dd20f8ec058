"""A report as one HTML file that needs nothing else: no network, no other file, no inline event or evaluated text.

Text from documents and models is escaped in the markup, escaped in the JSON, and only ever set as text by the script.
A content security policy allows the page's own script and style, by their digests, and nothing else.
"""

from string import Template

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.reports.against import against_html
from rag_eval.reports.chart_rows import MOST_CHARTED
from rag_eval.reports.charts import COLOURS
from rag_eval.reports.html import Html, element, scrolling, text, together
from rag_eval.reports.packing import json_element
from rag_eval.reports.provenance import provenance_html
from rag_eval.reports.ranking_html import ranking_note, ranking_table
from rag_eval.reports.report import Report
from rag_eval.reports.self_contained import asset, policy, scripts

SCRIPTS = ("sections", "page", "offsets", "spans", "questions", "overlay", "list", "explorer", "charts", "start")
"""The parts of the page's script, in the order in which they build on each other."""


def report_html(report: Report, vega: str) -> str:
    """The page; ``vega`` is the script that draws the charts."""
    outcome, overlay = report.outcome, report.overlay
    style, script = asset("report.css"), scripts(SCRIPTS)
    manifest = {
        "charts": [chart.manifest() for chart in report.charts],
        "colours": COLOURS,
        "overlay": overlay.manifest if overlay else {"sides": []},
    }
    sections = overlay.sections if overlay else []
    return Template(asset("report.html")).substitute(
        policy=policy(style, vega, script),
        title=text(f"{report.answer.headline} – rag-eval, {outcome.run}"),
        style=style,
        links=_links(report),
        answer=_answer(report),
        failures=_failures(outcome),
        ranking=_ranking(report),
        against=against_html(report.compared) if report.compared else "",
        charts=_gallery(report),
        notes=together(*(element("p", note, class_="notice") for note in overlay.notes)) if overlay else "",
        provenance=provenance_html(outcome),
        data="\n".join([json_element("manifest", manifest), *(section.element() for section in sections)]),
        vega=vega,
        script=script,
    )


def _answer(report: Report) -> Html:
    outcome = report.outcome
    about = f"{outcome.corpus.folder.name} · {outcome.started:%d %B %Y, %H:%M} UTC · ranked by {outcome.ranking_metric}"
    first, *rest = report.answer.sentences or [""]
    return element(
        "section",
        element("p", about, class_="eyebrow"),
        element("h1", report.answer.headline),
        element("p", first, class_="lead"),
        element("p", " ".join(rest), class_="lead") if rest else None,
        id="answer",
    )


def _failures(outcome: BenchmarkOutcome) -> Html:
    entries = [
        element("p", element("strong", name), f": {failure.reason}", class_="notice failed")
        for name, failure in outcome.failures.items()
    ]
    title = element("h2", "Failed")
    return element("section", title, *entries, id="failures") if entries else Html("")


def _ranking(report: Report) -> Html:
    if not report.ranking:
        return Html("")
    table = ranking_table(report.outcome, report.ranking)
    return element(
        "section",
        element("h2", "Ranking", id="ranking-title"),
        scrolling(table, "Ranking table"),
        element("p", ranking_note(report.ranking), class_="small"),
        id="ranking",
        aria_labelledby="ranking-title",
    )


def _links(report: Report) -> Html:
    names = {
        "answer": "Answer",
        "failures": "Failed" if report.outcome.failures else None,
        "ranking": "Ranking" if report.ranking else None,
        "against": "Before and after" if report.compared else None,
        "charts": "Charts" if report.charts else None,
        "questions": "Questions" if report.overlay else None,
        "provenance": "Provenance",
    }
    return together(*(element("a", name, href=f"#{place}") for place, name in names.items() if name))


def _gallery(report: Report) -> Html:
    charts, total = report.charts, len(report.ranking)
    cut = f"The charts show the best {MOST_CHARTED} of {total} configurations."
    note = element("p", cut, class_="notice") if total > MOST_CHARTED else None
    figures = [
        element(
            "figure",
            element("h3", chart.title, id=f"title-{chart.id}"),
            element("p", chart.caption, class_="small"),
            element("div", class_="choices"),
            element("div", element("div", class_="drawing"), class_="canvas"),
            element("details", element("summary", "The numbers")),
            id=f"chart-{chart.id}",
            class_=chart.size,
            aria_labelledby=f"title-{chart.id}",
        )
        for chart in charts
    ]
    return together(note, element("div", *figures, class_="gallery"))
