"""The charts of a report: their rows, from a run's scores and tables, and how Vega-Lite draws them.

The colour of a series is its chunker, the dash or shape its search, so that no chart needs a dozen colours. Colours
are variables of the page's style sheet, which has them for light, dark and paper. The page selects the rows shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.benchmark.run_losses import configuration_losses
from rag_eval.benchmark.scores import RunScores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.metrics.budget import STRIP, RecallWithinTokens
from rag_eval.metrics.losses import LOSS_PARTS, average_losses
from rag_eval.metrics.metric import higher_is_better, split_name
from rag_eval.parts import label
from rag_eval.reports.ranking import without_hits
from rag_eval.stats.bootstrap import Estimate

Rows = list[dict[str, Any]]
Estimates = Mapping[str, Mapping[str, Estimate]]
Drawn = dict[str, Any]
"""A part of a Vega-Lite specification."""

MOST_CHARTED = 24
"""The most configurations that a chart can tell apart."""

MOST_DOCUMENTS = 40

HEIGHT, BAR = 320, 32
"""Of a chart, and of one bar or row of cells, in pixels."""

COLOURS = 8
"""How many series colours the page has."""

LOSS_COLOURS = {
    "found": "#0072b2", "return": "#999999", "reranker": "#009e73", "selection": "#f0e442", "fusion": "#882255",
    "index": "#cc79a7", "search": "#e69f00", "boundary": "#56b4e9", "uncovered": "#d55e00",
}  # fmt: skip

PARTS = {
    "found": "",
    "return": "not in what is handed on",
    "reranker": "moved out of the first k by the reranker",
    "selection": "dropped by a filter, a threshold or as a duplicate",
    "fusion": "moved out of the first k by the fusion",
    "index": "missed by the approximate index",
    "search": "ranked below the first k",
    "boundary": "needs more than k chunks",
    "uncovered": "in no chunk",
}
"""What is found and each loss with what it means, as they are stacked: from the last stage back to the first."""

TWO_LINES = "[split(datum.label, ', ')[0], substring(datum.label, length(split(datum.label, ', ')[0]) + 2)]"
"""The chunker above the rest of a configuration's name: half as wide, so that a phone has room for the bars."""

RING = "min(datum.ring, 3)"
"""Equal configurations are drawn as rings around each other, from the fourth on of one size."""

WHITE_FROM = 0.71
"""From this value on a cell has light text: here dark and light text are equally easy to read."""

LEGEND_ROW = 300
"""How wide a row of a legend may be, in pixels, to fit a phone."""

LONG_NAME = 30
"""From more letters on, two names do not fit beside each other below a chart of half the page."""

_NAMES = {"configuration", "chunker", "search", "document", "part", "label"}
_WHOLE = {"k", "tokens", "questions"}
_FRAME = {"data": {"name": "rows"}, "width": "container"}
_SHARE = {"format": "%", "tickCount": 6}
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
    spec: Drawn
    size: Literal["normal", "wide"] = "normal"
    """Wide charts take a row of their own, and scroll on a narrow screen."""


def charts_of(
    workspace: Workspace, outcome: BenchmarkOutcome, ranked: Sequence[ConfigurationOutcome], scores: RunScores
) -> list[Chart]:
    """The charts that the measured metrics allow, of the best configurations; ``ranked`` are all, best first."""
    charted = ranked[:MOST_CHARTED]
    if not charted:
        return []
    config, metric, estimates = outcome.config, outcome.ranking_metric, scores.estimates()
    k = split_name(metric)[1].hits or max(config.k)
    is_text = config.evaluation_type == "token-level"
    level, unit = ("span", "relevant text") if is_text else ("chunk", "relevant chunks")
    charts = []
    if {f"{level}_recall", f"{level}_precision"} <= set(config.metrics):
        charts.append(trade_off(charted, level, config.k, k, unit))
    charts.append(by_budget(charted, estimates))
    cut = [name for name in charted[0].metrics if split_name(name)[1].hits is not None]
    if cut and len(config.k) > 1:
        charts.append(by_k(charted, estimates, metric if metric in cut else cut[0], config.k))
    # Names are given as a domain: as an order to sort by they would become part of an expression, and break it.
    axis, scale = {"labelExpr": TWO_LINES, "labelOffset": -7}, {"domain": [one.name for one in charted]}
    names = _field("configuration", title=None, scale=scale, axis=axis)
    charts.append(by_loss(list(loss_rows(workspace, outcome, charted)), names, k, unit))
    if higher_is_better(metric):
        charts.append(by_document(scores, metric, names))
    return charts


