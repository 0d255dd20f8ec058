"""Recall at equal cost: what the first hits bring back within a budget of context tokens.

At equal k, large chunks win because they bring more text; a prompt is paid in tokens. So hits are taken best first,
whole, as long as they fit into the budget, and recall is that of what was taken. With t(r) the tokens of the first r
hits, each text tokenised on its own, and recall(r) theirs, the metrics below have the budget B as their number. Where
t(r) stays far below B, the hits that were kept ended before the budget did.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rag_eval.metrics.formulas import TokenCost, ratio
from rag_eval.metrics.metric import Cut, MetricName, Values
from rag_eval.metrics.span_metrics import SpanMetric
from rag_eval.metrics.sweep import SpanSweep
from rag_eval.types.ids import EvaluationType

BUDGETS = (250, 500, 1_000, 2_000, 4_000)
"""The budgets of every run, in cl100k tokens."""


class BudgetMetric(SpanMetric):
    """A metric of both levels that is defined at a budget of tokens only; its k is the budget.

    ``calculate`` takes spans, whose texts tell what they cost; chunk ids are scored from tables.
    """

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")
    cuts = frozenset({"tokens"})
    number = "tokens"
    has_unit = False
    reads = frozenset({"hits", "tokens"})


class RecallWithinTokens(BudgetMetric):
    """recall(r) for the largest r with t(r) <= B; 0 where not even the first hit fits, or on empty truth."""

    label = "recall_within_tokens"
    only_rises = True

    @classmethod
    def _formula(cls, hits: SpanSweep, cut: Cut) -> Values:
        values = np.zeros(len(hits.truth))
        for gain in hits.gains(cut):
            values += ratio(gain, hits.truth, cls.empty)
        # What rounding adds to a sum of gains must not lift recall above 1.
        return np.minimum(values, 1.0)


class RecallTokenArea(BudgetMetric):
    """1/B · ∫ recall over the budgets 0 to B, that is Σ gain(r) · max(0, B - t(r)) / B; 0 on empty truth or retrieval.

    gain(r) is what hit r adds to recall.
    """

    label = "recall_token_area"
    only_rises = True

    @classmethod
    def _formula(cls, hits: SpanSweep, cut: Cut) -> Values:
        values = np.zeros(len(hits.truth))
        for gain, spent in zip(hits.gains(cut), hits.spent[1:], strict=True):
            values += ratio(gain, hits.truth, cls.empty) * np.maximum(cut.size - spent, 0) / cut.size
        return values


class TokensWithinBudget(TokenCost, BudgetMetric):
    """t(r) for the largest r with t(r) <= B; 0 on empty retrieval. Not in [0, 1]."""

    label = "tokens_within_budget"


def budget_metrics(budgets: Sequence[int] = BUDGETS) -> list[MetricName]:
    """What every run is scored by besides: recall and cost at each budget, and one area, at the largest."""
    each, largest = [Cut("tokens", budget) for budget in budgets], Cut("tokens", max(budgets))
    asked = [(RecallWithinTokens, each), (RecallTokenArea, [largest]), (TokensWithinBudget, each)]
    return [MetricName(metric.label, None, cut) for metric, cuts in asked for cut in cuts]
