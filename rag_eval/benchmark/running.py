"""Running a benchmark: its stages one after another, its configurations side by side, and telling listeners about it.

Here everything is done in this process, at once; ``tasks`` does the same work as tasks of Prefect.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeVar

from rag_eval.benchmark import stages
from rag_eval.benchmark.config import THREADS, BenchmarkConfig, Configuration
from rag_eval.benchmark.engine import evaluate
from rag_eval.benchmark.grid_search import Rounds, Settled, search_grid
from rag_eval.benchmark.housekeeping import notice_first_version
from rag_eval.benchmark.outcome import (
    BenchmarkOutcome,
    ConfigurationFailure,
    ConfigurationOutcome,
    StageWork,
    Work,
    keep_outcome,
    summarise,
)
from rag_eval.benchmark.records import Doing, Done, Inputs, alone, do_once, find_record
from rag_eval.benchmark.references import BenchmarkInputs, CorpusSource, Effort, effort_of
from rag_eval.benchmark.stage import Stage, unused_name
from rag_eval.benchmark.truth_stages import ground_truth
from rag_eval.benchmark.workers import cores, current_workers, ending_work, width, working_by
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import (
    ArtifactError,
    ConfigurationFailedError,
    DamagedError,
    ServiceError,
    as_sentence,
    is_outage,
)
from rag_eval.parts import is_part, is_remote
from rag_eval.progress import followed, listening_to
from rag_eval.retry import STAGE_DELAYS

R = TypeVar("R")
logger = logging.getLogger("rag_eval.benchmark")

Status = Literal["started", "waiting", "retrying", "computed", "reused", "failed", "told"] | Settled
SEARCH = "search"
"""The stage of what a search tells: of a configuration that it need not be evaluated, of all what is spent."""

ELSEWHERE = "another process is at work on it"
MOST_MENDED = 8
"""As many stages as a configuration has; each may be damaged."""
TOLD_AFTER = 2.0
"""Seconds of waiting for another process that are nobody's concern."""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A stage of a configuration (None: of the whole benchmark) has changed its status.

    ``reason`` says why a stage waits, is retried or has failed, or what is told; None otherwise. A stage that has
    started tells again how much is ``done`` of how much, where it knows.
    """

    configuration: str | None
    stage: str
    status: Status
    reason: str | None = None
    done: tuple[int, int] | None = None


Listener = Callable[[StageEvent], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every event of this process, from the threads that do the work."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(*event: Any, **more: Any) -> None:
    """Tell every listener of a ``StageEvent``, which is given by its fields."""
    for listener in list(_listeners):
        listener(StageEvent(*event, **more))


@contextmanager
def going_on(what: str) -> Iterator[None]:
    """Say in the log what goes wrong in the block, and go on without it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # hours of work must not end in an error of what is made of them
        logger.warning("%s: %s", what, as_sentence(error))


