"""Calls of tasks and evaluators: never more at once than allowed, in time, tried again, and ended in order."""

import asyncio
import threading
import time
from typing import Any

import pytest

from rag_eval.errors import ExperimentError
from rag_eval.experiments.callables import evaluator, task
from rag_eval.experiments.evaluators import ExactMatch
from rag_eval.experiments.running import evaluatorq
from tests.experiments.conftest import HELLO, quietly


@pytest.mark.parametrize("is_async", [True, False])
def test_no_more_calls_are_under_way_than_allowed(is_async: bool) -> None:
    lock, under_way, most = threading.Lock(), [0], [0]

    def enter(step: int) -> None:
        with lock:
            under_way[0] += step
            most[0] = max(most[0], under_way[0])

    def blocking(row: Any) -> int:
        enter(1)
        time.sleep(0.002)
        enter(-1)
        return 1

    async def waiting(row: Any) -> int:
        enter(1)
        await asyncio.sleep(0.002)
        enter(-1)
        return 1

    work = waiting if is_async else blocking

    @evaluator("judge")
    def judged(result: Any, expected: Any) -> int:
        return blocking({})

    tasks = [task("one")(lambda row: work(row)), work]
    quietly("bound", data=[{"input": n} for n in range(60)], tasks=tasks, evaluators=[judged], concurrency=3)
    assert most[0] == 3


def test_a_call_out_of_time_is_an_error_of_its_sample_alone() -> None:
    async def slow(row: Any) -> int:
        await asyncio.sleep(row["input"])
        return 1

    data = [{"input": 0}, {"input": 30}, {"input": 0}]
    result = quietly("slow", data=data, tasks=[slow], evaluators=[], timeout=0.2, raise_errors=False)
    assert [item.errors != [] for item in result.results] == [False, True, False]
    assert result.results[1].errors[0].message == "TimeoutError: slow did not end within 0.2 seconds"


def test_a_blocking_call_out_of_time_holds_up_nothing_else() -> None:
    end = threading.Event()

    def hangs(result: Any, expected: Any) -> bool:
        return end.wait(60) if result == 1 else True

    tasks = [task("one")(lambda row: row["input"]), task("two")(lambda row: 2)]
    options = {"timeout": 0.2, "concurrency": 2, "raise_errors": False}
    data = [{"input": number} for number in range(5)]
    result = quietly("hung", data=data, tasks=tasks, evaluators=[hangs, ExactMatch], **options)
    end.set()
    assert result.errors == {"one/hangs": 1}
    assert result.results[1].errors[0].message == "TimeoutError: hangs did not end within 0.2 seconds"


def test_a_run_ends_when_too_many_calls_cannot_be_stopped() -> None:
    end = threading.Event()

    def hangs(row: Any) -> bool:
        return end.wait(60)

    with pytest.raises(ExperimentError, match="11 calls still run after their time-out"):
        quietly("hung", data=HELLO * 30, tasks=[hangs], timeout=0.05, concurrency=1)
    end.set()


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_what_is_cancelled_within_a_call_fails_that_call(timeout: float | None) -> None:
    async def cancelled(*_: Any) -> int:
        inner = asyncio.ensure_future(asyncio.sleep(30))
        inner.cancel()
        await inner
        return 1

    async def fine(row: Any) -> int:
        return 1

    data = [{"input": number} for number in range(4)]
    result = evaluatorq(
        "cut",
        data=data,
        tasks=[cancelled, fine],
        evaluators=[cancelled],
        concurrency=1,
        timeout=timeout,
        outputs=[],
        raise_errors=False,
    )
    assert [item.input for item in result.results] == [0, 1, 2, 3]
    assert result.errors == {"cancelled": 4, "fine/cancelled": 4}
    assert "CancelledError" in result.results[3].errors[0].message
