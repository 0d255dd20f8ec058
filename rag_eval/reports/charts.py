"""The charts of a report as Vega-Lite specifications; colours and the selected rows are the page's.

The colour of a series is its chunker, the dash or shape its search, so that no chart needs a dozen colours. Colours
are variables of the page's style sheet, which has them for light, dark and paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import altair as alt

Rows = list[dict[str, Any]]

HEIGHT, BAR = 320, 32
"""Of a chart, and of one bar or row of cells, in pixels."""

COLOURS = 8
"""How many series colours the page has."""

TWO_LINES = "[split(datum.label, ', ')[0], substring(datum.label, length(split(datum.label, ', ')[0]) + 2)]"
"""The chunker above the rest of a configuration's name: half as wide, so that a phone has room for the bars."""

MOST_RINGS = 3
"""How many equal configurations are drawn as rings around each other; further ones have the size of the last."""

WHITE_FROM = 0.71
"""From this value on a cell has light text: here dark and light text are equally easy to read."""

LEGEND_ROW = 300
"""How wide a row of a legend may be, in pixels, to fit a phone."""

_POINT = "Hover over a line for its 95 % interval; click in the legend to isolate a series."


@dataclass(frozen=True)
class Chart:
    """A chart: title, caption, rows, and the values of fields that select the rows shown at first."""

    id: str
    title: str
    caption: str
    rows: Rows
    fields: list[str]
    choices: dict[str, Any]
    spec: dict[str, Any]
    size: Literal["normal", "wide"] = "normal"
    """Wide charts take a row of their own, and scroll on a narrow screen."""

    def manifest(self) -> dict[str, Any]:
        """What the page needs to draw it."""
        plain = {name: getattr(self, name) for name in ("id", "rows", "fields", "choices")}
        # The description is what a screen reader calls the drawing.
        return plain | {"spec": self.spec | {"description": self.title}}


def trade_off(rows: Rows, k: int, unit: str) -> Chart:
    """Recall against precision, in relevant text or chunks."""
    import altair as alt

    loose = alt.Scale(zero=False, padding=20)
    base = _of_rows(alt).encode(
        x=_share(alt, "precision", "precision →", loose), y=_share(alt, "recall", "recall →", loose)
    )
    points = base.mark_point(filled=True, opacity=1).encode(
        shape=alt.Shape("search:N", title="search", legend=_legend(alt, rows, "search")),
        color=_colour(alt, rows),
        size=alt.Size("size:Q", scale=None, legend=None),
        tooltip=_tips(alt, "configuration", "recall", "precision"),
    )
    points = points.transform_calculate(size=f"150 + 330 * {_ring()}")
    many = base.transform_filter("datum.ring === 0 && datum.equal > 1").mark_text(align="left", dx=20, dy=-12)
    many = many.encode(text=alt.Text("label:N")).transform_calculate(label="'×' + datum.equal")
    return Chart(
        "trade-off",
        "Recall against precision",
        f"Up: more {unit} found. Right: more of what is retrieved is relevant. Rings are equal configurations.",
        rows,
        ["configuration", "k", "recall", "precision"],
        {"k": k},
        _drawn(alt.layer(points, many)),
    )


def by_k(rows: Rows, metric: str, ks: Sequence[int]) -> Chart:
    """A metric against the number of hits."""
    import altair as alt

    axis = alt.X("k:Q", title="first k hits", axis=alt.Axis(values=list(ks), grid=False))
    return Chart(
        "by-k",
        "Scores by number of hits",
        f"Each metric over the first k hits. {_POINT}",
        rows,
        ["configuration", "metric", "k", "value", "low", "high"],
        {"metric": metric},
        _drawn(_lines(alt, rows, axis, alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)), "k", "value")),
    )


def by_budget(rows: Rows, budgets: Sequence[int]) -> Chart:
    """Recall against the tokens of the context."""
    import altair as alt

    axis = alt.X(
        "tokens:Q",
        title="tokens of context",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=list(budgets), grid=False, format=","),
    )
    return Chart(
        "by-budget",
        "Recall within a token budget",
        "Recall of the first hits that fit a budget of tokens, which does not favour large chunks. A line ends where "
        f"the hits fill less than half of the budget. {_POINT}",
        rows,
        ["configuration", "tokens", "recall", "low", "high"],
        {},
        _drawn(_lines(alt, rows, axis, _share(alt, "recall", "recall", alt.Scale(domain=[0, 1])), "tokens", "recall")),
    )


def by_document(rows: Rows, metric: str, order: Sequence[str], documents: int) -> Chart:
    """A heat map of configurations and documents, of which there are so many in all."""
    import altair as alt

    base = _of_rows(alt).encode(
        x=alt.X("document:N", title=None, axis=alt.Axis(labelAngle=-40, labelLimit=180)),
        y=_names(alt, order),
        tooltip=_tips(alt, "configuration", "document", "value", "questions"),
    )
    # The value stands in every cell, so that no legend is needed.
    cells = base.mark_rect(color="var(--heat)").encode(
        opacity=alt.Opacity("value:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None)
    )
    full, faint = alt.value("var(--on-full)"), alt.value("var(--on-faint)")
    values = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".2f"),
        color=alt.when(alt.datum.value > WHITE_FROM).then(full).otherwise(faint),
    )
    shown = len({row["document"] for row in rows})
    which = f"of the {shown} of {documents} documents asked about most" if shown < documents else "by document"
    return Chart(
        "by-document",
        "Scores by document",
        f"{metric} {which}. Click a cell to read its questions.",
        rows,
        ["configuration", "document", "value", "questions"],
        {},
        _drawn(alt.layer(cells, values), BAR * len(order)),
        size="wide",
    )


