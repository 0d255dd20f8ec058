"""Define retrievers and rerankers: their interfaces, the checks of what they return, and the chunks for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from rag_eval.chunking.chunker import Chunker, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import as_chunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.errors import ConfigurationError, preview
from rag_eval.stores.rankings import Ranking
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query
from rag_eval.types.ids import DocumentId, EvaluationType, generate_chunk_id

C = TypeVar("C", Chunk, PositionAwareChunk)
C_co = TypeVar("C_co", bound=Chunk | PositionAwareChunk, covariant=True)


@dataclass(frozen=True, slots=True)
class Hit(Generic[C_co]):
    """A retrieved chunk and its score; scores of different retrievers cannot be compared."""

    chunk: C_co
    score: float


@runtime_checkable
class Retriever(Protocol[C_co]):
    """Finds chunks for queries.

    A retriever of ``PositionAwareChunk`` serves token-level evaluation, one of ``Chunk`` chunk-level evaluation. A
    ``Chunk`` must have ``metadata["ordinal"]``, its number within its document from 0, because chunks may have the same
    text.
    """

    @property
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Index a corpus, replacing any previous one."""

    def retrieve(self, queries: Sequence[Query], k: int) -> Sequence[Sequence[Hit[C_co]]]:
        """Return the k best chunks of each query, best first, or fewer if there are fewer."""


@runtime_checkable
class Reranker(Protocol):
    """Orders candidates by their relevance to a query."""

    @property
    def name(self) -> str:
        """The reranker and its settings."""

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first, or all of them if there are fewer."""


DEEPER = 10
LEAST_CANDIDATES = 50


def candidates_for(k: int, fetch_k: int | None) -> int:
    """Return the number of candidates for a final k: ``fetch_k``, or ten times k and at least 50."""
    return max(k, DEEPER * k, LEAST_CANDIDATES) if fetch_k is None else max(k, fetch_k)


ChunkPlace = tuple[str, int, int]
"""A document and a span of characters; for chunks without positions, the number of the chunk twice."""


def place_of(chunk: Chunk | PositionAwareChunk) -> ChunkPlace:
    """Return what identifies a chunk: its place, or its number within its document.

    Raises ``ConfigurationError`` if a ``Chunk`` has no ``metadata["ordinal"]``.
    """
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    ordinal = chunk.metadata.get("ordinal")
    if not isinstance(ordinal, int):
        raise ConfigurationError(
            f"chunk {chunk.id} of {chunk.doc_id!r} has no metadata['ordinal']: number a document's chunks from 0"
        )
    return chunk.doc_id, ordinal, ordinal


_MEMBERS = {
    "vector store": ("add", "search_many", "clear", "name"),
    "reranker": ("rerank", "name"),
    "retriever": ("index", "retrieve", "name"),
}


def check_part(part: object, what: str) -> None:
    """Raise ``ConfigurationError`` unless the object has the members of such a part."""
    members = _MEMBERS[what]
    if isinstance(part, type) or not all(hasattr(part, member) for member in members):
        raise ConfigurationError(f"{preview(repr(part))} is not a {what}: give an object with {', '.join(members)}")


def check_k(k: int, what: str = "k") -> None:
    """Raise ``ConfigurationError`` unless k is a whole number of 1 or more."""
    if not isinstance(k, Integral) or k < 1:
        raise ConfigurationError(f"{what} is {k!r}: ask for at least one chunk")


def checked_hits(found: object, queries: int, name: str, kind: type) -> list[list[Hit[Any]]]:
    """Check what a retriever returned: a list of hits for each query, with chunks of this kind.

    Raises ``ConfigurationError``, naming the retriever, if it is anything else.
    """
    lists = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else None
    if lists is None or not all(isinstance(hits, Iterable) and not isinstance(hits, str) for hits in lists):
        raise ConfigurationError(
            f"{name} returned {preview(repr(found))}: a retriever must return a list of hits for each query"
        )
    if len(lists) != queries:
        raise ConfigurationError(f"{name} returned {len(lists)} of {queries} queries: return a list for each")
    checked = [list(hits) for hits in lists]
    for hit in chain.from_iterable(checked):
        if not isinstance(hit, Hit):
            raise ConfigurationError(f"{name} returned {preview(repr(hit))}: wrap every chunk as Hit(chunk, score)")
        if not isinstance(hit.chunk, kind):
            raise ConfigurationError(
                f"{name} returned a {type(hit.chunk).__name__}, this evaluation needs a {kind.__name__}: "
                "use a retriever of the same evaluation type"
            )
    return checked


def hits_of(ranking: Ranking, chunks: Sequence[C], searches: int) -> list[list[Hit[C]]]:
    """Return the hits of each of the ``searches``; the sequence has the chunk of each number."""
    found: list[list[Hit[C]]] = [[] for _ in range(searches)]
    rows = zip(ranking.searches.tolist(), ranking.chunks.tolist(), ranking.scores.tolist(), strict=True)
    for search, chunk, score in rows:
        found[search].append(Hit(chunks[chunk], score))
    return found


def rerank(
    ranking: Ranking,
    reranker: Reranker,
    texts: Sequence[str],
    chunks: Mapping[int, C] | Sequence[C],
    first: int | None = None,
) -> Ranking:
    """Rerank the ``first`` hits of every search (default: all); the others follow, and scores become 1 / rank.

    ``texts`` are the texts of the searches, and ``chunks`` has the chunk of each number. Raises like ``reranked``.
    """
    found = []
    for text, numbers in zip(texts, ranking.by_search(len(texts)), strict=True):
        order = reranked(reranker, text, [chunks[number] for number in numbers[:first].tolist()])
        order += range(len(order), len(numbers))
        found.append((numbers[order], 1 / np.arange(1, len(order) + 1)))
    return Ranking.of(found)


def reranked(reranker: Reranker, query: str, chunks: Sequence[C]) -> list[int]:
    """Return the positions of all chunks in the reranker's order.

    Raises ``ConfigurationError``, naming the reranker, unless it returns each of them once.
    """
    if not chunks:
        return []
    count = len(chunks)
    answer: object = reranker.rerank(query, chunks, count)
    first = list(islice(answer, count)) if isinstance(answer, Iterable) else []
    positions = {place_of(chunk): position for position, chunk in enumerate(chunks)}
    places = dict.fromkeys(place_of(chunk) for chunk in first if isinstance(chunk, Chunk | PositionAwareChunk))
    order = [positions[place] for place in places if place in positions]
    if len(order) != count:
        raise ConfigurationError(
            f"{reranker.name} returned {preview(repr(answer))} for {count} chunks and top_k = {count}: "
            f"return {count} different ones of these chunks"
        )
    return order


class TextSplitter(Protocol):
    """A text splitter like LangChain's."""

    def split_text(self, text: str, /) -> Iterable[object]:
        """Return the texts of the chunks, as strings or as objects with a text."""


