"""The results of an experiment as a JSON file."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import IO, Any

from rag_eval.disk.files import scratch_path
from rag_eval.errors import ArtifactError
from rag_eval.experiments.item_log import ItemLog, file_stem
from rag_eval.experiments.json_lines import encode, item_record
from rag_eval.experiments.types import ExperimentResult, Output


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
    return {
        "totalSamples": result.total,
        "averageScores": {key: average.mean for key, average in result.averages.items()},
        "executionTime": round(result.seconds * 1_000),
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


def result_records(result: ExperimentResult) -> Iterator[dict[str, Any]]:
    """The samples as written to files, in the order of the data."""
    if isinstance(result.results, ItemLog):
        return result.results.records()
    return (item_record(item) for item in result.results)


def _write(file: IO[bytes], result: ExperimentResult) -> None:
    file.write(encode(head_record(result))[:-1] + b',"results":[')
    for place, record in enumerate(result_records(result)):
        file.write((b",\n" if place else b"\n") + encode(record))
    file.write(b'\n],"summary":' + encode(summary_record(result)) + b"}\n")
