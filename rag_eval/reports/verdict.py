"""Compute the verdict of a run: which configuration to ship for a token budget, and how certain that is.

``verdict_words.words_of`` turns it into the sentences that page, Markdown, terminal and Prefect show. The constants are
judgement calls, not measurements.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from rag_eval.metrics.formulas import BUDGET, Recall, TokensFetched, context_cost
from rag_eval.metrics.metric import Cut, higher_is_better, metric_of, split_name
from rag_eval.reports.strip import Strip, strip_of
from rag_eval.reports.wording import significance
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.stats.comparison import EQUAL_WITHIN, Comparison, Placed, margin_at, place_labels
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS
from rag_eval.stats.significance import documents_needed

FEWEST_QUESTIONS = 20
"""Minimum number of questions for a recommendation."""

HALF = 0.5
"""Minimum recall of the best configuration for a recommendation."""

CLOSE = 0.01
"""A cheaper configuration is proposed if its mean is at most ``margin_at`` this below the first's."""

WIDER = 1.33
"""How much wider the margin of the cheaper one is than its 95 % interval, about one of 99 %: the cheaper one was
chosen for a small difference, and the true difference is larger on average."""

NEARLY_ALL = 0.75
"""If this share of the configurations is tied with the first, none is recommended."""

ABOUT_THE_SAME = 0.05
"""Relative difference in tokens or texts up to which two configurations count as equally cheap."""

LATENCY_NOISE, LATENCY_STEP = 4.0, 1.0
"""Latencies differ if one is so many times the other and so many milliseconds longer: the same search timed again on a
busy machine differs by less."""

Part = Literal["embedder", "reranker", "service", "system"]
Interval = tuple[float | None, float | None]
Kind = Literal["ship", "tied", "alone", "too few questions", "poor", "nothing"]