# Tokenizers, numpy and LanceDB use several cores each, and Python code one at a time: as many stages as cores would
# take a third more CPU time and no less real time.
_computing = threading.BoundedSemaphore(max(1, cores() // 2))


def room_to_compute(*, remote: bool) -> AbstractContextManager[object]:
    """Wait until a stage may compute; one that mostly waits for a service need not wait for others too."""
    return nullcontext() if remote else _computing


@dataclass(frozen=True)
class NamedWork:
    """Work to be done once under a name, and again after each of the delays when a service does not answer.

    ``tells`` is called with a status and a reason. The rest is for who shows it: what this time is called, what the
    work is, and its version.
    """

    name: str
    work: Callable[[], Done]
    tells: Callable[..., None]
    delays: Sequence[float] = ()
    title: str | None = None
    description: str | None = None
    version: str | None = None

    def is_tried_again(self, error: object) -> bool:
        """Whether another attempt can help after this error, which is told."""
        if not isinstance(error, Exception) or not is_outage(error):
            return False
        self.tells("retrying", as_sentence(error))
        return True


Evaluations = tuple[list[ConfigurationOutcome], dict[str, ConfigurationFailure]]
"""The outcomes in the order given, and the failures by the names of the configurations."""

EvaluateAll = Callable[[Workspace, list[Configuration], BenchmarkInputs], Evaluations]

Do = Callable[[NamedWork], Done]
"""Does work, and raises what it raises."""


def at_once(named: NamedWork) -> Done:
    """Do work here and now."""
    for delay in named.delays:
        try:
            return named.work()
        except Exception as error:
            if not named.is_tried_again(error):
                raise
        time.sleep(delay)
    return named.work()


class StageRunner:
    """Runs stages in one workspace; ``work`` says for each whether it computed or a kept result served."""

    def __init__(
        self,
        workspace: Workspace,
        configuration: str | None = None,
        *,
        do: Do = at_once,
        retry_delays: Sequence[float] | None = None,
        told_after: float = TOLD_AFTER,
    ) -> None:
        self._workspace, self._do = workspace, do
        self._tell = functools.partial(tell, configuration)
        self._retry_delays = STAGE_DELAYS if retry_delays is None else retry_delays
        self._told_after = told_after
        self.work: dict[str, StageWork] = {}
        self._before: dict[str, StageWork] = {}  # what was computed before work was begun again

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        """The stage's result; raises what the stage raised."""
        started, name = time.perf_counter(), unused_name(stage.name, self.work)

        def note(work: Work, effort: Effort | None = None, key: str | None = None, reason: str | None = None) -> None:
            done = StageWork(work=work, effort=effort, seconds=round(time.perf_counter() - started, 3), key=key)
            self.work[name] = self._before.get(name, done) if work == "reused" else done
            self._tell(name, work, reason)

        self._tell(name, "started")
        try:
            done = self._do(self._named(stage, name, *inputs))
        except Exception as error:
            note("failed", reason=as_sentence(error))
            raise
        note("reused" if done.was_kept else "computed", effort_of(done.result), done.key)
        return done.result

    def mending(self, work: Callable[[], R]) -> R:
        """Return what work with these stages gives; where a kept table turns out to be damaged, begin again.

        It is no longer found by then, so that the stage that made it makes it anew. Raises ``DamagedError`` when that
        is of no use: it is none of these stages' own, or as many as there are were damaged.
        """
        for _ in range(MOST_MENDED):
            try:
                return work()
            except DamagedError as error:
                logger.warning("%s", error)
                self._before |= {name: done for name, done in self.work.items() if done.work == "computed"}
                self.work = {}
        return work()

    def _named(self, stage: Stage, name: str, *inputs: Any) -> NamedWork:
        """The work that gives the kept result of the stage, or makes and keeps it.

        A stage with a part that uses the network is tried again when the service fails, unless it refuses what it is
        sent; no other is.
        """
        remote = any(is_remote(one) if is_part(one) else getattr(one, "remote", False) for one in inputs)
        tells, delays = functools.partial(self._tell, name), self._retry_delays if remote else ()
        doing = _Computing(self._do, tells, self._told_after, remote=remote)
        work = functools.partial(do_once, self._workspace, stage, inputs, doing)
        described = {"description": stage.compute.__doc__, "version": str(stage.version)}
        return NamedWork(stage.name, work, tells, delays, **described)

    @contextmanager
    def accounting(self) -> Iterator[Self]:
        """Have whatever fails in the block raise ``ConfigurationFailedError`` with the work done until then."""
        try:
            yield self
        except Exception as error:
            raise ConfigurationFailedError(as_sentence(error), self.work, is_outage(error)) from error


class RoundRunner(Rounds):
    """Runs the stages of a search within its rounds: a round is work of a name, kept where all of it was."""

    def __init__(self, workspace: Workspace, do: Do = at_once) -> None:
        self._workspace, self._do, self._computed = workspace, do, 0

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        """Return what a stage makes, kept or made now."""
        doing = _Computing(self._do, lambda *_, **__: None, TOLD_AFTER, remote=False)
        result, _, was_kept = do_once(self._workspace, stage, inputs, doing)
        self._computed += not was_kept
        return result

    def do(self, name: str, work: Callable[[], R]) -> R:
        """Do a round, again where a service did not answer; listeners are told. It is named by the first word."""
        tells, before = functools.partial(tell, None, name), self._computed

        def measure() -> Done:
            result = work()
            return Done(result, "", was_kept=self._computed == before)

        tells("started")
        done = self._do(NamedWork(name.split()[0], measure, tells, STAGE_DELAYS, title=name))
        tells("reused" if done.was_kept else "computed")
        result: R = done.result
        return result

    def tell_spent(self, told: str) -> None:
        tell(None, SEARCH, "told", told)

    def settle(self, name: str, status: Settled) -> None:
        tell(name, SEARCH, status)


class _Computing(Doing):
    """Computes by the workers that are set, pieces at once, and tells when another process is waited for."""

    def __init__(self, do: Do, tells: Callable[..., None], told_after: float, *, remote: bool) -> None:
        self._do, self._tells, self._told_after, self._remote = do, tells, told_after, remote
        self._is_divided = False

    def each(self, work: Callable[[Inputs], Done], pieces: list[Inputs]) -> list[Done]:
        contexts, workers = [copy_context() for _ in pieces], current_workers()
        self._is_divided = True
        with ThreadPoolExecutor(max_workers=cores() if workers is None else workers.width) as threads:
            done = threads.map(lambda context, piece: context.run(work, piece), contexts, pieces)
            with listening_to(self._tell_progress):
                return [one for one, _ in zip(done, followed(pieces), strict=True)]

    @contextmanager
    def turn(self, workspace: Workspace, key: str) -> Iterator[None]:
        soon = threading.Timer(self._told_after, self._tells, ("waiting", ELSEWHERE))
        soon.daemon = True

        def wait() -> None:
            if soon.ident is None:
                soon.start()

        with alone(workspace, key, wait):
            if soon.ident is not None:
                soon.cancel()
                soon.join()
                self._tells("started")
            yield

    def _tell_progress(self, done: int, total: int) -> None:
        if done < total:
            self._tells("started", done=(done, total))

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        workers = current_workers()
        if workers is not None:

            def work() -> Done:
                return Done(workers.compute(stage, workspace, inputs), "", was_kept=False)

            do = self._do if workers.is_cluster else at_once
            return do(NamedWork(f"{stage.name} on a worker", work, self._tells)).result
        # Of work that is divided the pieces are counted.
        told = nullcontext() if self._is_divided else listening_to(self._tell_progress)
        with room_to_compute(remote=self._remote), told:
            return super().compute(stage, workspace, inputs)


def evaluate_one(
    workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs, do: Do = at_once
) -> ConfigurationOutcome:
    """Chunk, retrieve, rerank and score with one configuration; raises ``ConfigurationFailedError``."""
    with StageRunner(workspace, configuration.name, do=do).accounting() as run:
        return run.mending(
            lambda: summarise(workspace, configuration, evaluate(run, configuration, inputs), run.work, inputs)
        )


def evaluate_all(workspace: Workspace, configurations: list[Configuration], inputs: BenchmarkInputs) -> Evaluations:
    """Evaluate configurations side by side in threads of this process."""
    with ThreadPoolExecutor(width()) as threads, ending_work():
        begun = [threads.submit(copy_context().run, evaluate_one, workspace, one, inputs) for one in configurations]
        errors = [one.exception() for one in begun]
    failed = {one.name: failure_of(one, error) for one, error in zip(configurations, errors, strict=True) if error}
    return [one.result() for one, error in zip(begun, errors, strict=True) if error is None], failed


def failure_of(configuration: Configuration, error: BaseException) -> ConfigurationFailure:
    """What is kept of a configuration that failed with this error."""
    known = error if isinstance(error, ConfigurationFailedError) else None
    return ConfigurationFailure(
        configuration=configuration.record(),
        reason=as_sentence(error),
        stages=dict(known.stages) if known else {},
        is_outage=known is not None and known.is_outage,
    )


def compare(
    workspace: Workspace,
    config: BenchmarkConfig,
    reanchor: bool,
    runner: str,
    evaluated: EvaluateAll = evaluate_all,
    do: Do = at_once,
) -> BenchmarkOutcome:
    """Load the corpus and the truth once, evaluate the configurations that the search asks for, keep what comes out.

    The stages of the search are computed by the runner of this name. Failures of configurations are in the outcome;
    raises what else goes wrong.
    """
    notice_first_version(workspace)
    return _compared(
        workspace, config, reanchor, StageRunner(workspace, do=do), RoundRunner(workspace, do), evaluated, runner
    )


def _compared(
    workspace: Workspace,
    config: BenchmarkConfig,
    reanchor: bool,
    run: "StageRunner | _KeptWork",
    rounds: "RoundRunner | _KeptWork",
    evaluated: EvaluateAll,
    runner: str = THREADS,
) -> BenchmarkOutcome:
    started, corpus = workspace.begun or datetime.now(UTC), CorpusSource.of(config.corpus, config.glob, config.loaders)
    documents = run(stages.load_corpus, corpus, config.shards)
    truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, reanchor, config.copies)
    inputs = BenchmarkInputs.of(config, documents, truth)
    with working_by(runner):
        done, failed, search = StageRunner(workspace).mending(
            lambda: search_grid(
                rounds, workspace, config, inputs, lambda some: evaluated(workspace, some, inputs), rounds
            )
        )
    return keep_outcome(workspace, started, config, corpus, inputs, done, failed, run.work, search)


def reuse_outcome(workspace: Workspace, config: BenchmarkConfig, reanchor: bool = False) -> BenchmarkOutcome | None:
    """The outcome of a run of which every stage is kept, kept as one that ends now; None where something is missing."""

    def reuse(workspace: Workspace, some: list[Configuration], inputs: BenchmarkInputs) -> Evaluations:
        works = [(one, _KeptWork(workspace)) for one in some]
        return [summarise(workspace, one, evaluate(own, one, inputs), own.work, inputs) for one, own in works], {}

    try:
        return _compared(workspace, config, reanchor, _KeptWork(workspace), _KeptWork(workspace), reuse)
    except (_NotKeptError, ArtifactError, ServiceError):  # not kept, not as it was written, or to be asked again
        return None


class _NotKeptError(Exception):
    """What a stage would make is not kept."""


class _KeptWork(Rounds):
    """Gives what a workspace has kept of each stage; ``work`` says what. Raises ``_NotKeptError`` without it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.work: dict[str, StageWork] = {}

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        started = time.perf_counter()
        key = stage.key(*stage.looked(self._workspace, *inputs))
        found = find_record(self._workspace, stage, key)
        if found is None:
            raise _NotKeptError(key)
        seconds = round(time.perf_counter() - started, 3)
        self.work[unused_name(stage.name, self.work)] = StageWork(
            work="reused", effort=effort_of(found), seconds=seconds, key=key
        )
        return found
