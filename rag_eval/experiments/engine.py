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
from rag_eval.experiments.json_lines import redacted
from rag_eval.experiments.results import Call, ItemError, ItemResult, Row, RunningAverage, Score, score_key, score_of
from rag_eval.retry import RetryPolicy

LONGEST_MESSAGE = 2_000
MOST_ABANDONED = 10
"""A run ends if more timed-out calls than this, and more than may run at once, are still running."""
AWAITED_CANCELLED = "CancelledError: something that it awaited was cancelled"
CANCEL_SECONDS = 5.0
"""How long a cancelled coroutine may take to clean up before the next call."""

RUNNER = tuple(f"rag_eval.experiments.{name}" for name in ("callables", "data", "engine", "running"))
RUNNER += ("rag_eval.parts.objects", "asyncio.", "concurrent.", "runpy")
"""Modules whose frames precede those of the user's code in a traceback."""


class CallThread:
    """A daemon thread that runs calls one after the other, and does not keep the program from exiting."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[..., object], *args: object) -> "asyncio.Future[object]":
        """Run a call in the context of the caller and return its future."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            value, error = None, None
            try:
                value = context.run(function, *args)
            except BaseException as raised:  # noqa: BLE001  # errors of the user's code belong to the caller
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits for the result
                loop.call_soon_threadsafe(_settle, future, value, error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="experiment", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return future

    def close(self) -> None:
        """End the thread after its last call."""
        self._jobs.put(None)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(future: "asyncio.Future[object]", value: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # a future cannot carry StopIteration, and SystemExit would end the loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))


class TimedOutError(Exception):
    """A call did not end before its timeout."""


class Caller:
    """Calls tasks and evaluators one at a time, with a timeout and retries.

    A synchronous call that times out cannot be stopped: its thread joins ``abandoned``, and the next call gets a new
    one.
    """

    def __init__(self, timeout: float | None, retries: RetryPolicy, abandoned: list[CallThread]) -> None:
        self._thread, self._timeout, self._retries = CallThread(), timeout, retries
        self._abandoned = abandoned

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    async def call(self, trace: Call, target: NamedCall, *args: object) -> object:
        """Return the result of the target, or raise its last error; record the time and the attempts in ``trace``."""
        started = time.perf_counter()
        try:
            while True:
                trace.attempts += 1
                try:
                    return await self._attempt(target, args)
                except Exception:  # any error of the user's code may come from the network
                    if trace.attempts > self._retries.max_retries:
                        raise
                await asyncio.sleep(self._retries.wait_before_retry(trace.attempts - 1, None))
        finally:
            trace.seconds = time.perf_counter() - started

    async def _attempt(self, target: NamedCall, args: tuple[object, ...]) -> object:
        if target.is_async or target.instant:
            value = target.call(*args)
        else:
            try:
                value = await self._in_time(target, self._thread.call(target.call, *args))
            except TimedOutError:
                self._thread.close()
                self._abandoned.append(self._thread)
                self._thread = CallThread()
                raise
        return await self._in_time(target, value) if inspect.isawaitable(value) else value

    async def _in_time(self, target: NamedCall, value: Awaitable[object]) -> object:
        if self._timeout is None:
            try:
                return await value
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise RuntimeError(AWAITED_CANCELLED) from None
        call = asyncio.ensure_future(value)
        try:
            await asyncio.wait({call}, timeout=self._timeout)
            if call.cancelled():
                raise RuntimeError(AWAITED_CANCELLED)
            if call.done():
                return call.result()
            call.cancel()
            await asyncio.wait({call}, timeout=CANCEL_SECONDS)
            _ = call.done() and not call.cancelled() and call.exception()  # otherwise asyncio would report it
            raise TimedOutError(f"{target.name} did not end within {self._timeout:g} seconds")
        finally:
            call.cancel()


def message_of(error: BaseException) -> str:
    """Return an error on one line, shortened and without API keys."""
    kind = "TimeoutError" if isinstance(error, TimedOutError) else type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # the user's own __str__
        message = ""
    if not isinstance(error, RagEvalError):
        message = f"{kind}: {message}" if message else kind
    line = " ".join(redacted(message).split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def begin_with_user_code(error: BaseException) -> None:
    """Remove the runner's frames from the start of a traceback."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(RUNNER):
        trace = trace.tb_next
    error.__traceback__ = trace


class Engine:
    """Works through a stream of rows with several workers, each with one call at a time.

    ``first`` is the first sample with a failure, and its error.
    """

    def __init__(self, experiment: Experiment, log: ItemLog, on_sample: Callable[[ItemResult], None]) -> None:
        self._tasks, self._evaluators = experiment.tasks, experiment.evaluators
        self._log, self._on_sample = log, on_sample
        self._reading = asyncio.Lock()
        self.count = self.resumed = 0
        self.averages = {key: RunningAverage(bounds) for key, bounds in experiment.scales.items()}
        evaluators = [None, *(evaluator.name for evaluator in self._evaluators)]
        self.errors = {ItemError(task.name, name, "").place: 0 for task in self._tasks for name in evaluators}
        self.first: tuple[int, Exception] | None = None

    async def run(self, rows: AsyncIterator[Row], concurrency: int, timeout: float | None, retry: RetryPolicy) -> None:
        """Run until the rows end; keep finished samples if reading them fails.

        Raises:
            DataError: The rows cannot be read, or there are none.
            ExperimentError: Too many calls still run after their timeout.
        """
        abandoned: list[CallThread] = []
        callers = [Caller(timeout, retry, abandoned) for _ in range(concurrency)]
        try:
            async with asyncio.TaskGroup() as workers:
                for caller in callers:
                    workers.create_task(self._work(rows, caller, abandoned, max(concurrency, MOST_ABANDONED)))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            for caller in callers:
                caller.close()
        if self.count == 0:
            raise DataError("the data has no rows: check its source")
        self._log.cut(self.count)

    async def _work(self, rows: AsyncIterator[Row], caller: Caller, abandoned: list[CallThread], limit: int) -> None:
        while (numbered_row := await self._next_row(rows)) is not None:
            index, row = numbered_row
            item = self._log.finished(index, row)
            if item is None:
                abandoned[:] = [thread for thread in abandoned if thread.is_alive]
                if len(abandoned) > limit:
                    raise ExperimentError(
                        f"{len(abandoned)} calls still run after their time-out and cannot be stopped: "
                        "make the task async, or give the client it uses a time-out"
                    )
                item = await self._item(index, row, caller)
                self._log.add(item, row)
            else:
                self.resumed += 1
            for key, score in item.scores.items():
                self.averages[key].add(score)
            for error in item.errors:
                self.errors[error.place] += 1
            self._on_sample(item)

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
                raise DataError(f"reading the data failed after {self.count} rows: {message_of(error)}") from error
            self.count += 1
            return self.count - 1, row

    async def _item(self, index: int, row: Row, caller: Caller) -> ItemResult:
        started = time.perf_counter()
        row_id, expected = row.get("id"), row.get("output")
        item_id = str(row_id) if isinstance(row_id, str | int | UUID) else None
        columns = {key: value for key, value in row.items() if key not in ("input", "output", "id")}
        item = ItemResult(index, row.get("input", columns), expected, [], {}, id=item_id, columns=columns)
        for task in self._tasks:
            item.calls[task.name] = trace = Call()
            try:
                result = await caller.call(trace, task, row)
            except Exception as error:  # noqa: BLE001  # any error of the user's code
                self._add_error(item, ItemError(task.name, None, message_of(error)), error)
                item.task_results.append(None)
                continue
            item.task_results.append(result)
            for evaluator in self._evaluators:
                score = await self._score(item, caller, task, evaluator, result, row)
                if score is not None:
                    item.scores[score_key(self._tasks, task.name, evaluator.name)] = score
        return replace(item, seconds=time.perf_counter() - started)

    async def _score(
        self, item: ItemResult, caller: Caller, task: NamedCall, evaluator: NamedCall, result: object, row: Row
    ) -> Score | None:
        item.calls[f"{task.name}/{evaluator.name}"] = trace = Call()
        args = (result, item.output, row) if evaluator.wants_row else (result, item.output)
        try:
            return score_of(await caller.call(trace, evaluator, *args))
        except Exception as error:  # noqa: BLE001  # any error of the user's code
            self._add_error(item, ItemError(task.name, evaluator.name, message_of(error)), error)
            return None

    def _add_error(self, item: ItemResult, noted: ItemError, error: Exception) -> None:
        item.errors.append(noted)
        if self.first is None or item.index < self.first[0]:
            begin_with_user_code(error)
            self.first = item.index, error
