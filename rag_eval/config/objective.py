"""What a benchmark measures: the metrics asked for, and the objective by which it ranks, compares and gates."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from rag_eval.errors import ConfigurationError, preview, sentences
from rag_eval.formatting import choices
from rag_eval.metrics import METRIC
from rag_eval.metrics.evaluate import taken_metric
from rag_eval.metrics.formulas import BUDGET, RecallWithinTokens, context_cost, strip_metrics
from rag_eval.metrics.metric import (
    ALL,
    MetricAtCut,
    MetricName,
    OwnMetric,
    RetrievalMetric,
    column_of,
    metric_names,
    metric_of,
    parse_metric_name,
    requested_metrics,
    score_name,
    split_name,
)
from rag_eval.parts import as_data
from rag_eval.parts.objects import is_reference
from rag_eval.tokens import check_encoding
from rag_eval.types.ids import EvaluationType

METRICS: dict[EvaluationType, list[str]] = {level: metric_names(level) for level in ("token-level", "chunk-level")}
"""The metrics that can be asked for in each evaluation type."""

DEFAULT_METRICS: dict[EvaluationType, list[str]] = {
    "token-level": ["span_recall", "span_precision", "span_iou"],
    "chunk-level": ["chunk_recall", "chunk_precision", "chunk_f1"],
}
"""What is measured unless something else is asked for."""


def metric_column(metric: Any) -> str:
    """Return what a metric of a benchmark is called in its scores, without a number of hits."""
    if isinstance(metric, MetricAtCut):
        return str(metric)
    return metric if isinstance(metric, str) else column_of(metric)


def _check_metric(given: Any, info: ValidationInfo) -> Any:
    """Return a built-in metric's name as it is printed, or a user's metric; raise ``ValueError`` on others."""
    if "evaluation_type" not in info.data:  # it has an error of its own
        return given
    level = info.data["evaluation_type"]
    if not isinstance(given, str) or is_reference(given):
        try:
            metric = taken_metric(given, level)
            if column_of(metric) and not isinstance(metric, RetrievalMetric):
                return METRIC.take(metric)
        except ConfigurationError as error:
            raise ValueError("; ".join(sentences(error))) from None
        given = metric.name
    text: str = given
    try:
        name = MetricName.parse(text)
        other = next(one for one in METRICS if one != level)
        if name.base not in METRICS[level] and name.base in METRICS[other]:
            raise ValueError(
                f"{preview(text)} is a metric of {other} evaluation and evaluation_type is {level}: "
                f"{choices(METRICS[level])}"
            )
        name = parse_metric_name(text, METRICS[level])
        if name.unit is not None:
            check_encoding(name.unit)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return str(name)


def check_objective(given: str, info: ValidationInfo) -> str:
    """Return the full name of a metric, at the budget unless it names a cut; a user's must be measured."""
    budget = info.data.get("budget") or BUDGET
    column, cut = split_name(given)
    takes_budget = cut == ALL and "@" not in given and "tokens" in metric_of(column).cuts
    at_budget = score_name(column, "tokens", budget) if takes_budget else given
    own = [metric_column(one) for one in info.data.get("metrics", []) if not isinstance(one, str)]
    if column in own:
        return at_budget
    if "metrics" in info.data and issubclass(metric_of(column), OwnMetric) and own:
        raise ValueError(f"{preview(given)} is no metric of this benchmark: {choices(own, given)}, or a built-in one")
    return str(_check_metric(at_budget, info))


Metric = Annotated[
    Any,
    AfterValidator(_check_metric),
    PlainSerializer(lambda metric: metric if isinstance(metric, str) else as_data(metric)),
    WithJsonSchema({"type": ["string", "object"]}),
]
"""The name of a built-in metric, or one of a user."""


def measured_by(
    metrics: Sequence[Any], ks: Sequence[int], objective: str, level: EvaluationType, budget: int | None = None
) -> list[Any]:
    """Return what configurations are scored by: the metrics, the objective, what its context costs, and the strip.

    The strip has the ``budget`` too, which need not be the cut of the objective. Each is a name, a user's metric, or
    such a metric at the cut of the objective.
    """
    known = {str(one) for one in requested_metrics(metrics, ks, level)}
    column, cut = split_name(objective)
    own = {metric_column(one): one for one in metrics if not isinstance(one, str)}
    within = score_name(RecallWithinTokens.label, "tokens", budget or BUDGET)
    names = dict.fromkeys([objective, context_cost(cut), *strip_metrics(), within])
    further: list[Any] = [name for name in names if name not in known]
    if objective not in known and column in own:
        further[0] = MetricAtCut(own[column], MetricName(column, None, cut))
    return [*metrics, *further]
