"""Scores of several configurations on the same queries, and the units that are resampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import Counts, Values
from rag_eval.tables import CHUNKS, PLACE, TRUTH, check_schema


def main_documents(truth: pa.Table, chunks: pa.Table | None = None) -> dict[str, str]:
    """For each query with truth the document that holds the most of it; of equal ones, the first by name.

    What counts are the characters of truth spans, of a group those of its first member, overlaps again; or, given all
    ``chunks``, relevant chunks. A chunk whose text stands in several documents counts in each; a query none of whose
    chunks is there belongs to a document without a name.
    """
    check_schema(truth, TRUTH, "truth", PLACE if chunks is None else ["chunk_id"])
    truth = truth.filter(pc.field("member") == 0)
    if chunks is None:
        query, document = truth.column("query_id"), truth.column("doc_id")
        amount = pc.subtract(truth.column("end"), truth.column("start"))
    else:
        check_schema(chunks, CHUNKS, "chunks")
        held = truth.select(["query_id", "chunk_id"]).join(chunks.select(["chunk_id", "doc_id"]), "chunk_id")
        query, document = held.column("query_id"), pc.fill_null(held.column("doc_id"), "")
        amount = pa.repeat(1, held.num_rows)
    rows = pa.table({"query": query, "document": document, "amount": amount}).group_by(["query", "document"])
    sums = rows.aggregate([("amount", "sum")]).sort_by([("amount_sum", "ascending"), ("document", "descending")])
    # The last row of a query is the one that stays.
    return dict(zip(sums.column("query").to_pylist(), sums.column("document").to_pylist(), strict=True))


FEWEST_DOCUMENTS = 6
"""With fewer documents no sign-flip test over them can give p < 0.05: 2 of 2⁵ flips are already 0.0625."""

Unit = Literal["documents", "queries"]


@dataclass(frozen=True)
class Units:
    """What is independent of each other and is resampled as a whole; ``numbers`` has the unit of each query."""

    kind: Unit
    numbers: Counts
    count: int

    def sums(self, values: Values) -> Values:
        """The sum of each row of ``values`` (one column a query) over the queries of each unit: rows × units."""
        return np.stack([np.bincount(self.numbers, row, self.count) for row in values])

    @cached_property
    def sizes(self) -> Counts:
        """How many queries each unit has."""
        return np.bincount(self.numbers, minlength=self.count)


@dataclass(frozen=True)
class PairedScores:
    """Scores by one metric: ``values[i, j]`` is that of configuration i on query j, every one a finite number.

    ``documents`` names the document each query belongs to. Raises ``TableError`` when there is no query, when the
    shapes disagree, when a name or query stands twice, and on a value that is not finite.
    """

    names: tuple[str, ...]
    query_ids: tuple[str, ...]
    documents: tuple[str, ...]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.query_ids))
        if self.values.shape != shape or len(self.documents) != shape[1]:
            raise TableError(
                f"scores of {shape[0]} configurations on {shape[1]} queries came as {self.values.shape} values and "
                f"{len(self.documents)} documents: give one value for each pair and one document for each query"
            )
        if not all(shape):
            raise TableError("there is no score to look at: give at least one configuration and one query")
        for what, given in (("configuration", self.names), ("query", self.query_ids)):
            if len(set(given)) < len(given):
                twice = next(name for name in given if given.count(name) > 1)
                raise TableError(f"the {what} {twice!r} stands twice among the scores: keep one")
        if not np.isfinite(self.values).all():
            raise TableError("a score is not a finite number: look for NaN in the metric that made it")

    @cached_property
    def units(self) -> Units:
        """The documents, because questions about one document are not independent of each other.

        With fewer than ``FEWEST_DOCUMENTS`` documents there is too little to resample and the units are the queries;
        what is found then holds for questions about these documents, not for other documents.
        """
        numbers = {document: number for number, document in enumerate(sorted(set(self.documents)))}
        if len(numbers) >= FEWEST_DOCUMENTS:
            return Units("documents", np.array([numbers[name] for name in self.documents]), len(numbers))
        return Units("queries", np.arange(len(self.query_ids)), len(self.query_ids))

    def subset(self, names: Sequence[str]) -> "PairedScores":
        """Some of the configurations, in the given order; raises ``ConfigurationError`` on an unknown one."""
        for name in names:
            if name not in self.names:
                known = f"{suggestion(name, self.names)}: {choices(self.names, name, '; ')}"
                raise ConfigurationError(f"there is no configuration {name!r}{known}")
        rows = [self.names.index(name) for name in names]
        return PairedScores(tuple(names), self.query_ids, self.documents, self.values[rows])

    def on(self, query_ids: Sequence[str]) -> "PairedScores":
        """The scores on some of the queries, in the given order; raises ``TableError`` on an unknown one."""
        place = {query_id: number for number, query_id in enumerate(self.query_ids)}
        unknown = [query_id for query_id in query_ids if query_id not in place]
        if unknown:
            raise TableError(f"{len(unknown)} queries have no score, first {unknown[0]!r}: compare on common queries")
        columns = [place[query_id] for query_id in query_ids]
        documents = tuple(self.documents[column] for column in columns)
        return PairedScores(self.names, tuple(query_ids), documents, self.values[:, columns])
