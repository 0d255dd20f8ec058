"""Where the chunks of a store stand, in the order they were added.

A place is (document, start, end); a chunk that does not know its place is keyed by (document, ordinal). A store holds
the one kind or the other, and no place twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import TableError
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.ids import encode_utf8

AnyChunk = Chunk | PositionAwareChunk


@dataclass(frozen=True, slots=True)
class StoreHit:
    """A chunk that a store found, its number in the order of addition, and its cosine similarity to the query."""

    chunk: AnyChunk
    number: int
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best chunks of many queries, a row a query, best first.

    There are k columns, or as many as the store has chunks where these are fewer. ``numbers`` counts chunks in the
    order they were added; -1 (at score -inf) fills up where fewer were found. ``scores`` are cosine similarities, 0
    wherever one side is a zero vector.
    """

    numbers: NDArray[np.int64]
    scores: NDArray[np.float32]


@runtime_checkable
class VectorStore(Protocol):
    """Keeps chunks with their vectors and finds the nearest by cosine similarity.

    Equal texts at different places are different chunks. Equal scores are ordered by document, then by start (for
    chunks without a place: by their order within the document), so that every exact store gives the same order.
    """

    @property
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Keep chunks with their vectors; raises ``TableError`` when their numbers or the dimensions differ."""

    def search(self, vector: NDArray[np.float32], k: int) -> list[StoreHit]:
        """The k best chunks, best first; fewer when the store holds fewer."""

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """The k best chunks of every vector at once."""

    def clear(self) -> None:
        """Forget all chunks."""


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """The places of a store's chunks; ``starts`` are the ordinals, and ``ends`` 0, where chunks have no place."""

    placed: bool | None = None
    codes: dict[str, int] = field(default_factory=dict)
    documents: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    starts: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def rank(self) -> Integers:
        """Each chunk's position in the order of places, by its number."""
        rank = np.empty(len(self), np.int64)
        rank[self.order] = np.arange(len(self))
        return rank

    @cached_property
    def order(self) -> Integers:
        """The numbers of the chunks in the order of places: document id by code points, start, end."""
        alphabetical = np.empty(len(self.codes), np.int64)
        for position, doc_id in enumerate(sorted(self.codes)):
            alphabetical[self.codes[doc_id]] = position
        return np.lexsort((self.ends, self.starts, alphabetical[self.documents]))

    def with_chunks(self, chunks: Sequence[AnyChunk]) -> "Places":
        """These places and those of chunks, whose ordinals go on from their document's last; raises ``TableError``."""
        placed = isinstance(chunks[0], PositionAwareChunk)
        doc_ids = [chunk.doc_id for chunk in chunks]
        for doc_id in dict.fromkeys(doc_ids):
            encode_utf8(doc_id, f"the document id {doc_id!r}")
        starts, ends = [], []
        next_ordinal: dict[str, int] = {}
        for chunk in chunks:
            if isinstance(chunk, PositionAwareChunk) != placed:
                raise TableError(_MIXED)
            if isinstance(chunk, PositionAwareChunk):
                starts.append(chunk.start)
                ends.append(chunk.end)
            else:
                if chunk.doc_id not in next_ordinal:
                    here = self.starts[self.documents == self.codes.get(chunk.doc_id, -1)]
                    next_ordinal[chunk.doc_id] = int(here.max(initial=-1)) + 1
                starts.append(next_ordinal[chunk.doc_id])
                next_ordinal[chunk.doc_id] += 1
                ends.append(0)
        return self.with_rows(
            pa.array(doc_ids, pa.string()), np.array(starts, np.int64), np.array(ends, np.int64), placed
        )

    def with_rows(self, doc_ids: pa.Array, starts: Integers, ends: Integers, placed: bool) -> "Places":
        """These places and new ones, given as columns; raises ``TableError`` as ``with_chunks`` does."""
        if self.placed is not None and self.placed != placed:
            raise TableError(_MIXED)
        encoded = doc_ids.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = dict(self.codes)
        for name in names:
            codes.setdefault(name, len(codes))
        documents = np.array([codes[name] for name in names], np.int64)[encoded.indices.to_numpy()]
        grown = Places(
            placed,
            codes,
            np.concatenate([self.documents, documents]),
            np.concatenate([self.starts, starts]),
            np.concatenate([self.ends, ends]),
        )
        grown._refuse_duplicates(len(self))
        return grown

    def _refuse_duplicates(self, first_new: int) -> None:
        touched = np.zeros(len(self.codes), bool)
        touched[self.documents[first_new:]] = True
        rows = np.flatnonzero(touched[self.documents])  # only documents that were added to can clash
        order = rows[np.lexsort((self.ends[rows], self.starts[rows], self.documents[rows]))]
        same = np.ones(max(len(order) - 1, 0), bool)
        for column in (self.documents, self.starts, self.ends):
            same &= column[order[1:]] == column[order[:-1]]
        if same.any():
            row = order[1:][same].max()
            doc_id = next(name for name, code in self.codes.items() if code == self.documents[row])
            start, end = self.starts[row], self.ends[row]
            place = f"[{start}, {end}) of {doc_id!r}" if self.placed else f"ordinal {start} of {doc_id!r}"
            raise TableError(
                f"two chunks stand at {place}, the second in row {max(row - first_new, 0)} of what is added: "
                "a store keeps one chunk a place; clear it before filling it anew"
            )


_MIXED = "chunks with a place and chunks without one cannot share a store: use one store for each kind"
