"""Experiments against the published ``evaluatorq`` package, in CPU seconds of one run, and their memory as data grows.

Every sample is a short text, one trivial task and one trivial evaluator. Ours keeps every sample on disk while it runs
and writes the JSON file at the end, as it does by default; the package, whose evaluators are always async, keeps
its results in memory. Memory is the peak of a process of its own, which reads its rows from a generator.
"""

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rag_eval.experiments.file_outputs import JsonOutput
from rag_eval.experiments.running import evaluatorq

ITEMS, REPEATS, MOST_TIMES = 10_000, 3, 1.5
FEW, MANY = 100_000, 1_000_000
ITEM_BYTES, ROOM_MEGABYTES = 8, 10
ROOT = Path(__file__).parents[2]
STREAMING = """
import re, sys
from pathlib import Path
from tests.bench.bench_experiments import async_run, rows
async_run(rows(int(sys.argv[1])), Path(sys.argv[2]))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def rows(count: int) -> Iterator[dict[str, str]]:
    """Short texts, one at a time."""
    return ({"input": f"hello {number}", "output": "x"} for number in range(count))


def sync_run(data: Any, folder: Path) -> None:
    """Ours, with functions that are called on threads."""

    def concat(row: Any) -> str:
        return str(row["input"] + row["output"])

    def same(result: str, expected: str) -> float:
        return float(result == expected)

    _ours(data, concat, same, folder)


def async_run(data: Any, folder: Path) -> None:
    """Ours, with functions that are awaited."""

    async def concat(row: Any) -> str:
        return str(row["input"] + row["output"])

    async def same(result: str, expected: str) -> float:
        return float(result == expected)

    _ours(data, concat, same, folder)


def _ours(data: Any, task: Any, evaluator: Any, folder: Path) -> None:
    outputs = [JsonOutput(folder)]
    evaluatorq("speed", data=data, tasks=[task], evaluators=[evaluator], outputs=outputs, output_dir=folder)


def peer_run() -> None:
    """The package, with the same functions."""
    from evaluatorq import DataPoint, EvaluationResult, job
    from evaluatorq import evaluatorq as published

    @job("concat")
    async def concat(row: Any, _number: int) -> str:
        return str(row.inputs["input"] + row.expected_output)

    async def same(given: Any) -> Any:
        return EvaluationResult(value=float(given["output"] == given["data"].expected_output))

    data = [DataPoint(inputs={"input": row["input"]}, expected_output=row["output"]) for row in rows(ITEMS)]
    evaluators: Any = [{"name": "same", "scorer": same}]
    with contextlib.redirect_stdout(io.StringIO()):
        asyncio.run(
            published("speed", data=data, jobs=[concat], evaluators=evaluators, parallelism=5, print_results=False)
        )


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one turn."""
    started = time.process_time()
    work()
    return time.process_time() - started


def speed_figures() -> list[dict[str, object]]:
    """Turns of each way one after the other, so that a busy machine is as busy for all."""
    data = list(rows(ITEMS))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ways: dict[str, Callable[[], object]] = {
            "published": peer_run,
            "sync": lambda: sync_run(data, place),
            "async": lambda: async_run(data, place),
        }
        for work in ways.values():
            work()  # imports
        turns = [{name: seconds(work) for name, work in ways.items()} for _ in range(REPEATS)]
    least = {name: min(turn[name] for turn in turns) for name in ways}
    figures = [_figure(f"published package: {ITEMS:,} samples", least["published"], None, "s CPU")]
    for name in ("sync", "async"):
        times = least[name] / least["published"]
        what = f"{name} functions: {ITEMS:,} samples"
        figures.append(_figure(what, least[name], None, "s CPU"))
        figures.append(_figure(f"{what}, of the published package's time", times, MOST_TIMES, "x", times <= MOST_TIMES))
    return figures


def peak_megabytes(count: int) -> float:
    """Peak memory of a process that works through so many rows; ``getrusage`` would count its parent's too."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", STREAMING, str(count), folder]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1_024


def memory_figures() -> list[dict[str, object]]:
    """Memory at a hundred thousand and a million streamed samples, and by how much it grew."""
    few, many = peak_megabytes(FEW), peak_megabytes(MANY)
    most = (MANY - FEW) * ITEM_BYTES / 2**20 + ROOM_MEGABYTES
    grown = many - few
    return [
        _figure(f"peak memory at {FEW:,} streamed samples", few, None, "MB"),
        _figure(f"peak memory at {MANY:,} streamed samples", many, None, "MB"),
        _figure(f"growth, of which {ITEM_BYTES} bytes a sample are known", grown, most, "MB", grown <= most),
    ]


def run() -> list[dict[str, object]]:
    """The figures."""
    os.environ.pop("ORQ_API_KEY", None)  # the published package would send its results
    return [*speed_figures(), *memory_figures()]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}
