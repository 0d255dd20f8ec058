"""Score queries whose spans or chunk ids are Python objects: the base classes of the built-in metrics.

Objects are converted to the same arrays as tables, so that both are scored by the formulas of
``rag_eval.metrics.formulas``.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.coverage import SpanRows
from rag_eval.metrics.groups import coverage_of
from rag_eval.metrics.metric import DEFAULT_ENCODING, MetricName, RetrievalMetric, Values
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId, EvaluationType

Item = CharacterSpan | ChunkId
Case = tuple[Sequence[Any], Sequence[Any]]
"""What was retrieved for a query, best first, and what is relevant; a tuple in the truth is a group of evidence."""


class ObjectMetric(RetrievalMetric):
    """A metric on spans or chunk ids, which are documents of one character."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level", "chunk-level")

    def calculate(self, retrieved: Sequence[Any], ground_truth: Sequence[Any]) -> float:
        """Return the metric for one query; a tuple in the truth is a group of evidence."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[Case]) -> Values:
        """Return the metric for several queries.

        Raises:
            ConfigurationError: The metric needs the tokens of chunk ids, or the chunks of the corpus: score tables.
        """
        name = MetricName(self.label, self.cut)
        if name.needs_chunks:
            raise ConfigurationError(f"{self.name} needs the chunks of the corpus: score tables, with chunks=…")
        retrieved = [hits[: self.cut.hits] for hits, _ in cases]
        hits, truth = rows_of_objects(retrieved, [truth for _, truth in cases])
        if name.needs_tokens:
            tokens = [self._tokens(item) for item in chain.from_iterable(retrieved)]
            hits = replace(hits, tokens=np.array(tokens, dtype=np.int64))
        return self.score(coverage_of(hits, truth), self.cut)

    def _tokens(self, item: Item) -> int:
        if isinstance(item, str):
            raise ConfigurationError(f"{self.name} counts the tokens of chunks: score tables, with chunks=…")
        return count_tokens(item.text, DEFAULT_ENCODING)


class SpanMetric(ObjectMetric):
    """A metric on character spans."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("token-level",)

    def calculate(
        self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan | tuple[CharacterSpan, ...]]
    ) -> float:
        return super().calculate(retrieved, ground_truth)


class ChunkMetric(ObjectMetric):
    """A metric on chunk ids."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("chunk-level",)

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId | tuple[ChunkId, ...]]) -> float:
        return super().calculate(retrieved, ground_truth)


def rows_of_objects(retrieved: Sequence[Sequence[Item]], truth: Sequence[Sequence[Any]]) -> tuple[SpanRows, SpanRows]:
    """Return the retrieved and the relevant items as rows; a tuple in the truth is a group of evidence."""
    groups = [[item if isinstance(item, tuple) else (item,) for item in items] for items in truth]
    numbers: dict[str, int] = {}
    hits, relevant = (_rows(side, numbers) for side in (retrieved, [[*chain.from_iterable(items)] for items in groups]))
    of_group = [np.repeat(np.arange(len(items)), [len(group) for group in items]) for items in groups]
    return hits, replace(relevant, group=np.concatenate([np.zeros(0, np.int64), *of_group]))


def _rows(side: Sequence[Sequence[Item]], numbers: dict[str, int]) -> SpanRows:
    """Return the items of every query as rows; ``numbers`` maps documents to numbers and grows."""
    places = [
        (item, 0, 1) if isinstance(item, str) else (item.doc_id, item.start, item.end)
        for item in chain.from_iterable(side)
    ]
    rows = [(numbers.setdefault(doc_id, len(numbers)), start, end) for doc_id, start, end in places]
    return SpanRows(np.cumsum([0, *map(len, side)]), *np.array(rows, np.int64).reshape(-1, 3).T)
