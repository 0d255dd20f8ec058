"""Ranking with intervals and tests, and reading a thousand runs, in CPU seconds of one process."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.history import history
from rag_eval.results.outcome import SUMMARY
from rag_eval.results.runs import read_summary, run_names
from rag_eval.stats.comparison import rank
from rag_eval.stats.intervals import mean_estimates
from rag_eval.stats.paired_scores import PairedScores
from tests.results.made_runs import make_run, write_data

CONFIGURATIONS, QUERIES, DOCUMENTS = 10, 5_000, 500
REPEATS = 5
RUNS = 1_000


def make_scores(seed: int = 20240711) -> PairedScores:
    """Scores in [0, 1] that depend on the document."""
    rng = np.random.default_rng(seed)
    document = rng.integers(0, DOCUMENTS, QUERIES)
    hardness = rng.normal(0, 0.2, DOCUMENTS)[document]
    values = np.clip(0.6 + hardness + rng.normal(0, 0.3, (CONFIGURATIONS, QUERIES)), 0, 1)
    names = tuple(f"configuration {number}" for number in range(CONFIGURATIONS))
    return PairedScores(names, tuple(map(str, range(QUERIES))), tuple(f"{one:04}.md" for one in document), values)


def least(work: Callable[[], object], times: int = REPEATS) -> float:
    """The CPU seconds of the fastest of several times."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def ranking_figures() -> list[dict[str, object]]:
    """Intervals alone, and the whole ranking."""
    scores = make_scores()
    intervals = least(lambda: mean_estimates(scores.values, scores.units))
    ranking = least(lambda: rank(scores, np.random.default_rng(7)))
    size = f"{CONFIGURATIONS} configurations x {QUERIES:,} queries, {DOCUMENTS} documents"
    return [
        _figure(f"intervals: {size}", intervals, 0.1, "s CPU", intervals <= 0.1),
        _figure("ranking with intervals, tests and probabilities, of the same size", ranking, None, "s CPU"),
    ]


def store_figures() -> list[dict[str, object]]:
    """Reading the summaries of many runs, and showing the last of them with intervals."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(root=Path(folder) / ".rag-eval")
        first = make_run(workspace, write_data(Path(folder), documents=14))
        for number in range(1, RUNS):
            name = f"{first.run[:-4]}{number:04x}"
            shutil.copytree(workspace.runs / first.run, workspace.runs / name)
        started = time.process_time()
        for name in run_names(workspace):
            read_summary(workspace.runs / name / SUMMARY)
        reading = time.process_time() - started
        started = time.process_time()
        history(workspace)
        showing = time.process_time() - started
    return [
        _figure(f"results: reading the summaries of {RUNS:,} runs", reading, 3, "s CPU", reading <= 3),
        _figure(f"results: history of the last 20 of {RUNS:,} runs", showing, 2, "s CPU", showing <= 2),
    ]


def run() -> list[dict[str, object]]:
    """The figures."""
    return [*ranking_figures(), *store_figures()]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        target = "" if figure["target"] is None else f"(target {figure['target']:g})"
        line = f"{figure['name']:<96} {figure['value']:>12.4g} {figure['unit']:<6} {target:<18}"
        print(line, "ok" if figure["ok"] else "MISSED")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
