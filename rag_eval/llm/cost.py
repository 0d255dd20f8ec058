"""What asking a model costs: prices, a budget that no calls together can pass, and a ledger of what was paid."""

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
    """US dollars for a million tokens that the model reads, and for a million that it writes; no discounts."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """(input tokens · input price + output tokens · output price) / 1,000,000."""
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
"""OpenAI's list prices, as of May 2026."""


def list_prices(model: str) -> Prices | None:
    """Return the list prices of an OpenAI model, by its name or that of a dated snapshot; None if unknown."""
    return LIST_PRICES.get(model) or LIST_PRICES.get(_SNAPSHOT.sub("", model))


class BudgetReachedError(Exception):
    """The next call could pass the limit; nothing more is asked."""


@dataclass
class Reservation:
    """The most that one call may cost; ``spent`` is set when it is known what it did cost."""

    most: float
    spent: float = 0.0


class Budget:
    """A limit in US dollars, or none.

    The worst case of a call is reserved before it is made, so that all calls under way together cannot pass the limit.
    A call that does not fit waits for those under way to cost less than reserved; when none is left, the budget is
    reached, for all calls.
    """

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        """What was paid, at most, by the calls that have ended."""
        self._reserved = 0.0
        self._under_way = 0
        self.is_reached = False
        self.refused = 0.0
        """What the first call that was refused might have cost."""
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, most: float, stopped: threading.Event) -> Iterator[Reservation]:
        """Reserve ``most`` for the time of a call; raises ``BudgetReachedError`` when it does not fit."""
        with self._changed:
            while not self.is_reached and self.limit is not None and self.spent + self._reserved + most > self.limit:
                if not self._under_way or stopped.is_set():
                    self.is_reached, self.refused = True, most
                    self._changed.notify_all()
                    break
                self._changed.wait(0.5)
            if self.is_reached:
                raise BudgetReachedError
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
    """Calls with their tokens; ``cost`` in US dollars, None where the prices are not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class LedgerEntry(Record):
    """What one purpose took.

    ``fresh`` was paid now, ``cached`` before: its cost is what it would be today. ``failed`` calls brought no answer;
    of these, ``unsettled`` may have been charged all the same, as the connection broke or the time was up.
    """

    purpose: str
    fresh: ChatUsage
    cached: ChatUsage
    failed: int = 0
    unsettled: int = 0


class Ledger:
    """Counts calls of many threads, by purpose; ``purposes`` is the order of the entries."""

    def __init__(self, prices: Prices | None, purposes: Sequence[str]) -> None:
        self._prices, self._purposes = prices, purposes
        self._answers: list[tuple[str, bool, int, int]] = []  # purpose, fresh, tokens read, tokens written
        self._failures: list[tuple[str, bool]] = []  # purpose, unsettled

    def add_answer(self, purpose: str, answer: Answer, *, fresh: bool) -> None:
        self._answers.append((purpose, fresh, answer.input_tokens, answer.output_tokens))

    def add_failure(self, purpose: str, *, unsettled: bool) -> None:
        self._failures.append((purpose, unsettled))

    @property
    def entries(self) -> list[LedgerEntry]:
        """An entry for each purpose that anything was asked for, and ``total``."""
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
        tokens = [one[2:] for one in self._answers if one[0] in purposes and one[1] is fresh]
        read, written = sum(one for one, _ in tokens), sum(one for _, one in tokens)
        cost = None if self._prices is None else self._prices.cost(read, written)
        return ChatUsage(calls=len(tokens), input_tokens=read, output_tokens=written, cost=cost)
