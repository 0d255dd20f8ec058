"""The recommendation of a benchmark in plain words: what to ship, how sure that is, and what is as good."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.references import digest_of
from rag_eval.formatting import counted, singular
from rag_eval.metrics.metric import higher_is_better
from rag_eval.metrics.span_metrics import TokensRetrieved
from rag_eval.reports.ranking import hits_of
from rag_eval.reports.wording import be, finding, listed, unit_word
from rag_eval.stats.bootstrap import Estimate
from rag_eval.stats.comparison import EQUAL_WITHIN, Placed, shared_places

MOST_NAMED = 3

TRIVIAL_SHARE = 0.5
"""Hits that are this share of all chunks find much of the truth whatever the search does."""


def cautions(outcome: BenchmarkOutcome, estimate: Estimate) -> list[str]:
    """A sentence for each reason to trust the ranking less, given the estimate of the best."""
    return [*_few_units(estimate), *_no_spread(estimate), *_few_chunks(outcome), *_same_cuts(outcome)]


def _few_units(estimate: Estimate) -> list[str]:
    if estimate.units == 1:
        return ["One question says nothing about others: ask more."]
    if estimate.unit == "queries":
        return ["The questions are about so few documents that all this holds for these documents only."]
    return []


def _no_spread(estimate: Estimate) -> list[str]:
    """Whether all that was resampled has the same mean: then every resample has it, however few there are."""
    if estimate.low is None or estimate.high is None or estimate.high - estimate.low > EQUAL_WITHIN:
        return []
    every = singular(unit_word(estimate))
    return [f"Every {every} scores the same: the interval has no width, and says nothing of how sure that is."]


def _few_chunks(outcome: BenchmarkOutcome) -> list[str]:
    """Whether the ranking's hits are so many of the chunks that every search finds nearly everything."""
    k, fewest = hits_of(outcome.ranking_metric), min(one.chunks.count for one in outcome.configurations)
    if k is None or k < TRIVIAL_SHARE * fewest:
        return []
    total = len(outcome.configurations)
    concerned = sum(k >= TRIVIAL_SHARE * one.chunks.count for one in outcome.configurations)
    whose = "" if concerned == total else f" (so in {concerned} of {total} configurations)"
    little = f"k = {k} of {counted(fewest, 'chunks')} says little{whose}"
    return [f"{little}: use more documents, smaller chunks or a smaller k."]


def _same_cuts(outcome: BenchmarkOutcome) -> list[str]:
    """The chunkers that cut these documents alike, so that their configurations are one and the same contestant."""
    by_chunks: dict[str, dict[str, None]] = {}
    for one in outcome.configurations:
        by_chunks.setdefault(digest_of(one.chunk_tables), {})[one.configuration.chunker.label] = None
    pairs = [(first, other) for first, *others in by_chunks.values() for other in others]
    named = [f"{other} cuts the same as {first}" for first, other in pairs[:MOST_NAMED]]
    rest = [f"so do {len(pairs) - MOST_NAMED} more"] if len(pairs) > MOST_NAMED else []
    return [f"{'; '.join(named + rest)}: leave one of each out."] if pairs else []


MOST_RIVALS_NAMED = 2

LEANER, CLOSE = 0.9, 0.05
"""A leaner configuration is named if its context has at most this share of the tokens and its mean is this close."""


@dataclass(frozen=True)
class Recommendation:
    """What to ship, and the sentences that say why and how sure that is."""

    headline: str
    sentences: list[str]

    def __str__(self) -> str:
        return " ".join([self.headline, *self.sentences])


def recommend(outcome: BenchmarkOutcome, ranking: Sequence[Placed]) -> Recommendation:
    """Recommend a configuration from a ranking, best first."""
    failures = [f"{counted(len(outcome.failures), 'configurations')} failed."] if outcome.failures else []
    if not ranking:
        return Recommendation("No configuration finished.", failures)
    best, tokens = ranking[0], _tokens(outcome)
    found = f"{finding(outcome.ranking_metric, best.estimate)}, {_measured(best.estimate)}."
    if len(ranking) == 1:
        headline, sentences = f"{best.name} was measured alone.", [f"It {found}"]
    elif all(placed.among_best for placed in ranking):
        headline, sentences = _undecided(ranking, tokens, found)
    else:
        headline = f"Ship {best.name}."
        after = ranking[_equal_to_first(ranking) :]
        sentences = [f"It {found}", *_equals(ranking, tokens), *_rivals(after), *_leaner(ranking, tokens)]
    return Recommendation(headline, sentences + cautions(outcome, best.estimate) + failures)


