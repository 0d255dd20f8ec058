"""The verdict of a run in figures: what to ship for a budget of tokens, and what decides whether to trust that.

Everything that a run shows is made from it: the terminal, Markdown, the page, Prefect and ``--json``. Its sentences are
in ``verdict_words``. Proposals that no measurement decides are the constants below.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rag_eval.metrics.formulas import BUDGET, Recall
from rag_eval.metrics.metric import Cut, higher_is_better, metric_of, split_name
from rag_eval.reports.contenders import CLOSE, FEWEST_QUESTIONS, HALF, Contender, contenders_of
from rag_eval.reports.strip import Strip, strip_of
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.stats.comparison import EQUAL_WITHIN, Placed, margin_at
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS
from rag_eval.stats.significance import documents_needed

WIDER = 1.33
"""The margin of the cheaper one is this much wider than its 95 % interval, about one of 99 %: it was chosen for a small
difference, and the true one is larger on average."""

NEARLY_ALL = 0.75
"""Where so large a share of the configurations cannot be told apart from the first, none of them is recommended."""

Kind = Literal["ship", "tied", "alone", "too few questions", "poor", "nothing"]


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
        shipped: The name of what to ship, or None.
        cheapest: The name of the cheapest that cannot be told apart from the first and came within 1 point of it (of a
            mean below ½, 2 %); it may be the first. None where nothing can be taken.
        margin: How far the cheapest is below the first at most, in 95 of 100 verdicts; 0 for the first itself.
        questions_needed: About how many questions tell the runner-up from the first; None where that is not known.
        deciding_documents: Of fewer than six documents, those without whose questions another comes first.
        strip: Who is first at every budget; None without scores at budgets.
    """

    kind: Kind
    outcome: BenchmarkOutcome
    contenders: list[Contender]
    questions: int
    documents: int
    shipped: str | None
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
        """The tokens of the objective; None where it has no budget."""
        return self.cut.size if self.cut.kind == "tokens" else None

    @property
    def budget_is_default(self) -> bool:
        return self.outcome.config.budget is None and self.budget == BUDGET

    @property
    def is_share(self) -> bool:
        return metric_of(self.objective).measures == "share"

    @property
    def runner_up(self) -> str | None:
        return self.contenders[1].name if len(self.contenders) > 1 else None

    @property
    def tied(self) -> list[Contender]:
        """Those that cannot be told apart from the first, itself included."""
        return [one for one in self.contenders if one.among_best]

    @property
    def close(self) -> list[Contender]:
        """Of those that are tied the ones within a point of the first."""
        return _close(self.contenders)

    def named(self, name: str | None) -> Contender | None:
        """Return the contender of this name."""
        return next((one for one in self.contenders if one.name == name), None)

    def to_data(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        placed = self.contenders[0].placed if self.contenders else None
        return {
            "kind": self.kind,
            "objective": self.objective,
            "budget": self.budget,
            "budget_is_default": self.budget_is_default,
            "questions": self.questions,
            "documents": self.documents,
            "units": placed.estimate.unit if placed else "queries",
            "shipped": self.shipped,
            "runner_up": self.runner_up,
            "cheapest": self.cheapest,
            "margin": self.margin,
            "questions_needed": self.questions_needed,
            "contenders": [one.to_data() for one in self.contenders],
            "strip": self.strip and asdict(self.strip),
        }


def verdict_of(outcome: BenchmarkOutcome, scores: RunScores, placed: Sequence[Placed] | None = None) -> RunVerdict:
    """Return the verdict of a run by its objective, from its scores or from its tested ranking where that is known."""
    contenders = contenders_of(outcome, scores, placed)
    first = contenders[0].placed if contenders else None
    questions = first.estimate.n if first else len(scores.queries)
    documents = len({query.document for query in scores.queries})
    kind = _kind(contenders, questions)
    close = _close(contenders)
    cheapest = min(close, key=lambda one: one.price(close[0])) if kind in ("ship", "tied", "poor") else None
    cut = split_name(outcome.ranking_metric)[1]
    budget = cut.size if cut.kind == "tokens" else outcome.config.budget or BUDGET
    decides = kind in ("ship", "tied") and documents < FEWEST_DOCUMENTS
    return RunVerdict(
        kind=kind,
        outcome=outcome,
        contenders=contenders,
        questions=questions,
        documents=documents,
        shipped=contenders[0].name if kind == "ship" else None,
        cheapest=cheapest.name if cheapest else None,
        margin=_margin(cheapest, contenders[0].mean) if cheapest else None,
        questions_needed=_questions_needed(contenders, scores),
        deciding_documents=_deciding_documents(contenders[0], scores) if decides else [],
        strip=strip_of(scores, outcome, budget),
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
    tied = sum(one.among_best for one in contenders)
    return "tied" if tied >= max(2, NEARLY_ALL * len(contenders)) else "ship"


def _close(contenders: Sequence[Contender]) -> list[Contender]:
    near = margin_at(contenders[0].mean, CLOSE) if contenders else CLOSE
    return [one for one in contenders if one.among_best and one.difference >= -near]


def _margin(contender: Contender, best: float) -> float | None:
    """Return how far it may be below the first: the lower end of its difference, widened; None without an interval."""
    low = contender.difference_interval[0]
    if low is None:
        return 0.0 if not contender.difference else None
    return max(margin_at(best, CLOSE), WIDER * (contender.difference - low) - contender.difference)


def _questions_needed(contenders: Sequence[Contender], scores: RunScores) -> int | None:
    """Return how many questions tell the runner-up from the first, as many a document as now, at a power of 80 %."""
    if len(contenders) < 2 or not contenders[1].among_best:
        return None
    objective = contenders[0].objective
    paired = scores.paired(objective).subset([one.name for one in contenders[:2]])
    differences = (1 if higher_is_better(objective) else -1) * (paired.values[0] - paired.values[1])
    if differences.mean() <= EQUAL_WITHIN:
        return None
    units = documents_needed(differences, paired.units, len(contenders) - 1)
    return None if units is None else round(units * (len(differences) / paired.units.count))


def _deciding_documents(first: Contender, scores: RunScores) -> list[str]:
    paired = scores.paired(first.objective)
    documents, place = np.array(paired.documents), paired.names.index(first.name)
    sign = 1 if higher_is_better(first.objective) else -1
    deciding = []
    for name in sorted(set(paired.documents)):
        others = documents != name
        if others.any():
            means = sign * paired.values[:, others].mean(axis=1)
            if means.max() > means[place] + EQUAL_WITHIN:
                deciding.append(name)
    return deciding
