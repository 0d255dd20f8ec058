"""Track the cost of asking a model: prices, a budget that concurrent calls cannot exceed, and a ledger of payments."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import Field

from rag_eval.llm.chat import Answer
from rag_eval.parts.part_settings import Record, Settings

MILLION = 1_000_000
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


class Prices(Settings):
    """US dollars for a million input tokens and for a million output tokens, without discounts.

    ::

        Prices(input=0.15, output=0.6).cost(2_000, 100)  # 0.00036
    """

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return (input tokens · input price + output tokens · output price) / 1,000,000."""
        return (input_tokens * self.input + output_tokens * self.output) / MILLION


LIST_PRICES = {
    "gpt-4.1": Prices(input=2.0, output=8.0),
    "gpt-4.1-mini": Prices(input=0.4, output=1.6),
    "gpt-4.1-nano": Prices(input=0.1, output=0.4),
    "gpt-4o": Prices(input=2.5, output=10.0),
    "gpt-4o-2024-05-13": Prices(input=5.0, output=15.0),
    "gpt-4o-mini": Prices(input=0.15, output=0.6),
    "gpt-5": Prices(input=1.25, output=10.0),
    "gpt-5-mini": Prices(input=0.25, output=2.0),
    "gpt-5-nano": Prices(input=0.05, output=0.4),
    "gpt-5.1": Prices(input=1.25, output=10.0),
    "o3": Prices(input=2.0, output=8.0),
    "o3-mini": Prices(input=1.1, output=4.4),
    "o4-mini": Prices(input=1.1, output=4.4),
}
"""OpenAI's list prices as of May 2026."""


def list_prices(model: str) -> Prices | None:
    """Return the list prices of an OpenAI model or of a dated snapshot of it, or None if they are unknown."""
    return LIST_PRICES.get(model) or LIST_PRICES.get(_SNAPSHOT.sub("", model))


class AskingStoppedError(Exception):
    """No further call is made: the next one could exceed the budget, or asking was stopped."""


@dataclass
class Reservation:
    """The maximum cost of a call. The caller sets ``spent`` when the actual cost is known."""

    most: float
    spent: float = 0.0


class Budget:
    """A limit in US dollars, or None.

    The worst case of a call is reserved before it is made, so that concurrent calls together cannot exceed the limit. A
    call that does not fit waits for the others to cost less than reserved. When it is the last one, the budget is
    reached for all calls.
    """

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        """Maximum cost of the calls that have ended."""
        self._reserved = 0.0
        self._under_way = 0
        self.is_reached = False
        self.refused = 0.0
        """Possible cost of the first call that did not fit."""
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, most: float, stopped: threading.Event) -> Iterator[Reservation]:
        """Reserve ``most`` for the duration of a call. Raises ``AskingStoppedError`` if it does not fit."""
        with self._changed:
            while not self.is_reached and self.limit is not None and self.spent + self._reserved + most > self.limit:
                if not self._under_way or stopped.is_set():
                    self.is_reached, self.refused = True, most
                    self._changed.notify_all()
                    break
                self._changed.wait(0.5)
            if self.is_reached:
                raise AskingStoppedError
            self._reserved += most
            self._under_way += 1
        reservation = Reservation(most)
        try:
            yield reservation
        finally:
            with self._changed:
                self._reserved -= most
                self._under_way -= 1
                self.spent += reservation.spent
                self._changed.notify_all()

    def wait_until_idle(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, seconds)


class ChatUsage(Record):
    """Number of calls, their tokens, and their cost in US dollars (None if prices are unknown)."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class LedgerEntry(Record):
    """The usage for one purpose.

    Attributes:
        purpose: What was asked for, or ``total``.
        fresh: The calls that were paid now.
        cached: The cached answers, with what they would cost now.
        failed: The calls without an answer.
        unsettled: Those of the failed calls that may have been charged, after a lost connection or a timeout.
    """

    purpose: str
    fresh: ChatUsage
    cached: ChatUsage
    failed: int = 0
    unsettled: int = 0


class Ledger:
    """Counts calls by purpose, from any thread. ``purposes`` is the order of the entries."""

    def __init__(self, prices: Prices | None, purposes: Sequence[str]) -> None:
        self._prices, self._purposes = prices, purposes
        self._answers: list[tuple[str, bool, int, int]] = []  # purpose, fresh, input tokens, output tokens
        self._failures: list[tuple[str, bool]] = []  # purpose, unsettled

    def add_answer(self, purpose: str, answer: Answer, *, fresh: bool) -> None:
        self._answers.append((purpose, fresh, answer.input_tokens, answer.output_tokens))

    def add_failure(self, purpose: str, *, unsettled: bool) -> None:
        self._failures.append((purpose, unsettled))

    @property
    def entries(self) -> list[LedgerEntry]:
        """Entries for each purpose with calls, and for ``total``."""
        used = {purpose for purpose, *_ in (*self._answers, *self._failures)}
        purposes = [purpose for purpose in self._purposes if purpose in used]
        return [self._entry(name, [name]) for name in purposes] + [self._entry("total", purposes)]

    def _entry(self, title: str, purposes: list[str]) -> LedgerEntry:
        failed = [unsettled for purpose, unsettled in self._failures if purpose in purposes]
        return LedgerEntry(
            purpose=title,
            fresh=self._usage(purposes, fresh=True),
            cached=self._usage(purposes, fresh=False),
            failed=len(failed),
            unsettled=sum(failed),
        )

    def _usage(self, purposes: list[str], *, fresh: bool) -> ChatUsage:
        tokens = [counts for purpose, is_fresh, *counts in self._answers if purpose in purposes and is_fresh is fresh]
        read, written = sum(count for count, _ in tokens), sum(count for _, count in tokens)
        cost = None if self._prices is None else self._prices.cost(read, written)
        return ChatUsage(calls=len(tokens), input_tokens=read, output_tokens=written, cost=cost)
