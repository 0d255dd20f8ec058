"""The recommendation of a benchmark in plain words: what to ship, how sure that is, and what is as good."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.references import digest_of
from rag_eval.formatting import counted, number, singular
from rag_eval.metrics.metric import higher_is_better, metric_of, split_name
from rag_eval.metrics.span_metrics import TokensRetrieved
from rag_eval.parts import label
from rag_eval.reports.wording import be, listed, number_word, unit_word
from rag_eval.stats.bootstrap import Estimate
from rag_eval.stats.comparison import EQUAL_WITHIN, Placed, shared_places

MOST_NAMED = 3
MOST_RIVALS_NAMED = 2

TRIVIAL_SHARE = 0.5
"""Hits that are this share of all chunks find much of the truth whatever the search does."""

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
    best, metric = ranking[0], outcome.ranking_metric
    first = best.estimate
    # Where those are what was resampled, the documents that the questions are about are named too.
    about = f" about {counted(first.units, 'documents')}" if first.unit == "documents" else ""
    found = f"{finding(metric, first)}, on average over {counted(first.n, 'questions')}{about}."
    # The tokens of each configuration's context for a question, where they are known and a cost.
    size = TokensRetrieved(split_name(metric)[1].hits).name
    sized = outcome.configurations if higher_is_better(metric) else []
    tokens = {one.name: one.metrics[size] for one in sized if size in one.metrics}
    if len(ranking) == 1:
        headline, sentences = f"{best.name} was measured alone.", [f"It {found}"]
    elif all(placed.among_best for placed in ranking):
        headline = f"These questions cannot tell the {len(ranking)} configurations apart."
        cheapest = "the one that is cheapest for you"
        if tokens:
            leanest = _leanest(ranking, tokens)
            context = f"{tokens[leanest]:,.0f} tokens a question"
            cheapest = f"the cheapest of those that come close, {leanest} ({context})"
        take = f"Take {cheapest}, or ask about more documents."
        sentences = [take, f"{best.name} comes first: it {found}", *_equals(ranking, tokens)]
    else:
        headline = f"Ship {best.name}."
        sentences = [f"It {found}", *_equals(ranking, tokens), _rivals(ranking), *_leaner(ranking, tokens)]
    notes = copies_note(outcome) + [note for one in outcome.configurations for note in one.notes]
    return Recommendation(headline, sentences + cautions(outcome, first) + notes + failures)


def finding(metric: str, estimate: Estimate) -> str:
    """Such as ``finds 73.9 % [64.2, 82.5] of the relevant text in the first five hits``.

    A share is a percentage, a count as it is; without an interval where there is none.
    """
    (column, cut), known = split_name(metric), metric_of(metric)
    is_share = known.measures == "share"
    mean, low, high = (
        None if value is None else f"{100 * value:.1f}" if is_share else number(value, estimate.mean)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    value = f"{mean}{' %' * is_share}{'' if low is None else f' [{low}, {high}]'}"
    if not known.meaning or column != known.label or cut.hits is None:
        return f"has {metric} {value}"
    return f"{known.meaning.format(value)} in the first {'hit' if cut.hits == 1 else f'{number_word(cut.hits)} hits'}"


def copies_note(outcome: BenchmarkOutcome) -> list[str]:
    """A sentence on the spans of the truth whose copies count, where there are any."""
    if not outcome.copied_spans:
        return []
    spans, questions = counted(outcome.copied_spans, "relevant spans"), counted(outcome.copied_questions, "questions")
    verb = "occurs" if outcome.copied_spans == 1 else "occur"
    return [f"{spans} of {questions} {verb} elsewhere too, and a copy counts as found; copies: off counts none."]


def cautions(outcome: BenchmarkOutcome, estimate: Estimate) -> list[str]:
    """A sentence for each reason to trust the ranking less, given the estimate of the best."""
    found = []
    if estimate.units == 1:
        found.append("One question says nothing about others: ask more.")
    elif estimate.unit == "queries":
        found.append("The questions are about so few documents that all this holds for these documents only.")
    # Where all that was resampled has the same mean, every resample has it, however few there are.
    if estimate.low is not None and estimate.high is not None and estimate.high - estimate.low <= EQUAL_WITHIN:
        every = f"Every {singular(unit_word(estimate))} scores the same"
        found.append(f"{every}: the interval has no width, and says nothing of how sure that is.")
    # Where the hits are so many of the chunks, every search finds nearly everything.
    parted = [one for one in outcome.configurations if one.configuration.system is None]
    k, counts = split_name(outcome.ranking_metric)[1].hits, [one.chunks.count for one in parted]
    concerned = [count for count in counts if k is not None and k >= TRIVIAL_SHARE * count]
    if concerned:
        whose = f" (in {len(concerned)} of {len(counts)} configurations)" * (len(concerned) < len(counts))
        little = f"k = {k} of {counted(min(counts), 'chunks')} says little{whose}"
        found.append(f"{little}: use more documents, smaller chunks or a smaller k.")
    # Chunkers that cut these documents alike make one and the same contestant.
    by_chunks: dict[str, dict[str, None]] = {}
    for one in parted:
        by_chunks.setdefault(digest_of(one.chunk_tables), {})[label(one.configuration.chunker)] = None
    same = [f"{other} cuts the same as {first}" for first, *others in by_chunks.values() for other in others]
    rest = [f"so do {len(same) - MOST_NAMED} more"] if len(same) > MOST_NAMED else []
    return found + ([f"{'; '.join(same[:MOST_NAMED] + rest)}: leave one of them out."] if same else [])


def _equals(ranking: Sequence[Placed], tokens: Mapping[str, float]) -> list[str]:
    """Those with the very mean of the first, and why they come after it."""
    best, *equals = [placed.name for placed in ranking[: _equal_to_first(ranking)]]
    if not equals:
        return []
    told = listed(equals) if len(equals) <= MOST_RIVALS_NAMED else f"{len(equals)} others, such as {equals[0]},"
    larger = tokens and all(tokens[name] > tokens[best] for name in equals)
    return [f"{told} {be(len(equals))} equally good{' with a larger context' if larger else ''}."]


def _equal_to_first(ranking: Sequence[Placed]) -> int:
    return shared_places([placed.estimate.mean for placed in ranking]).count(1)


def _rivals(ranking: Sequence[Placed]) -> str:
    """Which of those with another mean than the first may be the best all the same."""
    others = ranking[_equal_to_first(ranking) :]
    rivals = [placed.name for placed in others if placed.among_best]
    if not rivals:
        return "The other is worse." if len(others) == 1 else f"All {len(others)} others are worse."
    if len(rivals) <= MOST_RIVALS_NAMED:
        told = f"{listed(rivals)} {be(len(rivals))} indistinguishable from it"
    else:
        told = f"{len(rivals)} of the {len(others)} others, such as {rivals[0]}, are indistinguishable from it"
    rest = len(others) - len(rivals)
    return f"{told} on these questions; the other {rest if rest > 1 else 'one'} {be(rest)} worse."


def _leaner(ranking: Sequence[Placed], tokens: Mapping[str, float]) -> list[str]:
    """Of the configurations as good as the best, the one with the smallest context, where that is much smaller."""
    best, leanest = ranking[0].name, _leanest(ranking, tokens)
    if not tokens or tokens[leanest] > LEANER * tokens[best]:
        return []
    context = f"{tokens[leanest]:,.0f} tokens a question instead of {tokens[best]:,.0f}"
    return [f"Nearly as good with a smaller context: {leanest}, {context}."]


def _leanest(ranking: Sequence[Placed], tokens: Mapping[str, float]) -> str:
    """The one with the smallest context of those that may be the best and are close to it; the first of equal ones."""
    close = [one for one in ranking if one.among_best and one.estimate.mean >= ranking[0].estimate.mean - CLOSE]
    return min((one.name for one in close), key=lambda name: tokens.get(name, 0.0))
