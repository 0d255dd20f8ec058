"""The clustered bootstrap against scipy's, and reading a thousand runs, in CPU seconds of one process.

scipy resamples documents, vectorised, in the two ways its interface offers, each with the best of several batch sizes:
the sums and sizes of documents as paired samples, and the documents' numbers as one sample. Ours is held against the
faster, and the intervals of all must be the same.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.history import history
from rag_eval.results.outcome import SUMMARY
from rag_eval.results.runs import read_summary, run_names
from rag_eval.stats.comparison import rank
from rag_eval.stats.intervals import RESAMPLES, bootstrap_intervals, expanded_level
from rag_eval.stats.paired_scores import PairedScores, Units
from tests.results.made_runs import make_run, write_data

CONFIGURATIONS, QUERIES, DOCUMENTS = 10, 5_000, 500
BATCHES = (20, 50, 100, 200, 1_000)
REPEATS = 5
RUNS = 1_000
Array = np.ndarray[Any, np.dtype[np.float64]]


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


def ours(scores: PairedScores) -> Array:
    ends = bootstrap_intervals(scores.values, scores.units, np.random.default_rng(7))
    assert ends is not None
    return ends


def scipy_paired(units: Units, sums: Array, batch: int) -> Array:
    def mean(sums: Array, sizes: Array, axis: int) -> Array:
        return np.asarray(sums.sum(axis=axis) / sizes.sum(axis=axis))

    return _ends((sums, np.tile(units.sizes, (len(sums), 1))), mean, units.count, batch, paired=True)


def scipy_numbers(units: Units, sums: Array, batch: int) -> Array:
    sizes = units.sizes

    def mean(drawn: Any, axis: int) -> Array:
        return np.asarray(sums[:, drawn].sum(axis=axis) / sizes[drawn].sum(axis=axis))

    return _ends((np.arange(units.count),), mean, units.count, batch, paired=False)


def _ends(data: tuple[Any, ...], mean: Callable[..., Array], units: int, batch: int, *, paired: bool) -> Array:
    found = stats.bootstrap(
        data,
        mean,
        paired=paired,
        vectorized=True,
        axis=-1,
        n_resamples=RESAMPLES,
        batch=batch,
        confidence_level=expanded_level(0.95, units),
        method="percentile",
        rng=np.random.default_rng(7),
    ).confidence_interval
    return np.stack([found.low, found.high], axis=1)


def bootstrap_figures() -> list[dict[str, object]]:
    """Ours against both of scipy's ways."""
    scores = make_scores()
    units = scores.units
    sums = units.sums(scores.values)
    # As many tries as scipy gets with all its batches.
    seconds = least(lambda: ours(scores), REPEATS * len(BATCHES))
    ways = {"paired": scipy_paired, "numbers": scipy_numbers}
    theirs = {
        name: min(least(lambda way=way, batch=batch: way(units, sums, batch)) for batch in BATCHES)  # type: ignore[misc]
        for name, way in ways.items()
    }
    apart = max(float(np.abs(ours(scores) - way(units, sums, 100)).max()) for way in ways.values())
    faster = min(theirs.values()) / seconds
    ranking = least(lambda: rank(scores, np.random.default_rng(7)))
    size = f"{RESAMPLES:,} resamples, {CONFIGURATIONS} configurations x {QUERIES:,} queries, {DOCUMENTS} documents"
    return [
        _figure(f"bootstrap: {size}", seconds, None, "s CPU"),
        _figure("bootstrap: times the speed of scipy's, over document numbers", faster, 5, "x", faster >= 5),
        _figure("bootstrap: times the speed of scipy's, paired samples", theirs["paired"] / seconds, 5, "x"),
        _figure("bootstrap: largest distance from scipy's intervals, same seed", apart, 1e-12, "", apart <= 1e-12),
        _figure("ranking with intervals and tests, of the same size", ranking, None, "s CPU"),
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
    return [*bootstrap_figures(), *store_figures()]


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