def _measured(estimate: Estimate) -> str:
    """Over what the mean is: questions, and the documents they are about where those are what was resampled."""
    about = f" about {counted(estimate.units, 'documents')}" if estimate.unit == "documents" else ""
    return f"on average over {counted(estimate.n, 'questions')}{about}"


def _tokens(outcome: BenchmarkOutcome) -> dict[str, float]:
    """The tokens that each configuration's context has for a question; empty where they are not known or no cost."""
    if not higher_is_better(outcome.ranking_metric):
        return {}
    metric = TokensRetrieved(hits_of(outcome.ranking_metric)).name
    return {one.name: one.metrics[metric] for one in outcome.configurations if metric in one.metrics}


def _undecided(ranking: Sequence[Placed], tokens: dict[str, float], found: str) -> tuple[str, list[str]]:
    """What to do when every configuration may be the best."""
    best, leanest = ranking[0], _leanest(ranking, tokens)
    headline = f"These questions cannot tell the {len(ranking)} configurations apart."
    cheapest = "the one that is cheapest for you"
    if tokens:
        cheapest = f"the cheapest of those that come close, {leanest.name} ({_context(tokens[leanest.name])})"
    take = f"Take {cheapest}, or ask about more documents."
    return headline, [take, f"{best.name} comes first: it {found}", *_equals(ranking, tokens)]


def _equals(ranking: Sequence[Placed], tokens: dict[str, float]) -> list[str]:
    """Those with the very mean of the first, and why they come after it."""
    best = ranking[0]
    equals = [placed.name for placed in ranking[1 : _equal_to_first(ranking)]]
    if not equals:
        return []
    told = listed(equals) if len(equals) <= MOST_RIVALS_NAMED else f"{len(equals)} others, such as {equals[0]},"
    larger = tokens and all(tokens[name] > tokens[best.name] for name in equals)
    return [f"{told} {be(len(equals))} equally good{' with a larger context' if larger else ''}."]


def _equal_to_first(ranking: Sequence[Placed]) -> int:
    return shared_places([placed.estimate.mean for placed in ranking]).count(1)


def _rivals(others: Sequence[Placed]) -> list[str]:
    """Which of those with another mean than the first may be the best all the same."""
    rivals = [placed.name for placed in others if placed.among_best]
    if not rivals:
        return ["The other is worse." if len(others) == 1 else f"All {len(others)} others are worse."]
    if len(rivals) <= MOST_RIVALS_NAMED:
        told = f"{listed(rivals)} {be(len(rivals))} indistinguishable from it"
    else:
        told = f"{len(rivals)} of the {len(others)} others, such as {rivals[0]}, are indistinguishable from it"
    rest = len(others) - len(rivals)
    return [f"{told} on these questions; the other {rest if rest > 1 else 'one'} {be(rest)} worse."]


def _leaner(ranking: Sequence[Placed], tokens: dict[str, float]) -> list[str]:
    """Of the configurations as good as the best, the one with the smallest context, where that is much smaller."""
    best, leanest = ranking[0], _leanest(ranking, tokens)
    if not tokens or tokens[leanest.name] > LEANER * tokens[best.name]:
        return []
    context = f"{_context(tokens[leanest.name])} instead of {tokens[best.name]:,.0f}"
    return [f"Nearly as good with a smaller context: {leanest.name}, {context}."]


def _leanest(ranking: Sequence[Placed], tokens: dict[str, float]) -> Placed:
    """The one with the smallest context of those that may be the best and are close to it; the first of equal ones."""
    close = [one for one in ranking if one.among_best and one.estimate.mean >= ranking[0].estimate.mean - CLOSE]
    return min(close, key=lambda one: tokens.get(one.name, 0.0))


def _context(tokens: float) -> str:
    return f"{tokens:,.0f} tokens a question"
