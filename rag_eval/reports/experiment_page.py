"""An experiment as one HTML file that needs nothing else.

What tasks and models wrote is escaped in the markup, inert in the JSON, and only ever set as text by the script.
"""

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from rag_eval.experiments.encoding import encode
from rag_eval.experiments.types import Average, ExperimentResult, ItemResult
from rag_eval.reports.html import Html, element, scrolling, text, together
from rag_eval.reports.packing import json_element
from rag_eval.reports.self_contained import asset, policy, scripts
from rag_eval.wording import counted

LONGEST_TEXT = 4_000
STRIP = 180


def experiment_page(result: ExperimentResult, samples: Sequence[ItemResult], note: str | None) -> str:
    """The page of an experiment with these samples; ``note`` says which were left out."""
    style = asset("report.css") + asset("experiment.css")
    script = scripts(["page", "experiment"])
    data = {"tasks": result.tasks, "keys": list(result.averages), "samples": [_sample(item) for item in samples]}
    links = {"averages": "Averages", "failures": "Failed" if result.errors else None, "samples": "Samples"}
    return Template(asset("experiment.html")).substitute(
        policy=policy(style, script),
        title=text(f"{result.name} – rag-eval"),
        style=style,
        links=together(*(element("a", name, href=f"#{place}") for place, name in links.items() if name)),
        answer=_answer(result),
        averages=_averages(result.averages),
        failures=_failures(result.errors),
        note=element("p", note, class_="notice") if note else "",
        data=json_element("samples-data", _plain(data)),
        script=script,
    )


def _answer(result: ExperimentResult) -> Html:
    about = f"{result.timestamp:%d %B %Y, %H:%M} UTC · {result.seconds:.1f} s · run {result.run}"
    failed = f"{counted(result.failed, 'calls')} failed." if result.failed else "No call failed."
    tasks = f"{counted(len(result.tasks), 'tasks')} ({', '.join(result.tasks)})"
    lead = f"{counted(result.total, 'samples')}, {tasks}. {failed}"
    return element(
        "section",
        element("p", about, class_="eyebrow"),
        element("h1", result.name),
        element("p", lead, class_="lead"),
        id="answer",
    )


def _averages(averages: Mapping[str, Average]) -> Html:
    if not averages:
        return Html("")
    heads = [element("th", title, scope="col") for title in ("Score", "Mean", "95 % interval", "", "n", "Passed")]
    ends = [
        one for average in averages.values() for one in (average.low, average.mean, average.high) if one is not None
    ]
    scale = (min(0.0, *ends), max(1.0, *ends))
    rows = [
        element(
            "tr",
            element("th", key, scope="row"),
            element("td", f"{average.mean:.3f}", class_="number"),
            element("td", "–" if average.low is None else f"{average.low:.3f} to {average.high:.3f}"),
            element("td", _strip(average, scale)),
            element("td", f"{average.n:,}", class_="number"),
            element("td", f"{average.passed:,} of {average.judged:,}" if average.judged else "–", class_="number"),
        )
        for key, average in averages.items()
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_="averages")
    note = "A mean is over the samples that have the score; what failed is not in it. Intervals are Student's."
    figures = scrolling(table, "Averages")
    return element("section", element("h2", "Averages"), figures, element("p", note, class_="small"), id="averages")


def _strip(average: Average, scale: tuple[float, float]) -> Html:
    """The mean and its interval drawn on the scale."""

    def place(value: float) -> float:
        return round((value - scale[0]) / (scale[1] - scale[0]) * STRIP, 1)

    low, high = (
        average.mean if end is None else min(max(end, scale[0]), scale[1]) for end in (average.low, average.high)
    )
    return element(
        "svg",
        element("line", x1=0, x2=STRIP, y1=6, y2=6, class_="track"),
        element("rect", x=place(low), y=3, width=round(place(high) - place(low), 1), height=6, class_="interval"),
        element("circle", cx=place(average.mean), cy=6, r=3.5, class_="mean"),
        class_="strip",
        viewBox=f"0 0 {STRIP} 12",
        width=STRIP,
        height=12,
        aria_hidden="true",
    )


def _failures(errors: Mapping[str, int]) -> Html:
    if not errors:
        return Html("")
    entries = [
        element("li", element("strong", place), f": {counted(count, 'times')}") for place, count in errors.items()
    ]
    return element("section", element("h2", "Failed"), element("ul", *entries), id="failures")


def _sample(item: ItemResult) -> dict[str, Any]:
    return {
        "index": item.index + 1,
        "input": _shown(item.input),
        "output": "" if item.output is None else _shown(item.output),
        "results": ["" if one is None else _shown(one) for one in item.task_results],
        "scores": {key: score.value for key, score in item.scores.items()},
        "passed": {key: score.passed for key, score in item.scores.items() if score.passed is not None},
        "why": {key: _shown(score.explanation) for key, score in item.scores.items() if score.explanation},
        "errors": [[error.place, _shown(error.message)] for error in item.errors],
    }


def _shown(value: object) -> str:
    """A value as text, cut."""
    whole = value if isinstance(value, str) else encode(value).decode()
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 1] + "…"


def _plain(value: Any) -> Any:
    """The data with half a surrogate pair replaced, which UTF-8 does not write."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
