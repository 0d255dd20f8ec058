"""The results of an experiment as a JSON file, as a page to read, and its averages as Markdown."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from rag_eval.errors import ArtifactError
from rag_eval.experiments.item_log import ItemLog, file_stem
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import ExperimentResult, ItemResult, Output, score_key
from rag_eval.formatting import counted, escape_markdown
from rag_eval.reports.html import asset, render_page
from rag_eval.reports.wording import LESS_STRICT, brackets, leaves_out_zero, tested, typeset
from rag_eval.stats.comparison import Comparison, compare
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.storage.files import scratch_path, write_atomically


class JsonOutput(Output):
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
        """Name the file; add a number if another experiment of this name began in the same second."""
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
    """The summary as written to files: execution time in milliseconds, every average with n and interval."""
    summary = result.summary
    return {
        "totalSamples": summary.total_samples,
        "averageScores": summary.average_scores,
        "executionTime": summary.execution_time,
        "scores": {key: asdict(average) for key, average in result.averages.items()},
        "errors": result.errors,
        "resumedSamples": result.resumed,
    }


def head_record(result: ExperimentResult) -> dict[str, Any]:
    """The head of the file, before the samples."""
    return {
        "experimentName": result.name,
        "timestamp": result.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": result.run,
        "tasks": result.tasks,
        "evaluators": result.evaluators,
    }


def _write(file: IO[bytes], result: ExperimentResult) -> None:
    file.write(encode(head_record(result))[:-1] + b',"results":[')
    results = result.results
    records = results.records() if isinstance(results, ItemLog) else (item.record() for item in results)
    for place, record in enumerate(records):
        file.write((b",\n" if place else b"\n") + encode(record))
    file.write(b'\n],"summary":' + encode(summary_record(result)) + b"}\n")


HERE = "rag_eval.experiments"
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
MOST_TOLD = 3
"""The most findings in the headline."""


def experiment_page(result: ExperimentResult, samples: Sequence[ItemResult], note: str | None) -> str:
    """The page of an experiment with these samples; ``note`` says which were left out."""
    averages = result.averages.values()
    ends = [end for one in averages for end in (one.low, one.mean, one.high) if end is not None]
    pairs = paired_tasks(result, samples)
    unsure = [one for one in pairs.values() if one.verdict == "no difference shown"]
    return render_page(
        "experiment.html",
        package=HERE,
        style=asset("report.css") + asset("experiment.css", HERE),
        script="\n".join([asset("page.js"), asset("experiment.js", HERE)]),
        result=result,
        verdict=experiment_verdict(result, pairs),
        pairs=[(*key, one, brackets(one, with_sign=True, beside=1.0), tested(one)) for key, one in pairs.items()],
        less_strict=f"; {LESS_STRICT}" * any(leaves_out_zero(one.low, one.high) for one in unsure),
        note=note,
        scale=(min(0.0, *ends), max(1.0, *ends)) if ends else (0.0, 1.0),
        data={"tasks": result.tasks, "keys": list(result.averages), "samples": [_sample(item) for item in samples]},
    )


def paired_tasks(result: ExperimentResult, samples: Sequence[ItemResult]) -> dict[tuple[str, str, str], Comparison]:
    """Each further task held against the first, sample by sample, by each evaluator: (evaluator, first, other).

    Over the samples that all tasks have a score of; the tests of one evaluator are corrected for how many they are.
    """
    first, *others = result.tasks
    found: dict[tuple[str, str, str], Comparison] = {}
    for evaluator in result.evaluators if others else []:
        keys = [score_key(result.tasks, task, evaluator) for task in result.tasks]
        scored = [item for item in samples if all(key in item.scores for key in keys)]
        if not scored:
            continue
        values = np.array([[item.scores[key].value for item in scored] for key in keys])
        ids = tuple(str(item.index) for item in scored)
        scores = PairedScores(tuple(others), ids, ("",) * len(ids), values[1:])
        before = replace(scores, values=np.repeat(values[:1], len(others), axis=0))
        compared = compare(before, scores, np.random.default_rng(0))
        found |= {(evaluator, first, other): one for other, one in zip(others, compared, strict=True)}
    return found


def experiment_verdict(result: ExperimentResult, pairs: Mapping[tuple[str, str, str], Comparison]) -> str:
    """What the experiment says, in a sentence."""
    if len(result.tasks) == 1:
        told = [f"{key} {average.mean:.3f}" for key, average in result.averages.items()]
        return f"{result.tasks[0]}: {', '.join(told) or 'no score'}"
    sure: dict[str, list[str]] = {}
    for (evaluator, first, other), one in pairs.items():
        if one.verdict != "no difference shown":
            by = f"{evaluator} ({typeset(f'{one.difference:+.3f}')})"
            sure.setdefault(f"{other} is {one.verdict} than {first} by", []).append(by)
    told = [f"{said} {' and '.join(by)}" for said, by in sure.items()]
    tied = f"These {counted(result.total, 'samples')} do not tell the {len(result.tasks)} tasks apart"
    return f"{'; '.join(told[:MOST_TOLD])}{' …' if told[MOST_TOLD:] else ''}" if told else tied


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
    left = len(whole) - LONGEST_TEXT
    return whole if left <= 0 else f"{whole[:LONGEST_TEXT]}… ({counted(left, 'further characters')} are in the results)"


_ADDRESS = re.compile(r"https://[\w.~:/?#@!$&'*+,;=%-]+", re.ASCII)


def experiment_markdown(result: ExperimentResult) -> str:
    """A table of the averages with n and interval, what failed, and where the results are."""
    lines = [f"## {escape_markdown(result.name)}", "", "| score | mean | 95 % interval | n |", "|---|---:|---:|---:|"]
    for key, average in result.averages.items():
        interval = f"{average.low:.3f} to {average.high:.3f}" if average.low is not None else ""
        lines.append(f"| {escape_markdown(key)} | {average.mean:.3f} | {interval} | {average.n} |")
    lines += ["", f"{counted(result.total, 'samples')} in {result.seconds:.1f} s.", ""]
    lines += [f"- {escape_markdown(place)} failed {counted(count, 'times')}" for place, count in result.errors.items()]
    return "\n".join([*lines, *(f"- {escape_markdown(name)}: {_place(place)}" for name, place in result.saved.items())])


def _place(place: str) -> str:
    # A page of a server cannot link to a file, and what ends a link would begin markup of the service's own.
    return f"[open]({place})" if _ADDRESS.fullmatch(place) else escape_markdown(place)
