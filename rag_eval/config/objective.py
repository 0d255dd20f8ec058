"""The metrics of a benchmark, and the objective by which it ranks, compares and gates."""

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
from rag_eval.types.ids import EvaluationType

METRICS: dict[EvaluationType, tuple[str, ...]] = {
    "token-level": metric_names("token-level"),
    "chunk-level": metric_names("chunk-level"),
}
"""The built-in metrics of each evaluation type."""

DEFAULT_METRICS: dict[EvaluationType, list[str]] = {
    "token-level": ["span_recall", "span_precision", "span_iou"],
    "chunk-level": ["chunk_recall", "chunk_precision", "chunk_f1"],
}
"""The metrics of a benchmark that lists none."""


def metric_column(metric: Any) -> str:
    """Return the name of a metric in the scores, without a number of hits."""
    if isinstance(metric, MetricAtCut):
        return str(metric)
    return metric if isinstance(metric, str) else column_of(metric)


def _check_metric(given: Any, info: ValidationInfo) -> Any:
    """Return the printed name of a built-in metric, or a user's metric; raise ``ValueError`` for anything else."""
    if "evaluation_type" not in info.data:  # this has an error of its own
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
        other: EvaluationType = "chunk-level" if level == "token-level" else "token-level"
        if name.base not in METRICS[level] and name.base in METRICS[other]:
            raise ValueError(
                f"{preview(text)} is for {other} evaluation and evaluation_type is {level}: {choices(METRICS[level])}"
            )
        name = parse_metric_name(text, level)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return str(name)


def check_objective(given: str, info: ValidationInfo) -> str:
    """Return the full name of an objective, at the budget unless it has a cut; raise ``ValueError`` if unknown."""
    budget = info.data.get("budget") or BUDGET
    column, cut = split_name(given)
    takes_budget = cut == ALL and "@" not in given and "tokens" in metric_of(column).cuts
    at_budget = score_name(column, "tokens", budget) if takes_budget else given
    own = [metric_column(metric) for metric in info.data.get("metrics", []) if not isinstance(metric, str)]
    if column in own:
        return at_budget
    if "metrics" in info.data and issubclass(metric_of(column), OwnMetric) and own:
        raise ValueError(f"{preview(given)} is not listed under metrics: {choices(own, given)}, or a built-in metric")
    return str(_check_metric(at_budget, info))


Metric = Annotated[
    Any,
    AfterValidator(_check_metric),
    PlainSerializer(lambda metric: metric if isinstance(metric, str) else as_data(metric)),
    WithJsonSchema({"type": ["string", "object"]}),
]
"""The name of a built-in metric, or a user's metric."""


def measured_by(
    metrics: Sequence[Any], ks: Sequence[int], objective: str, level: EvaluationType, budget: int | None = None
) -> list[Any]:
    """Return the metrics to compute: those listed, the objective, the tokens of its context, and recall by budget.

    Recall is also computed within ``budget``, which may differ from the cut of the objective.
    """
    known = set(map(str, requested_metrics(metrics, ks, level)))
    column, cut = split_name(objective)
    own = {metric_column(metric): metric for metric in metrics if not isinstance(metric, str)}
    within = score_name(RecallWithinTokens.label, "tokens", budget or BUDGET)
    names = dict.fromkeys([objective, context_cost(cut), *strip_metrics(), within])
    further: list[Any] = [name for name in names if name not in known]
    if objective not in known and column in own:
        further[0] = MetricAtCut(own[column], MetricName(column, cut))
    return [*metrics, *further]
