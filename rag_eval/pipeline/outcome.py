"""What a benchmark found: the averages of each configuration, and what was computed or reused for it."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from rag_eval.config.benchmark import BenchmarkConfig, Configuration
from rag_eval.errors import BenchmarkFailedError, ConfigurationError
from rag_eval.files import write_atomically
from rag_eval.metrics.table import average_scores, score_name
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.references import CorpusSource, Effort, TableRef, TruthSource
from rag_eval.pipeline.workspace import Workspace

Work = Literal["computed", "reused"]
SUMMARY = "summary.json"


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StageWork(_Outcome):
    """One stage: whether its body ran, how much of it had to be done, and how long it took."""

    work: Work
    effort: Effort | None
    seconds: float


class ChunkStatistics(_Outcome):
    """How many chunks there are, and how long they are in characters."""

    count: int
    mean: float
    shortest: int
    longest: int


class ConfigurationOutcome(_Outcome):
    """One configuration: its averages by metric@k, over how many queries, its tables, and the work it took."""

    name: str
    configuration: Configuration
    metrics: dict[str, float]
    queries: int
    chunks: ChunkStatistics
    hits: TableRef
    scores: TableRef
    stages: dict[str, StageWork]


class BenchmarkOutcome(_Outcome):
    """A whole benchmark: what was compared on what, and every configuration in the order given."""

    run: str
    corpus: CorpusSource
    ground_truth: TruthSource
    config: BenchmarkConfig
    documents: int
    answerable: int
    unanswerable: int
    configurations: list[ConfigurationOutcome]
    failures: dict[str, str]
    stages: dict[str, StageWork]

    @classmethod
    def of(
        cls,
        workspace: Workspace,
        config: BenchmarkConfig,
        corpus: CorpusSource,
        ground_truth: TruthSource,
        inputs: BenchmarkInputs,
        configurations: list[ConfigurationOutcome],
        failures: dict[str, str],
        stages: dict[str, StageWork],
    ) -> "BenchmarkOutcome":
        """The outcome of a run that ends now."""
        unanswerable = sum(workspace.read_table(inputs.queries).column("unanswerable").to_pylist())
        return cls(
            run=datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f-") + secrets.token_hex(2),
            config=config,
            corpus=corpus,
            ground_truth=ground_truth,
            documents=inputs.documents.rows,
            answerable=inputs.queries.rows - unanswerable,
            unanswerable=unanswerable,
            configurations=configurations,
            failures=failures,
            stages=stages,
        )

    @property
    def ranking_metric(self) -> str:
        """What configurations are ranked by: the first metric at the k nearest to 5."""
        nearest = min(self.config.k, key=lambda k: (abs(k - 5), k))
        # What the context costs says nothing about what it holds.
        qualities = [name for name in self.config.metrics if not name.startswith("tokens_retrieved")]
        names = [score_name(metric, k) for metric in qualities or self.config.metrics for k in (nearest, 0)]
        known = self.configurations[0].metrics if self.configurations else {}
        return next((name for name in names if name in known), names[0])

    def ranked(self) -> list[ConfigurationOutcome]:
        """The configurations, best first by the ranking metric; equal ones in the order they were given."""
        return sorted(self.configurations, key=lambda outcome: -outcome.metrics[self.ranking_metric])

    def work(self) -> tuple[int, int]:
        """How many stage runs were computed and how many reused, over the whole benchmark."""
        done = [self.stages, *(one.stages for one in self.configurations)]
        kinds = [stage.work for stages in done for stage in stages.values()]
        return kinds.count("computed"), kinds.count("reused")

    def work_by_stage(self) -> dict[str, tuple[int, int, list[Effort]]]:
        """For each stage how often it was computed and reused, and the efforts of the computed ones."""
        found: dict[str, tuple[int, int, list[Effort]]] = {}
        for stages in (self.stages, *(one.stages for one in self.configurations)):
            for name, stage in stages.items():
                computed, reused, efforts = found.get(name, (0, 0, []))
                fresh = [stage.effort] if stage.effort is not None else []
                is_computed = stage.work == "computed"
                found[name] = (computed + is_computed, reused + (not is_computed), efforts + fresh)
        return found


def summarise(
    workspace: Workspace,
    configuration: Configuration,
    chunks: TableRef,
    hits: TableRef,
    scores: TableRef,
    stages: dict[str, StageWork],
) -> ConfigurationOutcome:
    """The averages of a configuration's scores."""
    averages = average_scores(workspace.read_table(scores)).to_pylist()
    lengths = pc.utf8_length(workspace.read_table(chunks).column("content"))
    extremes = pc.min_max(lengths).as_py() if len(lengths) else {"min": 0, "max": 0}
    return ConfigurationOutcome(
        name=configuration.name,
        configuration=configuration,
        metrics={score_name(row["metric"], row["k"]): row["mean"] for row in averages},
        queries=averages[0]["n"] if averages else 0,
        chunks=ChunkStatistics(
            count=len(lengths),
            mean=pc.mean(lengths).as_py() or 0.0,
            shortest=extremes["min"],
            longest=extremes["max"],
        ),
        hits=hits,
        scores=scores,
        stages=stages,
    )


def keep(workspace: Workspace, outcome: BenchmarkOutcome) -> Path:
    """Keep the outcome and give back its file."""
    path = workspace.runs / outcome.run / SUMMARY
    write_atomically(path, outcome.model_dump_json(indent=2).encode())
    return path


def conclude(outcome: BenchmarkOutcome, path: Path) -> BenchmarkOutcome:
    """The outcome; raises ``BenchmarkFailedError``, with the file it is kept in, when a configuration failed."""
    if outcome.failures:
        total = len(outcome.failures) + len(outcome.configurations)
        reasons = "; ".join(f"{name} ({reason})" for name, reason in outcome.failures.items())
        raise BenchmarkFailedError(f"{len(outcome.failures)} of {total} configurations failed: {reasons}", path)
    return outcome


def read_outcome(workspace: Workspace, run: str | None = None) -> BenchmarkOutcome:
    """The outcome of a run by its name or the start of it, or of the latest run.

    Raises ``ConfigurationError`` when there is no such run, or more than one.
    """
    names = sorted(path.parent.name for path in workspace.runs.glob(f"*/{SUMMARY}"))
    matching = [name for name in names if name.startswith(run)] if run else names[-1:]
    if len(matching) != 1 and run not in matching:
        known = ", ".join(names[-3:]) or "none"
        problem = "there is no run" if not matching else f"{len(matching)} runs start with"
        raise ConfigurationError(
            f"{problem} {run or 'yet'} in the workspace {str(workspace.root)!r}: the latest are {known}"
        )
    name = run if run in matching else matching[0]
    return BenchmarkOutcome.model_validate_json((workspace.runs / str(name) / SUMMARY).read_bytes())
