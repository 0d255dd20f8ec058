"""An experiment's averages as Markdown."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from string import Template
from typing import IO, Any

from rag_eval.disk.files import scratch_path, write_atomically
from rag_eval.errors import ArtifactError
from rag_eval.experiments.item_log import ItemLog, average_record, encode, file_stem, item_record
from rag_eval.experiments.outputs.output import QuietOutput
from rag_eval.experiments.types import Average, ExperimentResult, ItemResult
from rag_eval.formatting import counted
from rag_eval.reports.html import Html, asset, element, json_element, policy, scripts, scrolling, text, together
from rag_eval.reports.wording import escape_markdown


class JsonOutput(QuietOutput):
    """Writes ``<folder>/<name>-YYYY-MM-DDTHH-MM-SS.json``."""

    name = "json"

    def __init__(self, folder: str | Path = "evaluations") -> None:
        self._folder = Path(folder)

    def finished(self, result: ExperimentResult) -> str:
        """Write the file whole or not at all; raises ``ArtifactError`` when it cannot be written."""
        with scratch_path(self._folder) as scratch:
            try:
                with scratch.open("wb") as file:
                    _write(file, result)
                return str(self._named(scratch, result))
            except OSError as error:
                raise ArtifactError(
                    f"the results cannot be written to {str(self._folder)!r} ({error.strerror}): make room"
                ) from None

    def _named(self, scratch: Path, result: ExperimentResult) -> Path:
        """Give the file its name, or the next one where another experiment of this name began in the same second."""
        stem = result_stem(result)
        for number in count(1):
            path = self._folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            try:
                os.link(scratch, path)  # takes the name only where it is free, whoever else is at it
            except FileExistsError:
                if not _is_of(path, result.run):
                    continue
                os.replace(scratch, path)
            return path
        raise AssertionError("there is always a next number")


def result_stem(result: ExperimentResult) -> str:
    """The name of an experiment's files, without their ending."""
    return f"{file_stem(result.name)}-{result.timestamp:%Y-%m-%dT%H-%M-%S}"


def _is_of(path: Path, run: str) -> bool:
    """Whether a file holds this very run, from an attempt that was cut short."""
    with path.open("rb") as file:
        return f'"run":"{run}"'.encode() in file.read(4_096)


def summary_record(result: ExperimentResult) -> dict[str, Any]:
    """The summary as it stands in files: execution time in milliseconds, every average with n and interval."""
    return {
        "totalSamples": result.total,
        "averageScores": {key: average.mean for key, average in result.averages.items()},
        "executionTime": round(result.seconds * 1_000),
        "scores": {key: average_record(average) for key, average in result.averages.items()},
        "errors": result.errors,
        "resumedSamples": result.resumed,
    }


def head_record(result: ExperimentResult) -> dict[str, Any]:
    """What stands before the samples."""
    return {
        "experimentName": result.name,
        "timestamp": result.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": result.run,
        "tasks": result.tasks,
        "evaluators": result.evaluators,
    }


def result_records(result: ExperimentResult) -> Iterator[dict[str, Any]]:
    """The samples as they stand in files, in the order of the data."""
    if isinstance(result.results, ItemLog):
        return result.results.records()
    return (item_record(item) for item in result.results)


def _write(file: IO[bytes], result: ExperimentResult) -> None:
    file.write(encode(head_record(result))[:-1] + b',"results":[')
    for place, record in enumerate(result_records(result)):
        file.write((b",\n" if place else b"\n") + encode(record))
    file.write(b'\n],"summary":' + encode(summary_record(result)) + b"}\n")


MOST_SAMPLES = 2_000
MOST_FAILURES = 1_000


class HtmlOutput(QuietOutput):
    """Writes ``<folder>/<name>-YYYY-MM-DDTHH-MM-SS.html``, named as the JSON file where one was written before.

    The page carries the first ``samples`` samples, and of the further ones so many ``failures``.
    """

    name = "html"

    def __init__(
        self, folder: str | Path = "evaluations", samples: int = MOST_SAMPLES, failures: int = MOST_FAILURES
    ) -> None:
        self._folder = Path(folder)
        self._samples, self._failures = samples, failures

    def finished(self, result: ExperimentResult) -> str:
        """Write the page; raises ``ArtifactError`` when it cannot be written."""

        stem = result.path.stem if result.path is not None else f"{result_stem(result)}-{result.run[:8]}"
        path = self._folder / f"{stem}.html"
        samples, note = self._carried(result)
        write_atomically(path, experiment_page(result, samples, note).encode("utf-8", "replace"))
        return str(path)

    def _carried(self, result: ExperimentResult) -> tuple[list[ItemResult], str | None]:
        """The samples of the page, and which were left out."""
        samples = list(islice(result.results, self._samples))
        if result.total <= self._samples:
            return samples, None
        left = result.failed - sum(len(item.errors) for item in samples)
        found: list[ItemResult] = []
        for item in islice(result.results, self._samples, None) if left else ():
            if item.errors:
                found.append(item)
                left -= len(item.errors)
            if not left or len(found) == self._failures:
                break
        failed = f" and {'the first ' if left else ''}{len(found):,} later ones that failed" if found else ""
        place = f"; all are in {result.path.name}" if result.path is not None else ""
        return samples + found, f"Shown are the first {self._samples:,} of {result.total:,} samples{failed}{place}."


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


def experiment_markdown(result: ExperimentResult) -> str:
    """A table of the averages with n and interval, what failed, and where the results are."""
    lines = [f"## {escape_markdown(result.name)}", "", "| score | mean | 95 % interval | n |", "|---|---:|---:|---:|"]
    for key, average in result.averages.items():
        interval = f"{average.low:.3f} to {average.high:.3f}" if average.low is not None else ""
        lines.append(f"| {escape_markdown(key)} | {average.mean:.3f} | {interval} | {average.n} |")
    lines += ["", f"{counted(result.total, 'samples')} in {result.seconds:.1f} s.", ""]
    lines += [f"- {escape_markdown(place)} failed {counted(count, 'times')}" for place, count in result.errors.items()]
    return "\n".join([*lines, *(f"- {name}: {_place(place)}" for name, place in result.saved.items())])


def _place(place: str) -> str:
    # A page of a server cannot link to a file.
    return f"[open]({place})" if place.startswith("https://") and " " not in place else escape_markdown(place)
