"""What a retriever and a reranker are, the checks of what they give, and a corpus cut into chunks for them.

Search, fusion and reranking work on rankings: what a stage finds, as numbers of chunks. Tables of hits and lists of
``Hit`` are made from them at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.chunker import Chunker, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import as_chunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.errors import ConfigurationError, preview
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query
from rag_eval.types.ids import DocumentId, EvaluationType, generate_chunk_id

C = TypeVar("C", Chunk, PositionAwareChunk)
C_co = TypeVar("C_co", bound=Chunk | PositionAwareChunk, covariant=True)


@dataclass(frozen=True, slots=True)
class Hit(Generic[C_co]):
    """A retrieved chunk and the score that put it at its rank; scores of different retrievers do not compare."""

    chunk: C_co
    score: float


@runtime_checkable
class Retriever(Protocol[C_co]):
    """Finds chunks for queries.

    A retriever of ``PositionAwareChunk`` serves token-level evaluation, one of ``Chunk`` chunk-level evaluation. A
    ``Chunk`` must have ``metadata["ordinal"]``, its number within its document from 0, which tells it from a chunk of
    the same text elsewhere.
    """

    @property
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Make a corpus searchable, in place of any before."""

    def retrieve(self, queries: Sequence[Query], k: int) -> Sequence[Sequence[Hit[C_co]]]:
        """Return the k best chunks of each query, best first; fewer where there are fewer."""


@runtime_checkable
class Reranker(Protocol):
    """Puts candidates into a better order."""

    @property
    def name(self) -> str:
        """The reranker and its settings."""

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first; all of them where they are fewer."""


DEEPER = 10
LEAST_CANDIDATES = 50


def candidates_for(k: int, fetch_k: int | None) -> int:
    """Return how many candidates to fetch for a final k: ``fetch_k``, or ten times k and at least 50."""
    return max(k, DEEPER * k, LEAST_CANDIDATES) if fetch_k is None else max(k, fetch_k)


def place_of(chunk: Chunk | PositionAwareChunk) -> tuple[str, int, int]:
    """Return what identifies a chunk: its place, or its number within its document.

    Raises ``ConfigurationError`` on a ``Chunk`` without ``metadata["ordinal"]``.
    """
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    ordinal = chunk.metadata.get("ordinal")
    if not isinstance(ordinal, int):
        raise ConfigurationError(
            f"chunk {chunk.id} of {chunk.doc_id!r} has no ordinal in its metadata: number the chunks of a document "
            "from 0, as metadata['ordinal']"
        )
    return chunk.doc_id, ordinal, ordinal


_MEMBERS = {
    "vector store": ("add", "search_many", "clear", "name"),
    "reranker": ("rerank", "name"),
    "retriever": ("index", "retrieve", "name"),
}


def check_part(part: object, what: str) -> None:
    """Raise ``ConfigurationError`` unless the object has the members of one; a class of such objects is none."""
    members = _MEMBERS[what]
    if isinstance(part, type) or not all(hasattr(part, member) for member in members):
        raise ConfigurationError(f"{preview(repr(part))} is not a {what}: give an object with {', '.join(members)}")


def check_k(k: int, what: str = "k") -> None:
    """Raise ``ConfigurationError`` unless k is a whole number of 1 or more."""
    if not isinstance(k, Integral) or k < 1:
        raise ConfigurationError(f"{what} is {k!r}: ask for at least one chunk")


def checked_hits(found: object, queries: int, name: str, *kinds: type) -> list[list[Hit[Any]]]:
    """Return the answer of a retriever as a list of hits for every query, with chunks of these kinds.

    Raises ``ConfigurationError``, naming the retriever, when it is anything else.
    """
    lists = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else None
    if lists is None or not all(isinstance(hits, Iterable) and not isinstance(hits, str) for hits in lists):
        raise ConfigurationError(f"{name} gave {preview(repr(found))}: a retriever must give a list of hits a query")
    if len(lists) != queries:
        raise ConfigurationError(f"{name} answered {len(lists)} of {queries} queries: it must give a list for each")
    checked = [list(hits) for hits in lists]
    for hits in checked:
        for hit in hits:
            if not isinstance(hit, Hit):
                raise ConfigurationError(f"{name} gave {preview(repr(hit))}: wrap every chunk as Hit(chunk, score)")
            if not isinstance(hit.chunk, kinds):
                needed = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigurationError(
                    f"{name} gave a {type(hit.chunk).__name__}, this evaluation needs a {needed}: "
                    "use a retriever of the same evaluation type"
                )
    return checked


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The chunks found by every search, best first: row i says that search ``searches[i]`` found ``chunks[i]``.

    Rows are in the order of the searches, and within one from the best hit to the worst. Chunks are numbered in the
    order of their places, which decides between equal scores.
    """

    searches: Numbers
    chunks: Numbers
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, found: Iterable[tuple[Numbers, NDArray[np.floating]]]) -> "Ranking":
        """Join the chunks and scores that each search found, in the order of the searches."""
        pairs = list(found)
        none = [(np.empty(0, np.int64), np.empty(0))]
        chunks, scores = (np.concatenate(column) for column in zip(*(pairs or none), strict=True))
        searches = np.repeat(np.arange(len(pairs)), [len(numbers) for numbers, _ in pairs])
        return cls(searches, chunks.astype(np.int64), scores.astype(np.float64))

    @property
    def ranks(self) -> Numbers:
        """The rank of each row within its search, from 1."""
        return np.arange(1, len(self.searches) + 1) - np.searchsorted(self.searches, self.searches)

    def first(self, depth: int) -> "Ranking":
        """Return the first ``depth`` hits of each search."""
        kept = self.ranks <= depth
        return self if kept.all() else Ranking(self.searches[kept], self.chunks[kept], self.scores[kept])

    def by_search(self, searches: int) -> list[Numbers]:
        """Return the chunks of each of so many searches."""
        return np.split(self.chunks, np.searchsorted(self.searches, np.arange(1, searches)))

    def hits(self, chunks: Sequence[C], searches: int) -> list[list[Hit[C]]]:
        """Return the hits of each of so many searches, whose chunks are numbered as in the sequence."""
        found: list[list[Hit[C]]] = [[] for _ in range(searches)]
        for search, chunk, score in zip(
            self.searches.tolist(), self.chunks.tolist(), self.scores.tolist(), strict=True
        ):
            found[search].append(Hit(chunks[chunk], score))
        return found


