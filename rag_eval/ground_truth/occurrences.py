"""How often many texts occur in many documents, in one pass over the documents.

A rolling hash of the documents (mod 2**64) is compared with the hashes of the texts: first of a short window at their
beginning, for all places at once, then of the whole text where that fits. Every match is confirmed on the text itself,
so that the counts are exact.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId

Words = NDArray[np.uint64]

BATCH_CHARACTERS = 1 << 21
LONGEST_WINDOW = 32
BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
INVERSE = pow(BASE, -1, 1 << 64)
TABLE_BITS = 20


@dataclass(frozen=True, slots=True)
class _Needles:
    """The texts whose beginning is hashed over windows of one size, by that hash."""

    window: int
    by_head: dict[int, list[tuple[str, int]]]

    @property
    def heads(self) -> Words:
        return np.array(sorted(self.by_head), dtype=np.uint64)


def count_occurrences(texts: Iterable[str], documents: Iterable[Document]) -> dict[str, dict[DocumentId, int]]:
    """For each text in how many places it begins, by document; overlapping places count, absent documents are left out.

    An empty text occurs nowhere.
    """
    found: dict[str, dict[DocumentId, int]] = {text: {} for text in texts}
    longest = max(map(len, found), default=0)
    if longest == 0:
        return found
    powers = _powers(BASE, max(longest, LONGEST_WINDOW))
    needles = _needles([text for text in found if text], powers)
    for batch in _batches(documents):
        _count_in_batch(batch, needles, found)
    return found


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        if batch and size + len(document.content) > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += len(document.content)
    if batch:
        yield batch


def _needles(texts: Sequence[str], powers: Words) -> list[_Needles]:
    by_window: dict[int, _Needles] = {}
    for text in texts:
        window = 1 << (min(len(text), LONGEST_WINDOW).bit_length() - 1)
        weighted = _codes(text) * powers[: len(text)]
        head, whole = int(weighted[:window].sum()), int(weighted.sum())
        needles = by_window.setdefault(window, _Needles(window, {}))
        needles.by_head.setdefault(head, []).append((text, whole))
    return list(by_window.values())


def _count_in_batch(
    batch: Sequence[Document], needles: Sequence[_Needles], found: dict[str, dict[DocumentId, int]]
) -> None:
    joined = "".join(document.content for document in batch)
    if not joined:
        return
    ends = np.cumsum([len(document.content) for document in batch])
    sums = np.zeros(len(joined) + 1, dtype=np.uint64)
    np.cumsum(_codes(joined) * _powers(BASE, len(joined)), out=sums[1:])
    inverses = _powers(INVERSE, len(joined))
    for group in needles:
        places, heads = _head_matches(sums, inverses, group)
        borders = np.flatnonzero(np.diff(heads)) + 1
        for same in np.split(np.arange(len(places)), borders) if len(places) else []:
            for text, whole in group.by_head[int(heads[same[0]])]:
                at = places[same]
                at = at[at + len(text) <= len(joined)]
                at = at[(sums[at + len(text)] - sums[at]) * inverses[at] == np.uint64(whole)]
                owners = np.searchsorted(ends, at, side="right")
                at, owners = at[at + len(text) <= ends[owners]], owners[at + len(text) <= ends[owners]]
                for place, owner in zip(at.tolist(), owners.tolist(), strict=True):
                    if joined.startswith(text, place):
                        counts, doc_id = found[text], batch[owner].id
                        counts[doc_id] = counts.get(doc_id, 0) + 1


def _head_matches(sums: Words, inverses: Words, needles: _Needles) -> tuple[NDArray[np.int64], Words]:
    """The places where a text may begin and the hash of the window there, sorted by that hash, then by place."""
    places = len(sums) - needles.window
    if places <= 0:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    hashes = (sums[needles.window :] - sums[:places]) * inverses[:places]
    wanted = needles.heads
    table = np.zeros(1 << TABLE_BITS, dtype=bool)
    shift = np.uint64(64 - TABLE_BITS)
    table[wanted >> shift] = True
    candidates = np.flatnonzero(table[hashes >> shift])
    candidates = candidates[np.isin(hashes[candidates], wanted)]
    order = np.argsort(hashes[candidates], kind="stable")
    return candidates[order], hashes[candidates[order]]


def _codes(text: str) -> Words:
    # One more than the code point: a run of NULs must not hash like nothing.
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64) + np.uint64(1)


def _powers(base: int, count: int) -> Words:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
