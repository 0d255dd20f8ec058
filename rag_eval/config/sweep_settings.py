"""The cost limit of a sweep, and the record of how it chose configurations."""

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
    """A limit in tokens or US dollars."""

    amount: float
    unit: Literal["tokens", "USD"]

    @classmethod
    def parse(cls, text: str) -> "CostLimit":
        """Parse ``500,000 tokens`` or ``2.50 USD``; raise ``ConfigurationError`` for anything else."""
        found = re.fullmatch(r"\s*([\d,_]*\.?\d+)\s*(tokens|USD)\s*", text)
        if not found:
            raise ConfigurationError(f"expected a cost such as '500,000 tokens' or '2.50 USD', found {preview(text)}")
        return cls(float(re.sub("[,_]", "", found[1])), "tokens" if found[2] == "tokens" else "USD")

    def allows(self, cost: Usage) -> bool:
        """Tell whether a cost is within the limit; raise ``ConfigurationError`` if the price is unknown."""
        if self.unit == "tokens":
            return (cost.tokens or 0) <= self.amount
        if cost.cost is None:
            raise ConfigurationError(
                "max_cost is in USD and the price of an embedder is unknown: set price_per_million_tokens or use tokens"
            )
        return cost.cost <= self.amount


class SearchRecord(BaseModel):
    """How a run chose the configurations to evaluate, and estimates of the others.

    Attributes:
        estimated: The objective of the configurations that were not evaluated, estimated by their stand-ins.
        tokens: All tokens embedded for the run, cached or not; ``full_tokens`` for the whole grid.
        cost: Their cost in US dollars, None if a price is unknown; ``full_cost`` for the whole grid.
        notes: Caveats about the choice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: str
    configurations: int
    estimated: dict[str, float]
    tokens: int
    full_tokens: int
    cost: float | None
    full_cost: float | None
    notes: list[str]


def total_usage(parts: Iterable[Usage]) -> Usage:
    """Return the total usage. Its cost is unknown if that of any part is."""
    listed = list(parts)
    costs = [usage.cost for usage in listed if usage.cost is not None]
    tokens = sum(usage.tokens or 0 for usage in listed)
    return Usage(0, sum(usage.texts for usage in listed), tokens, sum(costs) if len(costs) == len(listed) else None)
