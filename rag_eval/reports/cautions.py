"""What makes the answer of a benchmark say less than it seems to."""

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.reports.ranking import hits_of
from rag_eval.reports.wording import unit_word
from rag_eval.stats.estimates import Estimate
from rag_eval.stats.ranks import EQUAL_WITHIN
from rag_eval.wording import counted, singular

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
        by_chunks.setdefault(one.chunk_table.digest, {})[one.configuration.chunker.label] = None
    pairs = [(first, other) for first, *others in by_chunks.values() for other in others]
    named = [f"{other} cuts the same as {first}" for first, other in pairs[:MOST_NAMED]]
    rest = [f"so do {len(pairs) - MOST_NAMED} more"] if len(pairs) > MOST_NAMED else []
    return [f"{'; '.join(named + rest)}: leave one of each out."] if pairs else []
