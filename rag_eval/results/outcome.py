"""Record the outcome of a run, ``summary.json`` in its folder: averages, tables and work of each configuration."""

import platform
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, PrivateAttr, StringConstraints

from rag_eval.config.models import BenchmarkConfig, BenchmarkRecord, Configuration, ConfigurationRecord
from rag_eval.config.sweep_settings import SearchRecord
from rag_eval.distribution import PRODUCT, VERSION
from rag_eval.errors import BenchmarkFailedError, ConfigurationError, preview
from rag_eval.formatting import choices, counted, percent, suggestion
from rag_eval.ground_truth.copies import count_copies
from rag_eval.ground_truth.truth_files import truth_text
from rag_eval.metrics.formulas import context_cost, strip_metrics
from rag_eval.metrics.metric import ALL, MIN, higher_is_better, split_name
from rag_eval.parts import versions_of
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.inputs import BenchmarkInputs, TruthSource
from rag_eval.pipeline.references import (
    ChunksRef,
    Effort,
    HitsRef,
    IndexFilesRef,
    QueriesRef,
    Result,
    ScoresRef,
    TableRef,
)
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import truth_from_tables
from rag_eval.types.evidence import TRUTH_KINDS


def versions(parts: Iterable[object]) -> dict[str, str]:
    """Return the versions of Python, rag-eval, and the packages that can change results of a run with these parts."""
    used = [name for part in parts for name in getattr(part, "packages", ())]
    packages = {"python": platform.python_version(), PRODUCT: VERSION, **versions_of(["numpy", "tiktoken", *used])}
    return {name: version for name, version in packages.items() if version is not None}


RunName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$")]
"""The name of a run, which is that of its folder."""

StepState = Literal["computed", "cached"]
RUN_TIME = "%Y-%m-%dT%H-%M-%S-%f"
"""How the name of a run begins."""

SUMMARY = "summary.json"
GROUND_TRUTH = "ground_truth.jsonl"
PUBLISHED = "published.json"


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StepRecord(_Outcome):
    """A step of a run: whether it was computed or cached, what computing it cost, and its time in this run."""

    state: StepState
    effort: Effort | None
    seconds: float


class ChunkStatistics(_Outcome):
    """The number of chunks, their lengths in characters, and the number left out."""

    count: int
    mean: float
    shortest: int
    longest: int
    skipped: int = 0

    @classmethod
    def of(cls, shards: Sequence[ChunksRef], skipped: int) -> "ChunkStatistics":
        """Return the statistics of the chunks of all shards."""
        count = sum(shard.rows for shard in shards)
        return cls(
            count=count,
            mean=sum(shard.characters for shard in shards) / count if count else 0.0,
            shortest=min((shard.shortest for shard in shards if shard.rows), default=0),
            longest=max((shard.longest for shard in shards), default=0),
            skipped=skipped,
        )


LEAST_RECALL = 0.95
"""Minimum share of the exact nearest chunks that an approximate index must find to avoid a warning."""


class ConfigurationOutcome(_Outcome):
    """One configuration: its means by metric over so many queries, its tables, and the work it took.

    ``latency_ms`` is the mean time of a query in search and reranking when they were computed, without embedding it,
    all queries asked in one go. ``tokens`` and ``cost`` (US dollars) are what the steps used when they were computed,
    cached vectors being free; None if a part does not tell. ``indexes`` has one for each shard that has its own.
    ``hits`` are those of the last stage. ``searches`` are what was searched, None for the questions as asked, and
    ``allowed`` the documents that their filters leave. ``passages`` are what was returned, None for the hits.
    ``unplaced`` counts answers of a system without a sure place in the documents.
    """

    name: str
    configuration: ConfigurationRecord
    metrics: dict[str, float]
    queries: int
    chunks: ChunkStatistics
    chunk_tables: list[TableRef]
    indexes: list[IndexFilesRef]
    hits: TableRef
    hits_by_stage: dict[str, TableRef]
    scores: TableRef
    steps: dict[str, StepRecord]
    latency_ms: float | None
    tokens: int | None
    cost: float | None
    unplaced: int = 0
    searches: TableRef | None = None
    passages: TableRef | None = None
    allowed: TableRef | None = None

    @property
    def returned(self) -> TableRef:
        """What was scored: the passages, or the hits if they are returned unchanged."""
        return self.hits if self.passages is None else self.passages

    @property
    def notes(self) -> list[str]:
        """Sentences about what was left out, fell back, or counts although it is not in the documents."""
        notes = []
        for effort in (step.effort for step in self.steps.values() if step.effort is not None):
            notes += [f"{count:,} {sentence}." for sentence, count in effort.fallbacks.items()]
            if effort.recall is not None and effort.recall < LEAST_RECALL:
                share = percent(effort.recall, 1)
                more = "index: {type: ivf-pq, nprobes: 100, refine_factor: 20}"
                notes.append(
                    f"the index finds {share} of the nearest chunks on a sample of the questions: use index none, or "
                    f"one that searches more, such as {more}."
                )
        if self.chunks.skipped:
            notes.append(
                f"{counted(self.chunks.skipped, 'chunks')} without a certain place in their document were left out."
            )
        if self.unplaced:
            answers = f"{self.unplaced:,} of {self.hits.rows:,} answers have no certain place in the documents"
            notes.append(f"{answers}, and count as irrelevant text.")
        return [f"{self.name}: {note}" for note in notes]


