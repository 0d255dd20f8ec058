"""What configurations take, as columns of the ranked table; a column where nothing took anything is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_eval.pipeline.outcome import ConfigurationOutcome
from rag_eval.reports.wording import byte_size


@dataclass(frozen=True)
class CostColumn:
    """A column: its heading, what it means, the value of a configuration or None, and how a value is written."""

    heading: str
    explained: str
    value: Callable[[ConfigurationOutcome], float | None]
    written: Callable[[float], str]

    def cell(self, one: ConfigurationOutcome) -> str:
        """The value as it is written, a dash where there is none."""
        value = self.value(one)
        return "–" if value is None else self.written(value)


COST_COLUMNS = (
    CostColumn(
        "latency ms",
        "Mean time of search and reranking for one question, after a first to warm up; embedding it is left out",
        lambda one: one.latency_ms,
        "{:.2f}".format,
    ),
    CostColumn("cost $", "What models charged when the work was done", lambda one: one.cost, "{:.4f}".format),
    CostColumn("tokens read", "Tokens that models read when the work was done", lambda one: one.tokens, "{:,}".format),
    CostColumn(
        "index",
        "What the vectors and their index take on the disk",
        lambda one: None if one.index is None else one.index.size,
        lambda size: byte_size(int(size)),
    ),
)


def cost_columns(configurations: Sequence[ConfigurationOutcome]) -> list[CostColumn]:
    """The columns in which some configuration has more than nothing."""
    return [column for column in COST_COLUMNS if any(column.value(one) for one in configurations)]
