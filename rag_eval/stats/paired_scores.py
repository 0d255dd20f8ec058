"""Scores of several configurations on the same queries, and the units of resampling."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import Counts, Values

FEWEST_DOCUMENTS = 6
"""With fewer documents, no sign-flip test can give p < 0.05: 2 of 2⁵ flips are 0.0625."""

Unit = Literal["documents", "queries"]


@dataclass(frozen=True)
class Units:
    """Independent groups of queries that are resampled together; ``numbers`` has the unit of each query."""

    kind: Unit
    numbers: Counts
    count: int

    def sums(self, values: Values) -> Values:
        """Sum each row of ``values`` over the queries of each unit: rows × units."""
        return np.stack([np.bincount(self.numbers, row, self.count) for row in values])

    @cached_property
    def sizes(self) -> Counts:
        """The number of queries of each unit."""
        return np.bincount(self.numbers, minlength=self.count)


@dataclass(frozen=True)
class PairedScores:
    """Scores by one metric: ``values[i, j]`` is the finite score of configuration i on query j.

    ``documents`` names the document each query belongs to.

    Raises:
        TableError: There is no query, the shapes disagree, a name or query occurs twice, or a value is not finite.
    """

    names: tuple[str, ...]
    query_ids: tuple[str, ...]
    documents: tuple[str, ...]
    values: Values

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.query_ids))
        if self.values.shape != shape or len(self.documents) != shape[1]:
            raise TableError(
                f"scores of {shape[0]} configurations on {shape[1]} queries have {self.values.shape} values and "
                f"{len(self.documents)} documents: give one value for each pair and one document for each query"
            )
        if not all(shape):
            raise TableError("there are no scores to compare: give at least one configuration and one query")
        for what, names in (("configuration", self.names), ("query", self.query_ids)):
            if len(set(names)) < len(names):
                repeated = next(name for name in names if names.count(name) > 1)
                raise TableError(f"the {what} {repeated!r} occurs twice in the scores: keep one")
        if not np.isfinite(self.values).all():
            raise TableError("a score is not a finite number: look for NaN in the metric that returned it")

    @cached_property
    def units(self) -> Units:
        """The documents, because queries about one document are not independent.

        With fewer than ``FEWEST_DOCUMENTS`` documents, the units are the queries, and results apply only to these
        documents.
        """
        numbers = {document: number for number, document in enumerate(sorted(set(self.documents)))}
        if len(numbers) >= FEWEST_DOCUMENTS:
            return Units("documents", np.array([numbers[name] for name in self.documents]), len(numbers))
        return Units("queries", np.arange(len(self.query_ids)), len(self.query_ids))

    def subset(self, names: Sequence[str]) -> "PairedScores":
        """Return the scores of some configurations, in this order; raises ``ConfigurationError`` on an unknown one."""
        for name in names:
            if name not in self.names:
                known = f"{suggestion(name, self.names)}: {choices(self.names, name, '; ')}"
                raise ConfigurationError(f"there is no configuration {name!r}{known}")
        rows = [self.names.index(name) for name in names]
        return PairedScores(tuple(names), self.query_ids, self.documents, self.values[rows])

    def on(self, query_ids: Sequence[str]) -> "PairedScores":
        """Return the scores on some queries, in this order; raises ``TableError`` on an unknown one."""
        place = {query_id: number for number, query_id in enumerate(self.query_ids)}
        unknown = [query_id for query_id in query_ids if query_id not in place]
        if unknown:
            raise TableError(f"{len(unknown)} queries have no score, first {unknown[0]!r}: compare on common queries")
        columns = [place[query_id] for query_id in query_ids]
        documents = tuple(self.documents[column] for column in columns)
        return PairedScores(self.names, tuple(query_ids), documents, self.values[:, columns])