class ConfigurationFailure(_Outcome):
    """A configuration that failed, and why; ``is_outage`` if a service did not answer, so that a retry may succeed."""

    configuration: ConfigurationRecord
    reason: str
    is_outage: bool = False


class BenchmarkOutcome(_Outcome):
    """One run of a benchmark, with every configuration in the order given.

    ``copied_spans`` of the truth, in ``copied_questions``, have copies that count as evidence. ``failures`` are the
    configurations that failed, by name; ``steps`` are those that all share. ``search`` says how the configurations were
    chosen, None if all were evaluated. ``fingerprint`` is the digest of what the run depends on.
    """

    schema_version: Literal[5] = 5
    run: RunName
    started: AwareDatetime
    seconds: float
    versions: dict[str, str]
    corpus: CorpusSource
    ground_truth: TruthSource
    config: BenchmarkRecord
    documents: int
    answerable: int
    unanswerable: int
    copied_questions: int = 0
    copied_spans: int = 0
    inputs: BenchmarkInputs
    configurations: list[ConfigurationOutcome]
    failures: dict[str, ConfigurationFailure]
    steps: dict[str, StepRecord]
    search: SearchRecord | None = None
    fingerprint: str | None = None

    @property
    def notes(self) -> Iterator[str]:
        """Notes about files that were left out, and the notes of the configurations, with identical ones combined."""
        corpus = self.steps.get("load corpus")
        if corpus and corpus.effort and corpus.effort.skipped:
            files = counted(corpus.effort.skipped, "files")
            yield f"Left out: {files} without readable text; rag-eval validate names them."
        alike: dict[str, list[str]] = {}
        for configuration in self.configurations:
            for note in configuration.notes:
                alike.setdefault(re.sub(r"[\d.,]+", "", note.removeprefix(configuration.name)), []).append(note)
        for first, *others in alike.values():
            yield f"{first[:-1]}; so {counted(len(others), 'other configurations')}." if others else first

    @property
    def ranking_metric(self) -> str:
        """What configurations are ranked, compared and gated by: the objective of the benchmark."""
        return self.config.objective

    @property
    def measured(self) -> list[str]:
        """The metrics that tables show: the objective, the cost of its context, and the requested ones."""
        known, asked, strip = self._known_metrics, self.config.metrics, strip_metrics()
        first = [self.ranking_metric, context_cost(split_name(self.ranking_metric)[1])]
        others = [name for name in known if name in asked or (split_name(name)[0] in asked and name not in strip)]
        return [name for name in dict.fromkeys([*first, *others]) if name in known]

    @property
    def _known_metrics(self) -> dict[str, float]:
        return self.configurations[0].metrics if self.configurations else {}

    @property
    def beside(self) -> list[str]:
        """The metrics beside the objective: at its cut, at one number of hits (its own or the nearest to 5), uncut."""
        hits = split_name(self.ranking_metric)[1].hits or 5
        nearest = min(self.config.k, key=lambda k: (abs(k - hits), k))
        others = [name for name in self.measured if name != self.ranking_metric]
        return [name for name in others if split_name(name)[1].hits in (nearest, None)]

    def by(self, metric: str) -> "BenchmarkOutcome":
        """Return the run ranked by another metric; raises ``ConfigurationError`` if it was not measured."""
        known = self._known_metrics or {metric: 0.0}
        if metric not in known:
            hint = f"{suggestion(metric, known)}: {choices(known, metric)}"
            raise ConfigurationError(f"{self.run} was not measured by {preview(metric)}{hint}")
        return self.model_copy(update={"config": self.config.model_copy(update={"objective": metric})})

    def ranked(self) -> list[ConfigurationOutcome]:
        """Return the configurations, best first by the ranking metric.

        Of equal ones the one with the smaller context comes first, then the better one by the further metrics at the
        same cut, in their order, then the first by name.
        """
        from rag_eval.stats.comparison import best_first  # imports scipy, which is slow

        by = self.ranking_metric
        cuts = (split_name(by)[1], ALL, MIN)
        further = sorted((name for name in self.measured if split_name(name)[1] in cuts), key=higher_is_better)
        signs = {name: -1 if higher_is_better(name) else 1 for name in further if name != by}

        def tie_break(configuration: ConfigurationOutcome) -> tuple[list[float], str]:
            values = [sign * round(configuration.metrics[name], 9) for name, sign in signs.items()]
            return values, configuration.name

        ordered = sorted(self.configurations, key=tie_break)
        means = [configuration.metrics[by] for configuration in ordered]
        return [ordered[number] for number in best_first(means, higher_is_better=higher_is_better(by))]

    def work(self) -> tuple[int, int]:
        """Return how many steps were computed and how many were cached, over the whole run."""
        work = self.work_by_step().values()
        return sum(computed for computed, _, _ in work), sum(cached for _, cached, _ in work)

    def work_by_step(self) -> dict[str, tuple[int, int, list[Effort]]]:
        """Return how often each step was computed and cached, and the efforts of the computed ones.

        Steps are in the order of the pipeline.
        """
        records = [self.steps, *(configuration.steps for configuration in self.configurations)]
        work = {}
        for name in self._step_names():
            steps = [record[name] for record in records if name in record]
            computed = [step for step in steps if step.state == "computed"]
            efforts = [step.effort for step in computed if step.effort is not None]
            work[name] = len(computed), len(steps) - len(computed), efforts
        return work

    def _step_names(self) -> list[str]:
        """Return the steps in the order of the pipeline; a step of few configurations precedes what follows it."""
        order: list[str] = []
        for steps in sorted((configuration.steps for configuration in self.configurations), key=len, reverse=True):
            place = len(order)
            for name in reversed(steps):
                if name in order:
                    place = order.index(name)
                elif name not in self.steps:
                    order.insert(place, name)
        return [*self.steps, *order]