def rerank(
    ranking: Ranking,
    reranker: Reranker,
    texts: Sequence[str],
    chunks: Mapping[int, C] | Sequence[C],
    first: int | None = None,
) -> Ranking:
    """Put the ``first`` hits of every search (default: all) into the reranker's order; scores become 1 / rank.

    The others follow in their order. ``texts`` are those of the searches, ``chunks`` has the chunk of each number.
    Raises as ``reranked`` does.
    """
    found = []
    for text, numbers in zip(texts, ranking.by_search(len(texts)), strict=True):
        order = reranked(reranker, text, [chunks[number] for number in numbers[:first].tolist()])
        order += range(len(order), len(numbers))
        found.append((numbers[order], 1 / np.arange(1, len(order) + 1)))
    return Ranking.of(found)


def reranked(reranker: Reranker, query: str, chunks: Sequence[C]) -> list[int]:
    """Return the positions of all chunks in the order that a reranker gives them.

    Raises ``ConfigurationError``, naming the reranker, when it does not give all of them, each once.
    """
    if not chunks:
        return []
    wanted = len(chunks)
    given: object = reranker.rerank(query, chunks, wanted)
    kept = list(islice(given, wanted)) if isinstance(given, Iterable) else []
    positions = {place_of(chunk): position for position, chunk in enumerate(chunks)}
    order = [
        positions[place]
        for place in dict.fromkeys(place_of(chunk) for chunk in kept if isinstance(chunk, Chunk | PositionAwareChunk))
        if place in positions
    ]
    if len(kept) != wanted or len(order) != wanted:
        raise ConfigurationError(
            f"{reranker.name} gave {preview(repr(given))} for {wanted} chunks and top_k = {wanted}: "
            f"a reranker must give {wanted} different ones of the chunks that it was given"
        )
    return order


class TextSplitter(Protocol):
    """A text splitter in LangChain's manner."""

    def split_text(self, text: str, /) -> Iterable[object]:
        """Return the texts of the chunks, as strings or as objects with a text."""


class NamelessChunker(Protocol):
    """A chunker in chonkie's manner: without a name of its own."""

    def chunk(self, text: str, /) -> Iterable[object]:
        """Return the texts of the chunks, as strings or as objects with a text."""


