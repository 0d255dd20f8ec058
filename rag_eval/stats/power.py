"""How many questions about how many documents it takes to notice a drop of a given size.

What differs from question to question, and from document to document, is learned from a pilot: the differences of two
configurations, or of two runs, on the questions there are.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.comparison import ROUNDING, SIGNIFICANCE, rise_p_values
from rag_eval.stats.scores import Units

FEWEST_CHANGED = 40
"""From so many documents on, the formula is within 3 points of the simulated power; below, it promises too much."""

FEWEST_PILOT = 60
"""A pilot about fewer documents may mislead, by what it happens to hold."""

MOST_DOCUMENTS = 1_000_000

MOST_SIMULATED = 50
"""For more configurations together the gate's test takes too many resamples to be simulated."""

_UPPER = 0.8
_DRAWS, _RESAMPLES = 1_000, 999
_AT_ONCE = 1_000_000
"""Draws times resamples that are held in memory."""


def varies(differences: Values) -> bool:
    """Whether there is anything to learn from: not every question differs by the same."""
    return bool(np.abs(differences - differences.mean()).max() > ROUNDING)


@dataclass(frozen=True)
class Pilot:
    """What the questions of each unit gained or lost: ``differences`` has one value a question.

    Raises ``ConfigurationError`` when there are fewer than two units, or nothing differs.
    """

    differences: Values
    units: Units

    def __post_init__(self) -> None:
        if self.units.count < 2:
            raise ConfigurationError("a plan needs questions about two documents at least: ask about more")
        if not varies(self.differences):
            raise ConfigurationError("the two configurations differ by the same on every question: choose two others")

    @property
    def per_document(self) -> float:
        """The mean number of questions about a document."""
        return len(self.differences) / self.units.count

    @property
    def changed(self) -> int:
        """How many documents have a question whose score differs."""
        return int(np.count_nonzero(self.units.sums(np.abs(self.differences)[None])[0] > ROUNDING))

    @cached_property
    def variances(self) -> tuple[float, float]:
        """The variance between documents and that within them, σ_b² and σ_w², at the upper 80 % limit of a pilot's.

        By the analysis of variance for unequal groups; with one question a document all of it is between.
        """
        units, values, sizes = self.units, self.differences, self.units.sizes
        means = units.sums(values[None])[0] / sizes
        inside = len(values) - units.count
        within = float(((values - means[units.numbers]) ** 2).sum()) / inside if inside else 0.0
        spread = float((sizes * (means - values.mean()) ** 2).sum()) / (units.count - 1)
        usual = (len(values) - float((sizes**2).sum()) / len(values)) / (units.count - 1)
        between = max(0.0, spread - within) / usual
        limit = (units.count - 1) / float(chdtri(units.count - 1, _UPPER))
        return between * limit, within * limit

    def power(self, documents: int, per_document: float, drop: float, tests: int = 1) -> float:
        """The probability that a drop by so much more than is allowed fails the gate, with so many tests together.

        From the noncentral t with ``documents`` - 1 degrees and SE² = (σ_b² + σ_w² / ``per_document``) / ``documents``.
        """
        between, within = self.variances
        error = math.sqrt((between + within / per_document) / documents)
        limit = float(stdtrit(documents - 1, 1 - SIGNIFICANCE / tests))
        return 1 - float(nctdtr(documents - 1, drop / error, limit)) if error > 0 else float(drop > 0)

    def simulated_power(
        self, documents: int, per_document: float, drop: float, rng: np.random.Generator, tests: int = 1
    ) -> float:
        """The same, as the share of draws of the pilot's documents that the gate's own test rejects.

        With other numbers of questions than the pilot's, what strays is scaled as SE is.
        """
        units = self.units
        between, within = self.variances
        scale = math.sqrt((between + within / per_document) / (between + within / self.per_document))
        strays = scale * units.sums((self.differences - self.differences.mean())[None])[0]
        drawn = (strays + drop * units.sizes)[rng.integers(0, units.count, (_DRAWS, documents))]
        resamples = max(_RESAMPLES, math.ceil(10 * tests / SIGNIFICANCE))
        parts = np.array_split(drawn, math.ceil(_DRAWS * resamples / _AT_ONCE))
        p_values = np.concatenate([rise_p_values(part, rng, resamples) for part in parts])
        return float(np.mean(p_values * tests < SIGNIFICANCE))

    def documents_needed(
        self, per_document: int, drop: float, power: float, rng: np.random.Generator, tests: int = 1
    ) -> int | None:
        """The fewest documents with which the drop is noticed with this probability; None where a million do not do.

        By the formula, and where that gives fewer than ``FEWEST_CHANGED``, by simulation; for more than
        ``MOST_SIMULATED`` tests no fewer than those.
        """
        if drop <= 0:
            raise ConfigurationError(f"the drop to notice is {drop:g} beyond what is allowed: give a larger one")
        needed = self.fewest(per_document, drop, power, tests)
        if needed is None or needed >= FEWEST_CHANGED or tests > MOST_SIMULATED:
            return needed and max(needed, FEWEST_CHANGED)
        # The same draws for every number, so that chance makes no difference between them.
        return _fewest(
            2, 2 * FEWEST_CHANGED, lambda n: self.simulated_power(n, per_document, drop, deepcopy(rng), tests) >= power
        )

    def fewest(self, per_document: float, drop: float, power: float, tests: int = 1) -> int | None:
        """The same by the formula alone."""
        most = next((n for n in _doubled(2) if self.power(n, per_document, drop, tests) >= power), None)
        if most is None:
            return None
        return _fewest(2, most, lambda n: self.power(n, per_document, drop, tests) >= power)

    def noticed(self, documents: int, per_document: float, power: float, tests: int = 1) -> float:
        """The smallest drop beyond what is allowed that is noticed with this probability."""
        low, high = 0.0, 1.0
        while self.power(documents, per_document, high, tests) < power:
            high *= 2
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(documents, per_document, middle, tests) >= power else (middle, high)
        return high


ASKED = (1, 2, 5, 10)
"""How many questions about a document a plan looks at."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the questions of a pilot can notice, and how many it takes to notice a drop; all at one probability.

    ``noticed`` is the smallest drop, and ``needed`` has the documents for each number of questions about a document,
    None where a million do not do; what is allowed is part of both drops.
    """

    questions: int
    documents: int
    changed: int
    noticed: float
    needed: dict[int, int | None]


def plan_questions(
    pilot: Pilot, drop: float, allowed: float, power: float, rng: np.random.Generator, tests: int = 1
) -> Plan:
    """Plan for a gate that allows a drop of ``allowed``, with so many configurations gated together.

    Raises ``ConfigurationError`` unless the drop is larger than is allowed and the power between 0 and 1.
    """
    if not 0 < power < 1 or tests < 1:
        raise ConfigurationError(f"a power of {power} with {tests} tests is none: use one between 0 and 1, such as 0.8")
    units = pilot.units.count
    return Plan(
        len(pilot.differences),
        units,
        pilot.changed,
        allowed + pilot.noticed(units, pilot.per_document, power, tests),
        {asked: pilot.documents_needed(asked, drop - allowed, power, rng, tests) for asked in ASKED},
    )


def _doubled(first: int) -> list[int]:
    return [first * 2**step for step in range(20) if first * 2**step <= MOST_DOCUMENTS]


def _fewest(low: int, high: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest of the numbers that is enough, where all larger ones are too; ``high`` where no smaller one is."""
    return low + bisect_left(range(low, high), True, key=is_enough)
