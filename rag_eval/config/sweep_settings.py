"""What a sweep may spend, and what a run records of it: how it chose the configurations that it evaluated."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError, preview

Search = Literal["full", "guided"]


@dataclass(frozen=True)
class CostLimit:
    """The most that may be spent: so many tokens, or US dollars."""

    amount: float
    unit: Literal["tokens", "USD"]

    @classmethod
    def parse(cls, text: str) -> "CostLimit":
        """Read ``500,000 tokens`` or ``2.50 USD``; raises ``ConfigurationError`` on anything else."""
        found = re.fullmatch(r"\s*([\d,_]*\.?\d+)\s*(tokens|USD)\s*", text)
        if not found:
            raise ConfigurationError(f"expected a cost such as '500,000 tokens' or '2.50 USD', found {preview(text)}")
        return cls(float(re.sub("[,_]", "", found[1])), "tokens" if found[2] == "tokens" else "USD")

    def allows(self, cost: Usage) -> bool:
        """Tell whether so much may be spent; raises ``ConfigurationError`` where the price is not known."""
        if self.unit == "tokens":
            return (cost.tokens or 0) <= self.amount
        if cost.cost is None:
            raise ConfigurationError(
                "max_cost is in USD and the price of an embedder is not known: give price_per_million_tokens, or tokens"
            )
        return cost.cost <= self.amount


class Holdout(BaseModel):
    """The configuration that is best on the questions searched: what it finds there, and on those held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    found: float
    questions: int
    held_out: float
    held_out_questions: int
    held_out_documents: int


class SearchRecord(BaseModel):
    """How a run chose what to evaluate of a grid of so many configurations, and what is known of the others.

    ``estimated`` find about so much by the objective, as their stand-ins do. ``tokens`` and ``cost`` (US dollars) are
    those of all that was embedded for the run, cached or not, ``full_tokens`` and ``full_cost`` those of the whole
    grid; None where a price is not known. ``notes`` are reasons to trust it less. ``holdout`` says how the
    configuration that is best on the documents that were searched does on those that were not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    strategy: str
    objective: str
    configurations: int
    estimated: dict[str, float]
    tokens: int
    full_tokens: int
    cost: float | None
    full_cost: float | None
    notes: list[str]
    holdout: Holdout | None = None


def total_usage(parts: Iterable[Usage]) -> Usage:
    """Return the sum; its cost is unknown where that of a part is."""
    listed = list(parts)
    costs = [one.cost for one in listed if one.cost is not None]
    tokens = sum(one.tokens or 0 for one in listed)
    return Usage(0, sum(one.texts for one in listed), tokens, sum(costs) if len(costs) == len(listed) else None)
