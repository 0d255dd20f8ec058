"""What a metric is, and how its name is written: ``span_recall@5``, ``span_iou(cl100k_base)``, ``chroma_iou@min``."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def ratio(part: Counts | Values, whole: Counts | Values, empty: float = 0.0) -> Values:
    """``part / whole``, and ``empty`` where the whole is 0."""
    values = np.full(whole.shape, empty, dtype=np.float64)
    return np.divide(part, whole, out=values, where=whole > 0)


@lru_cache(maxsize=8)
def discounts(ranks: int) -> Values:
    """``1 / log2(rank + 1)`` for the ranks 1, 2, …; shared, so read-only."""
    values = np.array([1 / math.log2(rank + 1) for rank in range(1, ranks + 1)], dtype=np.float64)
    values.flags.writeable = False
    return values


def hit_rate(gains: Counts) -> Values:
    """1 where any rank has a gain, else 0."""
    found: NDArray[np.bool_] = np.any(gains > 0, axis=0)
    return found.astype(np.float64)


def reciprocal_rank(gains: Counts) -> Values:
    """1 / the first rank that has a gain; 0 where none has."""
    values = np.zeros(gains.shape[1])
    for rank, gain in enumerate(gains, start=1):
        np.maximum(values, (gain > 0) / rank, out=values)
    return values


def average_precision(gains: Counts, total: Counts) -> Values:
    """Σ gain(i) · P(i) / total, P(i) being the share of the first i ranks that have a gain; 0 where the total is 0."""
    useful = np.zeros(gains.shape[1], dtype=np.int64)
    weighted = np.zeros(gains.shape[1])
    for rank, gain in enumerate(gains, start=1):
        useful += gain > 0
        weighted += gain * (useful / rank)
    return ratio(weighted, total)


def discounted_gain(gains: Counts) -> Values:
    """Σ gain(i) / log2(i + 1)."""
    values = np.zeros(gains.shape[1])
    # Added rank by rank: the same sum, to the last bit, for one query and for many.
    for gain, discount in zip(gains, discounts(len(gains)), strict=True):
        values += gain * discount
    return values


Depth = int | Literal["min"] | None
"""How many hits count: the first k, as many as there are chunks that touch a reference, or all that are given."""

LARGEST_K = 2**31 - 1
"""What the column k of a scores table can hold."""

_NAME = re.compile(r"(?P<base>[a-z][a-z0-9_]*)(\((?P<unit>[^()@]+)\))?(@(?P<k>min|[1-9][0-9]*))?")


@runtime_checkable
class ChunkLevelMetric(Protocol):
    """Scores one query from chunk ids."""

    @property
    def name(self) -> str:
        """The key of the metric in every result."""

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId]) -> float:
        """The score of what was retrieved, best first, against the relevant chunks."""


@runtime_checkable
class TokenLevelMetric(Protocol):
    """Scores one query from character spans."""

    @property
    def name(self) -> str:
        """The key of the metric in every result."""

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The score of what was retrieved, best first, against the relevant spans."""


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric, the tokenizer it counts with (none: characters) and its cut; ``str`` gives what ``parse`` reads."""

    base: str
    unit: str | None = None
    k: Depth = None

    @classmethod
    def parse(cls, text: str) -> "MetricName":
        """Read ``metric``, ``metric@k``, ``metric(unit)`` or ``metric(unit)@k``, k being a number or ``min``.

        Raises ``ConfigurationError`` when the text is none of these; whether the metric exists is for the registry.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{preview(text)} is not a metric's name: write it like span_recall, span_recall@5, chroma_iou@min "
                "or span_recall(cl100k_base)@5"
            )
        cut = match["k"]
        k: Depth = None if cut is None else "min" if cut == "min" else int(cut)
        return cls(match["base"], match["unit"], k)

    def __str__(self) -> str:
        unit = f"({self.unit})" if self.unit else ""
        cut = "" if self.k is None else f"@{self.k}"
        return f"{self.base}{unit}{cut}"


def check_cut(k: int | None, where: str) -> None:
    """Raise ``ConfigurationError``, naming ``where``, unless k is a whole number of 1 to 2³¹ - 1, or not given."""
    if k is None or (isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= LARGEST_K):
        return
    raise ConfigurationError(f"{where} has k = {k!r}: use a whole number of 1 to {LARGEST_K}, or None for all hits")


def refuse_repeated(names: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` when two metrics have one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(f"two metrics have the name {name!r}: give each its own, or leave one out")
        seen.add(name)
