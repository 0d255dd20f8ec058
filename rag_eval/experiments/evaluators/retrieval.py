"""The metrics of retrieval as evaluators: a task that retrieves is scored like any other."""

from collections.abc import Mapping, Sequence
from typing import Any

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import MetricName, chunk_level_metric, token_level_metric
from rag_eval.types.chunks import CharacterSpan


class MetricEvaluator:
    """A span or chunk metric, by its name (``span_recall@5``) or as an object with ``name`` and ``calculate``.

    Task results and expected outputs are lists, best first: of chunk ids, or of spans (``CharacterSpan`` or mappings
    with ``doc_id``, ``start`` and ``end``).
    """

    def __init__(self, metric: Any) -> None:
        self.instant = isinstance(metric, str)  # of a metric of the user's nothing is known
        self._metric = _built_in(metric) if isinstance(metric, str) else metric
        if not callable(getattr(self._metric, "calculate", None)):
            raise ConfigurationError(f"a {type(metric).__name__} is no metric: give one with name and calculate")
        self.name = str(self._metric.name)

    def __repr__(self) -> str:
        return f"MetricEvaluator({self.name!r})"

    def evaluate(self, result: Any, expected: Any) -> float:
        """The metric's value; raises ``ConfigurationError`` on what is neither ids nor spans."""
        return float(self._metric.calculate(_listed(result, "result"), _listed(expected, "expected output")))


def _built_in(name: str) -> Any:
    is_chunk_level = MetricName.parse(name).metric.levels == ("chunk-level",)
    return chunk_level_metric(name) if is_chunk_level else token_level_metric(name)


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ConfigurationError(f"the {what} is a {type(value).__name__}: return a list of chunk ids or of spans")
    return [_span(one, what) if isinstance(one, Mapping) else one for one in value]


def _span(value: Mapping[str, Any], what: str) -> CharacterSpan:
    try:
        start, end = value["start"], value["end"]
        # The metrics look at places alone; a span without its text is filled up to fit them.
        return CharacterSpan(value["doc_id"], start, end, value.get("text", "\0" * max(0, end - start)))
    except KeyError as error:
        raise ConfigurationError(f"a span of the {what} has no {error}: give doc_id, start and end") from None
