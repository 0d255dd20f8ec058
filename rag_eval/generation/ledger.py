"""What asking took: calls, tokens and money, by purpose, fresh or from the cache."""

import threading
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from rag_eval.generation.chat import Answer
from rag_eval.generation.prices import Prices

Purpose = Literal["questions", "cross-document", "unanswerable", "verification"]


class ChatUsage(BaseModel):
    """Calls with their tokens; ``cost`` in US dollars, None where the prices are not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class LedgerEntry(BaseModel):
    """What one purpose took.

    ``fresh`` was paid now, ``cached`` before: its cost is what it would be today. ``failed`` calls brought no answer;
    of these, ``unsettled`` may have been charged all the same, as the connection broke or the time was up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    purpose: str
    fresh: ChatUsage
    cached: ChatUsage
    failed: int = 0
    unsettled: int = 0


class Ledger:
    """Counts from many threads."""

    def __init__(self, prices: Prices | None) -> None:
        self._prices = prices
        self._usage: dict[tuple[Purpose, bool], ChatUsage] = {}
        self._failed: dict[tuple[Purpose, bool], int] = {}
        self._counting = threading.Lock()

    def add_answer(self, purpose: Purpose, answer: Answer, *, fresh: bool) -> None:
        """Count an answer, paid now or found."""
        with self._counting:
            before = self._usage.get((purpose, fresh), ChatUsage())
            self._usage[purpose, fresh] = ChatUsage(
                calls=before.calls + 1,
                input_tokens=before.input_tokens + answer.input_tokens,
                output_tokens=before.output_tokens + answer.output_tokens,
            )

    def add_failure(self, purpose: Purpose, *, unsettled: bool) -> None:
        """Count a call that brought no answer."""
        with self._counting:
            self._failed[purpose, unsettled] = self._failed.get((purpose, unsettled), 0) + 1

    @property
    def entries(self) -> list[LedgerEntry]:
        """One for each purpose that anything was asked for, and ``total``."""
        with self._counting:
            asked = {purpose for purpose, _ in (*self._usage, *self._failed)}
            purposes = [purpose for purpose in get_args(Purpose) if purpose in asked]
            return [self._entry(name, [name]) for name in purposes] + [self._entry("total", purposes)]

    def _entry(self, title: str, purposes: list[Purpose]) -> LedgerEntry:
        unsettled = sum(self._failed.get((purpose, True), 0) for purpose in purposes)
        return LedgerEntry(
            purpose=title,
            fresh=self._sum(purposes, fresh=True),
            cached=self._sum(purposes, fresh=False),
            failed=unsettled + sum(self._failed.get((purpose, False), 0) for purpose in purposes),
            unsettled=unsettled,
        )

    def _sum(self, purposes: list[Purpose], *, fresh: bool) -> ChatUsage:
        parts = [self._usage[purpose, fresh] for purpose in purposes if (purpose, fresh) in self._usage]
        read, written = sum(part.input_tokens for part in parts), sum(part.output_tokens for part in parts)
        cost = None if self._prices is None else self._prices.cost(read, written)
        calls = sum(part.calls for part in parts)
        return ChatUsage(calls=calls, input_tokens=read, output_tokens=written, cost=cost)
