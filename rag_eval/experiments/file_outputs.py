"""Write the results of an experiment as a JSON file and as an HTML page, and its averages as Markdown."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from pydantic_core import from_json

from rag_eval.errors import ArtifactError
from rag_eval.experiments.item_log import ItemLog, file_stem
from rag_eval.experiments.json_lines import encode, json_text
from rag_eval.experiments.results import Average, ExperimentResult, ItemResult, score_key
from rag_eval.formatting import counted, escape_markdown
from rag_eval.reports.html import asset, render_page
from rag_eval.reports.wording import LESS_STRICT, brackets, leaves_out_zero, tested, typeset
from rag_eval.stats.comparison import Comparison, compare
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.storage.files import scratch_path, write_atomically

PACKAGE = "rag_eval.experiments"
MOST_SAMPLES = 2_000
MOST_FAILURES = 1_000
LONGEST_TEXT = 4_000
HEADLINE_FINDINGS = 3


class JsonOutput:
    """Writes ``<folder>/<name>-YYYY-MM-DDTHH-MM-SS.json``."""

    name = "json"

    def __init__(self, folder: str | Path = "evaluations") -> None:
        self._folder = Path(folder)

    def handle(self, results: ExperimentResult) -> str:
        """Write the file atomically; raises ``ArtifactError`` if the disk is full."""
        path = self._folder / f"{result_stem(results)}.json"
        with scratch_path(self._folder) as scratch:
            try:
                with scratch.open("wb") as file:
                    _write(file, results)
                try:
                    os.link(scratch, path)  # fails if the name is taken, also by another process
                except FileExistsError:
                    if not _is_of_run(
                        path, results.run
                    ):  # the JSON file of an experiment that started in the same second
                        path = path.with_stem(f"{path.stem}-{results.run[:8]}")
                    os.replace(scratch, path)
            except OSError as error:
                raise ArtifactError(
                    f"the results cannot be written to {str(self._folder)!r} ({error.strerror}): make room"
                ) from None
        return str(path)


def result_stem(result: ExperimentResult) -> str:
    """Return the file name of an experiment without its suffix."""
    return f"{file_stem(result.name)}-{result.timestamp:%Y-%m-%dT%H-%M-%S}"


def _is_of_run(path: Path, run: str) -> bool:
    with path.open("rb") as file:
        return f'"run":"{run}"'.encode() in file.read(4_096)


def summary_record(result: ExperimentResult) -> dict[str, object]:
    """Return the summary as it is written to files, with the time in milliseconds."""
    summary = result.summary
    return {
        "totalSamples": summary.total_samples,
        "averageScores": summary.average_scores,
        "executionTime": summary.execution_time,
        "scores": {key: asdict(average) for key, average in result.averages.items()},
        "errors": result.errors,
        "resumedSamples": result.resumed,
    }


def head_record(result: ExperimentResult) -> dict[str, object]:
    """Return the part of the file before the samples."""
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
    records = results.records() if isinstance(results, ItemLog) else (encode(item.record()) for item in results)
    for place, record in enumerate(records):
        file.write((b",\n" if place else b"\n") + record)
    file.write(b'\n],"summary":' + encode(summary_record(result)) + b"}\n")


def read_result(path: Path) -> ExperimentResult:
    """Read the results in a JSON file; raises ``ArtifactError`` if it is damaged or missing."""
    try:
        record = from_json(path.read_bytes())
        summary = record["summary"]
        return ExperimentResult(
            name=record["experimentName"],
            run=record["run"],
            timestamp=datetime.fromisoformat(record["timestamp"]),
            tasks=record["tasks"],
            evaluators=record["evaluators"],
            results=[ItemResult.of(index, item) for index, item in enumerate(record["results"])],
            averages={key: Average(**average) for key, average in summary["scores"].items()},
            errors=summary["errors"],
            seconds=summary["executionTime"] / 1_000,
            resumed=summary["resumedSamples"],
            saved={"json": str(path)},
        )
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error.strerror}): check the path") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArtifactError(f"{str(path)!r} is not the JSON file of an experiment: give one of its results") from None


class HtmlOutput:
    """Writes ``<folder>/<name>-YYYY-MM-DDTHH-MM-SS.html``, beside the JSON file if there is one.

    The page shows the first ``samples`` samples, and the first ``failures`` later samples that failed.
    """

    name = "html"

    def __init__(
        self, folder: str | Path = "evaluations", samples: int = MOST_SAMPLES, failures: int = MOST_FAILURES
    ) -> None:
        self._folder, self._samples, self._failures = Path(folder), samples, failures

    def handle(self, results: ExperimentResult) -> str:
        """Write the page; raises ``ArtifactError`` if it cannot be written."""
        stem = results.path.stem if results.path is not None else f"{result_stem(results)}-{results.run[:8]}"
        path = self._folder / f"{stem}.html"
        samples, later = list(islice(results.results, self._samples)), islice(results.results, self._samples, None)
        has_failures = results.failed > sum(len(item.errors) for item in samples)
        failures = list(islice((item for item in later if item.errors), self._failures)) if has_failures else []
        note = None
        if results.total > len(samples):
            failed = f" and {len(failures):,} later ones that failed" if failures else ""
            place = f"; all are in {results.path.name}" if results.path is not None else ""
            note = f"Showing the first {len(samples):,} of {results.total:,} samples{failed}{place}."
        page = experiment_page(results, [*samples, *failures], note)
        write_atomically(path, page.encode("utf-8", "replace"))
        return str(path)


def experiment_page(result: ExperimentResult, samples: Sequence[ItemResult], note: str | None) -> str:
    """Return the page of an experiment with these samples, and a note on omitted samples."""
    averages = result.averages.values()
    ends = [end for average in averages for end in (average.low, average.mean, average.high) if end is not None]
    pairs = paired_tasks(result, samples)
    rows = [(*key, pair, brackets(pair, with_sign=True, beside=1.0), tested(pair)) for key, pair in pairs.items()]
    unsure = [pair for pair in pairs.values() if pair.verdict == "no difference shown"]
    return render_page(
        "experiment.html",
        package=PACKAGE,
        style=asset("report.css") + asset("experiment.css", PACKAGE),
        script="\n".join([asset("page.js"), asset("experiment.js", PACKAGE)]),
        result=result,
        verdict=experiment_verdict(result, pairs),
        pairs=rows,
        less_strict=f"; {LESS_STRICT}" * any(leaves_out_zero(pair.low, pair.high) for pair in unsure),
        note=note,
        scale=(min(0.0, *ends), max(1.0, *ends)) if ends else (0.0, 1.0),
        data={"tasks": result.tasks, "keys": list(result.averages), "samples": [_sample(item) for item in samples]},
    )


def paired_tasks(result: ExperimentResult, samples: Sequence[ItemResult]) -> dict[tuple[str, str, str], Comparison]:
    """Compare each further task with the first by each evaluator: keys are (evaluator, first, other).

    Only samples with a score for every task count. p is corrected for the number of tasks.
    """
    first, *others = result.tasks
    pairs: dict[tuple[str, str, str], Comparison] = {}
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
        pairs |= {(evaluator, first, other): pair for other, pair in zip(others, compared, strict=True)}
    return pairs


def experiment_verdict(result: ExperimentResult, pairs: Mapping[tuple[str, str, str], Comparison]) -> str:
    """Return the main result in a sentence."""
    if len(result.tasks) == 1:
        means = [f"{key} {average.mean:.3f}" for key, average in result.averages.items()]
        return f"{result.tasks[0]}: {', '.join(means) or 'no score'}"
    differences: dict[str, list[str]] = {}
    for (evaluator, first, other), pair in pairs.items():
        if pair.verdict != "no difference shown":
            by = f"{evaluator} ({typeset(f'{pair.difference:+.3f}')})"
            differences.setdefault(f"{other} is {pair.verdict} than {first} by", []).append(by)
    if not differences:
        return f"No significant difference between {len(result.tasks)} tasks on {counted(result.total, 'samples')}"
    findings = [f"{finding} {' and '.join(by)}" for finding, by in differences.items()]
    return "; ".join(findings[:HEADLINE_FINDINGS]) + (" …" if len(findings) > HEADLINE_FINDINGS else "")


def _sample(item: ItemResult) -> dict[str, object]:
    return {
        "index": item.index + 1,
        "input": _shortened(item.input),
        "output": "" if item.output is None else _shortened(item.output),
        "results": ["" if result is None else _shortened(result) for result in item.task_results],
        "scores": {key: score.value for key, score in item.scores.items()},
        "passed": {key: score.passed for key, score in item.scores.items() if score.passed is not None},
        "why": {key: _shortened(score.explanation) for key, score in item.scores.items() if score.explanation},
        "errors": [[error.place, _shortened(error.message)] for error in item.errors],
    }


def _shortened(value: object) -> str:
    text = json_text(value)
    left = len(text) - LONGEST_TEXT
    return text if left <= 0 else f"{text[:LONGEST_TEXT]}… ({counted(left, 'more characters')} in the results)"


_ADDRESS = re.compile(r"https://[\w.~:/?#@!$&'*+,;=%-]+", re.ASCII)


def experiment_markdown(result: ExperimentResult) -> str:
    """Return a table of the averages, the failures, and the locations of the results."""
    lines = [f"## {escape_markdown(result.name)}", "", "| score | mean | 95 % interval | n |", "|---|---:|---:|---:|"]
    for key, average in result.averages.items():
        interval = f"{average.low:.3f} to {average.high:.3f}" if average.low is not None else ""
        lines.append(f"| {escape_markdown(key)} | {average.mean:.3f} | {interval} | {average.n} |")
    lines += ["", f"{counted(result.total, 'samples')} in {result.seconds:.1f} s.", ""]
    lines += [f"- {escape_markdown(place)} failed {counted(count, 'times')}" for place, count in result.errors.items()]
    for name, place in result.saved.items():
        # Only a plain web address becomes a link: other characters could end the link and start markup.
        link = f"[open]({place})" if _ADDRESS.fullmatch(place) else escape_markdown(place)
        lines.append(f"- {escape_markdown(name)}: {link}")
    return "\n".join(lines)
