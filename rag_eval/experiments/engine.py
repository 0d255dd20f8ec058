"""Running every task and evaluator on every row, with a bounded number of calls, time-outs and retries."""

import asyncio
import contextvars
import inspect
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from rag_eval.errors import DataError, ExperimentError, RagEvalError
from rag_eval.experiments.callables import Experiment, Named
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.json_lines import recordable
from rag_eval.experiments.results import (
    Call,
    ItemError,
    ItemResult,
    Output,
    Row,
    RunningAverage,
    score_key,
    score_of,
)
from rag_eval.formatting import counted
from rag_eval.retry import RetryPolicy

LONGEST_MESSAGE = 2_000
STUCK_SECONDS = 5.0
"""How long a run waits, when no slot is free, for calls that passed their time-out and cannot be stopped."""

RUNNER = tuple(f"rag_eval.experiments.{name}" for name in ("callables", "data", "engine", "results", "running"))
RUNNER += ("asyncio.", "runpy")
"""The modules whose frames stand before those of the user's code."""

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Slots:
    """Daemon threads that start when they are needed; one that hangs does not keep the program from ending.

    anyio's worker threads are no daemons, so that a hanging call would, and cost six times the CPU time a call.
    """

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = count
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    def call(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Call the function on a thread, in the caller's context; the future holds what it gave or raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(_looked_at)
        context = contextvars.copy_context()
        with self._lock:
            if self._idle > 0 or self._threads == self._count:
                self._idle -= 1  # below zero: how many jobs wait
            else:
                self._threads += 1
                threading.Thread(target=self._work, name=f"experiment-{self._threads}", daemon=True).start()
        self._jobs.put((lambda: context.run(function, *args), loop, future))
        return future

    def close(self) -> None:
        """Let the threads end when they have done what they are at."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, future = job
            try:
                value, error = call(), None
            except BaseException as raised:  # noqa: BLE001  # whatever the user's code raises belongs to its caller
                value, error = None, raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return


def _looked_at(future: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining about an error of a call that nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # what a future cannot carry, or what would end the loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))


class TimedOutError(Exception):
    """A call did not end in time; ``still_running`` is the call where it could not be stopped."""

    still_running: "asyncio.Future[Any] | None" = None


class Caller:
    """Calls tasks and evaluators within a time-out, and again, after the waits of ``retries``, when they fail.

    A sync call that is out of time cannot be stopped: it is not tried again, and the error holds what still runs.
    """

    def __init__(self, concurrency: int, timeout: float | None, retries: RetryPolicy) -> None:
        self.slots = Slots(concurrency)
        self.concurrency, self._timeout, self._retries = concurrency, timeout, retries

    async def call(self, trace: Call, target: Named, *args: Any) -> Any:
        """What the target gives; raises what its last attempt raised. ``trace`` counts the attempts."""
        while True:
            trace.attempts += 1
            try:
                return await self._once(target, args)
            except Exception as error:  # any error of the user's code may be the network's
                still_runs = isinstance(error, TimedOutError) and not target.is_async
                if still_runs or trace.attempts > self._retries.max_retries:
                    raise
            await asyncio.sleep(self._retries.wait_before_retry(trace.attempts - 1, None))

    async def _once(self, target: Named, args: tuple[Any, ...]) -> Any:
        if target.is_async:
            return await self._awaited(target, target.call(*args))
        if target.instant:
            return target.call(*args)
        future = self.slots.call(target.call, *args)
        try:
            given = await self._in_time(target, asyncio.shield(future) if self._timeout else future)
        except TimedOutError as error:
            error.still_running = future
            raise
        return await self._awaited(target, given) if inspect.isawaitable(given) else given

    async def _awaited(self, target: Named, given: Awaitable[Any]) -> Any:
        work = asyncio.ensure_future(given)
        try:
            return await self._in_time(target, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not work.cancelled() or task is None or task.cancelling():
                raise  # the run is being cancelled
            # Something that the target waited for was cancelled: its failure, which must not end the worker.
            raise RuntimeError("CancelledError: what it waited for was cancelled") from None

    async def _in_time(self, target: Named, work: "asyncio.Future[Any]") -> Any:
        if self._timeout is None:
            return await work
        try:
            return await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            if work.done() and not work.cancelled() and isinstance(work.exception(), TimeoutError):
                raise  # the target's own
            raise TimedOutError(f"{target.name} did not end within {self._timeout:g} seconds") from None


def message_of(error: BaseException) -> str:
    """An error in one line, cut, without any key; an error of ours is its sentence alone."""
    kind = "TimeoutError" if isinstance(error, TimedOutError) else type(error).__name__
    try:
        told = str(error)
    except Exception:  # noqa: BLE001  # an error of the user's that cannot say what it is
        told = ""
    if not isinstance(error, RagEvalError):
        told = f"{kind}: {told}" if told else kind
    line = " ".join(recordable(told).split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def begin_with_user_code(error: BaseException) -> None:
    """Leave the frames of the runner out of the error's traceback, which then begins in the user's code."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(RUNNER):
        trace = trace.tb_next
    error.__traceback__ = trace


_FAILED = object()
_Futures = dict[str, "asyncio.Future[Any]"]


class Engine:
    """Works through a stream of rows with ``concurrency`` workers, each with one call under way at a time."""

    def __init__(self, experiment: Experiment, caller: Caller, log: ItemLog, outputs: Sequence[Output]) -> None:
        self._tasks, self._evaluators = experiment.tasks, experiment.evaluators
        self._caller, self._log, self._outputs = caller, log, outputs
        self._reading = asyncio.Lock()
        self._workers = self._stuck = 0
        self.count = self.resumed = 0
        self.averages = {key: RunningAverage(bounds) for key, bounds in experiment.scales.items()}
        after = [None, *(one.name for one in self._evaluators)]
        self.errors = {ItemError(task.name, one, "").place: 0 for task in self._tasks for one in after}
        """How often a call failed, by its place."""
        self.first: tuple[int, Exception] | None = None
        """The first sample of which a call failed, and the error."""

    async def run(self, rows: AsyncIterator[Row]) -> None:
        """Work until the rows end; raises what reading them raised, with everything finished kept."""
        self._workers = self._caller.concurrency
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work(rows))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            self._caller.slots.close()
        if self.count == 0:
            raise DataError("the data has no rows: nothing would be said of the tasks, check where it comes from")
        self._log.cut(self.count)

    async def _work(self, rows: AsyncIterator[Row]) -> None:
        stuck: asyncio.Future[Any] | None = None
        while True:
            async with self._reading:
                try:
                    row = await anext(rows)
                except StopAsyncIteration:
                    self._workers -= 1
                    return
                except RagEvalError:
                    raise
                except Exception as error:
                    begin_with_user_code(error)
                    raise DataError(f"the data ended after {self.count} rows: {message_of(error)}") from error
                index = self.count
                self.count += 1
            item = self._log.finished(index, row)
            if item is None:
                if stuck is not None:
                    await self._freed(stuck)
                item, stuck = await self._item(index, row)
                self._log.add(item, row)
            else:
                self.resumed += 1
            for key, score in item.scores.items():
                self.averages[key].add(score)
            for finding in item.errors:
                self.errors[finding.place] += 1
            for output in self._outputs:
                output.sample(item)

    async def _item(self, index: int, row: Row) -> tuple[ItemResult, "asyncio.Future[Any] | None"]:
        """The sample's result, and the call that outran its time and still runs, where there is one."""
        started = time.perf_counter()
        name, expected = row.get("id"), row.get("output")
        identity = str(name) if isinstance(name, str | int | UUID) else None
        item = ItemResult(index, row["input"] if "input" in row else dict(row), expected, [], {}, id=identity)
        stuck: _Futures = {}
        for task in self._tasks:
            result = await self._called(item, stuck, task, None, row)
            item.task_results.append(None if result is _FAILED else result)
            for evaluator in self._evaluators if result is not _FAILED else ():
                args = (result, expected, row) if evaluator.wants_row else (result, expected)
                score = await self._called(item, stuck, task, evaluator, *args)
                if score is not _FAILED:
                    item.scores[score_key(self._tasks, task.name, evaluator.name)] = score
        return replace(item, seconds=time.perf_counter() - started), next(iter(stuck.values()), None)

    async def _called(self, item: ItemResult, stuck: _Futures, task: Named, evaluator: Named | None, *args: Any) -> Any:
        """What a task gives, or the score an evaluator gives; ``_FAILED`` where it raises, which the sample notes.

        ``stuck`` is the call of this sample that outran its time and still runs, by its place.
        """
        place = f"{task.name}/{evaluator.name}" if evaluator else task.name
        item.calls[place] = trace = Call()
        started = time.perf_counter()
        try:
            if stuck:  # it holds the worker's only slot
                raise ExperimentError(f"not called: {next(iter(stuck))} still runs after its time-out")
            given = await self._caller.call(trace, evaluator or task, *args)
            return score_of(given) if evaluator else given
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises
            item.errors.append(ItemError(task.name, evaluator.name if evaluator else None, message_of(error)))
            if isinstance(error, TimedOutError) and error.still_running is not None:
                stuck[place] = error.still_running
            if self.first is None or item.index < self.first[0]:
                begin_with_user_code(error)
                self.first = item.index, error
            return _FAILED
        finally:
            trace.seconds = time.perf_counter() - started

    async def _freed(self, stuck: "asyncio.Future[Any]") -> None:
        """Wait until this worker's last call has really ended; raises ``ExperimentError`` when no worker comes free."""
        self._stuck += 1
        try:
            while not stuck.done():
                all_stuck = self._stuck == self._workers
                done, _ = await asyncio.wait({stuck}, timeout=STUCK_SECONDS if all_stuck else 0.1)
                if not done and all_stuck and self._stuck == self._workers:
                    raise ExperimentError(
                        f"{counted(self._stuck, 'calls')} passed the time-out and cannot be stopped, and no other may "
                        "be under way: make the task async, or give the client it uses a time-out"
                    )
        finally:
            self._stuck -= 1
