"""Running every task and evaluator on every row, with a bounded number of concurrent calls."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from rag_eval.errors import ExperimentError, RagEvalError
from rag_eval.experiments.calls import Caller, TimedOutError, message_of
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.naming import Named
from rag_eval.experiments.scores import RunningAverage, score_of
from rag_eval.experiments.types import ItemError, ItemResult, Row, Score, score_key
from rag_eval.formatting import counted

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
        self._workers = self._stuck = 0
        self.count = self.resumed = 0
        self.averages: dict[str, RunningAverage] = {}
        self.errors: Counter[str] = Counter()

    async def run(self, rows: AsyncIterator[Row], concurrency: int) -> None:
        """Work until the rows end; raises what reading them raised, with everything finished kept."""
        self._workers = concurrency
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(concurrency):
                    workers.create_task(self._work(rows))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if self.count == 0:
            raise ExperimentError("the data has no rows: nothing would be said of the tasks, check where it comes from")
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
                    raise ExperimentError(f"the data ended after {self.count} rows: {message_of(error)}") from error
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
            self._count(item)
            self._told(item)

    async def _item(self, index: int, row: Row) -> tuple[ItemResult, "asyncio.Future[Any] | None"]:
        """The sample's result, and the call that outran its time and still runs, where there is one."""
        started = time.perf_counter()
        sample = _Sample(row)
        results = [await self._result(sample, task) for task in self._tasks]
        given = row["input"] if "input" in row else dict(row)
        name = row.get("id")
        identity = str(name) if isinstance(name, str | int | UUID) else None
        seconds = time.perf_counter() - started
        item = ItemResult(index, given, row.get("output"), results, sample.scores, sample.errors, seconds, identity)
        return item, sample.stuck

    async def _result(self, sample: "_Sample", task: Named) -> Any:
        """What a task made of the sample, and what every evaluator says of that; a failure is a finding."""
        try:
            result = await self._called(sample, task, sample.row)
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises
            sample.fail(ItemError(task.name, None, message_of(error)), error)
            return None
        expected = sample.row.get("output")
        for evaluator in self._evaluators:
            args = (result, expected, sample.row) if evaluator.wants_row else (result, expected)
            try:
                score = score_of(await self._called(sample, evaluator, *args))
            except Exception as error:  # noqa: BLE001  # whatever the user's code raises
                sample.fail(ItemError(task.name, evaluator.name, message_of(error)), error)
            else:
                sample.scores[score_key(self._tasks, task.name, evaluator.name)] = score
        return result

    async def _called(self, sample: "_Sample", target: Named, *args: Any) -> Any:
        if sample.stuck is not None:  # it holds the worker's only slot
            raise ExperimentError(f"not called: {sample.stuck_at} still runs after its time-out")
        return await self._caller.call(target, *args)

    def _count(self, item: ItemResult) -> None:
        for key, score in item.scores.items():
            self.averages.setdefault(key, RunningAverage()).add(score)
        for error in item.errors:
            self.errors[error.place] += 1

    async def _freed(self, stuck: "asyncio.Future[Any]") -> None:
        """Wait until this worker's last call has really ended, so that there are never more of them than allowed.

        Raises ``ExperimentError`` when none of the workers comes free.
        """
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


@dataclass(slots=True)
class _Sample:
    """A row on its way through tasks and evaluators; ``stuck`` is the call that outran its time and still runs."""

    row: Row
    scores: dict[str, Score] = field(default_factory=dict)
    errors: list[ItemError] = field(default_factory=list)
    stuck: "asyncio.Future[Any] | None" = None
    stuck_at: str = ""

    def fail(self, finding: ItemError, error: Exception) -> None:
        """Note a failure."""
        self.errors.append(finding)
        if isinstance(error, TimedOutError) and error.still_running is not None:
            self.stuck, self.stuck_at = error.still_running, finding.place
