"""Retry requests to services: how often, after which wait, and when to stop.

| who retries | policy | the client's own retries |
|---|---|---|
| embedders, rerankers and language models that are services | `RetryPolicy()`, its `max_retries` a setting | off |
| tasks and evaluators of an experiment | `retries` and `retry_delay` of the call, none by default | the user's own |
| LangSmith, orq.ai | `PATIENT` on request, `BRIEF` at the end of a run; then `rag-eval publish` | off |
| LangSmith's own `evaluate` | `ONCE` | on: it uploads in the background |
| object storage | `STORAGE_RETRIES` | on: obstore's |
| a stage of the pipeline with a part that uses the network | `STAGE_DELAYS`, after the above | — |
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from rag_eval.errors import ConfigurationError

T = TypeVar("T")

STORAGE_RETRIES = 2
STAGE_DELAYS = (5.0, 30.0)
"""Seconds before a stage is tried again, after its parts' own, quick attempts: for a service that is away longer."""

PASSING_STATUSES = frozenset({408, 409, 425, 429})
"""Refusals that may pass: time-out, conflict, too early, too many requests."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a request failed, in words for a message.

    A value and not an exception, so that nothing of the request (its headers hold the key) hangs on to the error.
    ``may_pass`` says whether asking again can help, ``retry_after`` the seconds the service asks to wait, and
    ``is_refusal`` that the service works and does not take this request.
    """

    reason: str
    advice: str
    may_pass: bool = False
    retry_after: float | None = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry at most ``max_retries`` times and for at most ``give_up_after`` seconds in all.

    Before retry n (from 0) it waits ``backoff`` · 2ⁿ seconds, at most ``max_backoff``, less up to half of it at
    random; never less than the service asks for. Where that would pass ``give_up_after`` it gives up at once.
    """

    max_retries: int = 5
    backoff: float = 0.5
    max_backoff: float = 30.0
    give_up_after: float = 300.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.backoff < 0 or self.max_backoff < 0 or self.give_up_after <= 0:
            raise ConfigurationError(f"{self} cannot be used: give numbers from 0 up, and time above 0")

    def run(self, attempt: Callable[[float], T | Failure], stopped: threading.Event) -> T | Failure:
        """Return the first answer of ``attempt`` that is no passing failure, or the last failure.

        ``attempt`` takes the seconds that are left. Setting ``stopped`` ends a wait, and with it the retries.
        """
        started = time.monotonic()
        number = 0
        while True:
            answer = attempt(self.give_up_after - (time.monotonic() - started))
            if not isinstance(answer, Failure) or not answer.may_pass:
                return answer
            if number == self.max_retries:
                return _given_up(answer, number, None)
            wait = self.wait_before_retry(number, answer.retry_after)
            if time.monotonic() - started + wait >= self.give_up_after:
                return _given_up(answer, number, f"waiting {wait:.3g} s more would pass {self.give_up_after:g} s")
            if stopped.wait(wait):
                return _given_up(answer, number, "another request had failed for good")
            number += 1

    def wait_before_retry(self, number: int, retry_after: float | None) -> float:
        """Return the seconds to wait before retry ``number``, counted from 0."""
        # The exponent is bounded because 2.0 ** 1024 overflows.
        wait = min(self.backoff * 2.0 ** min(number, 60), self.max_backoff)
        spread = wait * random.uniform(0.5, 1.0)  # noqa: S311  # keeps clients apart, guards nothing
        return spread if retry_after is None else max(retry_after, 0.0) + (wait - spread)


PATIENT = RetryPolicy(max_retries=6, backoff=1.0, give_up_after=120.0)
"""For a command that publishes."""

BRIEF = RetryPolicy(max_retries=2, backoff=0.5, give_up_after=15.0)
"""For the end of a run, which can be published later."""

ONCE = RetryPolicy(max_retries=0)
"""For a client that retries by itself."""


def status_may_pass(status: int) -> bool:
    """Tell whether a retry can help after an answer with this HTTP status."""
    return status in PASSING_STATUSES or status >= 500


def retry_after_of(headers: Any) -> float | None:
    """Return the seconds a service asks to wait, from ``retry-after-ms`` or ``retry-after`` (seconds or a date)."""
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):  # no date, or one of a year that no clock has
        return None


def _given_up(failure: Failure, number: int, why: str | None) -> Failure:
    attempts = "1 attempt" if number == 0 else f"{number + 1} attempts"
    return replace(failure, reason=f"{failure.reason}, after {attempts}" + (f" ({why})" if why else ""))
