"""Run benchmarks without a Prefect server: the flows and tasks as they are, each run at once in this thread.

Nothing is cached. What Prefect does for a task run is in ``_run``; the pipeline itself is that of ``flows``.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from prefect import Flow, Task, unmapped
from prefect.client.schemas.objects import State
from prefect.exceptions import UpstreamTaskError
from prefect.futures import PrefectFuture, PrefectFutureList, PrefectTaskRunFuture
from prefect.states import Completed, Failed

import flows.benchmark
import flows.sweep
import tasks.artifacts
import tasks.ground_truth
from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import chunkings
from rag_eval.pipeline.references import ChunksRef, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, Evaluated, StepRecorder
from rag_eval.sweep.guided import Choice, TextCosts
from tasks.chunk import add_context, chunk
from tasks.conclude import conclude
from tasks.corpus import find_documents, load_corpus
from tasks.runners import threads

Results = dict[str, list[Any]]
"""What the task runs returned, by the name of the task."""


class _Ended(PrefectTaskRunFuture[Any]):
    """The future of a task run that has ended."""

    def __init__(self, state: State[Any]) -> None:
        super().__init__(uuid4())
        self._final_state = state

    def wait(self, timeout: float | None = None) -> None:
        pass

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> Any:
        if raise_on_failure and isinstance(self.state.data, Exception):
            raise self.state.data
        return self.state.data

    def add_done_callback(self, fn: Callable[[PrefectFuture[Any]], None]) -> None:
        fn(self)


def _resolved(value: Any) -> Any:
    if isinstance(value, PrefectFuture):
        if isinstance(value.state.data, Exception):
            raise UpstreamTaskError("an input failed")
        return value.result()
    if isinstance(value, Mapping):
        return {name: _resolved(part) for name, part in value.items()}
    return [_resolved(part) for part in value] if type(value) in (list, tuple, PrefectFutureList) else value


@contextmanager
def _in_this_thread() -> Iterator[Results]:
    """Run tasks and flows where they are called or submitted; gives what the tasks return."""
    results: Results = {}

    def run(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = task.fn(*_resolved(args), **_resolved(kwargs))
        results.setdefault(task.name, []).append(result)
        return result

    def submit(task: Task[..., Any], *args: Any, **kwargs: Any) -> _Ended:
        try:
            return _Ended(Completed(data=run(task, *args, **kwargs)))
        except Exception as error:  # noqa: BLE001  # as Prefect does
            return _Ended(Failed(data=error))

    def mapped(task: Task[..., Any], *args: Any, workspace: Any) -> PrefectFutureList[_Ended]:
        (count,) = {len(value) for value in args if not isinstance(value, unmapped)}
        rows = ([value.value if isinstance(value, unmapped) else value[row] for value in args] for row in range(count))
        return PrefectFutureList([submit(task, *row, workspace=workspace.value) for row in rows])

    with pytest.MonkeyPatch.context() as prefect:
        prefect.setattr(Task, "__call__", run)
        prefect.setattr(Task, "submit", submit)
        prefect.setattr(Task, "map", mapped)
        prefect.setattr(Flow, "__call__", lambda flow, *args, **kwargs: flow.fn(*args, **kwargs))
        prefect.setattr(tasks.artifacts, "create_markdown_artifact", lambda **kwargs: None)
        yield results


def load_documents(workspace: Workspace, config: BenchmarkConfig) -> list[TableRef]:
    """Load the documents of a benchmark, in shards."""
    with _in_this_thread():
        sources = find_documents(config.corpus, config.glob, config.loaders, config.corpus_shards)
        return load_corpus.map(sources, workspace=unmapped(workspace)).result()


def load_truth(
    workspace: Workspace, config: BenchmarkConfig, documents: list[TableRef], *, reanchor: bool = False
) -> TruthRef:
    """Load the ground truth of a benchmark, joined, with copies."""
    level = config.evaluation_type
    with _in_this_thread():
        return tasks.ground_truth.ground_truth(
            config.ground_truth, documents, level, reanchor, config.copies, workspace=workspace
        )


def load_inputs(workspace: Workspace, config: BenchmarkConfig, *, reanchor: bool = False) -> BenchmarkInputs:
    """Load the documents and the ground truth of a benchmark."""
    documents = load_documents(workspace, config)
    return BenchmarkInputs.of(config, documents, load_truth(workspace, config, documents, reanchor=reanchor))


def cut(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> list[ChunksRef]:
    """Return the chunks of a configuration, with their context."""
    chunker: Any = configuration.chunker
    chunks = [chunk.fn(shard, chunker, inputs.chunk_truth, workspace=workspace) for shard in inputs.documents]
    if configuration.context is None:
        return chunks
    pairs = zip(chunks, inputs.documents, strict=True)
    context = configuration.context
    return [add_context.fn(shard, documents, context, workspace=workspace) for shard, documents in pairs]


def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> Evaluated:
    """Return what the tasks of a configuration return, by the name of the task."""
    recorder = StepRecorder(begun=datetime.now(UTC))
    with _in_this_thread() as results:
        flows.benchmark.evaluate(chunkings([configuration])[0], inputs, recorder, threads(), workspace=workspace)
    del results["evaluate"]
    indexes = [*results.get("index_vectors", []), *results.get("index_engine", [])]
    return Evaluated(
        configuration,
        results,
        chunks=results.get("add_context") or results.get("chunk", []),
        indexes=[index.store for index in indexes if index.store is not None],
        searched=next(iter(results.get("prepare_queries", [])), None),
        hits=(results.get("retrieve") or results["ask_system"])[0],
        scores=results["score"][0],
    )


def text_costs(workspace: Workspace, configurations: Sequence[Configuration], inputs: BenchmarkInputs) -> TextCosts:
    """Count the texts that configurations would embed."""
    with _in_this_thread():
        return flows.sweep.text_costs(configurations, inputs, workspace)


def choose_configurations(workspace: Workspace, config: BenchmarkConfig, inputs: BenchmarkInputs) -> Choice:
    """Choose the configurations that the benchmark evaluates."""
    recorder = StepRecorder(begun=datetime.now(UTC))
    with _in_this_thread():
        guided = flows.sweep.guide_configurations(config)
        guides = flows.benchmark.evaluate_all(guided, inputs, recorder, threads(), workspace)
        return flows.sweep.choose_configurations(config, inputs, workspace, guides)


def run_benchmark(
    workspace: Workspace,
    config: BenchmarkConfig,
    configurations: Sequence[Configuration] | None = None,
    *,
    reanchor: bool = False,
) -> BenchmarkOutcome:
    """Run a benchmark and store it without a report; configurations that fail are in its failures."""
    recorder, workspace = StepRecorder(begun=datetime.now(UTC)), workspace.start_run()
    inputs = load_inputs(workspace, config, reanchor=reanchor)
    choice = choose_configurations(workspace, config, inputs)
    if configurations is not None:
        choice = Choice(list(configurations))
    with _in_this_thread():
        results = flows.benchmark.evaluate_all(choice.configurations, inputs, recorder, threads(), workspace)
        sources = find_documents(config.corpus, config.glob, config.loaders, config.corpus_shards)
        return conclude(config, recorder, sources, inputs, choice, results, reanchor, workspace=workspace)


def cache_key(task: Task[..., Any], *given: object) -> str | None:
    """Return the cache key of a task with these inputs, of which the last is the workspace."""
    *inputs, workspace = given
    called = inspect.signature(task.fn).bind(*inputs, workspace=workspace)
    called.apply_defaults()
    key: str | None = task.cache_policy.compute_key(None, called.arguments, {})  # type: ignore[arg-type]
    return key
