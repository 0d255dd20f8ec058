"""Run every task and evaluator on every row, with a bounded number of calls, time-outs and retries."""

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from rag_eval.errors import DataError, ExperimentError, RagEvalError
from rag_eval.experiments.callables import Experiment, NamedCall
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.json_lines import recordable
from rag_eval.experiments.results import Call, ItemError, ItemResult, Row, RunningAverage, Score, score_key, score_of
from rag_eval.formatting import counted
from rag_eval.retry import RetryPolicy

LONGEST_MESSAGE = 2_000
STUCK_SECONDS = 5.0
"""How long a run waits, when no worker is free, for calls that passed their time-out and cannot be stopped."""

RUNNER = tuple(f"rag_eval.experiments.{name}" for name in ("callables", "data", "engine", "results", "running"))
RUNNER += ("asyncio.", "runpy")
"""The modules whose frames stand before those of the user's code."""


class CallThread:
    """A daemon thread that calls functions one after the other; a call that hangs does not keep the program alive.

    The threads of asyncio and anyio are no daemons.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_started = False

    def call(self, function: Callable[..., object], *args: object) -> "asyncio.Future[object]":
        """Call the function in the caller's context; the future has what it returned or raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        future.add_done_callback(_retrieve_error)
        context = contextvars.copy_context()

        def job() -> None:
            try:
                value, error = context.run(function, *args), None
            except BaseException as raised:  # noqa: BLE001  # whatever the user's code raises belongs to its caller
                value, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, value, error)

        if not self._is_started:
            threading.Thread(target=self._run, name="experiment", daemon=True).start()
            self._is_started = True
        self._jobs.put(job)
        return future

    def close(self) -> None:
        """Let the thread end after its last call."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _retrieve_error(future: "asyncio.Future[object]") -> None:
    """Keep asyncio from complaining about an error of a call that nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def _settle(future: "asyncio.Future[object]", value: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # what a future cannot carry, or what would end the loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))


class TimedOutError(Exception):
    """A call did not end in time."""


class Caller:
    """Call tasks and evaluators one at a time, within a time-out and with retries.

    A sync call that is out of time cannot be stopped. It is not tried again and holds the caller until it ends:
    ``stuck`` is its future and ``stuck_place`` its place.
    """

    def __init__(self, timeout: float | None, retries: RetryPolicy) -> None:
        self._thread, self._timeout, self._retries = CallThread(), timeout, retries
        self.stuck: asyncio.Future[object] | None = None
        self.stuck_place = ""

    def close(self) -> None:
        """Let the caller's thread end."""
        self._thread.close()

    async def call(self, trace: Call, place: str, target: NamedCall, *args: object) -> object:
        """Return what the target returns; raises what its last attempt raised. ``trace`` gets time and attempts."""
        started = time.perf_counter()
        try:
            if self.stuck is not None:
                raise ExperimentError(f"not called: {self.stuck_place} still runs after its time-out")
            while True:
                trace.attempts += 1
                try:
                    return await self._attempt(place, target, args)
                except Exception:  # any error of the user's code may be the network's
                    if self.stuck is not None or trace.attempts > self._retries.max_retries:
                        raise
                await asyncio.sleep(self._retries.wait_before_retry(trace.attempts - 1, None))
        finally:
            trace.seconds = time.perf_counter() - started

    async def _attempt(self, place: str, target: NamedCall, args: tuple[object, ...]) -> object:
        if target.is_async:
            return await self._awaited(target, target.call(*args))
        if target.instant:
            return target.call(*args)
        future = self._thread.call(target.call, *args)
        try:
            value = await self._in_time(target, asyncio.shield(future) if self._timeout else future)
        except TimedOutError:
            self.stuck, self.stuck_place = future, place
            raise
        return await self._awaited(target, value) if inspect.isawaitable(value) else value

    async def _awaited(self, target: NamedCall, value: Awaitable[object]) -> object:
        work = asyncio.ensure_future(value)
        try:
            return await self._in_time(target, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not work.cancelled() or task is None or task.cancelling():
                raise  # the run is being cancelled
            # Something that the target waited for was cancelled: its failure, which must not end the worker.
            raise RuntimeError("CancelledError: what it waited for was cancelled") from None

    async def _in_time(self, target: NamedCall, work: "asyncio.Future[object]") -> object:
        if self._timeout is None:
            return await work
        try:
            return await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            if work.done() and not work.cancelled() and isinstance(work.exception(), TimeoutError):
                raise  # the target's own
            raise TimedOutError(f"{target.name} did not end within {self._timeout:g} seconds") from None


def message_of(error: BaseException) -> str:
    """Return an error in one line, shortened, without any key; an error of ours is its sentence alone."""
    kind = "TimeoutError" if isinstance(error, TimedOutError) else type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # an error of the user's whose text fails
        message = ""
    if not isinstance(error, RagEvalError):
        message = f"{kind}: {message}" if message else kind
    line = " ".join(recordable(message).split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def begin_with_user_code(error: BaseException) -> None:
    """Remove the frames of the runner from the error's traceback, which then begins in the user's code."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(RUNNER):
        trace = trace.tb_next
    error.__traceback__ = trace


class Engine:
    """Work through a stream of rows with a number of workers, each with one call under way at a time."""

    def __init__(self, experiment: Experiment, log: ItemLog, on_sample: Callable[[ItemResult], None]) -> None:
        self._tasks, self._evaluators = experiment.tasks, experiment.evaluators
        self._log, self._on_sample = log, on_sample
        self._reading = asyncio.Lock()
        self._workers = self._stuck = 0
        self.count = self.resumed = 0
        self.averages = {key: RunningAverage(bounds) for key, bounds in experiment.scales.items()}
        evaluators = [None, *(evaluator.name for evaluator in self._evaluators)]
        self.errors = {ItemError(task.name, name, "").place: 0 for task in self._tasks for name in evaluators}
        """How often a call failed, by its place."""
        self.first: tuple[int, Exception] | None = None
        """The first sample with a failure, and the error."""

    async def run(self, rows: AsyncIterator[Row], callers: list[Caller]) -> None:
        """Work until the rows end; raises what reading them raised, with everything finished kept."""
        self._workers = len(callers)
        try:
            async with asyncio.TaskGroup() as workers:
                for caller in callers:
                    workers.create_task(self._work(rows, caller))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            for caller in callers:
                caller.close()
        if self.count == 0:
            raise DataError("the data has no rows: nothing would be said of the tasks, check where it comes from")
        self._log.cut(self.count)

    async def _work(self, rows: AsyncIterator[Row], caller: Caller) -> None:
        while (place := await self._next_row(rows)) is not None:
            index, row = place
            item = self._log.finished(index, row)
            if item is None:
                await self._wait_until_free(caller)
                item = await self._item(index, row, caller)
                self._log.add(item, row)
            else:
                self.resumed += 1
            for key, score in item.scores.items():
                self.averages[key].add(score)
            for error in item.errors:
                self.errors[error.place] += 1
            self._on_sample(item)
        self._workers -= 1

    async def _next_row(self, rows: AsyncIterator[Row]) -> tuple[int, Row] | None:
        async with self._reading:
            try:
                row = await anext(rows)
            except StopAsyncIteration:
                return None
            except RagEvalError:
                raise
            except Exception as error:
                begin_with_user_code(error)
                raise DataError(f"the data ended after {self.count} rows: {message_of(error)}") from error
            self.count += 1
            return self.count - 1, row

    async def _item(self, index: int, row: Row, caller: Caller) -> ItemResult:
        started = time.perf_counter()
        row_id, expected = row.get("id"), row.get("output")
        item_id = str(row_id) if isinstance(row_id, str | int | UUID) else None
        item = ItemResult(index, row["input"] if "input" in row else dict(row), expected, [], {}, id=item_id)
        for task in self._tasks:
            item.calls[task.name] = trace = Call()
            try:
                result = await caller.call(trace, task.name, task, row)
            except Exception as error:  # noqa: BLE001  # whatever the user's code raises
                self._note_error(item, ItemError(task.name, None, message_of(error)), error)
                item.task_results.append(None)
                continue
            item.task_results.append(result)
            for evaluator in self._evaluators:
                score = await self._scored(item, caller, task, evaluator, result, row)
                if score is not None:
                    item.scores[score_key(self._tasks, task.name, evaluator.name)] = score
        return replace(item, seconds=time.perf_counter() - started)

    async def _scored(
        self, item: ItemResult, caller: Caller, task: NamedCall, evaluator: NamedCall, result: object, row: Row
    ) -> Score | None:
        place = f"{task.name}/{evaluator.name}"
        item.calls[place] = trace = Call()
        args = (result, item.output, row) if evaluator.wants_row else (result, item.output)
        try:
            return score_of(await caller.call(trace, place, evaluator, *args))
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises
            self._note_error(item, ItemError(task.name, evaluator.name, message_of(error)), error)
            return None

    def _note_error(self, item: ItemResult, noted: ItemError, error: Exception) -> None:
        item.errors.append(noted)
        if self.first is None or item.index < self.first[0]:
            begin_with_user_code(error)
            self.first = item.index, error

    async def _wait_until_free(self, caller: Caller) -> None:
        """Wait until a stuck call has really ended; raises ``ExperimentError`` when no caller becomes free."""
        stuck, caller.stuck = caller.stuck, None
        if stuck is None:
            return
        self._stuck += 1
        try:
            while not (await asyncio.wait({stuck}, timeout=STUCK_SECONDS))[0]:
                if self._stuck == self._workers:
                    raise ExperimentError(
                        f"{counted(self._stuck, 'calls')} passed the time-out and cannot be stopped, and no other may "
                        "be under way: make the task async, or give the client it uses a time-out"
                    )
        finally:
            self._stuck -= 1
