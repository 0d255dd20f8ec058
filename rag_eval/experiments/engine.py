"""Running every task and evaluator on every row, with never more calls under way than allowed."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

from rag_eval.errors import ExperimentError, RagEvalError
from rag_eval.experiments.calls import Caller, TimedOutError, message_of
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.naming import Named
from rag_eval.experiments.scoring import RunningAverage, score_of
from rag_eval.experiments.types import ItemError, ItemResult, Row, Score, score_key

STUCK_SECONDS = 5.0
"""How long a run waits, when no slot is free, for calls that passed their time-out and cannot be stopped."""


class Engine:
    """Works through a stream of rows with ``concurrency`` workers, each with one call under way at a time."""

    def __init__(
        self,
        tasks: list[Named],
        evaluators: list[Named],
        caller: Caller,
        log: ItemLog,
        told: Callable[[ItemResult], None],
    ) -> None:
        self._tasks, self._evaluators = tasks, evaluators
        self._caller, self._log, self._told = caller, log, told
        self._reading = asyncio.Lock()
        self._exhausted = asyncio.Event()
        self._stuck = 0
        self.count = self.resumed = 0
        self.averages: dict[str, RunningAverage] = {}
        self.errors: Counter[str] = Counter()

    async def run(self, rows: AsyncIterator[Row], concurrency: int) -> None:
        """Work until the rows end; raises what reading them raised, with everything finished kept."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(concurrency):
                    workers.create_task(self._work(rows, concurrency))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        self._log.cut(self.count)

    async def _work(self, rows: AsyncIterator[Row], concurrency: int) -> None:
        while True:
            async with self._reading:
                try:
                    row = await anext(rows)
                except StopAsyncIteration:
                    self._exhausted.set()
                    return
                except RagEvalError:
                    raise
                except Exception as error:
                    raise ExperimentError(f"the data ended after {self.count} rows: {message_of(error)}") from error
                index = self.count
                self.count += 1
            item = self._log.finished(index, row)
            stuck: asyncio.Future[Any] | None = None
            if item is None:
                item, stuck = await self._item(index, row)
                self._log.add(item, row)
            else:
                self.resumed += 1
            self._count(item)
            self._told(item)
            if stuck is not None:
                await self._free(stuck, concurrency)

    async def _item(self, index: int, row: Row) -> tuple[ItemResult, "asyncio.Future[Any] | None"]:
        """The sample's result, and the call that outran its time and still runs, where there is one."""
        started = time.perf_counter()
        results: list[Any] = [None] * len(self._tasks)
        scores: dict[str, Score] = {}
        errors: list[ItemError] = []
        expected = row.get("output")
        stuck: asyncio.Future[Any] | None = None
        for place, task in enumerate(self._tasks):
            try:
                results[place] = await self._caller.call(task, row)
            except Exception as error:  # noqa: BLE001  # a failing task is a finding
                errors.append(ItemError(task.name, None, message_of(error)))
                stuck = still_running(error)
                if stuck is not None:
                    break
                continue
            for evaluator in self._evaluators:
                args = (results[place], expected, row) if evaluator.wants_row else (results[place], expected)
                try:
                    score = score_of(await self._caller.call(evaluator, *args))
                    scores[score_key(self._tasks, task.name, evaluator.name)] = score
                except Exception as error:  # noqa: BLE001  # a failing evaluator is a finding
                    errors.append(ItemError(task.name, evaluator.name, message_of(error)))
                    stuck = still_running(error)
                if stuck is not None:
                    break
            if stuck is not None:
                break
        errors += self._not_called(errors) if stuck is not None else []
        given = row["input"] if "input" in row else dict(row)
        name = row.get("id")
        identity = str(name) if isinstance(name, str | int | UUID) else None
        seconds = time.perf_counter() - started
        return ItemResult(index, given, expected, results, scores, errors, seconds, identity), stuck

    def _not_called(self, errors: list[ItemError]) -> list[ItemError]:
        """What has no result because the last call still holds the slot."""
        last = errors[-1]
        reason = f"not called: {last.place} still runs after its time-out"
        tasks = [task.name for task in self._tasks]
        later = [ItemError(name, None, reason) for name in tasks[tasks.index(last.task) + 1 :]]
        evaluators = [evaluator.name for evaluator in self._evaluators]
        if last.evaluator is None:
            return later
        return [
            ItemError(last.task, name, reason) for name in evaluators[evaluators.index(last.evaluator) + 1 :]
        ] + later

    def _count(self, item: ItemResult) -> None:
        for key, score in item.scores.items():
            self.averages.setdefault(key, RunningAverage()).add(score)
        for error in item.errors:
            self.errors[error.place] += 1

    async def _free(self, stuck: "asyncio.Future[Any]", concurrency: int) -> None:
        """Wait until this worker's call has really ended, so that there are never more of them than allowed."""
        self._stuck += 1
        exhausted = asyncio.ensure_future(self._exhausted.wait())
        try:
            while not stuck.done() and not exhausted.done():
                all_stuck = self._stuck == concurrency
                patience = STUCK_SECONDS if all_stuck else 0.1
                done, _ = await asyncio.wait({stuck, exhausted}, timeout=patience, return_when="FIRST_COMPLETED")
                if not done and all_stuck and self._stuck == concurrency:
                    raise ExperimentError(
                        f"all {concurrency} calls that may be under way passed their time-out and cannot be stopped: "
                        "make the task async, or give the client it uses a time-out"
                    )
        finally:
            exhausted.cancel()
            self._stuck -= 1


def still_running(error: Exception) -> "asyncio.Future[Any] | None":
    """The call behind an error where it passed its time-out and goes on."""
    return error.still_running if isinstance(error, TimedOutError) else None
