"""The verdict of a run: what to ship for a budget of tokens, how sure that is, what is cheaper, what would change it.

One record, ``RunVerdict``, has the figures and the sentences; the terminal, Markdown, the page, Prefect and ``--json``
render the same one. Proposals that no measurement decides are the constants below.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rag_eval.formatting import counted, percent, signed
from rag_eval.metrics.budget import BUDGET, RecallWithinTokens, TokensFetched, context_cost
from rag_eval.metrics.formulas import Recall
from rag_eval.metrics.metric import higher_is_better, metric_of, score_name, split_name
from rag_eval.reports.contenders import Contender, costs, parts_of, price
from rag_eval.reports.strip import USED_UP, Strip, strip_of
from rag_eval.reports.wording import (
    MOST_NAMED,
    cautions,
    copies_note,
    finding,
    leaves_out_zero,
    number_word,
    points,
    probability,
    search_words,
    settings_in_words,
    typeset,
)
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import RunScores
from rag_eval.stats.comparison import EQUAL_WITHIN, NEAR, Placed, margin_at, too_alike
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS
from rag_eval.stats.significance import documents_needed

CLOSE = 0.01
"""A cheaper configuration is proposed if its mean is no further below the first's than ``margin_at`` that."""

WIDER = 1.33
"""The margin of the cheaper one is this much wider than its 95 % interval, about one of 99 %: it was chosen for a small
difference, and the true one is larger on average."""

FEWEST_QUESTIONS = 20
"""With fewer questions nothing is recommended."""

HALF = 0.5
"""A best share below this is nothing to recommend."""

NEARLY_ALL = 0.75
"""Where so large a share of the configurations cannot be told apart from the first, none of them is recommended."""

HARDLY_WORTH = 2_000
"""More questions than these to tell two configurations apart are hardly worth it."""

Kind = Literal["ship", "tied", "alone", "too few questions", "poor", "nothing"]


@dataclass(frozen=True)
class RunVerdict:
    """What a run recommends.

    ``kind`` is ``ship`` (one is recommended), ``tied`` (nearly all are alike: take the cheapest), ``alone`` (one
    configuration), ``too few questions``, ``poor`` (the best finds less than half) or ``nothing`` (none finished).
    ``objective`` is the metric, ``budget`` its tokens (None: it has none); ``budget_is_default`` where no file set it.
    ``questions`` are about ``documents``; what was resampled are ``units``.
    ``made_of`` has the settings behind the name of what to ship or take; empty where nothing is recommended.
    ``headline``, ``how_sure``, ``search`` (how much of a grid was evaluated), ``cheaper``, ``change`` are the answer in
    words, empty where there is nothing to say; ``notes`` are reasons to trust it less, and what was left out.
    ``contenders`` are all, best first. ``shipped``, ``runner_up`` (the next) and ``cheapest`` (the cheapest that cannot
    be told apart from the first and came within 1 point of it, of a mean below ½ within 2 %; may be the first) are
    names of them, or None. The cheapest is no more than ``margin`` below the first, in 95 of 100 verdicts; 0 where it
    is the first itself.
    ``questions_needed`` is about how many it takes to tell the runner-up from the first; None: unknown, or no number.
    ``strip`` has every budget; None without scores at budgets.
    """

    kind: Kind
    objective: str
    budget: int | None
    budget_is_default: bool
    questions: int
    documents: int
    units: Literal["documents", "queries"]
    headline: str
    made_of: str
    how_sure: str
    search: str
    cheaper: str
    change: str
    notes: list[str]
    shipped: str | None
    runner_up: str | None
    cheapest: str | None
    margin: float | None
    questions_needed: int | None
    contenders: list[Contender]
    strip: Strip | None

    @property
    def sentences(self) -> list[str]:
        """The answer's sentences, without the headline and the notes."""
        return [one for one in (self.how_sure, self.search, self.cheaper, self.change) if one]

    def __str__(self) -> str:
        return " ".join([f"{self.headline}.", *self.sentences, *self.notes])

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def verdict_of(outcome: BenchmarkOutcome, scores: RunScores, placed: Sequence[Placed]) -> RunVerdict:
    """Return the verdict of a run from its scores and its ranking by the objective, best first."""
    return _Judge(outcome, scores, placed).verdict()