class StepRecorder(BaseModel):
    """Records whether each step of a run was computed or cached, and its cost.

    Shared steps are computed for the first configuration that needs them and cached for the others.
    """

    begun: AwareDatetime
    _counted: set[str] = PrivateAttr(default_factory=set)
    _guard: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def record(self, results: Sequence[Result]) -> StepRecord:
        """Return the record of a step, given its results, one for each shard."""
        computed = {f"{result.made} {result.key_data}" for result in results if self._is_new(result)}
        with self._guard:  # the subflows of a run end in different threads
            is_computed = not computed <= self._counted
            self._counted |= computed
        # The cached shards of a computed step took no time in this run.
        efforts = [
            result.effort if self._is_new(result) or not is_computed else result.effort.cached()
            for result in results
            if result.effort is not None
        ]
        return StepRecord(
            state="computed" if is_computed else "cached",
            effort=Effort.total_of(efforts) if efforts else None,
            seconds=round(sum(effort.seconds for effort in efforts), 3) if is_computed else 0.0,
        )

    def _is_new(self, result: Result) -> bool:
        return result.made is not None and result.made >= self.begun


@dataclass(frozen=True)
class Evaluated:
    """The results of a configuration's steps; ``steps`` has all results by step name, in order."""

    configuration: Configuration
    steps: Mapping[str, Sequence[Result]]
    chunks: Sequence[ChunksRef]
    indexes: Sequence[IndexFilesRef]
    searched: QueriesRef | None
    hits: HitsRef
    scores: ScoresRef

    def summary(self, recorder: StepRecorder, queries: int) -> ConfigurationOutcome:
        """Return the outcome of the configuration, for so many queries."""
        steps = {name: recorder.record(results) for name, results in self.steps.items()}
        efforts = [step.effort for step in steps.values() if step.effort is not None]
        allowed = None if self.searched is None else self.searched.allowed
        # Without a rewriter and a filter, the questions are searched as asked.
        is_asked = self.configuration.queries is None and allowed is None
        return ConfigurationOutcome(
            name=self.configuration.name,
            configuration=self.configuration.record(),
            metrics=self.scores.means,
            queries=self.scores.queries,
            chunks=ChunkStatistics.of(self.chunks, sum(effort.skipped for effort in efforts)),
            chunk_tables=[chunks.table for chunks in self.chunks],
            indexes=list(self.indexes),
            hits=self.hits.last,
            hits_by_stage=self.hits.stages,
            scores=self.scores.table,
            steps=steps,
            latency_ms=round(1_000 * sum(effort.query_seconds for effort in efforts) / queries, 6) if queries else None,
            tokens=_total([effort.tokens for effort in efforts]),
            cost=_total([effort.cost for effort in efforts]),
            unplaced=self.hits.unplaced,
            searches=None if self.searched is None or is_asked else self.searched.searches,
            passages=self.hits.passages,
            allowed=allowed,
        )


