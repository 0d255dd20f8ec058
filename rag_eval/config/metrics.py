"""The metrics of a benchmark: names, checked before anything is run."""

from collections.abc import Mapping

from rag_eval.choices import choices
from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.base import MetricName
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS, parse_metric_name
from rag_eval.tokens import check_encoding
from rag_eval.types.ids import EvaluationType

METRICS: dict[EvaluationType, Mapping[str, object]] = {
    "token-level": TOKEN_LEVEL_METRICS,
    "chunk-level": CHUNK_LEVEL_METRICS,
}
"""The built-in metrics of each evaluation type."""

DEFAULT_METRICS: dict[EvaluationType, list[str]] = {
    "token-level": ["span_recall", "span_precision", "span_iou"],
    "chunk-level": ["chunk_recall", "chunk_precision", "chunk_f1"],
}
"""What is measured unless something else is asked for."""


def check_metric(text: str, evaluation_type: EvaluationType) -> str:
    """The metric's name as it is printed.

    Raises ``ConfigurationError`` when there is no such metric in this evaluation type, when it has no such unit or
    cut, and when it names a number of hits, which is for ``k`` to say.
    """
    name = MetricName.parse(text)
    other = next(level for level in METRICS if level != evaluation_type)
    if name.base not in METRICS[evaluation_type] and name.base in METRICS[other]:
        raise ConfigurationError(
            f"{preview(text)} is a metric of {other} evaluation and evaluation_type is {evaluation_type}: "
            f"{choices(METRICS[evaluation_type])}"
        )
    name = parse_metric_name(text, METRICS[evaluation_type])
    if name.unit is not None:
        check_encoding(name.unit)
    if isinstance(name.k, int):
        bare = MetricName(name.base, name.unit)
        raise ConfigurationError(f"{preview(text)} names a number of hits: write {bare} and put {name.k} into k")
    return str(name)
