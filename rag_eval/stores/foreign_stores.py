"""Vector stores of other libraries and of users, recognised by their methods."""

import functools
import importlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, is_callable_part
from rag_eval.stores.exact_search import SearchResult
from rag_eval.stores.store import AnyChunk
from rag_eval.types.chunks import Chunk, PositionAwareChunk

ACCEPTED = (
    "an object with add(chunks, vectors) and search(vector, k), a LangChain vector store (add_documents), "
    "a LlamaIndex vector store (query), or a class of such objects"
)
_NUMBER = "rag_eval_number"
_EMBEDDING = ("embedding", "embedding_function", "embeddings")
"""What LangChain's stores call the embedder that they are made with."""


class KnownVectors:
    """An embedder for LangChain's stores, which embed by themselves: it looks up what is embedded already."""

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}

    def learn(self, texts: Sequence[str], vectors: Vectors) -> None:
        self._known = dict(zip(texts, vectors.tolist(), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._known[text]


class StoreShape(NamedTuple):
    """How the stores of one library are filled and searched."""

    has: tuple[str, ...]
    """The methods by which such a store is recognised."""
    add: Callable[["ForeignStore", Any, Sequence[AnyChunk], Vectors, range], object]
    search: Callable[["ForeignStore", Any, Vectors, int], Iterable[tuple[Any, float | None]]]
    """Gives the number of each chunk that was found, best first, with its score where the store tells it."""


class ForeignStore(Foreign):
    """A vector store that is not built in; a class is made anew for every filling.

    What it finds is matched with the chunks that it was given. Where it tells no scores, a hit's score is 1 / rank.
    Raises ``ConfigurationError`` when the object is no store.
    """

    kind = "store"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        self._forget()
        made = source.func if isinstance(source, functools.partial) else source
        fills = any(callable(getattr(made, method, None)) for method in ("add", "add_documents"))
        if not fills and (inspect.isclass(made) or not callable(made)):
            raise ConfigurationError(f"{preview(repr(source))} is not a store: give {ACCEPTED}")

    def _forget(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        """The number of every chunk that was added, by its place."""
        self.known_vectors = KnownVectors()
        self._used: Any = None

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Hand over chunks with their vectors; raises as the store does."""
        store, first = self._store(), len(self.numbers)
        self.numbers |= {_place(chunk): number for number, chunk in enumerate(chunks, start=first)}
        shape_of(store).add(self, store, chunks, embeddings, range(first, first + len(chunks)))

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """Return the k nearest chunks of every vector, each asked for by itself.

        Raises ``ConfigurationError`` when the store gives what it was not given.
        """
        width = min(k, len(self.numbers))
        result, store = SearchResult.empty(len(vectors), width), self._store()
        for row, vector in enumerate(vectors):
            pairs = list(shape_of(store).search(self, store, vector, width))[:width]
            for number, _ in pairs:
                if not isinstance(number, int) or not 0 <= number < len(self.numbers):
                    raise ConfigurationError(f"the store {self.label} found a chunk that it was not given: {number!r}")
            numbers = [number for number, _ in pairs]
            if len(set(numbers)) < len(numbers):
                twice = next(number for number in numbers if numbers.count(number) > 1)
                raise ConfigurationError(f"the store {self.label} found chunk number {twice} twice in one search")
            result.numbers[row, : len(numbers)] = numbers
            scores = [1 / rank if score is None else float(score) for rank, (_, score) in enumerate(pairs, start=1)]
            result.scores[row, : len(numbers)] = scores
        return result

    def clear(self) -> None:
        """Forget all chunks: a class is made anew, an object is cleared, or emptied chunk by chunk."""
        if not is_callable_part(self.source):
            if callable(getattr(self.source, "clear", None)):
                self.ask(self.source.clear)
            elif self.numbers and callable(getattr(self.source, "delete", None)):
                self.ask(self.source.delete, [str(number) for number in range(len(self.numbers))])
        self._forget()

    def _store(self) -> Any:
        if self._used is None:
            self._used = self.ask(self._make) if is_callable_part(self.source) else self.source
            if not is_callable_part(self.source):
                for name in _EMBEDDING:  # an object that was made with an embedder of its own
                    if hasattr(self.source, "add_documents") and name in getattr(self.source, "__dict__", {}):
                        setattr(self.source, name, self.known_vectors)
        return self._used

    def _make(self) -> Any:
        parameters = inspect.signature(self.source).parameters
        return self.source(**{name: self.known_vectors for name in _EMBEDDING if name in parameters})


def _place(chunk: object) -> Hashable:
    """Return what tells a chunk from all others; None for what is no chunk."""
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    return (chunk.doc_id, chunk.id, chunk.metadata.get("ordinal")) if isinstance(chunk, Chunk) else None


def _add_documents(part: ForeignStore, store: Any, chunks: Sequence[AnyChunk], vectors: Vectors, ns: range) -> object:
    document = importlib.import_module("langchain_core.documents").Document
    # Equal texts have equal vectors, so that a look-up by text finds the right one.
    part.known_vectors.learn([chunk.content for chunk in chunks], vectors)
    pairs = zip(ns, chunks, strict=True)
    documents = [document(page_content=chunk.content, metadata={_NUMBER: number}) for number, chunk in pairs]
    return part.ask(store.add_documents, documents, ids=[str(number) for number in ns])


def _search_documents(part: ForeignStore, store: Any, vector: Vectors, k: int) -> list[tuple[Any, None]]:
    found = part.ask(store.similarity_search_by_vector, vector.tolist(), k=k)
    return [(document.metadata.get(_NUMBER), None) for document in found]


def _add_nodes(part: ForeignStore, store: Any, chunks: Sequence[AnyChunk], vectors: Vectors, ns: range) -> object:
    node = importlib.import_module("llama_index.core.schema").TextNode
    rows = zip(ns, chunks, vectors.tolist(), strict=True)
    return part.ask(store.add, [node(id_=str(n), text=chunk.content, embedding=vector) for n, chunk, vector in rows])


def _search_nodes(part: ForeignStore, store: Any, vector: Vectors, k: int) -> list[tuple[int, float | None]]:
    query = importlib.import_module("llama_index.core.vector_stores.types").VectorStoreQuery
    found = part.ask(store.query, query(query_embedding=vector.tolist(), similarity_top_k=k))
    numbers = [int(number) for number in found.ids or []]
    return list(zip(numbers, found.similarities or [None] * len(numbers), strict=True))


def _add_chunks(part: ForeignStore, store: Any, chunks: Sequence[AnyChunk], vectors: Vectors, _: range) -> object:
    return part.ask(store.add, list(chunks), vectors)


def _search_chunks(part: ForeignStore, store: Any, vector: Vectors, k: int) -> list[tuple[int | None, float | None]]:
    """Ask a user's store, which gives chunks, alone or with a score, or hits."""
    found = part.ask(store.search, vector, k)
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise ConfigurationError(f"the store {part.label} gave {preview(repr(found))}: give a list of chunks")
    pairs = []
    for hit in found:
        chunk, score = hit if isinstance(hit, tuple | list) and len(hit) == 2 else (hit, getattr(hit, "score", None))
        chunk = getattr(chunk, "chunk", chunk)
        pairs.append((part.numbers.get(_place(chunk)), score))
    return pairs


SHAPES = (
    StoreShape(("add_documents", "similarity_search_by_vector"), _add_documents, _search_documents),  # LangChain
    StoreShape(("add", "query"), _add_nodes, _search_nodes),  # LlamaIndex
    StoreShape((), _add_chunks, _search_chunks),  # a user's own
)


def shape_of(store: object) -> StoreShape:
    """Return how a store is filled and searched."""
    return next(one for one in SHAPES if all(callable(getattr(store, method, None)) for method in one.has))