N = TypeVar("N", int, float)


def _total(values: Sequence[N | None]) -> N | None:
    """Return the sum, or None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def keep_outcome(
    workspace: Workspace,
    started: datetime,
    config: BenchmarkConfig,
    corpus: CorpusSource,
    inputs: BenchmarkInputs,
    configurations: list[ConfigurationOutcome],
    failures: dict[str, ConfigurationFailure],
    steps: dict[str, StepRecord],
    search: SearchRecord | None = None,
    fingerprint: str | None = None,
) -> BenchmarkOutcome:
    """Write the outcome of a run that ends now to the workspace, and return it."""
    tables = workspace.read_truth(inputs.truth)
    unanswerable = sum(tables.queries.column("unanswerable").to_pylist())
    copied_questions, copied_spans = count_copies(tables.answers)
    now = datetime.now(UTC)
    outcome = BenchmarkOutcome(
        run=f"{now:{RUN_TIME}}-" + secrets.token_hex(4),
        started=started,
        seconds=round((now - started).total_seconds(), 3),
        versions=versions(config.parts()),
        config=BenchmarkRecord.of(config),
        corpus=corpus,
        ground_truth=TruthSource.of(config, inputs.truth),
        documents=sum(shard.rows for shard in inputs.documents),
        answerable=tables.queries.num_rows - unanswerable,
        unanswerable=unanswerable,
        copied_questions=copied_questions,
        copied_spans=copied_spans,
        inputs=inputs,
        configurations=configurations,
        failures=failures,
        steps=steps,
        search=search,
        fingerprint=fingerprint,
    )
    # As scored: joined, and re-anchored in the documents.
    truth: list[Any] = truth_from_tables(tables, TRUTH_KINDS[inputs.evaluation_type])
    workspace.write_file(workspace.runs / outcome.run / GROUND_TRUTH, truth_text(truth).encode())
    workspace.write_file(workspace.runs / outcome.run / SUMMARY, outcome.model_dump_json(indent=2).encode())
    return outcome


def checked(workspace: Workspace, outcome: BenchmarkOutcome) -> BenchmarkOutcome:
    """Return the outcome; raises ``BenchmarkFailedError`` if a configuration failed."""
    if not outcome.failures:
        return outcome
    names: dict[str, list[str]] = {}
    for name, failure in outcome.failures.items():
        names.setdefault(failure.reason, []).append(name)
    reasons = []
    for reason, (first, *others) in names.items():
        more = f" and {others[0]}" if len(others) == 1 else f" and {len(others)} others" * bool(others)
        reasons.append(f"{first}{more} ({reason})")
    total = len(outcome.failures) + len(outcome.configurations)
    raise BenchmarkFailedError(
        f"{len(outcome.failures)} of {total} configurations failed: {'; '.join(reasons)}",
        workspace.runs / outcome.run / SUMMARY,
    )
