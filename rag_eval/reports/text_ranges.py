"""Ranges of text in documents, as rows of numbers, and the text that a report carries for them.

A row is a document by its number, and the range ``[start, end)`` in its code points.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from rag_eval.metrics.metric import Counts
from rag_eval.metrics.span_sets import merge_sorted

Ranges: TypeAlias = Counts
"""Document, start and end, a range a row."""

MOST_CHARACTERS = 12_000_000
"""The most text in a page: about ten megabytes, which a phone still opens."""

CONTEXT = 400
"""Characters carried on each side of a span if whole documents do not fit."""


def merged(ranges: Ranges) -> Ranges:
    """Sort by document and start, and join ranges that overlap or touch."""
    # All documents in a row with a position between them: one sort and one pass merge them all.
    size = int(ranges.max(initial=0)) + 1
    start, end = ranges[:, 0] * size + ranges[:, 1], ranges[:, 0] * size + ranges[:, 2]
    order = np.argsort(start, kind="stable")
    start, end, first = merge_sorted(start[order], end[order])
    document = ranges[order[first], 0]
    return np.stack([document, start - document * size, end - document * size], axis=1)


def touching(ranges: Ranges, others: Ranges) -> Counts:
    """Return the numbers of the ranges that share a character with one of ``others``, which are merged."""
    size = int(max(ranges.max(initial=0), others.max(initial=0))) + 1
    begins = np.append(others[:, 0] * size + others[:, 1], np.iinfo(np.int64).max)
    after = np.searchsorted(others[:, 0] * size + others[:, 2], ranges[:, 0] * size + ranges[:, 1], side="right")
    # Unknown documents have the number -1.
    return np.flatnonzero((ranges[:, 0] >= 0) & (begins[after] < ranges[:, 0] * size + ranges[:, 2]))


def choose_texts(
    lengths: Counts, truth: Ranges, hits: Ranges, most: int = MOST_CHARACTERS
) -> tuple[Ranges, Sequence[str]]:
    """Choose about ``most`` characters of text to carry for these spans, and a note if some is left out.

    All documents with a span if they fit; else the text around as many spans as fit, truth before hits. The ranges are
    sorted and do not overlap.
    """
    spans = np.concatenate([truth, hits])
    documents = np.unique(spans[:, 0])
    total = int(lengths[documents].sum())
    if total <= most:
        return np.stack([documents, np.zeros_like(documents), lengths[documents]], axis=1), []
    fits = int(np.searchsorted(np.cumsum(spans[:, 2] - spans[:, 1] + 2 * CONTEXT), most, side="right"))
    chosen = spans[:fits]
    start, end = np.maximum(chosen[:, 1] - CONTEXT, 0), np.minimum(chosen[:, 2] + CONTEXT, lengths[chosen[:, 0]])
    which = "spans of truth and hits" if fits == len(spans) else f"{fits:,} of {len(spans):,} spans of truth and hits"
    note = f"The documents have {total:,} characters, too many for one page: only the text around {which} is shown."
    return merged(np.stack([chosen[:, 0], start, end], axis=1)), [note]


def cut_texts(contents: pa.ChunkedArray, ranges: Ranges) -> list[bytes]:
    """Return the text of each range, in UTF-8."""
    texts: list[bytes] = []
    current, content = -1, ""
    for number, start, end in ranges.tolist():
        if number != current:
            current, content = number, contents[number].as_py()
        texts.append(content[start:end].encode())
    return texts
