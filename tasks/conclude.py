"""Conclude a run: the outcome of each configuration or the reason why it failed, and the outcome of the whole run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import UpstreamTaskError
from prefect.futures import PrefectFuture

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.errors import EvaluationFailedError, RagEvalError, as_sentence, is_outage
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import Chunking
from rag_eval.pipeline.references import HitsRef, Result, ScoresRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import (
    BenchmarkOutcome,
    ConfigurationFailure,
    ConfigurationOutcome,
    Evaluated,
    StepRecorder,
    keep_outcome,
)
from rag_eval.results.unchanged import fingerprint
from rag_eval.sweep.guided import Choice
from tasks.retrieve import SearchRuns

Futures = Sequence[PrefectFuture[Any]]


@dataclass(frozen=True)
class ConfigurationRuns:
    """The task runs of one configuration."""

    configuration: Configuration
    hits: PrefectFuture[HitsRef]
    scores: PrefectFuture[ScoresRef]
    cut: Futures = ()
    chunks: Futures = ()
    """Chunks with their context; the same as ``cut`` without a context."""
    vectors: Futures = ()
    sums: Futures | None = None
    searches: Sequence[SearchRuns] = ()

    def steps(self) -> dict[str, list[PrefectFuture[Any]]]:
        """Return the task runs by the name of the step, in the order of the pipeline, each run once."""
        steps: list[tuple[str, Futures]] = [("chunk", self.cut), ("embed", self.vectors)]
        if self.chunks is not self.cut:
            steps.insert(1, ("add context", self.chunks))
        steps += [item for search in self.searches for item in search.index.steps.items()]
        steps += [("sum vectors", self.sums or ())]
        steps += [("prepare queries", [search.queries]) for search in self.searches[:1]]
        steps += [(f"search {search.name}", search.rankings) for search in self.searches]
        steps += [("retrieve", [self.hits]), ("score", [self.scores])]
        by_name: dict[str, list[PrefectFuture[Any]]] = {}
        for name, runs in steps:
            if runs:  # retrievers may share a step
                by_name[name] = list(dict.fromkeys([*by_name.get(name, ()), *runs]))
        return by_name

    def evaluated(self) -> Evaluated:
        """Return the results of the task runs, all of which have completed."""
        steps = {name: [run.result() for run in runs] for name, runs in self.steps().items()}
        indexes = [*steps.get("index vectors", []), *steps.get("index engine", [])]
        return Evaluated(
            configuration=self.configuration,
            steps=steps,
            chunks=[run.result() for run in self.chunks],
            indexes=[index.store for index in indexes if index.store is not None],
            searched=next(iter(steps.get("prepare queries", [])), None),
            hits=self.hits.result(),
            scores=self.scores.result(),
        )


def outcomes_of(runs: Sequence[ConfigurationRuns], recorder: StepRecorder, queries: int) -> list[ConfigurationOutcome]:
    """Wait for the task runs of configurations, and return their outcomes.

    Raises:
        EvaluationFailedError: Some configurations failed; the error has the outcomes of the others.
    """
    outcomes: list[ConfigurationOutcome] = []
    failures: dict[str, ConfigurationFailure] = {}
    for run in runs:
        error = first_error([future for futures in run.steps().values() for future in futures])
        if error is None:
            outcomes.append(run.evaluated().summary(recorder, queries))
        else:
            failures[run.configuration.name] = failure_of(run.configuration, error)
    if failures:
        raise EvaluationFailedError(f"failed: {', '.join(failures)}", outcomes, failures)
    return outcomes


def first_error(futures: Futures) -> BaseException | None:
    """Wait for task runs, and return the first error that is not due to a failed input; None if all completed."""
    first: BaseException | None = None
    for future in futures:
        future.wait()
        if not future.state.is_completed():
            error = future.result(raise_on_failure=False)  # not from the state, which is awaited in an event loop
            first = error if isinstance(error, BaseException) else RagEvalError(str(future.state.message))
            if not isinstance(first, UpstreamTaskError):
                return first
    return first


def failure_of(configuration: Configuration, error: BaseException) -> ConfigurationFailure:
    """Return the record of a configuration that failed with this error."""
    return ConfigurationFailure(
        configuration=configuration.record(), reason=as_sentence(error), is_outage=is_outage(error)
    )


class Gathered(NamedTuple):
    """Outcomes of configurations, in the order given, and failures by name."""

    outcomes: list[ConfigurationOutcome]
    failures: dict[str, ConfigurationFailure]


def gather(chunkings: Sequence[Chunking], futures: Futures) -> Gathered:
    """Wait for the subflows of chunkings, and return the outcomes and failures of their configurations."""
    outcomes: dict[str, ConfigurationOutcome] = {}
    failures: dict[str, ConfigurationFailure] = {}
    for chunking, future in zip(chunkings, futures, strict=True):
        error = first_error([future])
        finished: Sequence[ConfigurationOutcome] = []
        if error is None:
            finished = future.result()
        elif isinstance(error, EvaluationFailedError):
            finished = error.outcomes
            failures |= error.failures
        else:
            failures |= {failed.name: failure_of(failed, error) for failed in chunking.configurations}
        outcomes |= {outcome.name: outcome for outcome in finished}
    return Gathered(list(outcomes.values()), failures)


@task(cache_policy=NO_CACHE, task_run_name="conclude")
def conclude(
    config: BenchmarkConfig,
    recorder: StepRecorder,
    sources: Sequence[CorpusSource],
    inputs: BenchmarkInputs,
    choice: Choice,
    results: Gathered,
    reanchor: bool = False,
    *,
    workspace: Workspace,
) -> BenchmarkOutcome:
    """Write the outcome of a run into the workspace, with its configurations in the order of the benchmark.

    Args:
        config: The benchmark.
        recorder: Has recorded the steps of the run.
        sources: The files of the documents, from ``find_documents``.
        inputs: What all configurations were given.
        choice: The configurations that were chosen.
        results: The outcomes of the subflows.
        reanchor: Whether spans of the ground truth were moved.
        workspace: Where the run is stored.
    """
    shared: dict[str, Sequence[Result]] = {"load corpus": inputs.documents, "load ground truth": [inputs.truth]}
    order = {configuration.name: number for number, configuration in enumerate(choice.configurations)}
    corpus = CorpusSource.joined(sources)
    efforts = [result.effort for result in (*inputs.documents, inputs.truth) if result.effort is not None]
    is_finished = not any(effort.unfinished for effort in efforts)
    return keep_outcome(
        workspace,
        recorder.begun,
        config,
        corpus,
        inputs,
        sorted(results.outcomes, key=lambda outcome: order[outcome.name]),
        dict(sorted(results.failures.items(), key=lambda item: order[item[0]])),
        {name: recorder.record(part) for name, part in shared.items()},
        choice.record,
        fingerprint(config, corpus, inputs.truth.source, reanchor=reanchor) if is_finished else None,
    )
