"""The dataset of a report as numbers: questions, what is known about them, and their truth."""

import json
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rag_eval.metrics.formulas import Counts
from rag_eval.reports.places import Places
from rag_eval.reports.units import Units, numbers_of

MOST_TAG_VALUES = 30
"""Metadata with more values than that is no kind to filter by."""


@dataclass(frozen=True)
class Truth:
    """The places of the truth by query: ``offsets[i]:offsets[i + 1]`` are those of query i."""

    places: Places
    offsets: Counts

    @classmethod
    def of(cls, answers: pa.Table, query_ids: pa.Array, units: Units) -> "Truth":
        """The truth of these queries."""
        query = numbers_of(answers.column("query_id"), query_ids)
        order = np.argsort(query, kind="stable")
        order = order[query[order] >= 0]
        counts = np.bincount(query[order], minlength=len(query_ids))
        return cls(units.places(answers).taken(order), np.concatenate([[0], np.cumsum(counts)]))

    def documents(self) -> list[list[int]]:
        """The documents of each query, each once."""
        numbers, bounds = self.places.document.tolist(), self.offsets.tolist()
        return [list(dict.fromkeys(numbers[a:b])) for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Tags:
    """Kinds of questions, such as ``difficulty: hard``, and for each question the numbers of its kinds."""

    labels: list[str]
    by_query: list[list[int]]

    @classmethod
    def of(cls, queries: pa.Table) -> "Tags":
        """What the metadata of the queries says in words, where few values are shared by many queries, and not all."""
        metadata = [json.loads(text) for text in queries.column("metadata").to_pylist()]
        values: dict[str, set[str]] = {}
        for entry in metadata:
            for key, value in entry.items():
                values.setdefault(key, set()).add(str(value)) if isinstance(value, str | bool | int) else None
        few = {key for key, found in values.items() if len(found) <= min(MOST_TAG_VALUES, len(metadata) / 2)}
        few -= {key for key in few if len(values[key]) == 1 and all(key in entry for entry in metadata)}
        labels = sorted(f"{key}: {value}" for key in few for value in values[key])
        numbers = {label: number for number, label in enumerate(labels)}
        by_query = [
            sorted(numbers[f"{key}: {value}"] for key, value in entry.items() if f"{key}: {value}" in numbers)
            for entry in metadata
        ]
        return cls(labels, by_query)
