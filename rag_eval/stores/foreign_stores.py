"""Adapt vector stores of other libraries and of users, recognised by their methods."""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, is_callable_part
from rag_eval.stores.rankings import Mask, Ranking, search_deeper
from rag_eval.stores.store import AnyChunk
from rag_eval.types.chunks import Chunk, PositionAwareChunk

ACCEPTED = (
    "an object with add(chunks, vectors) and search(vector, k), a LangChain vector store (add_documents), "
    "a LlamaIndex vector store (query), or a class of such objects"
)
NUMBER = "rag_eval_number"
"""Metadata key of a chunk's number in other libraries' documents."""
_EMBEDDING = ("embedding", "embedding_function", "embeddings")
"""Names of the embedder attribute in LangChain's stores."""

Found = Iterable[tuple[int | None, float | None]]
"""The number of each chunk found, best first, and its score if the store returns one."""


class KnownVectors:
    """An embedder for LangChain's stores, which embed by themselves: it looks up vectors by their text."""

    def __init__(self) -> None:
        self.by_text: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.by_text[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.by_text[text]


class ForeignStore(Foreign):
    """A vector store that is not built in; a class is instantiated whenever it is filled.

    If it returns no scores, the score of a hit is 1 / rank. Raises ``ConfigurationError`` if the object is not a store.
    """

    kind = "store"

    def __init__(self, source: object, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        self._reset()
        made = source.func if isinstance(source, functools.partial) else source
        fills = any(callable(getattr(made, method, None)) for method in ("add", "add_documents"))
        if not fills and (inspect.isclass(made) or not callable(made)):
            raise ConfigurationError(f"{preview(repr(source))} is not a store: give {ACCEPTED}")

    def _reset(self) -> None:
        self.numbers: dict[object, int] = {}
        """Number of every chunk, by its place."""
        self.known_vectors = KnownVectors()
        self._instance: Any = None

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Pass chunks with their vectors to the store; raises any error of the store."""
        store, first = self._store(), len(self.numbers)
        numbers = range(first, first + len(chunks))
        self.numbers |= {_place(chunk): number for number, chunk in zip(numbers, chunks, strict=True)}
        _shape_of(store).add(self, store, numbers, chunks, embeddings)

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> Ranking:
        return search_deeper(lambda depth: self._nearest(vectors, depth), len(vectors), k, among)

    def _nearest(self, vectors: Vectors, k: int) -> Ranking:
        store, depth = self._store(), min(k, len(self.numbers))
        search, found = _shape_of(store).search, []
        for vector in vectors:
            hits = list(search(self, store, vector, depth))[:depth]
            numbers = [number for number, _ in hits]
            for number in numbers:
                if not isinstance(number, int) or not 0 <= number < len(self.numbers):
                    raise ConfigurationError(f"the store {self.label} returned a chunk that was not added: {number!r}")
            if len(set(numbers)) < len(numbers):
                raise ConfigurationError(
                    f"the store {self.label} returned the same chunk twice in one search: {numbers}"
                )
            scores = [1 / rank if score is None else score for rank, (_, score) in enumerate(hits, start=1)]
            found.append((np.array(numbers, np.int64), np.array(scores, np.float32)))
        return Ranking.of(found)

    def clear(self) -> None:
        """Remove all chunks: drop the instance of a class, clear an object, or delete its chunks."""
        if not is_callable_part(self.source):
            if callable(getattr(self.source, "clear", None)):
                self.ask(self.source.clear)
            elif self.numbers and callable(getattr(self.source, "delete", None)):
                self.ask(self.source.delete, [str(number) for number in range(len(self.numbers))])
        self._reset()

    def _store(self) -> Any:
        if self._instance is None:
            self._instance = self.ask(self._make) if is_callable_part(self.source) else self._with_known_vectors()
        return self._instance

    def _make(self) -> Any:
        parameters = inspect.signature(self.source).parameters
        return self.source(**{name: self.known_vectors for name in _EMBEDDING if name in parameters})

    def _with_known_vectors(self) -> Any:
        """Replace the embedder with which a LangChain store was created."""
        for name in _EMBEDDING if hasattr(self.source, "add_documents") else ():
            if name in getattr(self.source, "__dict__", {}):
                setattr(self.source, name, self.known_vectors)
        return self.source


def _place(chunk: object) -> object:
    """Return what identifies a chunk, or None for any other object."""
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    return (chunk.doc_id, chunk.id, chunk.metadata.get("ordinal")) if isinstance(chunk, Chunk) else None


def langchain_documents(chunks: Sequence[AnyChunk], first: int = 0) -> list[Any]:
    """Return the chunks as LangChain's documents, numbered in their metadata."""
    document = importlib.import_module("langchain_core.documents").Document
    numbered = enumerate(chunks, start=first)
    return [document(page_content=chunk.content, metadata={NUMBER: number}) for number, chunk in numbered]


class StoreShape(NamedTuple):
    """How the stores of one library are recognised, filled and searched."""

    methods: tuple[str, ...]
    add: Callable[[ForeignStore, Any, range, Sequence[AnyChunk], Vectors], object]
    search: Callable[[ForeignStore, Any, Vectors, int], Found]


def _add_documents(
    part: ForeignStore, store: Any, numbers: range, chunks: Sequence[AnyChunk], vectors: Vectors
) -> object:
    # Equal texts have equal vectors.
    part.known_vectors.by_text = {chunk.content: vector for chunk, vector in zip(chunks, vectors.tolist(), strict=True)}
    return part.ask(store.add_documents, langchain_documents(chunks, numbers.start), ids=list(map(str, numbers)))


def _search_documents(part: ForeignStore, store: Any, vector: Vectors, k: int) -> Found:
    found = part.ask(store.similarity_search_by_vector, vector.tolist(), k=k)
    return [(document.metadata.get(NUMBER), None) for document in found]


def _add_nodes(part: ForeignStore, store: Any, numbers: range, chunks: Sequence[AnyChunk], vectors: Vectors) -> object:
    node = importlib.import_module("llama_index.core.schema").TextNode
    rows = zip(numbers, chunks, vectors.tolist(), strict=True)
    return part.ask(store.add, [node(id_=str(n), text=chunk.content, embedding=vector) for n, chunk, vector in rows])


def _search_nodes(part: ForeignStore, store: Any, vector: Vectors, k: int) -> Found:
    query = importlib.import_module("llama_index.core.vector_stores.types").VectorStoreQuery
    found = part.ask(store.query, query(query_embedding=vector.tolist(), similarity_top_k=k))
    numbers = [int(number) for number in found.ids or []]
    return zip(numbers, found.similarities or [None] * len(numbers), strict=True)


def _add_chunks(part: ForeignStore, store: Any, _: range, chunks: Sequence[AnyChunk], vectors: Vectors) -> object:
    return part.ask(store.add, list(chunks), vectors)


def _search_chunks(part: ForeignStore, store: Any, vector: Vectors, k: int) -> Found:
    """Search a user's store, which returns chunks, pairs of a chunk and a score, or objects with both."""
    found = part.ask(store.search, vector, k)
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise ConfigurationError(f"the store {part.label} returned {preview(repr(found))}: return a list of chunks")
    for hit in found:
        chunk, score = hit if isinstance(hit, tuple | list) and len(hit) == 2 else (hit, getattr(hit, "score", None))
        yield part.numbers.get(_place(getattr(chunk, "chunk", chunk))), score


SHAPES = (
    StoreShape(("add_documents", "similarity_search_by_vector"), _add_documents, _search_documents),  # LangChain
    StoreShape(("add", "query"), _add_nodes, _search_nodes),  # LlamaIndex
    StoreShape((), _add_chunks, _search_chunks),  # a user's own
)


def _shape_of(store: object) -> StoreShape:
    return next(shape for shape in SHAPES if all(callable(getattr(store, method, None)) for method in shape.methods))