def by_loss(rows: Rows, k: int, order: Sequence[str], parts: Mapping[str, str], unit: str) -> Chart:
    """The shares that are found and lost, stacked; ``parts`` says what each loss means."""
    import altair as alt

    won = " Left of zero is what a stage won, such as a reranker."
    hues = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]
    colours = alt.Scale(domain=list(parts), range=hues[: len(parts)])
    scale, axis = alt.Scale(nice=False), alt.Axis(format="%")
    x = alt.X("share:Q", title=f"share of the {unit}", stack="zero", scale=scale, axis=axis)
    bars = (
        _of_rows(alt)
        .mark_bar()
        .encode(
            x=x,
            y=_names(alt, order),
            color=alt.Color("part:N", scale=colours, legend=_legend(alt, rows, "part", title=None)),
            order=alt.Order("order:Q"),
            tooltip=_tips(alt, "configuration", "part", "share"),
        )
    )
    return Chart(
        "by-loss",
        "Where recall is lost",
        f"{'; '.join(f'{name}: {meaning}' for name, meaning in parts.items() if meaning).capitalize()}."
        f"{won if any(row['share'] < 0 for row in rows) else ''}",
        rows,
        ["configuration", "k", "part", "share"],
        {"k": k},
        _drawn(bars, BAR * len(order)),
    )


def _lines(alt: Any, rows: Rows, x: "alt.X", y: "alt.Y", place: str, value: str) -> Any:
    """A line for each configuration; the one that is pointed at shows its interval, equal ones show as stripes."""
    # Where colours tell the searches apart already, dashes need no legend of their own.
    stroke = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2}
    strokes = _legend(alt, rows, "search", symbol=30, **stroke) if _several(rows) else None
    picked = [
        alt.selection_point(name=f"one_{field}", fields=[field], bind="legend")
        for field in (("chunker", "search") if _several(rows) else ("search",))
    ]
    base = _of_rows(alt).encode(x=x, color=_colour(alt, rows), detail="configuration:N")
    near = alt.selection_point(name="near", on="pointerover", clear="pointerout", fields=["configuration"], empty=False)
    line = base.mark_line(point=alt.OverlayMarkDef(filled=True, size=70)).encode(
        y=y,
        shape=alt.Shape("search:N", legend=None),
        strokeDash=alt.StrokeDash("search:N", title="search", legend=strokes),
        strokeWidth=alt.StrokeWidth("width:Q", scale=None, legend=None),
        opacity=alt.when(*picked).then(alt.value(1)).otherwise(alt.value(0.08)),
        tooltip=_tips(alt, "configuration", place, value, "low", "high"),
    )
    band = base.mark_area().encode(
        y=alt.Y("low:Q", title=None),
        y2="high:Q",
        opacity=alt.when(near).then(alt.value(0.18)).otherwise(alt.value(0)),
    )
    line = line.transform_calculate(width=f"2 + 5 * {_ring()}")
    return alt.layer(band, line.add_params(near, *picked))


def _ring() -> str:
    return f"min(datum.ring, {MOST_RINGS})"


def _names(alt: Any, order: Sequence[str]) -> Any:
    # Names are given as a domain: as an order to sort by they would become part of an expression, and break it.
    axis = alt.Axis(labelExpr=TWO_LINES, labelOffset=-7)
    return alt.Y("configuration:N", title=None, scale=alt.Scale(domain=list(order)), axis=axis)


def _of_rows(alt: Any) -> Any:
    return alt.Chart(alt.NamedData("rows"))


def _colour(alt: Any, rows: Rows) -> Any:
    """The colour of a series: its chunker's, or that of the search where all have one chunker."""
    if _several(rows):
        # In the order of the ranking: the page draws what stands behind others first.
        scale = alt.Scale(domain=list(dict.fromkeys(row["chunker"] for row in rows)))
        return alt.Color("chunker:N", title="chunker", scale=scale, legend=_legend(alt, rows, "chunker"))
    return alt.Color("search:N", title="search", legend=_legend(alt, rows, "search"))


def _legend(alt: Any, rows: Rows, field: str, symbol: int = 14, **options: Any) -> Any:
    """A legend in one row where that fits any screen, at about seven pixels a letter; else the page lays it out."""
    names = {row[field] for row in rows}
    is_short = len(names) * (symbol + 16 + 7 * max(map(len, names))) <= LEGEND_ROW
    return alt.Legend(**options | ({"columns": len(names)} if is_short else {}))


def _several(rows: Rows) -> bool:
    return len({row["chunker"] for row in rows}) > 1


def _share(alt: Any, field: str, title: str, scale: Any) -> Any:
    channel = alt.X if field == "precision" else alt.Y
    return channel(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=6))


def _tips(alt: Any, *fields: str) -> list[Any]:
    words, whole = {"configuration", "document", "part"}, {"k", "tokens", "questions"}
    return [
        alt.Tooltip(f"{field}:N", format="")
        if field in words
        else alt.Tooltip(f"{field}:Q", format="," if field in whole else ".3f")
        for field in fields
    ]


def _drawn(chart: Any, height: int = HEIGHT) -> dict[str, Any]:
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    # The address of the schema is the only one in the page, and the page shall hold none.
    del spec["$schema"]
    return spec