def trade_off(charted: Sequence[ConfigurationOutcome], level: str, ks: Sequence[int], k: int, unit: str) -> Chart:
    """Recall against precision, in relevant text or chunks, at first of the first k hits."""
    rows = [
        _series(one)
        | {"k": hits}
        | {name: round(one.metrics[f"{level}_{name}@{hits}"], 5) for name in ("recall", "precision")}
        for one in charted
        for hits in ks
    ]
    _add_rings(rows, ("recall", "precision"), drawing="k")
    loose = {"axis": _SHARE, "scale": {"zero": False, "padding": 20}}
    place = {
        "x": _field("precision", title="precision →", **loose),
        "y": _field("recall", title="recall →", **loose),
    }
    points = {
        "mark": {"type": "point", "filled": True, "opacity": 1},
        "transform": [{"calculate": f"150 + 330 * {RING}", "as": "size"}],
        "encoding": place
        | {
            "shape": _field("search", title="search", legend=_legend(rows, "search")),
            "color": _colour(rows),
            "size": _field("size", scale=None, legend=None),
            "tooltip": _tips("configuration", "recall", "precision"),
        },
    }
    how_many = {
        "mark": {"type": "text", "align": "left", "dx": 20, "dy": -12},
        "transform": [
            {"filter": "datum.ring === 0 && datum.equal > 1"},
            {"calculate": "'×' + datum.equal", "as": "label"},
        ],
        "encoding": place | {"text": _field("label")},
    }
    return Chart(
        "trade-off",
        "Recall against precision",
        f"Up: more {unit} found. Right: more of what is retrieved is relevant. Rings are equal configurations.",
        rows,
        ["configuration", "k", "recall", "precision"],
        {"k": k},
        _FRAME | {"height": HEIGHT, "layer": [points, how_many]},
    )


def by_k(charted: Sequence[ConfigurationOutcome], estimates: Estimates, metric: str, ks: Sequence[int]) -> Chart:
    """Each metric against the number of hits, at first this one."""
    rows = [
        _series(one)
        | {"metric": without_hits(name), "k": split_name(name)[1].hits}
        | _interval("value", estimates[one.name][name])
        for one in charted
        for name in one.metrics
        if split_name(name)[1].hits is not None
    ]
    _add_rings(rows, ("k", "value"), drawing="metric")
    x = _field("k", title="first k hits", axis={"values": list(ks), "grid": False})
    return Chart(
        "by-k",
        "Scores by number of hits",
        f"Each metric over the first k hits. {_POINT}",
        rows,
        ["configuration", "metric", "k", "value", "low", "high"],
        {"metric": without_hits(metric)},
        _lines(rows, x, _field("value", title=None, scale={"zero": True})),
    )


def by_budget(charted: Sequence[ConfigurationOutcome], estimates: Estimates) -> Chart:
    """Recall against the tokens of the context; a line ends where the kept hits no longer fill half of the budget."""
    rows = [
        _series(one) | {"tokens": budget} | _interval("recall", estimates[one.name][RecallWithinTokens(budget).name])
        for one in charted
        for budget in STRIP[::6]
        if RecallWithinTokens(budget).name in estimates[one.name]
        if budget == STRIP[0] or estimates[one.name]["tokens_fetched"].mean >= budget / 2
    ]
    _add_rings(rows, ("tokens", "recall"))
    # A tick outside of what is drawn would be put beside the axis, or onto another one.
    axis = {"values": sorted({row["tokens"] for row in rows}), "grid": False, "format": ","}
    x = _field("tokens", title="tokens of context", scale={"type": "log", "nice": False}, axis=axis)
    return Chart(
        "by-budget",
        "Recall within a token budget",
        "Recall of the first hits that fit a budget of tokens, which does not favour large chunks. A line ends where "
        f"the hits fill less than half of the budget. {_POINT}",
        rows,
        ["configuration", "tokens", "recall", "low", "high"],
        {},
        _lines(rows, x, _field("recall", title="recall", axis=_SHARE, scale={"domain": [0, 1]})),
    )


