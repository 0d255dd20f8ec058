"""What embedding took: requests, texts, tokens and money."""

import threading
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

_counting = threading.Lock()  # one for all counters, so that an embedder can be pickled and copied


@dataclass(frozen=True, slots=True)
class Usage:
    """What an embedder has used since it was made.

    ``requests`` counts calls over the network, repeated ones included; ``texts`` those that got a vector;
    ``tokens`` what the model read, and ``cost`` the price of it in US dollars: None where they are not known.
    """

    requests: int
    texts: int
    tokens: int | None
    cost: float | None


@runtime_checkable
class ReportsUsage(Protocol):
    """An embedder that tells what it used. Optional: an ``Embedder`` need not."""

    @property
    def usage(self) -> Usage:
        """All that was used so far."""


class UsageCounter:
    """Counts from many threads. Without a price the cost is unknown; texts added without tokens make them unknown."""

    def __init__(self, price_per_million_tokens: float | None) -> None:
        self._price = price_per_million_tokens
        self._requests = self._texts = 0
        self._tokens: int | None = 0

    def add(self, requests: int = 0, texts: int = 0, tokens: int | None = 0) -> None:
        """Count what one step used."""
        with _counting:
            self._requests += requests
            self._texts += texts
            self._tokens = None if tokens is None or self._tokens is None else self._tokens + tokens

    @property
    def usage(self) -> Usage:
        """All that was counted so far."""
        with _counting:
            requests, texts, tokens = self._requests, self._texts, self._tokens
        if self._price is None or (tokens is None and self._price):
            return Usage(requests, texts, tokens, None)
        return Usage(requests, texts, tokens, self._price * (tokens or 0) / 1_000_000)
