"""Where two configurations differ: documents and kinds of questions, with a correction for how many are looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rag_eval.stats.bootstrap import CONFIDENCE
from rag_eval.stats.comparison import Comparison, compare, holm, is_significant
from rag_eval.stats.scores import PairedScores

DOCUMENT = "document"
"""The key of the slices that are the questions about one document."""

FEWEST_QUESTIONS = 20
"""Fewer questions are too few to tell a kind of them from chance."""

MOST_SLICES = 60
"""Of more slices those with the most questions are looked at: each one looked at makes all others less sure."""


PASSAGES = "relevant passages"
"""The key of the slices by how many passages of the truth a question needs."""

SEVERAL = 3
"""From so many relevant passages on, questions are of one kind: ``3 or more``."""


def passages_kind(count: int) -> str:
    """The kind of a question that needs so many passages."""
    return f"{min(count, SEVERAL)}" + " or more" * (count >= SEVERAL)


LEAKAGE = "words copied from its passages"
"""The key of the slices by how much of a question is copied from what answers it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of the questions: those whose ``key`` in their metadata, or whose document, is ``value``."""

    key: str
    value: str
    query_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """Two configurations on the questions of a slice.

    The p-value is adjusted over all slices that were looked at, and the interval holds for all of them together.
    """

    slice: Slice
    comparison: Comparison


def slices_of(scores: PairedScores, metadata: Mapping[str, Mapping[str, object]]) -> list[Slice]:
    """The slices by document and by every key of the questions' metadata, those with the most questions first.

    A text, number or truth value is a value, each entry of a list one. Left out are slices of fewer than
    ``FEWEST_QUESTIONS`` questions and of all of them, and those beyond ``MOST_SLICES``.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for query_id, document in zip(scores.query_ids, scores.documents, strict=True):
        for key, value in {**metadata.get(query_id, {}), DOCUMENT: document}.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | int | float):
                    found.setdefault((key, str(one)), {})[query_id] = None
    sizes = range(FEWEST_QUESTIONS, len(scores.query_ids))
    slices = [Slice(*name, tuple(ids)) for name, ids in found.items() if len(ids) in sizes]
    return sorted(slices, key=lambda one: -len(one.query_ids))[:MOST_SLICES]


def compare_slices(
    before: PairedScores,
    after: PairedScores,
    slices: list[Slice],
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
) -> list[SliceComparison]:
    """Compare two configurations, one row each, in every slice; the largest differences first.

    A slice is tested by the documents that its questions are about, or by its questions where those are too few
    (``PairedScores.units``), and Holm's correction is over the slices in which a question differs; the others are left
    out. Where there is no difference anywhere, one is shown in 5 % of comparisons at most.
    Raises ``TableError`` as ``compare`` does.
    """
    changed = dict(zip(before.query_ids, (before.values != after.values).any(axis=0).tolist(), strict=True))
    slices = [one for one in slices if any(changed[query_id] for query_id in one.query_ids)]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(slices))
    found = []
    for one in slices:
        sides = before.on(one.query_ids), after.on(one.query_ids)
        found += compare(*sides, rng, higher_is_better=higher_is_better, confidence=confidence)
    adjusted = holm(np.array([one.p for one in found])).tolist()
    told = []
    for one, compared, p in zip(slices, found, adjusted, strict=True):
        verdict = compared.verdict if is_significant(p) else "no difference shown"
        told.append(SliceComparison(one, replace(compared, p_adjusted=p, verdict=verdict)))
    return sorted(told, key=lambda one: -abs(one.comparison.difference))
