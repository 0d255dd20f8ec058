import threading

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.retry import Failure, RetryPolicy, retry_after_of, status_may_pass

PASSING = Failure("busy", "wait", may_pass=True)


def run(policy: RetryPolicy, given: list[str | Failure], stopped: threading.Event | None = None) -> str | Failure:
    left = iter(given)
    return policy.run(lambda seconds: next(left), stopped or threading.Event())


def test_it_asks_again_until_there_is_an_answer() -> None:
    assert run(RetryPolicy(max_retries=2, backoff=0), [PASSING, PASSING, "answer"]) == "answer"


def test_it_gives_up_after_the_maximum() -> None:
    answer = run(RetryPolicy(max_retries=1, backoff=0), [PASSING, PASSING, "too late"])
    assert answer == Failure("busy, after 2 attempts", "wait", may_pass=True)


def test_final_failures_are_not_retried() -> None:
    final = Failure("refused", "check")
    assert run(RetryPolicy(backoff=0), [final, "never"]) is final


def test_stopping_ends_a_long_wait_at_once() -> None:
    stopped = threading.Event()
    threading.Timer(0.05, stopped.set).start()
    answer = run(RetryPolicy(backoff=100, max_backoff=100), [PASSING, "never"], stopped)
    assert isinstance(answer, Failure)
    assert "another request failed" in answer.reason


def test_waits_double_up_to_the_longest_and_are_spread() -> None:
    policy = RetryPolicy(backoff=1, max_backoff=8)
    for number, longest in [(0, 1), (1, 2), (2, 4), (3, 8), (9, 8), (10_000, 8)]:
        waits = [policy.wait_before_retry(number, None) for _ in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest


def test_a_wait_is_at_least_the_requested_one() -> None:
    policy = RetryPolicy(backoff=1)
    assert all(7 <= policy.wait_before_retry(0, 7.0) <= 8 for _ in range(50))


def test_the_time_that_is_left_shrinks() -> None:
    given: list[float] = []

    def attempt(seconds: float) -> str | Failure:
        given.append(seconds)
        return PASSING if len(given) < 3 else "answer"

    assert RetryPolicy(backoff=0.01, give_up_after=60).run(attempt, threading.Event()) == "answer"
    assert 60 >= given[0] > given[1] > given[2] > 30


@pytest.mark.parametrize("settings", [{"max_retries": -1}, {"backoff": -1}, {"max_backoff": -1}, {"give_up_after": 0}])
def test_policies_that_cannot_be_used_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        RetryPolicy(**settings)


@pytest.mark.parametrize(("status", "may_pass"), [(400, False), (401, False), (404, False), (408, True), (409, True)])
def test_which_answers_may_pass(status: int, may_pass: bool) -> None:
    assert status_may_pass(status) == may_pass
    assert [status_may_pass(other) for other in (425, 429, 499, 500, 503)] == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "9", "retry-after-ms": "40"}, 0.04),
        ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 2026 00:00:00 +99999999999999999"}, None),
    ],
)
def test_retry_after_headers_are_parsed(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers) == seconds
