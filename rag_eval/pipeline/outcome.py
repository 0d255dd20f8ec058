"""What a benchmark found: the averages of each configuration, and what was computed or reused for it."""

import secrets
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rag_eval.config.benchmark import Configuration
from rag_eval.errors import BenchmarkFailedError
from rag_eval.files import write_atomically
from rag_eval.metrics.table import average_scores, score_name
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace

Work = Literal["computed", "reused"]


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ConfigurationOutcome(_Outcome):
    """One configuration: its averages by metric@k, over how many queries, and the work it took."""

    name: str
    configuration: Configuration
    metrics: dict[str, float]
    queries: int
    chunks: int
    scores: TableRef
    stages: dict[str, Work]


class BenchmarkOutcome(_Outcome):
    """A whole benchmark, configurations in the order they were given."""

    run: str
    documents: int
    answerable: int
    unanswerable: int
    configurations: list[ConfigurationOutcome]
    failures: dict[str, str]
    stages: dict[str, Work]

    def ranked(self, metric: str) -> list[ConfigurationOutcome]:
        """The configurations, best first by one metric; equal ones in the order they were given."""
        return sorted(self.configurations, key=lambda outcome: -outcome.metrics[metric])

    def work(self) -> tuple[int, int]:
        """How many stage runs were computed and how many reused, over the whole benchmark."""
        done = list(self.stages.values()) + [work for one in self.configurations for work in one.stages.values()]
        return done.count("computed"), done.count("reused")


def summarise(
    workspace: Workspace, configuration: Configuration, chunks: TableRef, scores: TableRef, stages: dict[str, Work]
) -> ConfigurationOutcome:
    """The averages of a configuration's scores."""
    averages = average_scores(workspace.read_table(scores)).to_pylist()
    return ConfigurationOutcome(
        name=configuration.name,
        configuration=configuration,
        metrics={score_name(row["metric"], row["k"]): row["mean"] for row in averages},
        queries=averages[0]["n"],
        chunks=chunks.rows,
        scores=scores,
        stages=stages,
    )


def count_answerable(workspace: Workspace, queries: TableRef) -> tuple[int, int]:
    """How many queries can be answered, and how many are declared unanswerable."""
    unanswerable = sum(workspace.read_table(queries).column("unanswerable").to_pylist())
    return queries.rows - unanswerable, unanswerable


def conclude(workspace: Workspace, outcome: BenchmarkOutcome) -> BenchmarkOutcome:
    """Keep the outcome and give it back; raises ``BenchmarkFailedError`` when a configuration failed."""
    path = workspace.runs / outcome.run / "summary.json"
    write_atomically(path, outcome.model_dump_json(indent=2).encode())
    if outcome.failures:
        total = len(outcome.failures) + len(outcome.configurations)
        reasons = "; ".join(f"{name} ({reason})" for name, reason in outcome.failures.items())
        raise BenchmarkFailedError(f"{len(outcome.failures)} of {total} configurations failed: {reasons}", path)
    return outcome


def new_run_name() -> str:
    """A name for a run that sorts by time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-") + secrets.token_hex(2)
