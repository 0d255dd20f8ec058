"""Compare two configurations on slices: the queries about one document, or of one kind."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rag_eval.stats.comparison import Comparison, compare, corrected
from rag_eval.stats.intervals import CONFIDENCE
from rag_eval.stats.paired_scores import PairedScores

DOCUMENT = "document"
"""Key of the slices by document."""

PASSAGES = "relevant passages"
"""Key of the slices by the number of relevant passages."""

LEAKAGE = "words copied from its passages"
"""Key of the slices by how many words a question copies from its passages."""

SEVERAL = 3
"""Questions with at least this many relevant passages are one kind: ``3 or more``."""

FEWEST_QUESTIONS = 20
"""Minimum number of questions in a slice."""

MOST_SLICES = 60
"""Maximum number of slices, largest first, because every further test weakens the others."""


def passages_kind(count: int) -> str:
    """Return the kind of a question with this many relevant passages."""
    return f"{min(count, SEVERAL)}" + " or more" * (count >= SEVERAL)


@dataclass(frozen=True, slots=True)
class Slice:
    """The questions with this ``value`` of a key in their metadata, or of this document."""

    key: str
    value: str
    query_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """A comparison on the questions of a slice; p-value and interval are adjusted over all slices."""

    slice: Slice
    comparison: Comparison


def slices_of(scores: PairedScores, metadata: Mapping[str, Mapping[str, object]]) -> list[Slice]:
    """Return the slices by document and by every key of the questions' metadata, the largest first.

    Strings, numbers and booleans are values, and so is each entry of a list. Slices of fewer than ``FEWEST_QUESTIONS``
    questions, slices of all questions, and those beyond ``MOST_SLICES`` are omitted.
    """
    members: dict[tuple[str, str], dict[str, None]] = {}
    for query_id, document in zip(scores.query_ids, scores.documents, strict=True):
        for key, entry in {**metadata.get(query_id, {}), DOCUMENT: document}.items():
            for value in entry if isinstance(entry, list) else [entry]:
                if isinstance(value, str | int | float):
                    members.setdefault((key, str(value)), {})[query_id] = None
    sizes = range(FEWEST_QUESTIONS, len(scores.query_ids))
    slices = [Slice(*name, tuple(ids)) for name, ids in members.items() if len(ids) in sizes]
    return sorted(slices, key=lambda some: -len(some.query_ids))[:MOST_SLICES]


def compare_slices(
    before: PairedScores,
    after: PairedScores,
    slices: list[Slice],
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
) -> list[SliceComparison]:
    """Compare two configurations, one row each, in every slice; the largest differences first.

    Slices without a differing question are omitted, and Holm's correction covers the others. Without any difference,
    one is shown in at most 5 % of comparisons. Raises ``TableError`` like ``compare``.
    """
    changed = dict(zip(before.query_ids, (before.values != after.values).any(axis=0).tolist(), strict=True))
    slices = [some for some in slices if any(changed[query_id] for query_id in some.query_ids)]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(slices))
    compared: list[Comparison] = []
    for some in slices:
        sides = before.on(some.query_ids), after.on(some.query_ids)
        compared += compare(*sides, rng, higher_is_better=higher_is_better, confidence=confidence)
    results = [SliceComparison(*pair) for pair in zip(slices, corrected(compared), strict=True)]
    return sorted(results, key=lambda result: -abs(result.comparison.difference))
