"""Recall at equal cost: what the first hits bring back within a budget of context tokens.

At equal k, large chunks win because they bring more text; a prompt is paid in tokens. So hits are taken best first,
whole, as long as they fit into the budget, and recall is that of what was taken. With t(r) the tokens of the first r
hits, each text tokenised on its own, and recall(r) theirs, the metrics below have the budget B as their number. Any
other metric can be asked within a budget too, such as ``span_iou@2000tokens``. A budget above ``tokens_fetched`` is one
that the hits do not fill: they ended before it did.
"""

from typing import ClassVar

import numpy as np

from rag_eval.metrics import formulas
from rag_eval.metrics.coverage import SpanCoverage
from rag_eval.metrics.formulas import ratio
from rag_eval.metrics.metric import ALL, Cut, MetricName, Values, score_name
from rag_eval.metrics.span_metrics import SpanMetric, TokensRetrieved
from rag_eval.types.ids import EvaluationType

BUDGET = 2_000
"""How many tokens of context a question may cost unless a benchmark says otherwise, counted by cl100k_base."""

STRIP = tuple(round(250 * 2 ** (step / 6)) for step in range(37))
"""The budgets at which every run is scored, from 250 to 16,000 tokens: six to each doubling."""


class BudgetMetric(SpanMetric):
    """A metric of both levels that is defined at a budget of tokens only; its k is the budget.

    ``calculate`` takes spans, whose texts tell what they cost; chunk ids are scored from tables.
    """

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")
    cuts = frozenset({"tokens"})
    number = "tokens"
    has_unit = False
    reads = frozenset({"hits", "tokens"})


class RecallWithinTokens(formulas.Recall, BudgetMetric):
    """recall(r) for the largest r with t(r) <= B; 0 where not even the first hit fits, or on empty truth."""

    label = "recall_within_tokens"
    meaning = "finds {} of what is relevant"


class RecallTokenArea(BudgetMetric):
    """1/B · ∫ recall over the budgets 0 to B, that is Σ gain(r) · max(0, B - t(r)) / B; 0 on empty truth or retrieval.

    gain(r) is what hit r adds to recall.
    """

    label = "recall_token_area"
    only_rises = True

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        values = np.zeros(len(hits.truth))
        for gain, spent in zip(hits.gains(cut), hits.spent[1:], strict=True):
            values += ratio(gain, hits.truth, cls.empty) * np.maximum(cut.size - spent, 0) / cut.size
        return values


class TokensFetched(TokensRetrieved):
    """The tokens of all hits that were fetched; 0 on empty retrieval. Not in [0, 1].

    Where a budget is larger, the hits ended before it: more of them might have fitted.
    """

    label = "tokens_fetched"
    cuts = frozenset({"all"})


def context_cost(cut: Cut) -> str:
    """Return the metric of what the context costs at a cut; of all that was fetched where the cut has no number."""
    return score_name(TokensRetrieved.label, cut.kind, cut.size) if cut.size else TokensFetched.label


def strip_metrics() -> list[str]:
    """Return what every run is scored by besides its own metrics: recall at each budget, and where the hits end.

    At each doubling also what the context costs, for those who look at another budget than that of the benchmark.
    """
    at_budgets = [str(MetricName(RecallWithinTokens.label, None, Cut("tokens", budget))) for budget in STRIP]
    costs = [context_cost(Cut("tokens", budget)) for budget in STRIP[::6]]
    return [*at_budgets, *costs, str(MetricName(TokensFetched.label, None, ALL))]
