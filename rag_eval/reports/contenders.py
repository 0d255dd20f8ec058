"""A configuration in the ranking: what it finds by the objective, how it compares with the first, what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rag_eval.metrics.formulas import TokensFetched, context_cost
from rag_eval.metrics.metric import higher_is_better, split_name
from rag_eval.reports.wording import significance
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.stats.comparison import Placed, place_labels

FEWEST_QUESTIONS = 20
"""With fewer questions nothing is recommended."""

HALF = 0.5
"""A best share below this is nothing to recommend, and margins are in proportion to it."""

CLOSE = 0.01
"""A cheaper configuration is proposed if its mean is no further below the first's than ``margin_at`` that."""

ABOUT_THE_SAME = 0.05
"""Tokens or texts that differ by this share or less are no reason to choose one for its price."""

LATENCY_NOISE, LATENCY_STEP = 4.0, 1.0
"""Latencies differ where one is so many times the other, and so many milliseconds longer: the same search timed again
on a busy machine differs by less."""

Part = Literal["embedder", "reranker", "service", "system"]


@dataclass(frozen=True)
class Contender:
    """A configuration in the ranking, from which every table, chart and sentence is made.

    Attributes:
        place: Its place; one that several share is marked, such as ``=1``.
        outcome: What it found and what that took.
        objective: The metric of the ranking.
        placed: Its mean, the test against the first, and the probability of being the best; None without scores.
        ended: The share of the questions whose hits end before the budget: with more hits it may find more.
    """

    place: str
    outcome: ConfigurationOutcome
    objective: str
    placed: Placed | None = None
    ended: float | None = None

    @property
    def name(self) -> str:
        return self.outcome.name

    @property
    def mean(self) -> float:
        return self.placed.estimate.mean if self.placed else self.outcome.metrics[self.objective]

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the mean; without ends where there is one unit or there are no scores."""
        return (self.placed.estimate.low, self.placed.estimate.high) if self.placed else (None, None)

    @property
    def difference(self) -> float:
        """Its mean minus that of the first, in the direction of better; 0 for the first."""
        beside = self.placed.against_best if self.placed else None
        return self._sign * beside.difference if beside else 0.0

    @property
    def difference_interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the difference; without ends for the first."""
        beside = self.placed.against_best if self.placed else None
        if beside is None or beside.low is None or beside.high is None:
            return None, None
        return (beside.low, beside.high) if self._sign > 0 else (-beside.high, -beside.low)

    @property
    def _sign(self) -> int:
        return 1 if higher_is_better(self.objective) else -1

    @property
    def probability(self) -> float | None:
        return self.placed.probability if self.placed else None

    @property
    def among_best(self) -> bool:
        """Whether the corrected test does not tell it apart from the first."""
        return self.placed is not None and self.placed.among_best

    @property
    def may_be_best(self) -> bool:
        """Whether it is not the first, but cannot be told apart from it."""
        return self.placed is not None and self.placed.among_best and self.placed.against_best is not None

    @property
    def verdict(self) -> str:
        """``best``, ``the same`` on every question, ``indistinguishable``, or ``worse`` with its p-value."""
        if self.placed is None:
            return ""
        comparison = self.placed.against_best
        if comparison is None:
            return "best"
        if comparison.is_same:
            return "the same"
        return "indistinguishable" if self.placed.among_best else f"worse, {significance(comparison)}"

    @property
    def tokens(self) -> float | None:
        """The tokens of its context for a question; None where they were not measured."""
        return self.outcome.metrics.get(context_cost(split_name(self.objective)[1]))

    @property
    def texts(self) -> int | None:
        """How many texts were to be embedded; None where that is not known."""
        record, steps = self.outcome.configuration, self.outcome.steps
        totals = [step.effort.total for name, step in steps.items() if name.startswith("embed") and step.effort]
        return sum(totals) if totals else None if record.embedder or record.system else 0

    @property
    def index_bytes(self) -> int:
        return sum(index.size for index in self.outcome.indexes)

    @property
    def parts(self) -> list[Part]:
        """What has to run beside a search by words."""
        record = self.outcome.configuration
        used = (record.embedder, record.store, record.reranker, record.context, record.queries, record.system)
        needs: dict[Part, bool] = {
            "embedder": record.embedder is not None,
            "reranker": record.reranker is not None and record.reranker.type != "none",
            "service": any(part is not None and part.remote for part in used),
            "system": record.system is not None,
        }
        return [part for part, is_needed in needs.items() if is_needed]

    def price(self, first: "Contender") -> tuple[float, ...]:
        """Return what makes one cheaper than another: fewer moving parts, then tokens, texts to embed, latency.

        Tokens and texts are shares of the first's; about the same counts as the same, as does a latency within noise.
        """
        shares = [
            float("inf") if value is None else value / (usual or 1)
            for value, usual in ((self.tokens, first.tokens), (self.texts, first.texts))
        ]
        sizes = [1.0 if abs(share - 1) <= ABOUT_THE_SAME else share for share in shares]
        # What a whole system runs is not known: it is never the cheaper one.
        return ("system" in self.parts, len(self.parts), *sizes, self.slower_than(first))

    def slower_than(self, other: "Contender") -> int:
        """Return 1 where a search takes longer than the other's beyond the noise, -1 where the other's does, else 0."""
        mine, theirs = self.outcome.latency_ms, other.outcome.latency_ms
        if mine is None or theirs is None or abs(mine - theirs) < LATENCY_STEP:
            return 0
        return 1 if mine > LATENCY_NOISE * theirs else -1 if theirs > LATENCY_NOISE * mine else 0

    def to_data(self) -> dict[str, object]:
        """Return the figures as plain data."""
        return {
            "name": self.name,
            "mean": self.mean,
            **dict(zip(("low", "high"), self.interval, strict=True)),
            "difference": self.difference,
            **dict(zip(("difference_low", "difference_high"), self.difference_interval, strict=True)),
            "probability": self.probability,
            "among_best": self.among_best,
            "ended": self.ended,
            "tokens": self.tokens,
            "texts": self.texts,
            "index_bytes": self.index_bytes,
            "parts": self.parts,
        }


def contenders_of(
    outcome: BenchmarkOutcome, scores: RunScores | None = None, placed: Sequence[Placed] | None = None
) -> list[Contender]:
    """Return the configurations of a run, best first, tested where their scores are at hand.

    Args:
        outcome: The run.
        scores: Its scores; without them there are places and means alone.
        placed: The tested ranking, where it is known already.
    """
    ranked, objective = outcome.ranked() if outcome.configurations else [], outcome.ranking_metric
    if scores is not None and placed is None and ranked:
        placed = scores.ranking(objective, [one.name for one in ranked])
    by_name = {one.name: one for one in ranked}
    order = [by_name[one.name] for one in placed] if placed else ranked
    places = place_labels([one.metrics[objective] for one in order])
    fetched: dict[str, float] = {}
    cut = split_name(objective)[1]
    if order and scores is not None and cut.kind == "tokens" and TokensFetched.label in scores.metrics:
        paired = scores.paired(TokensFetched.label)
        fetched = dict(zip(paired.names, (paired.values <= cut.size).mean(axis=1).tolist(), strict=True))
    tested = {one.name: one for one in placed or ()}
    return [
        Contender(place, one, objective, tested.get(one.name), fetched.get(one.name))
        for place, one in zip(places, order, strict=True)
    ]
