"""The results of an experiment as a page to read, and its averages as Markdown."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rag_eval.disk.files import write_atomically
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.outputs.files import result_stem
from rag_eval.experiments.types import ExperimentResult, ItemResult, Output
from rag_eval.formatting import counted, escape_markdown
from rag_eval.reports.html import asset, render_page, script_of

HERE = "rag_eval.experiments.outputs"
MOST_SAMPLES = 2_000
MOST_FAILURES = 1_000


class HtmlOutput(Output):
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
        """The samples that the page carries, and a note on those left out."""
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


def experiment_page(result: ExperimentResult, samples: Sequence[ItemResult], note: str | None) -> str:
    """The page of an experiment with these samples; ``note`` says which were left out."""
    averages = result.averages.values()
    ends = [end for one in averages for end in (one.low, one.mean, one.high) if end is not None]
    return render_page(
        "experiment.html",
        package=HERE,
        style=asset("report.css") + asset("experiment.css", HERE),
        scripts=[script_of(asset("page.js"), asset("experiment.js", HERE))],
        result=result,
        note=note,
        scale=(min(0.0, *ends), max(1.0, *ends)) if ends else (0.0, 1.0),
        data={"tasks": result.tasks, "keys": list(result.averages), "samples": [_sample(item) for item in samples]},
    )


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
    whole = value if isinstance(value, str) else encode(value).decode()
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 1] + "…"


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
