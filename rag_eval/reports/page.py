"""A report as one HTML file that needs nothing else: no network, no other file, no inline event or evaluated text.

Text from documents and models is escaped in the markup, escaped in the JSON, and only ever set as text by the script.
A content security policy allows the page's own script and style, by their digests, and nothing else.
"""

from collections.abc import Sequence
from string import Template

from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.formatting import counted, number, signed
from rag_eval.reports.against import against_html
from rag_eval.reports.chart_data import MOST_CHARTED
from rag_eval.reports.charts import COLOURS
from rag_eval.reports.html import Html, asset, element, json_element, policy, scripts, scrolling, text, together
from rag_eval.reports.provenance import provenance_html
from rag_eval.reports.ranking import CostColumn, RankingRow, cost_columns, other_metrics
from rag_eval.reports.report import Report
from rag_eval.reports.wording import brackets, number_word, typeset, unit_word
from rag_eval.stats.bootstrap import FEWEST_SURE
from rag_eval.stats.comparison import higher_is_better

STRIP_WIDTH = 120


def ranking_table(outcome: BenchmarkOutcome, rows: Sequence[RankingRow]) -> Html:
    """The table: the ranking metric with its interval, the verdict, the other metrics, and what it all costs."""
    metric, others, costs = outcome.ranking_metric, other_metrics(outcome), cost_columns(outcome.configurations)
    headings = [
        _heading("#", sortable=False),
        _heading("configuration", sortable=False),
        _heading(metric),
        _heading("against the best"),
        *(_heading(name) for name in others),
        *(_heading(cost.heading, cost.explained) for cost in costs),
        _heading("chunks"),
        _heading("characters", "Mean length of a chunk; shortest and longest below"),
    ]
    scale = _scale(metric, rows)
    body = [element("tr", *_cells(row, others, costs, scale), class_=_group(row)) for row in rows]
    return element(
        "table",
        element("caption", f"Configurations ranked by {metric}", class_="hidden"),
        element("thead", element("tr", *headings)),
        element("tbody", *body),
        class_="ranking",
    )


def _group(row: RankingRow) -> str | None:
    return "among" if row.placed.among_best else None


def ranking_note(rows: Sequence[RankingRow]) -> str:
    """How the intervals and the differences of the table came about."""
    first = rows[0].placed.estimate
    resampled = counted(first.units, unit_word(first))
    narrow = f", a little too narrow with fewer than {number_word(FEWEST_SURE)}" if first.units < FEWEST_SURE else ""
    interval = (
        f"Brackets and bars are 95 % intervals from resampling {resampled}{narrow}."
        if first.low is not None
        else f"There are no intervals: {resampled} cannot be resampled."
    )
    if len(rows) == 1:
        return interval
    return f"{interval} Differences are tested on the same {counted(first.n, 'questions')}, with Holm's correction."


def _heading(title: str, explained: str | None = None, *, sortable: bool = True) -> Html:
    # Names may break where they are put together, so that a narrow column stays narrow.
    label = Html(text(title).replace("_", "_<wbr>").replace("@", "<wbr>@"))
    inner = element("button", label, type="button", title=explained) if sortable else label
    return element("th", inner, scope="col")


def _cells(
    row: RankingRow, others: Sequence[str], costs: Sequence[CostColumn], scale: tuple[float, float]
) -> list[Html]:
    one, estimate, comparison = row.outcome, row.placed.estimate, row.placed.against_best
    difference = None
    if comparison is not None:
        written = typeset(signed(comparison.difference, estimate.mean))
        difference = element("span", f"{written} ", class_="difference")
    chunks = one.chunks
    return [
        element("td", row.place, class_="number"),
        element("th", one.name, scope="row"),
        element(
            "td",
            element("strong", number(estimate.mean)),
            element("span", f" {brackets(estimate)}", class_="small") if estimate.low is not None else None,
            _strip(row, scale),
            data_value=estimate.mean,
            class_="score",
        ),
        element(
            "td",
            difference,
            element("span", row.verdict, class_="small"),
            data_value=0 if comparison is None else comparison.difference,
            class_="verdict",
        ),
        *(_number(one.metrics[name], number(one.metrics[name])) for name in others),
        *(_number(cost.value(one), cost.cell(one)) for cost in costs),
        _number(chunks.count, f"{chunks.count:,}"),
        element(
            "td",
            f"{chunks.mean:,.0f}",
            element("span", f" {chunks.shortest:,}–{chunks.longest:,}", class_="small range"),
            data_value=chunks.mean,
            class_="number",
        ),
    ]


def _number(value: float | None, shown: str) -> Html:
    return element("td", shown, data_value=-1 if value is None else value, class_="number")


def _scale(metric: str, rows: Sequence[RankingRow]) -> tuple[float, float]:
    """What the bars of the intervals span: all of a share, else from 0 to the largest end."""
    if higher_is_better(metric):
        return 0.0, 1.0
    estimates = [row.placed.estimate for row in rows]
    return 0.0, max(estimate.mean if estimate.high is None else estimate.high for estimate in estimates) or 1.0


def _strip(row: RankingRow, scale: tuple[float, float]) -> Html:
    """The interval as a bar with a mark at the mean; drawn by attributes, since the page allows no inline styles."""
    estimate = row.placed.estimate

    def place(value: float) -> float:
        return round(STRIP_WIDTH * (value - scale[0]) / (scale[1] - scale[0]), 1)

    low = place(estimate.mean if estimate.low is None else estimate.low)
    high = place(estimate.mean if estimate.high is None else estimate.high)
    return element(
        "svg",
        element("line", x1=0, y1=6, x2=STRIP_WIDTH, y2=6, class_="track"),
        element("rect", x=low, y=3, width=max(high - low, 1), height=6, rx=3, class_="interval"),
        element("circle", cx=place(estimate.mean), cy=6, r=4, class_="mean"),
        class_="strip",
        viewBox=f"-5 0 {STRIP_WIDTH + 10} 12",
        width=STRIP_WIDTH + 10,
        height=12,
        aria_hidden="true",
    )


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
