"""What became of the task runs: the outcome of each configuration, or why it failed, and of the whole run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from tasks.retrieve import RankingFutures

Futures = Sequence[PrefectFuture[Any]]


INDEX_STEPS = {"index": "index vectors", "sums": "sum vectors", "postings": "index words", "statistics": "sum words"}
"""The steps that build what a retriever searches, by the names that an index has them under."""


@dataclass(frozen=True)
class ConfigurationRuns:
    """The task runs of one configuration."""

    configuration: Configuration
    hits: PrefectFuture[HitsRef]
    scores: PrefectFuture[ScoresRef]
    cut: Futures = ()
    chunks: Futures = ()
    """The chunks with what is searched around them; as they were cut, where that is nothing."""
    vectors: Futures = ()
    rankings: Sequence[RankingFutures] = ()

    @property
    def searched(self) -> Futures:
        """Return the task run that prepared the queries, where there is one."""
        return [one["queries"] for one in self.rankings[:1]]

    @property
    def indexes(self) -> Futures:
        """Return the task runs that built indexes of vectors."""
        runs = [run for one in self.rankings for run in one["index"].get("index", ())]
        return list({id(run): run for run in runs}.values())

    def steps(self) -> Iterator[tuple[str, Futures]]:
        """Yield the task runs by the name of the step, in the order of the pipeline."""
        yield "chunk", self.cut
        yield "add context", () if self.chunks is self.cut else self.chunks
        yield "embed", self.vectors
        for one in self.rankings:
            for name, title in INDEX_STEPS.items():
                runs = one["index"].get(name, ())
                yield title, [runs] if isinstance(runs, PrefectFuture) else runs
        yield "prepare queries", self.searched
        for one in self.rankings:
            yield f"search {one['name']}", one["hits"]
        yield "retrieve", (self.hits,)
        yield "score", (self.scores,)


def outcomes_of(runs: Sequence[ConfigurationRuns], recorder: StepRecorder, queries: int) -> list[ConfigurationOutcome]:
    """Wait for the task runs of configurations, and return their outcomes.

    Raises:
        EvaluationFailedError: Some configurations failed; it has the outcomes of the others.
    """

    def results(futures: Futures) -> list[Any]:
        return [one.result() for one in futures]

    done: list[ConfigurationOutcome] = []
    failed: dict[str, ConfigurationFailure] = {}
    for one in runs:
        steps: dict[str, Futures] = {}
        for name, futures in one.steps():
            if futures:  # two retrievers may have a step each, or share it
                steps[name] = list(dict.fromkeys([*steps.get(name, ()), *futures]))
        error = first_error([future for futures in steps.values() for future in futures])
        if error is not None:
            failed[one.configuration.name] = failure_of(one.configuration, error)
            continue
        evaluated = Evaluated(
            configuration=one.configuration,
            steps={name: results(futures) for name, futures in steps.items()},
            chunks=results(one.chunks),
            indexes=results(one.indexes),
            searched=next(iter(results(one.searched)), None),
            hits=results([one.hits])[0],
            scores=results([one.scores])[0],
        )
        done.append(evaluated.summary(recorder, queries))
    if failed:
        raise EvaluationFailedError(f"failed: {', '.join(failed)}", done, failed)
    return done


def first_error(futures: Futures) -> BaseException | None:
    """Return what the first task run that failed raised, rather than one that was not run for it; None without any."""
    found: BaseException | None = None
    for future in futures:
        future.wait()
        if not future.state.is_completed():
            error = future.state.result(raise_on_failure=False)
            found = error if isinstance(error, BaseException) else RagEvalError(str(future.state.message))
            if not isinstance(found, UpstreamTaskError):
                return found
    return found


def failure_of(configuration: Configuration, error: BaseException) -> ConfigurationFailure:
    """Return what a run records of a configuration that failed with this error."""
    return ConfigurationFailure(
        configuration=configuration.record(), reason=as_sentence(error), is_outage=is_outage(error)
    )


class Gathered(NamedTuple):
    """The outcomes of configurations, in the order given, and the failures by name."""

    outcomes: list[ConfigurationOutcome]
    failures: dict[str, ConfigurationFailure]


def gather(chunkings: Sequence[Chunking], futures: Futures) -> Gathered:
    """Wait for the subflows of chunkings, and return what became of their configurations."""
    outcomes: dict[str, ConfigurationOutcome] = {}
    failures: dict[str, ConfigurationFailure] = {}
    for chunking, future in zip(chunkings, futures, strict=True):
        error = first_error([future])
        if error is None:
            done = future.result()
        elif isinstance(error, EvaluationFailedError):
            done = error.outcomes
            failures |= error.failures
        else:
            done = []
            failures |= {one.name: failure_of(one, error) for one in chunking.configurations}
        outcomes |= {one.name: one for one in done}
    return Gathered(list(outcomes.values()), failures)


def conclude(
    workspace: Workspace,
    config: BenchmarkConfig,
    work: StepRecorder,
    files: Sequence[CorpusSource],
    inputs: BenchmarkInputs,
    choice: Choice,
    found: Gathered,
    reanchor: bool,
) -> BenchmarkOutcome:
    """Write the summary of a run into the workspace, configurations in the order of the benchmark."""
    shared: dict[str, Sequence[Result]] = {"load corpus": inputs.documents, "load ground truth": [inputs.truth]}
    order = {one.name: number for number, one in enumerate(choice.configurations)}
    corpus = CorpusSource.joined(files)
    is_finished = not any(one.effort is not None and one.effort.unfinished for one in (*inputs.documents, inputs.truth))
    return keep_outcome(
        workspace,
        work.begun,
        config,
        corpus,
        inputs,
        sorted(found.outcomes, key=lambda one: order[one.name]),
        dict(sorted(found.failures.items(), key=lambda item: order[item[0]])),
        {name: work.record(results) for name, results in shared.items()},
        choice.judged({one.name: workspace.read_table(one.scores) for one in found.outcomes}),
        fingerprint(config, corpus, inputs.truth.source, reanchor=reanchor) if is_finished else None,
    )