class NamelessChunker(Protocol):
    """A chunker like chonkie's, without a name."""

    def chunk(self, text: str, /) -> Iterable[object]:
        """Return the texts of the chunks, as strings or as objects with a text."""


AnyChunker = Chunker | PositionAwareChunker | TextSplitter | NamelessChunker | Callable[[str], Iterable[object]]
"""Any chunker: a built-in one, one of another library, or a function."""


def cut(chunker: AnyChunker, corpus: Corpus, evaluation_type: EvaluationType) -> list[Any]:
    """Cut a corpus into the chunks that the evaluation needs, ordered by document and place.

    They are ``PositionAwareChunk`` for token-level and ``Chunk`` for chunk-level evaluation.
    Raises ``ConfigurationError`` if there are none.
    """
    used = as_position_aware(chunker)
    found = [chunk for document in corpus.documents for chunk in used.chunk_with_positions(document)]
    chunks: list[Any] = in_place_order(found) if evaluation_type == "token-level" else without_positions(found)
    if not chunks:
        name = usable_chunker(chunker, evaluation_type).name
        raise no_chunks(name, len(corpus), getattr(used, "skipped_chunks", 0))
    return chunks


def no_chunks(chunker: str, documents: int, skipped: int) -> ConfigurationError:
    """Return the error for a chunker that made no chunks."""
    return ConfigurationError(
        f"{chunker} made no chunks of {documents} documents ({skipped} were left out because their place is "
        f"uncertain): "
        "check the chunker and the documents"
    )


def usable_chunker(chunker: AnyChunker, evaluation_type: EvaluationType) -> Chunker | PositionAwareChunker:
    """Return the chunker, in an adapter if the evaluation needs one.

    Raises ``ConfigurationError`` if the object is not a chunker.
    """
    knows_places = not isinstance(chunker, type) and isinstance(chunker, PositionAwareChunker)
    if evaluation_type == "token-level" or (knows_places and not isinstance(chunker, Chunker)):
        return as_position_aware(chunker)
    return as_chunker(chunker)


def in_place_order(chunks: Iterable[PositionAwareChunk]) -> list[PositionAwareChunk]:
    """Return the chunks by document and place, one per place."""
    places: dict[ChunkPlace, PositionAwareChunk] = {}
    for chunk in chunks:
        places.setdefault((chunk.doc_id, chunk.start, chunk.end), chunk)
    return [places[place] for place in sorted(places)]


def without_positions(chunks: Iterable[PositionAwareChunk]) -> list[Chunk]:
    """Return the chunks without positions, numbered within their documents in the given order."""
    numbered: dict[DocumentId, list[Chunk]] = {}
    for chunk in chunks:
        others = numbered.setdefault(chunk.doc_id, [])
        metadata = {**chunk.metadata, "ordinal": len(others)}
        others.append(Chunk(generate_chunk_id(chunk.content), chunk.content, chunk.doc_id, metadata))
    return [chunk for doc_id in sorted(numbered) for chunk in numbered[doc_id]]
