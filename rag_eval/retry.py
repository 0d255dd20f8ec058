"""Retry requests to services.

| who retries | policy | retries of the client itself |
|---|---|---|
| embedders, rerankers and language models | `RetryPolicy()`, with `max_retries` as a setting | off |
| tasks and evaluators of an experiment | the call's `retries` and `retry_delay`, none by default | the user's |
| publishing to LangSmith and orq.ai | `PATIENT` on request, `BRIEF` at the end of a run | off |
| LangSmith's own `evaluate` | `ONCE` | on, because it uploads in the background |
| object storage | `STORAGE_RETRIES` | on, obstore's |
| pipeline tasks with parts that use the network | `STAGE_DELAYS`, after all of the above | – |
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TypeVar

from rag_eval.errors import ConfigurationError

T = TypeVar("T")

STORAGE_RETRIES = 2
STAGE_DELAYS = (5.0, 30.0)
"""Seconds to wait before a task is run again, for outages that outlast the clients' own retries."""

PASSING_STATUSES = frozenset({408, 409, 425, 429})
"""HTTP statuses below 500 after which a retry can succeed: timeout, conflict, too early, too many requests."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Describe a failed request. A value rather than an exception, because an exception would keep the API key alive.

    Attributes:
        reason: What went wrong, for a message.
        advice: What the user can do.
        may_pass: Whether a retry can succeed.
        retry_after: The seconds that the service asks to wait.
        is_refusal: Whether the service works and rejects this request.
    """

    reason: str
    advice: str
    may_pass: bool = False
    retry_after: float | None = None
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry with exponential backoff.

    Before retry n, counted from 0, it waits for ``backoff * 2**n`` seconds, at most ``max_backoff``, minus a random
    share of up to a half, and never less than the service asks for. A wait that would exceed ``give_up_after`` ends
    the retries at once.

    Args:
        max_retries: The maximum number of retries.
        backoff: The first wait in seconds.
        max_backoff: The longest wait in seconds.
        give_up_after: The maximum time in seconds for all attempts together.

    Raises:
        ConfigurationError: A number is negative, or ``give_up_after`` is 0.
    """

    max_retries: int = 5
    backoff: float = 0.5
    max_backoff: float = 30.0
    give_up_after: float = 300.0

    def __post_init__(self) -> None:
        if min(self.max_retries, self.backoff, self.max_backoff) < 0 or self.give_up_after <= 0:
            raise ConfigurationError(f"{self} is invalid: use numbers of at least 0, and a give_up_after above 0")

    def run(self, attempt: Callable[[float], T | Failure], stopped: threading.Event) -> T | Failure:
        """Call ``attempt`` until it succeeds, fails for good, or the policy is exhausted.

        Args:
            attempt: Makes the request, given the seconds that are left.
            stopped: Ends the current wait and the retries when it is set.

        Returns:
            The answer, or the last failure.
        """
        deadline = time.monotonic() + self.give_up_after
        number = 0
        while True:
            answer = attempt(deadline - time.monotonic())
            if not isinstance(answer, Failure) or not answer.may_pass:
                return answer
            wait = self.wait_before_retry(number, answer.retry_after)
            number += 1
            if number > self.max_retries:
                why = ""
            elif time.monotonic() + wait >= deadline:
                why = f" (waiting {wait:.3g} s more would exceed {self.give_up_after:g} s)"
            elif stopped.wait(wait):
                why = " (another request failed for good)"
            else:
                continue
            attempts = "1 attempt" if number == 1 else f"{number} attempts"
            return replace(answer, reason=f"{answer.reason}, after {attempts}{why}")

    def wait_before_retry(self, number: int, retry_after: float | None) -> float:
        """Return the seconds to wait before retry ``number``, counted from 0."""
        # The exponent is bounded because 2.0 ** 1024 overflows.
        wait = min(self.backoff * 2.0 ** min(number, 60), self.max_backoff)
        spread = wait * random.uniform(0.5, 1.0)  # noqa: S311  # no security purpose
        return spread if retry_after is None else max(retry_after, 0.0) + (wait - spread)


PATIENT = RetryPolicy(max_retries=6, backoff=1.0, give_up_after=120.0)
"""For commands that publish."""

BRIEF = RetryPolicy(max_retries=2, backoff=0.5, give_up_after=15.0)
"""For the end of a run, which can be published later."""

ONCE = RetryPolicy(max_retries=0)
"""For clients that retry themselves."""


def status_may_pass(status: int) -> bool:
    """Return whether a retry can succeed after this HTTP status."""
    return status in PASSING_STATUSES or status >= 500


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of ``retry-after-ms`` or ``retry-after``, which may be a date, or None."""
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):  # not a date, or a year that datetime cannot hold
        return None
