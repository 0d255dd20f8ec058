"""Built-in metrics from their names."""

from collections.abc import Collection, Iterable
from typing import cast

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import ChunkLevelMetric, MetricName, TokenLevelMetric, metric_names
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document


def parse_metric_name(text: str, known: Collection[str]) -> MetricName:
    """The name, checked against those that are ``known``.

    Raises ``ConfigurationError`` when it cannot be read, when the metric is not known, and when the metric
    has no such unit or cut.
    """
    name = MetricName.parse(text)
    if name.base not in known:
        hint = suggestion(name.base, known)
        raise ConfigurationError(f"there is no metric {name.base!r} here{hint}: {choices(known, name.base)}")
    name.metric.check(name.unit, name.cut)
    return name


def chunk_level_metric(text: str) -> ChunkLevelMetric:
    """The built-in chunk-level metric of that name; raises ``ConfigurationError`` when there is none."""
    name = parse_metric_name(text, metric_names("chunk-level"))
    return cast("ChunkLevelMetric", name.metric.from_name(name, None, None))


def token_level_metric(
    text: str,
    documents: Iterable[Document] | None = None,
    chunks: Iterable[PositionAwareChunk] | None = None,
) -> TokenLevelMetric:
    """The built-in token-level metric of that name.

    ``documents`` are needed to count spans in tokens, ``chunks`` (all of the corpus) for ``precision_omega`` and for
    ``@min``. Raises ``ConfigurationError`` when there is no such metric or when what it needs is not given.
    """
    name = parse_metric_name(text, metric_names("token-level"))
    return cast("TokenLevelMetric", name.metric.from_name(name, documents, chunks))