def loss_rows(
    workspace: Workspace, outcome: BenchmarkOutcome, configurations: Sequence[ConfigurationOutcome]
) -> Iterable[dict[str, Any]]:
    """For each configuration, k and part its share of the relevant text, mean over the queries; they add up to 1."""
    for one in configurations:
        losses = configuration_losses(workspace, outcome, one, outcome.config.k)
        if losses is None:
            continue
        for means in average_losses(losses.parts).to_pylist():
            shares = {"found": means["final_recall"], **{part: means[part] for part in LOSS_PARTS}}
            for order, part in enumerate(PARTS):
                share = {"part": part, "share": round(shares[part], 5), "order": order}
                yield {"configuration": one.name, "k": means["k"]} | share


def by_loss(rows: Rows, names: Drawn, k: int, unit: str) -> Chart:
    """The shares that are found and lost in the first k hits, stacked, of ``loss_rows``; ``names`` is its axis."""
    # Parts that are nothing anywhere would only lengthen the legend.
    parts = [part for part in PARTS if any(row["part"] == part and row["share"] for row in rows)]
    meanings = "; ".join(f"{part}: {PARTS[part]}" for part in parts if PARTS[part]).capitalize()
    won = " Left of zero is what a stage won, such as a reranker." * any(row["share"] < 0 for row in rows)
    colours = {"domain": parts, "range": [LOSS_COLOURS[part] for part in parts]}
    title, axis = f"share of the {unit}", {"format": "%"}
    encoding = {
        "x": _field("share", title=title, stack="zero", scale={"nice": False}, axis=axis),
        "y": names,
        "color": _field("part", scale=colours, legend=_legend(rows, "part", title=None)),
        "order": _field("order"),
        "tooltip": _tips("configuration", "part", "share"),
    }
    return Chart(
        "by-loss",
        "Where recall is lost",
        f"{meanings}.{won}",
        rows,
        ["configuration", "k", "part", "share"],
        {"k": k},
        _FRAME | {"height": BAR * len(names["scale"]["domain"]), "mark": {"type": "bar"}, "encoding": encoding},
    )


def by_document(scores: RunScores, metric: str, names: Drawn) -> Chart:
    """A heat map: the mean of each configuration over the questions of each document.

    Of many documents, those asked about most; of the configurations, those on the axis ``names``.
    """
    paired = scores.paired(metric).subset(names["scale"]["domain"])
    documents, number, counts = np.unique(np.array(paired.documents), return_inverse=True, return_counts=True)
    shown = sorted(np.argsort(-counts, kind="stable")[:MOST_DOCUMENTS].tolist())
    rows: Rows = []
    for name, values in zip(paired.names, paired.values, strict=True):
        means = np.bincount(number, values, len(documents)) / counts
        for place in shown:
            mean = {"value": round(float(means[place]), 5), "questions": int(counts[place])}
            rows.append({"configuration": name, "document": str(documents[place])} | mean)
    cells = {
        "x": _field("document", title=None, axis={"labelAngle": -40, "labelLimit": 180}),
        "y": names,
        "tooltip": _tips("configuration", "document", "value", "questions"),
    }
    opacity = _field("value", scale={"domain": [0, 1], "range": [0, 1]}, legend=None)
    light = {"test": f"datum.value > {WHITE_FROM}", "value": "var(--on-full)"}
    # The value stands in every cell, so that no legend is needed.
    values_in_cells = {
        "text": _field("value", format=".2f"),
        "color": {"condition": [light], "value": "var(--on-faint)"},
    }
    which = f"of the {len(shown)} of {len(documents)} documents asked about most"
    return Chart(
        "by-document",
        "Scores by document",
        f"{metric} {which if len(shown) < len(documents) else 'by document'}. Click a cell to read its questions.",
        rows,
        ["configuration", "document", "value", "questions"],
        {},
        _FRAME
        | {
            "height": BAR * len(paired.names),
            "layer": [
                {"mark": {"type": "rect", "color": "var(--heat)"}, "encoding": cells | {"opacity": opacity}},
                {"mark": {"type": "text", "fontSize": 11}, "encoding": cells | values_in_cells},
            ],
        },
        size="wide",
    )


