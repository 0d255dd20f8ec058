"""Searching a grid of configurations without embedding all of it: what to embed next, and what is known by then.

**The bound.** Where the score of a chunk does not depend on the other chunks, leaving out chunks that hold nothing
relevant can only move the others up. So what a configuration finds in a pool of its chunks, all that hold something
relevant to a question and any others, is never less than what it finds in all of them: at a number of hits, and within
a budget of tokens. A question whose chunks are not pooled yet counts as found. A configuration whose bound is not above
the best one measured by more than a tolerance need not be embedded any further.

Everything here is decided from what was measured, never from what a workspace has kept: a search that was stopped and
begun again goes the same way.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from rag_eval.errors import ConfigurationError, preview

Search = Literal["full", "guided", "sure"]
Numbers = NDArray[np.int64]
Values = NDArray[np.float64]

TOLERANCE = 0.01
GUIDED = 3
"""How many chunkings a guided search embeds: those that the guide ranks first."""

COST_WEIGHT = 0.3
"""How much better, by the objective, a chunking has to be that takes all the tokens of the grid: of those that the
guide finds nearly alike, the cheaper is first."""

FEWEST_HELD_OUT = (5, 20)
"""With fewer documents, or questions about them, nothing is judged by what was held out."""

LARGEST_POOL = 0.6
"""A pool that costs more than this share of the whole chunking is not worth it: all of it is embedded."""

MOST_ROUNDS = 8
"""After so many pools of a chunking without an end, all of it is embedded."""


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

    ``excluded`` find so much by the objective at most, and so do ``open``, which may still be the best: the search was
    stopped before. ``estimated`` find about so much, as a stand-in of theirs does; of these, ``unbounded`` say why
    nothing is certain of them. No configuration with a bound is better than the best one evaluated by more than
    ``gap``; None where none has one. ``is_stopped`` says that ``max_cost`` ended the search.
    ``tokens`` and ``cost`` (US dollars) are those of all that was embedded for it, kept or not, ``full_tokens`` and
    ``full_cost`` those of the whole grid; None where a price is not known. ``notes`` are reasons to trust it less.
    ``holdout`` says how the one that is best on the documents that were searched does on those that were not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    strategy: Search
    objective: str
    configurations: int
    excluded: dict[str, float]
    open: dict[str, float]
    estimated: dict[str, float]
    unbounded: dict[str, str]
    gap: float | None
    is_stopped: bool
    tokens: int
    full_tokens: int
    cost: float | None
    full_cost: float | None
    notes: list[str]
    holdout: Holdout | None = None


@dataclass(frozen=True)
class Chunking:
    """The chunks of one way to cut, as one embedder reads them.

    ``texts`` has the number of each chunk's text among all that may be embedded; ``bearing`` of each question the
    chunks that hold something relevant to it.
    """

    texts: Numbers
    bearing: Sequence[Numbers]


@dataclass(frozen=True)
class Rival:
    """A configuration with a bound: which chunking it searches, and how; those of a kind search alike."""

    chunking: int
    kind: str


@dataclass(frozen=True)
class Step:
    """What to embed and measure next: a chunking whole, or a pool of its chunks, which is valid for some questions."""

    chunking: int
    chunks: Numbers
    questions: Numbers
    whole: bool


class SureSearch:
    """Says what to embed next until no rival can be better than the best one measured by more than the tolerance.

    ``costs`` are those of the texts. ``expected[i, q]`` is what a guide takes rival i to find for question q; it
    decides the order, and never what is excluded. ``near(rival, question)`` gives chunks that it is likely to
    rank high. The chunkings ``first`` are embedded whole before anything else; those of ``begun`` are by now.
    ``limit`` is the most to spend, ``spent`` what else was, ``known`` the best of what has no bound or costs nothing.
    """

    def __init__(
        self,
        chunkings: Sequence[Chunking],
        rivals: Sequence[Rival],
        costs: Values | Numbers,
        expected: Values,
        near: Callable[[int, int], Numbers],
        first: Sequence[int] = (),
        tolerance: float = TOLERANCE,
        limit: float = np.inf,
        known: float = -np.inf,
        begun: Sequence[int] = (),
        spent: float = 0.0,
    ) -> None:
        self._chunkings, self._rivals, self._costs = chunkings, rivals, costs
        self._expected, self._near, self._tolerance, self._limit = expected, near, tolerance, limit
        self._first, self._known = list(first), known
        self.embedded = np.zeros(len(costs), bool)
        """Which of the texts are."""
        self._pooled = [np.zeros(expected.shape[1], bool) for _ in chunkings]
        self._chunks = [np.zeros(len(one.texts), bool) for one in chunkings]
        self._rounds = [0] * len(chunkings)
        self.bounds = np.ones(expected.shape)
        """Of each rival and question, what it finds at most; of one that is measured, what it finds."""
        self.measured, self._failed = np.zeros(len(rivals), bool), np.zeros(len(rivals), bool)
        for one in begun:
            self.embedded[chunkings[one].texts] = True
        self.spent = spent + float(costs[self.embedded].sum())
        """What was embedded costs, had nothing been kept before."""
        self.is_stopped = False
        """Whether the limit ended the search."""

    @property
    def best(self) -> float:
        """The highest mean that was measured."""
        return float(self.bounds[self.measured].mean(axis=1).max(initial=self._known))

    @property
    def excluded(self) -> set[int]:
        """The rivals that are not measured and surely no better than the best by more than the tolerance."""
        out = ~self.measured & (self.bounds.mean(axis=1) <= self.best + self._tolerance)
        return set(np.flatnonzero(out).tolist())

    @property
    def gap(self) -> float:
        """How much better than the best any other can be, at most."""
        others = self.bounds[~self.measured]
        return max(0.0, float(others.mean(axis=1).max(initial=-np.inf)) - self.best) if len(others) else 0.0

    def members(self, chunking: int) -> list[int]:
        """The rivals that search a chunking."""
        return [number for number, one in enumerate(self._rivals) if one.chunking == chunking]

    def next(self) -> Step | None:
        """What to embed and measure next; None when the search has ended."""
        step = self._wanted()
        if step is None or self.is_stopped:
            return None
        if self.spent + self._cost(step.chunking, step.chunks) > self._limit:
            self.is_stopped = True
            return None
        return step

    def learn(self, step: Step, values: Values) -> None:
        """Take in what the rivals of the step's chunking find, by question, and that its chunks are embedded.

        Of one that failed, of which all is NaN, nothing more is wanted, and nothing is said of others by it.
        """
        self.spent += self._cost(step.chunking, step.chunks)
        self.embedded[self._chunkings[step.chunking].texts[step.chunks]] = True
        self._chunks[step.chunking][step.chunks] = True
        self._pooled[step.chunking][step.questions] = True
        self._rounds[step.chunking] += 1
        rows = np.array(self.members(step.chunking))
        known = np.ix_(rows, step.questions)
        has_failed = np.isnan(values).any(axis=1)
        self._failed[rows] |= has_failed
        self.bounds[known] = values if step.whole else np.minimum(self.bounds[known], values)
        self.bounds[rows[has_failed]] = 0
        self.measured[rows] |= step.whole | has_failed

    def _wanted(self) -> Step | None:
        means = self.bounds.mean(axis=1)
        left = np.flatnonzero(~self.measured & (means > self.best + self._tolerance))
        if not len(left):
            return None
        for chunking in self._first:
            if not self.measured[self.members(chunking)].all():
                return self._whole(chunking)
        # Of equal bounds the one that is expected to be best.
        order = np.lexsort((-self._predicted(left).mean(axis=1), -means[left].round(9)))
        return self._pool(int(left[order[0]]))

    def _predicted(self, rivals: Numbers) -> Values:
        """What rivals probably find: what others of their kind do, and the guide says."""
        found, known = [], np.flatnonzero(self.measured & ~self._failed).tolist()
        for number in rivals.tolist():
            kind = self._rivals[number].kind
            alike = [other for other in known if self._rivals[other].kind == kind]
            found.append(np.mean([self._expected[number], *self.bounds[alike]], axis=0))
        return np.array(found)

    def _pool(self, rival: int) -> Step:
        """The questions that the rival is most likely to miss, enough to exclude it; or its whole chunking."""
        number = self._rivals[rival].chunking
        chunking, pooled = self._chunkings[number], self._pooled[number]
        count = len(pooled)
        needed = count * (self.bounds[rival].mean() - self.best - self._tolerance)
        loss = np.where(pooled, 0, self.bounds[rival] - self._predicted(np.array([rival]))[0])
        order = np.argsort(-loss, kind="stable")
        order = order[loss[order] > 0]
        enough = int(np.searchsorted(np.cumsum(loss[order]), needed)) + 1
        if enough > len(order) or self._rounds[number] >= MOST_ROUNDS:
            return self._whole(number)
        asked = order[:enough].tolist()
        chunks = [*(chunking.bearing[one] for one in asked), *(self._near(rival, one) for one in asked)]
        added = np.unique(np.concatenate(chunks))
        if self._cost(number, added) > LARGEST_POOL * self._cost(number, np.arange(len(chunking.texts))):
            return self._whole(number)
        taken, questions = self._chunks[number].copy(), pooled.copy()
        taken[added] = questions[asked] = True
        return Step(number, np.flatnonzero(taken), np.flatnonzero(questions), whole=False)

    def _whole(self, chunking: int) -> Step:
        every = np.arange(len(self._pooled[chunking]))
        return Step(chunking, np.arange(len(self._chunkings[chunking].texts)), every, whole=True)

    def _cost(self, chunking: int, chunks: Numbers) -> float:
        texts = np.unique(self._chunkings[chunking].texts[chunks])
        return float(self._costs[texts[~self.embedded[texts]]].sum())