@dataclass(frozen=True)
class Contender:
    """A configuration in the ranking, from which every table, chart and sentence is made.

    Attributes:
        place: Its place; a shared one is marked, such as ``=1``.
        outcome: What it found and what that took.
        objective: The metric of the ranking.
        placed: Its mean, the test against the first and the probability of being the best; None without scores.
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
    def interval(self) -> Interval:
        """The 95 % interval of the mean, if there is one."""
        return (self.placed.estimate.low, self.placed.estimate.high) if self.placed else (None, None)

    @property
    def versus(self) -> Comparison | None:
        """The comparison with the first; None for the first itself, and without scores."""
        return self.placed.against_best if self.placed else None

    @property
    def difference(self) -> float:
        """Its mean minus that of the first, in the direction of better; 0 for the first."""
        return self._sign * self.versus.difference if self.versus else 0.0

    @property
    def difference_interval(self) -> Interval:
        """The 95 % interval of the difference, if there is one."""
        versus = self.versus
        if versus is None or versus.low is None or versus.high is None:
            return None, None
        return (versus.low, versus.high) if self._sign > 0 else (-versus.high, -versus.low)

    @property
    def _sign(self) -> int:
        return 1 if higher_is_better(self.objective) else -1

    @property
    def probability(self) -> float | None:
        return self.placed.probability if self.placed else None

    @property
    def among_best(self) -> bool:
        """Whether it is the first, or not significantly different from it."""
        return self.placed is not None and self.placed.among_best

    @property
    def may_be_best(self) -> bool:
        """Whether it is not the first, but not significantly worse than the first."""
        return self.among_best and self.versus is not None

    @property
    def verdict(self) -> str:
        """``best``, ``the same`` on every question, ``not significant``, or ``worse`` with its p-value."""
        if self.placed is None or self.versus is None:
            return "" if self.placed is None else "best"
        if self.versus.is_same:
            return "the same"
        return "not significant" if self.among_best else f"worse, {significance(self.versus)}"

    @property
    def tokens(self) -> float | None:
        """The tokens of its context per question, if measured."""
        return self.outcome.metrics.get(context_cost(split_name(self.objective)[1]))

    @property
    def texts(self) -> int | None:
        """The number of texts that had to be embedded; None if unknown."""
        record, steps = self.outcome.configuration, self.outcome.steps
        totals = [step.effort.total for name, step in steps.items() if name.startswith("embed") and step.effort]
        return sum(totals) if totals else None if record.embedder or record.system else 0

    @property
    def index_bytes(self) -> int:
        return sum(index.size for index in self.outcome.indexes)

    @property
    def parts(self) -> list[Part]:
        """The moving parts besides lexical search."""
        record = self.outcome.configuration
        used = (record.embedder, record.store, record.reranker, record.context, record.queries, record.system)
        needs: dict[Part, bool] = {
            "embedder": record.embedder is not None,
            "reranker": record.reranker is not None and record.reranker.type != "none",
            "service": any(part is not None and part.remote for part in used),
            "system": record.system is not None,
        }
        return [part for part, is_needed in needs.items() if is_needed]

    @property
    def engine(self) -> str | None:
        """What runs its search as it is; None if only the reference search of rag-eval does."""
        return self.outcome.configuration.engine

    def price(self, first: "Contender") -> tuple[float, ...]:
        """Return a sort key for the price: fewer moving parts, then fewer tokens, texts to embed and milliseconds.

        Tokens and texts are shares of the first's; about the same counts as the same, as does a latency within noise.
        A whole system comes last: what it runs is not known.
        """
        shares = [
            float("inf") if value is None else value / (base or 1)
            for value, base in ((self.tokens, first.tokens), (self.texts, first.texts))
        ]
        sizes = [1.0 if abs(share - 1) <= ABOUT_THE_SAME else share for share in shares]
        return ("system" in self.parts, len(self.parts), *sizes, self.slower_than(first))

    def slower_than(self, other: "Contender") -> int:
        """Return 1 if a search takes longer than the other's beyond noise, -1 if the other's does, else 0."""
        mine, theirs = self.outcome.latency_ms, other.outcome.latency_ms
        if mine is None or theirs is None or abs(mine - theirs) < LATENCY_STEP:
            return 0
        return 1 if mine > LATENCY_NOISE * theirs else -1 if theirs > LATENCY_NOISE * mine else 0

    def to_data(self) -> dict[str, object]:
        """Return the figures as plain data."""
        names = ("name", "mean", "difference", "probability", "among_best", "ended", "tokens", "texts", "engine")
        ends = dict(zip(("low", "high"), self.interval, strict=True))
        ends |= dict(zip(("difference_low", "difference_high"), self.difference_interval, strict=True))
        return {name: getattr(self, name) for name in (*names, "index_bytes", "parts")} | ends


def contenders_of(
    outcome: BenchmarkOutcome, scores: RunScores | None = None, placed: Sequence[Placed] | None = None
) -> list[Contender]:
    """Return the configurations of a run, best first.

    Args:
        outcome: The run.
        scores: Its scores; without them there are places and means alone.
        placed: The tested ranking, if it was computed already.
    """
    ranked, objective = outcome.ranked(), outcome.ranking_metric
    by_name = {configuration.name: configuration for configuration in ranked}
    if not ranked:
        return []
    if placed is None and scores is not None:
        placed = scores.ranking(objective, [*by_name])
    tests = {row.name: row for row in placed or ()}
    names = [*(tests or by_name)]
    places = place_labels([by_name[name].metrics[objective] for name in names])
    ended = _ended(scores, split_name(objective)[1])
    return [
        Contender(place, by_name[name], objective, tests.get(name), ended.get(name))
        for place, name in zip(places, names, strict=True)
    ]


def _ended(scores: RunScores | None, cut: Cut) -> dict[str, float]:
    """Return for each configuration the share of the questions whose hits end before a budget."""
    if scores is None or cut.kind != "tokens" or TokensFetched.label not in scores.metrics:
        return {}
    fetched = scores.paired(TokensFetched.label)
    return dict(zip(fetched.names, (fetched.values <= cut.size).mean(axis=1).tolist(), strict=True))


@dataclass(frozen=True)
class RunVerdict:
    """What a run recommends.

    Attributes:
        kind: ``ship`` (one is recommended), ``tied`` (nearly all are alike: take the cheapest), ``alone`` (one
            configuration), ``too few questions``, ``poor`` (the best finds less than half) or ``nothing`` (none
            finished).
        outcome: The run, ranked by its objective.
        contenders: Its configurations, best first.
        questions: How many questions decide.
        documents: How many documents they are about.
        cheapest: The cheapest configuration that is tied with the first and within 1 point of it (of a mean below ½,
            2 %); it may be the first. None if nothing can be taken.
        margin: How far the cheapest is below the first at most, in 95 of 100 verdicts; 0 for the first itself.
        questions_needed: About how many questions it takes for a significant difference between the first two.
        deciding_documents: Of fewer than six documents, those without whose questions another comes first.
        strip: The winner at every budget, if there are scores at budgets.
    """

    kind: Kind
    outcome: BenchmarkOutcome
    contenders: list[Contender]
    questions: int
    documents: int
    cheapest: str | None
    margin: float | None
    questions_needed: int | None
    deciding_documents: list[str]
    strip: Strip | None

    @property
    def objective(self) -> str:
        return self.outcome.ranking_metric

    @property
    def cut(self) -> Cut:
        return split_name(self.objective)[1]

    @property
    def budget(self) -> int | None:
        """The tokens of the objective, if it has a budget."""
        return self.cut.size if self.cut.kind == "tokens" else None

    @property
    def budget_is_default(self) -> bool:
        return self.outcome.config.budget is None and self.budget == BUDGET

    @property
    def is_share(self) -> bool:
        return metric_of(self.objective).measures == "share"

    @property
    def shipped(self) -> str | None:
        return self.contenders[0].name if self.kind == "ship" else None

    @property
    def runner_up(self) -> str | None:
        return self.contenders[1].name if len(self.contenders) > 1 else None

    @property
    def units(self) -> str:
        """What the intervals resample."""
        placed = self.contenders[0].placed if self.contenders else None
        return placed.estimate.unit if placed else "queries"

    @property
    def tied(self) -> list[Contender]:
        """The first configuration and those not significantly different from it."""
        return [contender for contender in self.contenders if contender.among_best]

    @property
    def close(self) -> list[Contender]:
        """Those of the tied configurations that are within 1 point of the first."""
        return _close(self.contenders)

    @property
    def recommended(self) -> Contender | None:
        """The configuration that the verdict says to ship or take."""
        return self.named(self.cheapest if self.kind == "tied" else self.shipped)

    @property
    def runnable(self) -> Contender | None:
        """The best configuration that an engine runs as it is."""
        return next((contender for contender in self.contenders if contender.engine is not None), None)

    def named(self, name: str | None) -> Contender | None:
        return next((contender for contender in self.contenders if contender.name == name), None)

    def to_data(self) -> dict[str, object]:
        """Return the figures as plain data."""
        names = ("kind", "objective", "budget", "budget_is_default", "questions", "documents", "units", "shipped")
        more = ("runner_up", "cheapest", "margin", "questions_needed")
        data = {name: getattr(self, name) for name in (*names, *more)}
        contenders = [contender.to_data() for contender in self.contenders]
        return data | {"contenders": contenders, "strip": self.strip and asdict(self.strip)}


def verdict_of(outcome: BenchmarkOutcome, scores: RunScores, placed: Sequence[Placed] | None = None) -> RunVerdict:
    """Return the verdict of a run by its objective.

    Args:
        outcome: The run.
        scores: Its scores.
        placed: The tested ranking, if it was computed already.
    """
    contenders = contenders_of(outcome, scores, placed)
    first = contenders[0].placed if contenders else None
    questions = first.estimate.n if first else len(scores.queries)
    documents = len({query.document for query in scores.queries})
    kind, close = _kind(contenders, questions), _close(contenders)
    cheapest = min(close, key=lambda contender: contender.price(close[0])) if kind in ("ship", "tied", "poor") else None
    is_decided_by_few = kind in ("ship", "tied") and documents < FEWEST_DOCUMENTS
    return RunVerdict(
        kind=kind,
        outcome=outcome,
        contenders=contenders,
        questions=questions,
        documents=documents,
        cheapest=cheapest.name if cheapest else None,
        margin=_margin(cheapest, contenders[0].mean) if cheapest else None,
        questions_needed=_questions_needed(contenders, scores),
        deciding_documents=_deciding_documents(contenders[0], scores) if is_decided_by_few else [],
        strip=strip_of(scores, outcome),
    )


def _kind(contenders: Sequence[Contender], questions: int) -> Kind:
    if not contenders:
        return "nothing"
    if len(contenders) == 1:
        return "alone"
    if questions < FEWEST_QUESTIONS:
        return "too few questions"
    if issubclass(metric_of(contenders[0].objective), Recall) and contenders[0].mean < HALF:
        return "poor"
    tied = sum(contender.among_best for contender in contenders)
    return "tied" if tied >= max(2, NEARLY_ALL * len(contenders)) else "ship"


def _close(contenders: Sequence[Contender]) -> list[Contender]:
    margin = margin_at(contenders[0].mean, CLOSE) if contenders else CLOSE
    return [contender for contender in contenders if contender.among_best and contender.difference >= -margin]


def _margin(contender: Contender, best: float) -> float | None:
    """Return how far it may be below the first: the widened lower end of its difference; None without an interval."""
    low = contender.difference_interval[0]
    if low is None:
        return 0.0 if not contender.difference else None
    return max(margin_at(best, CLOSE), WIDER * (contender.difference - low) - contender.difference)


def _questions_needed(contenders: Sequence[Contender], scores: RunScores) -> int | None:
    """Return how many questions separate the first two at a power of 80 %, with the current number per document."""
    if len(contenders) < 2 or not contenders[1].among_best:
        return None
    objective = contenders[0].objective
    pair = scores.paired(objective).subset([contender.name for contender in contenders[:2]])
    differences = (1 if higher_is_better(objective) else -1) * (pair.values[0] - pair.values[1])
    if differences.mean() <= EQUAL_WITHIN:
        return None
    units = documents_needed(differences, pair.units, len(contenders) - 1)
    return None if units is None else round(units * (len(differences) / pair.units.count))


def _deciding_documents(first: Contender, scores: RunScores) -> list[str]:
    """Return the documents without whose questions another configuration has the best mean."""
    paired = scores.paired(first.objective)
    documents, row = np.array(paired.documents), paired.names.index(first.name)
    sign = 1 if higher_is_better(first.objective) else -1
    deciding = []
    for document in sorted(set(paired.documents)) if len(set(paired.documents)) > 1 else ():
        means = sign * paired.values[:, documents != document].mean(axis=1)
        if means.max() > means[row] + EQUAL_WITHIN:
            deciding.append(document)
    return deciding
