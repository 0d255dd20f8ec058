"""The ranked table of a report as HTML: readable without a script, sortable with one."""

from collections.abc import Sequence

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.reports.costs import CostColumn, cost_columns
from rag_eval.reports.html import Html, element, text
from rag_eval.reports.ranking import RankingRow, other_metrics
from rag_eval.reports.wording import brackets, number_word, typeset, unit_word
from rag_eval.stats.bootstrap import FEWEST_SURE
from rag_eval.stats.directions import higher_is_better
from rag_eval.wording import counted, number, signed

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