def judged(scores: RunScores, outcome: BenchmarkOutcome) -> tuple[list[Placed], RunVerdict]:
    """Return the tested ranking of a run by its objective, and its verdict."""
    ranked = [one.name for one in outcome.ranked()]
    placed = scores.ranking(outcome.ranking_metric, ranked) if ranked else []
    return placed, verdict_of(outcome, scores, placed)


class _Judge:
    """Weighs the contenders of a run, and says what follows."""

    def __init__(self, outcome: BenchmarkOutcome, scores: RunScores, placed: Sequence[Placed]) -> None:
        self.outcome, self.scores, self.placed = outcome, scores, placed
        self.configurations = {one.name: one for one in outcome.configurations}
        self.objective = outcome.ranking_metric
        self.cut = split_name(self.objective)[1]
        self.budget = self.cut.size if self.cut.kind == "tokens" else None
        self.sign = 1 if higher_is_better(self.objective) else -1
        self.strip = strip_of(scores, outcome, self.budget or outcome.config.budget or BUDGET)
        self.contenders = [self._contender(one) for one in placed]
        self.first = self.contenders[0] if self.contenders else None
        self.tied = [one for one in self.contenders if one.among_best]
        self.is_share = metric_of(self.objective).measures == "share"
        self.near = margin_at(placed[0].estimate.mean, CLOSE) if placed else CLOSE
        close = [one for one in self.tied if one.difference >= -self.near]
        self.close = len(close)
        self.cheapest = min(close, key=lambda one: price(one, close[0]), default=None)
        self.documents = len({query.document for query in scores.queries})
        self.questions = placed[0].estimate.n if placed else len(scores.queries)
        self.needed = self._questions_needed()

    def verdict(self) -> RunVerdict:
        first, rivals = self.first, self.contenders[1:]
        kind = self._kind()
        is_told = kind in ("ship", "tied", "poor")
        return RunVerdict(
            kind=kind,
            objective=self.objective,
            budget=self.budget,
            budget_is_default=self.outcome.config.budget is None and self.budget == BUDGET,
            questions=self.questions,
            documents=self.documents,
            units=self.placed[0].estimate.unit if self.placed else "queries",
            headline=self._headline(kind),
            made_of=self._made_of(kind),
            how_sure=self._how_sure(first) if first else "",
            search=search_words(self.outcome),
            cheaper=self._cheaper(kind, first, self.cheapest) if is_told and first and self.cheapest else "",
            change=" ".join(self._changes(kind)),
            notes=[*self._notes()],
            shipped=first.name if first and kind == "ship" else None,
            runner_up=rivals[0].name if rivals else None,
            cheapest=self.cheapest.name if self.cheapest and is_told else None,
            margin=self._margin(self.cheapest) if self.cheapest and is_told else None,
            questions_needed=self.needed,
            contenders=self.contenders,
            strip=self.strip,
        )

    def _contender(self, placed: Placed) -> Contender:
        one = self.configurations[placed.name]
        estimate, against = placed.estimate, placed.against_best
        low, high = (against.low, against.high) if against else (None, None)
        if low is not None and high is not None and self.sign < 0:
            low, high = -high, -low
        own = one.configuration
        embed = [work.effort.total for stage, work in one.stages.items() if stage.startswith("embed") and work.effort]
        return Contender(
            name=placed.name,
            mean=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            difference=self.sign * against.difference if against else 0.0,
            difference_low=low,
            difference_high=high,
            probability=placed.probability,
            among_best=placed.among_best,
            ended=self._ended(placed.name),
            tokens=one.metrics.get(context_cost(self.cut)),
            texts=sum(embed) if embed else None if own.embedder or own.system else 0,
            index_bytes=sum(index.size for index in one.indexes),
            latency_ms=one.latency_ms,
            cost=one.cost,
            chunks=one.chunks.count,
            parts=parts_of(one),
        )

    def _ended(self, name: str) -> float | None:
        if self.budget is None or TokensFetched.label not in self.scores.metrics:
            return None
        fetched = self.scores.paired(TokensFetched.label).subset([name]).values
        return float((fetched <= self.budget).mean())

    def _kind(self) -> Kind:
        if self.first is None:
            return "nothing"
        if len(self.contenders) == 1:
            return "alone"
        if self.questions < FEWEST_QUESTIONS:
            return "too few questions"
        if issubclass(metric_of(self.objective), Recall) and self.first.mean < HALF:
            return "poor"
        return "tied" if len(self.tied) >= max(2, NEARLY_ALL * len(self.contenders)) else "ship"

    @property
    def _for(self) -> str:
        is_recall = split_name(self.objective)[0] == RecallWithinTokens.label
        return f"For {self.budget:,} tokens of context" if self.budget and is_recall else f"By {self.objective}"

    def _headline(self, kind: Kind) -> str:
        if self.first is None:
            return "No configuration finished"
        among = f"the {len(self.contenders):,} configurations"
        alike = among if len(self.tied) == len(self.contenders) else f"{len(self.tied):,} of {among}"
        return {
            "ship": f"{self._for}, ship {self.first.name}",
            "tied": f"{self._for}, these questions cannot tell {alike} apart",
            "alone": f"{self.first.name} was measured alone",
            "too few questions": f"{counted(self.questions, 'questions')} cannot tell which one to recommend",
            "poor": f"None of {among} reaches half of {self.objective}",
        }[kind]

    def _made_of(self, kind: Kind) -> str:
        one = self.cheapest if kind == "tied" else self.first if kind in ("ship", "alone") else None
        if one is None:
            return ""
        return f"{one.name}: {settings_in_words(self.configurations[one.name])}"

    def _how_sure(self, first: Contender) -> str:
        estimate, others = self.placed[0].estimate, len(self.contenders) - 1
        about = f"over {counted(self.questions, 'questions')} about {counted(self.documents, 'documents')}"
        said = f"{first.name} {finding(self.objective, estimate)}, {about}"
        if not others:
            return f"{said}."
        sure, named = "", 0
        if first.probability is not None:
            near = self._within(NEAR, "half a point")
            sure = f"; it is the best of the {others + 1:,}, or within {near} of it, with a probability of "
            sure += f"{probability(first.probability)}{self._surer(first.probability)}"
        for rival, by in [(one, one.against_best) for one in too_alike(self.placed)[:1]]:
            if by is None or by.is_same:
                return f"{said}; every question scores the same with all {others + 1:,}."
            few = counted(by.better + by.worse, "questions")
            sure, named = f"; {rival.name} differs from it on {few}, too few to say which is better", 1
        # Differences so few are never significant: the one that is named is among the tied, and counted once.
        rest, equals = others - named, len(self.tied) - 1 - named
        if not rest:
            return f"{said}{sure}."
        if equals == rest:
            told = (
                f"none of the {rest:,} others can be told apart from it"
                if rest > 1
                else "the other cannot be told apart from it"
            )
        elif equals:
            told = f"{number_word(equals)} {'other' if equals == 1 else 'others'} cannot be told apart from it"
        else:
            told = "the other is worse" if rest == 1 else f"all {rest:,} others are worse"
        return f"{said}{sure}{',' if sure else ';'} and {told}."

    def _surer(self, own: float) -> str:
        """Which other has a higher probability with no higher mean: what strays more is more often first, and last."""
        most, name = max((one.probability or 0.0, one.name) for one in self.contenders[1:])
        told = f" ({name} has {probability(most)}: its mean is no higher, but it differs more from the others)"
        return told * (round(100 * most) > round(100 * own))

    def _cheaper(self, kind: Kind, first: Contender, cheap: Contender) -> str:
        near = self._within(CLOSE, "1 point")
        if cheap.name != first.name:
            worst = self._margin(cheap)
            most = "" if worst is None or not self.is_share else f"at most {100 * worst:.1f} points"
            gap = f"{self._gap(cheap)}{f', {most} worse' if most and kind != 'ship' else ''}"
            spares = f"({gap}): {costs(cheap, first)}."
            if kind == "tied":
                return f"Take {cheap.name}, within {near} of the first {spares}"
            told = f"Cheaper: {cheap.name}, within {near} of it {spares}"
            if kind != "ship":
                return told
            if not most:
                return f"{told} Ship the first if {self.objective} matters most, the cheaper one if its price does."
            return f"{told} Ship the first if points matter most; the cheaper one gives up {most}."
        also = f"Take {first.name}: it is" if kind == "tied" else "It is"
        if self.close > 1:
            return f"{also} also the cheapest of the {self.close:,} that come within {near} of it."
        leaner = [one for one in self.contenders[1:] if price(one, first) < price(first, first)]
        if not leaner:
            return f"{also} also the cheapest of all."
        return f"{also} the cheapest within {near}; {leaner[0].name}, cheaper, is next at {self._gap(leaner[0])}."

    def _within(self, margin: float, written: str) -> str:
        """A margin in words: of a share of half and more in points, else in per cent of the first's mean."""
        mean = self.placed[0].estimate.mean
        is_small = abs(mean) < HALF
        return written if self.is_share and not is_small else f"{100 * margin * (2 if is_small else 1):g} %"

    def _margin(self, one: Contender) -> float | None:
        """How far one may be below the first: the lower end of its difference, widened; None without an interval."""
        if one.difference_low is None:
            return 0.0 if not one.difference else None
        return max(self.near, WIDER * (one.difference - one.difference_low) - one.difference)

    def _gap(self, one: Contender) -> str:
        """How far one is from the first, such as ``−0.6 points [−2.6, +1.4]``, no surer than the test has it."""
        if self.is_share:
            low, high = one.difference_low, one.difference_high
            ends = "" if low is None else f" [{points(low)}, {points(high)}]"
            alone = ", which the test does not tell from 0" if one.among_best and leaves_out_zero(low, high) else ""
            return f"{points(one.difference)} points{ends}{alone}"
        return typeset(signed(one.difference, one.mean))

    def _changes(self, kind: Kind) -> Iterator[str]:
        if self.first is None:
            return
        if kind == "alone":
            yield "Measure it beside another configuration to learn whether it is good."
        elif kind == "too few questions":
            yield f"Ask {FEWEST_QUESTIONS} or more, about as many documents as you can."
        if kind in ("ship", "tied"):
            yield from self._other_budgets()
        if kind in ("ship", "tied") and self.documents < FEWEST_DOCUMENTS:
            without = self._deciding_documents()
            if without:
                yield f"Without {' or without '.join(without)} another comes first."
        if kind in ("ship", "tied") and self.needed and len(self.tied) > 1:
            worth = ", which is hardly worth it" if self.needed > HARDLY_WORTH else ""
            apart = f"{self.first.name} and {self.contenders[1].name}"
            yield f"To tell {apart} apart takes about {counted(self.needed, 'questions')}{worth}."
        elif kind == "tied":
            yield "Ask more questions, about more documents, to tell them apart."
        elif kind == "poor":
            yield "Allow a larger budget, or try what could find most of the rest."

    def _other_budgets(self) -> Iterator[str]:
        """The nearest budgets, below and above, at which another is surely better than the first."""
        strip, first = self.strip, self.first
        if strip is None or first is None or self.objective != score_name(strip.metric, "tokens", self.budget or 0):
            return
        here, own = strip.budgets.index(self.cut.size), strip.means[first.name]
        # Where its own hits are used up nothing is known of it.
        lost = [mean is not None and first.name not in among for mean, among in zip(own, strip.among, strict=True)]
        below = next((at for at in range(here, -1, -1) if lost[at]), None)
        above = next((at for at in range(here, len(lost)) if lost[at]), None)
        told = []
        if below is not None:
            told.append(f"below about {strip.budgets[below]:,} tokens {strip.first[below]} is better")
        if above is not None:
            told.append(f"above about {strip.budgets[above]:,} tokens {strip.first[above]} is better")
        if told:
            sentence = ", and ".join(told)
            yield f"{sentence[0].upper()}{sentence[1:]}."
        elif ends := [at for at, one in zip(strip.budgets, strip.means[first.name], strict=True) if one is not None]:
            yield f"At no budget from {ends[0]:,} to {ends[-1]:,} tokens is another surely better."

    def _deciding_documents(self) -> list[str]:
        """The documents without whose questions another configuration comes first."""
        paired = self.scores.paired(self.objective)
        documents = np.array(paired.documents)
        best = paired.names.index(self.contenders[0].name)
        found = []
        for name in sorted(set(paired.documents)):
            kept = documents != name
            if kept.any():
                means = self.sign * paired.values[:, kept].mean(axis=1)
                if means.max() > means[best] + EQUAL_WITHIN:
                    found.append(name)
        return found

    def _questions_needed(self) -> int | None:
        """How many questions tell the runner-up from the first, as often a document as now, at a power of 80 %."""
        if len(self.contenders) < 2 or not self.contenders[1].among_best:
            return None
        paired = self.scores.paired(self.objective).subset([one.name for one in self.contenders[:2]])
        differences = self.sign * (paired.values[0] - paired.values[1])
        if differences.mean() <= EQUAL_WITHIN:
            return None
        units = documents_needed(differences, paired.units, len(self.contenders) - 1)
        return None if units is None else round(units * (len(differences) / paired.units.count))

    def _notes(self) -> Iterator[str]:
        outcome = self.outcome
        if self.first is not None:
            yield from cautions(outcome, self.placed[0].estimate)
            yield from self._at_the_budget(self.first)
            ended = [(one.name, one.ended) for one in self.contenders if one.ended is not None and one.ended > USED_UP]
            if ended:
                low, high = (percent(pick(share for _, share in ended)) for pick in (min, max))
                shares = f"{low} of the questions" if low == high else f"{low} to {high} of the questions"
                whose = ", ".join(name for name, _ in ended[:MOST_NAMED])
                more = f" and {len(ended) - MOST_NAMED:,} more" * (len(ended) > MOST_NAMED)
                yield f"The hits of {shares} end before {self.budget:,} tokens with {whose}{more}."
            yield from copies_note(outcome)
            yield from (f"{note[:1].upper()}{note[1:]}." for note in (outcome.search.notes if outcome.search else ()))
        yield from outcome.notes
        if outcome.failures:
            yield f"{counted(len(outcome.failures), 'configurations')} failed."

    def _at_the_budget(self, first: Contender) -> Iterator[str]:
        """What is found within the budget of the benchmark, where the objective has a cut of its own."""
        strip, budget = self.strip, self.outcome.config.budget
        if strip is None or budget in (None, self.budget) or budget not in strip.budgets:
            return
        at = strip.budgets.index(budget)
        best, own = strip.first[at], strip.means[first.name][at]
        if best is not None and own is not None:
            other = "" if best == first.name else f", and {best} {percent(strip.means[best][at] or 0, 1)}, the most"
            told = f"{first.name} finds {percent(own, 1)} of what is relevant{other or ', the most of all'}"
            yield f"Within the budget of {budget:,} tokens {told}."
