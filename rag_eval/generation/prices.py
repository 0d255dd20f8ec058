"""What chat models cost."""

import re

from pydantic import Field

from rag_eval.config.settings import Settings

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
    """The list prices of a model of OpenAI, by its name or that of a dated snapshot; None where they are not known."""
    return LIST_PRICES.get(model) or LIST_PRICES.get(_SNAPSHOT.sub("", model))