AnyChunker = Chunker | PositionAwareChunker | TextSplitter | NamelessChunker | Callable[[str], Iterable[object]]
"""Any chunker will do, one of another library or a function too: it is wrapped where a name or places are needed."""


def cut(chunker: AnyChunker, corpus: Corpus, evaluation_type: EvaluationType) -> list[Any]:
    """Cut a corpus into the chunks that the evaluation needs, in the order that breaks ties: by document, then place.

    They are ``PositionAwareChunk`` for token-level and ``Chunk`` for chunk-level evaluation.
    Raises ``ConfigurationError`` when there are none.
    """
    used = as_position_aware(chunker)
    found = [chunk for document in corpus.documents for chunk in used.chunk_with_positions(document)]
    chunks: list[Any] = in_place_order(found) if evaluation_type == "token-level" else without_positions(found)
    if not chunks:
        name = usable_chunker(chunker, evaluation_type).name
        raise no_chunks(name, len(corpus), getattr(used, "skipped_chunks", 0))
    return chunks


def no_chunks(chunker: str, documents: int, skipped: int) -> ConfigurationError:
    """Return the error that a chunker made nothing to search."""
    return ConfigurationError(
        f"{chunker} made no chunk of {documents} documents ({skipped} were left out for lack of a sure place): "
        "there is nothing to search, check the chunker and the documents"
    )


def usable_chunker(chunker: AnyChunker, evaluation_type: EvaluationType) -> Chunker | PositionAwareChunker:
    """Return the chunker as the evaluation uses it: with a name, and with the adapter where one is needed.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """
    knows_places = not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker)
    if evaluation_type == "token-level" or (knows_places and not isinstance(chunker, Chunker)):
        return as_position_aware(chunker)
    return as_chunker(chunker)


def in_place_order(chunks: Iterable[PositionAwareChunk]) -> list[PositionAwareChunk]:
    """Return the chunks by document and place; a place that is given twice is kept once."""
    places: dict[tuple[str, int, int], PositionAwareChunk] = {}
    for chunk in chunks:
        places.setdefault((chunk.doc_id, chunk.start, chunk.end), chunk)
    return [places[place] for place in sorted(places)]


def without_positions(chunks: Iterable[PositionAwareChunk]) -> list[Chunk]:
    """Return the chunks by their text alone, numbered within their documents in the order given; none is dropped."""
    numbered: dict[DocumentId, list[Chunk]] = {}
    for chunk in chunks:
        others = numbered.setdefault(chunk.doc_id, [])
        metadata = {**chunk.metadata, "ordinal": len(others)}
        others.append(Chunk(generate_chunk_id(chunk.content), chunk.content, chunk.doc_id, metadata))
    return [chunk for doc_id in sorted(numbered) for chunk in numbered[doc_id]]


class ChunkRetriever(ABC, Generic[C]):
    """A retriever that cuts its corpus into chunks; raises ``ConfigurationError`` on what is not a chunker."""

    def __init__(self, chunker: AnyChunker, evaluation_type: EvaluationType) -> None:
        self._chunker = chunker
        self.evaluation_type: EvaluationType = evaluation_type
        """Which evaluation its chunks serve."""
        self.chunker_name = usable_chunker(chunker, evaluation_type).name
        """The chunker and its settings, as this evaluation type uses it."""
        self._chunks: list[C] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Cut a corpus into chunks and index them, in place of any before.

        Raises ``ConfigurationError`` when there are no chunks, and what the parts raise; what was indexed before is
        still there unless it was the store that failed.
        """
        chunks: list[C] = cut(self._chunker, corpus, self.evaluation_type)
        self._fill(chunks)
        self._chunks = chunks

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """Return the k best chunks of each query.

        Raises ``ConfigurationError`` before ``index``, on k below 1, and when the store holds other chunks by now.
        """
        check_k(k)
        chunks = self.indexed_chunks()
        return self._ranking([query.text for query in queries], k).hits(chunks, len(queries))

    def indexed_chunks(self) -> list[C]:
        """Return the chunks of the indexed corpus; raises ``ConfigurationError`` before ``index``."""
        if self._chunks is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        return self._chunks

    @abstractmethod
    def _fill(self, chunks: list[C]) -> None:
        """Index these chunks."""

    @abstractmethod
    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        """Return the k best of the indexed chunks for each text."""