def _lines(rows: Rows, x: Drawn, y: Drawn) -> Drawn:
    """A line for each configuration; the one that is pointed at shows its interval, equal ones show as stripes."""
    base = {"x": x, "color": _colour(rows), "detail": _field("configuration")}
    # Where colours tell the searches apart already, dashes need no legend of their own.
    several = base["color"]["field"] == "chunker"
    stroke = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2}
    dashes = _legend(rows, "search", symbol=30, **stroke) if several else None
    picked = {f"one_{field}": field for field in (("chunker", "search") if several else ("search",))}
    is_picked = [{"param": name} for name in picked]
    line = {
        "name": "lines",
        "mark": {"type": "line", "point": {"filled": True, "size": 70}},
        "transform": [{"calculate": f"2 + 5 * {RING}", "as": "width"}],
        "encoding": base
        | {
            "y": y,
            "shape": _field("search", legend=None),
            "strokeDash": _field("search", title="search", legend=dashes),
            "strokeWidth": _field("width", scale=None, legend=None),
            "opacity": {"condition": [{"test": {"and": is_picked}, "value": 1}], "value": 0.08},
            "tooltip": _tips("configuration", x["field"], y["field"], "low", "high"),
        },
    }
    band = {
        "mark": {"type": "area"},
        "encoding": base
        | {
            "y": _field("low", title=None),
            "y2": {"field": "high"},
            "opacity": {"condition": [{"param": "near", "empty": False, "value": 0.18}], "value": 0},
        },
    }
    pointed_at = {"type": "point", "on": "pointerover", "clear": "pointerout", "fields": ["configuration"]}
    params = [{"name": "near", "select": pointed_at}] + [
        {"name": name, "select": {"type": "point", "fields": [field]}, "bind": "legend"}
        for name, field in picked.items()
    ]
    of_lines = [param | {"views": ["lines"]} for param in params]
    return _FRAME | {"height": HEIGHT, "params": of_lines, "layer": [band, line]}


def _series(one: ConfigurationOutcome) -> dict[str, Any]:
    """The configuration of a row, its chunker, and the rest of its name."""
    chunker = label(one.configuration.system or one.configuration.chunker)
    return {"configuration": one.name, "chunker": chunker, "search": one.name.removeprefix(f"{chunker}, ")}


def _interval(name: str, estimate: Estimate) -> dict[str, float]:
    """The mean and the ends of its interval; where there is none, they are the mean."""
    ends = {name: estimate.mean, "low": estimate.low, "high": estimate.high}
    return {end: round(estimate.mean if value is None else value, 5) for end, value in ends.items()}


def _add_rings(rows: Rows, fields: Sequence[str], drawing: str = "") -> None:
    """Add to each row how many configurations have the same values in a drawing, and its number among them, from 0."""
    series: dict[tuple[object, str], Rows] = {}
    for row in rows:
        series.setdefault((row.get(drawing), row["configuration"]), []).append(row)
    equal: dict[object, list[Rows]] = {}
    for (drawn, _), of_one in series.items():
        equal.setdefault((drawn, *(row[field] for row in of_one for field in fields)), []).append(of_one)
    for group in equal.values():
        for ring, of_one in enumerate(group):
            for row in of_one:
                row |= {"ring": ring, "equal": len(group)}


def _field(name: str, **options: Any) -> Drawn:
    return {"field": name, "type": "nominal" if name in _NAMES else "quantitative"} | options


def _colour(rows: Rows) -> Drawn:
    """The colour of a series: its chunker's, or that of the search where all have one chunker."""
    # In the order of the ranking: the page draws what stands behind others first.
    chunkers = list(dict.fromkeys(row["chunker"] for row in rows))
    field, scale = ("chunker", {"scale": {"domain": chunkers}}) if len(chunkers) > 1 else ("search", {})
    return _field(field, title=field, legend=_legend(rows, field), **scale)


def _legend(rows: Rows, field: str, symbol: int = 14, **options: Any) -> Drawn:
    """A legend in one row where that fits any screen, at about seven pixels a letter, in one column if names are long.

    Else the page lays it out.
    """
    names = {row[field] for row in rows}
    longest = max(map(len, names))
    if len(names) * (symbol + 16 + 7 * longest) <= LEGEND_ROW:
        return options | {"columns": len(names)}
    return options | ({"columns": 1} if longest > LONG_NAME else {})


def _tips(*fields: str) -> list[Drawn]:
    formats = dict.fromkeys(_NAMES, "") | dict.fromkeys(_WHOLE, ",")
    return [_field(field, format=formats.get(field, ".3f")) for field in fields]
