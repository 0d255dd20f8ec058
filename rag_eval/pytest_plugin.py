"""The fixture ``rag_eval_benchmark`` of pytest: a benchmark is run once, and tests assert on its metrics.

    def test_retrieval(rag_eval_benchmark):
        run = rag_eval_benchmark("benchmark.yaml")
        run.assert_at_least("span_recall@5", 0.8)

pytest finds it where the package is installed. It loads nothing of a benchmark until a test asks for one.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from rag_eval.results.outcome import BenchmarkOutcome
    from rag_eval.results.run_scores import RunScores
    from rag_eval.stats.estimates import Estimate

Side = Literal["mean", "low", "high"]
"""What a bound is held against: the mean, or an end of its 95 % interval."""


@dataclass(frozen=True)
class BenchmarkRun:
    """A run of a benchmark: its ``outcome`` as it is kept, and the ``scores`` of every question."""

    outcome: "BenchmarkOutcome"
    scores: "RunScores"

    @property
    def best(self) -> str:
        """The name of the configuration that is first in the ranking."""
        return self.outcome.ranked()[0].name

    def estimate(self, metric: str, configuration: str | None = None) -> "Estimate":
        """Return the mean and the interval of a metric, by default of the best configuration.

        Raises ``ConfigurationError`` on a metric or a configuration that the run does not have.
        """
        name = configuration or self.best
        self.scores.paired(metric).subset([name])  # says what there is
        return self.scores.estimates([metric])[name][metric]

    def assert_at_least(
        self, metric: str, bound: float, configuration: str | None = None, *, by: Side = "mean"
    ) -> None:
        """Fail the test where a metric is below a bound, by default of the best configuration and by its mean.

        By ``low`` the whole interval must be above: shown. By ``high`` it fails only where all of it is below: refuted.
        """
        self._assert(metric, configuration, by, lambda value: value >= bound, f"at least {bound:g}")

    def assert_at_most(self, metric: str, bound: float, configuration: str | None = None, *, by: Side = "mean") -> None:
        """Fail the test where a metric, such as ``tokens_retrieved@5``, is above a bound; by ``high`` it is strict."""
        self._assert(metric, configuration, by, lambda value: value <= bound, f"at most {bound:g}")

    def _assert(
        self, metric: str, configuration: str | None, by: Side, holds: Callable[[float], bool], asked: str
    ) -> None:
        from rag_eval.errors import ConfigurationError
        from rag_eval.formatting import basis, interval, number, singular

        try:
            seen = self.estimate(metric, configuration)
        except ConfigurationError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        value = getattr(seen, by)
        if value is None:
            pytest.fail(f"{metric} has no interval with one {singular(seen.unit)}: assert by its mean", pytrace=False)
        if not holds(value):
            told = f"{number(seen.mean)}, 95 % interval {interval(seen.low, seen.high)}"
            over = basis(seen.n, seen.units, seen.unit)
            end = f"its {by} was to be {asked}"
            pytest.fail(f"{metric} of {configuration or self.best} is {told}, over {over}: {end}", pytrace=False)


@pytest.fixture(scope="session")
def rag_eval_benchmark(pytestconfig: pytest.Config) -> Callable[..., BenchmarkRun]:
    """Run a benchmark file with ``rag-eval run``, once a session: ``rag_eval_benchmark(file, workspace=".rag-eval")``.

    Both are named from pytest's root folder. What the workspace keeps is not computed again.
    """

    @cache
    def run(file: str | os.PathLike[str], workspace: str = ".rag-eval") -> BenchmarkRun:
        from rag_eval.pipeline.workspace import Workspace
        from rag_eval.results.run_scores import read_scores
        from rag_eval.results.runs import read_run

        root = pytestconfig.rootpath
        place = workspace if "://" in workspace else str(root / workspace)
        beside = str(Path(sys.executable).parent)
        command = shutil.which("rag-eval", path=beside) or shutil.which("rag-eval") or "rag-eval"
        done = subprocess.run(  # noqa: S603  # our own command
            [command, "run", str(file), "--workspace", place, "--json"],
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            pytest.fail(f"rag-eval run {file} ended with code {done.returncode}:\n{done.stderr.strip()}", pytrace=False)
        kept = Workspace.at(place)
        outcome = read_run(kept, json.loads(done.stdout)["run"])
        return BenchmarkRun(outcome, read_scores(kept, outcome))

    return run
