"""Vector stores of other libraries and of users, told apart by what they can do."""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, is_callable_part
from rag_eval.stores.store import AnyChunk, SearchResult, StoreHit
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


class ForeignStore(Foreign):
    """A vector store that is not built in; a class is made anew for every filling.

    What it finds is matched with the chunks that it was given. Where it tells no scores, a hit's score is 1 / rank.
    Raises ``ConfigurationError`` when the object is no store.
    """

    kind = "store"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        self._chunks: list[AnyChunk] = []
        self._numbers: dict[Any, int] = {}
        self._known = KnownVectors()
        self._used: Any = None
        told = source.func if isinstance(source, functools.partial) else source
        fills = any(callable(getattr(told, method, None)) for method in ("add", "add_documents"))
        if not fills and (inspect.isclass(told) or not callable(told)):
            raise ConfigurationError(f"{preview(repr(source))} is not a store: give {ACCEPTED}")

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Hand over chunks with their vectors; raises as the store does."""
        store, first = self._store(), len(self._chunks)
        self._chunks += chunks
        numbers = range(first, first + len(chunks))
        if callable(getattr(store, "add_documents", None)):
            made = importlib.import_module("langchain_core.documents").Document
            # Equal texts have equal vectors, so that a look-up by text finds the right one.
            self._known.learn([chunk.content for chunk in chunks], embeddings)
            documents = [
                made(page_content=chunk.content, metadata={_NUMBER: number})
                for number, chunk in zip(numbers, chunks, strict=True)
            ]
            self.ask(store.add_documents, documents, ids=[str(number) for number in numbers])
        elif callable(getattr(store, "query", None)):
            node = importlib.import_module("llama_index.core.schema").TextNode
            nodes = [
                node(id_=str(number), text=chunk.content, embedding=vector)
                for number, chunk, vector in zip(numbers, chunks, embeddings.tolist(), strict=True)
            ]
            self.ask(store.add, nodes)
        else:
            self.ask(store.add, list(chunks), embeddings)

    def search(self, vector: NDArray[np.float32], k: int) -> list[StoreHit]:
        """The k best chunks; raises ``ConfigurationError`` when the store gives what it was not given."""
        store = self._store()
        pairs: list[tuple[Any, float | None]]
        if callable(getattr(store, "similarity_search_by_vector", None)):
            given = self.ask(store.similarity_search_by_vector, vector.tolist(), k=k)
            pairs = [(document.metadata.get(_NUMBER), None) for document in given]
        elif callable(getattr(store, "query", None)):
            query = importlib.import_module("llama_index.core.vector_stores.types").VectorStoreQuery
            given = self.ask(store.query, query(query_embedding=vector.tolist(), similarity_top_k=k))
            scores = given.similarities or [None] * len(given.ids or [])
            pairs = [(int(one), score) for one, score in zip(given.ids or [], scores, strict=True)]
        else:
            given = self.ask(store.search, vector, k)
            if not isinstance(given, Iterable) or isinstance(given, str):
                raise ConfigurationError(f"the store {self.label} gave {preview(repr(given))}: give a list of chunks")
            pairs = [self._read(one) for one in given]
        hits: list[StoreHit] = []
        for rank, (number, score) in enumerate(pairs[:k], start=1):
            if not isinstance(number, int) or not 0 <= number < len(self._chunks):
                raise ConfigurationError(f"the store {self.label} found a chunk that it was not given: {number!r}")
            if any(hit.number == number for hit in hits):
                raise ConfigurationError(f"the store {self.label} found chunk number {number} twice in one search")
            hits.append(StoreHit(self._chunks[number], number, 1 / rank if score is None else float(score)))
        return hits

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """The k best chunks of every vector, each asked for by itself."""
        width = min(k, len(self._chunks))
        numbers = np.full((len(vectors), width), -1, np.int64)
        scores = np.full((len(vectors), width), -np.inf, np.float32)
        for row, vector in enumerate(vectors):
            for place, hit in enumerate(self.search(vector, width)):
                numbers[row, place], scores[row, place] = hit.number, hit.score
        return SearchResult(numbers, scores)

    def clear(self) -> None:
        """Forget all chunks: a class is made anew, an object is cleared, or emptied chunk by chunk."""
        if not is_callable_part(self.source):
            if callable(getattr(self.source, "clear", None)):
                self.ask(self.source.clear)
            elif self._chunks and callable(getattr(self.source, "delete", None)):
                self.ask(self.source.delete, [str(number) for number in range(len(self._chunks))])
        self._chunks, self._used, self._numbers = [], None, {}

    def _store(self) -> Any:
        if self._used is None:
            self._used = self.ask(self._make) if is_callable_part(self.source) else self.source
            if not is_callable_part(self.source):
                for name in _EMBEDDING:  # an object that was made with an embedder of its own
                    if hasattr(self.source, "add_documents") and name in getattr(self.source, "__dict__", {}):
                        setattr(self.source, name, self._known)
        return self._used

    def _make(self) -> Any:
        make: Callable[..., Any] = self.source
        parameters = inspect.signature(make).parameters
        return make(**{name: self._known for name in _EMBEDDING if name in parameters})

    def _read(self, found: Any) -> tuple[int | None, float | None]:
        """The number and the score of something that a store found: a chunk, alone or with a score, or a hit."""
        score = None
        if isinstance(found, tuple | list) and len(found) == 2:
            found, score = found
        elif hasattr(found, "chunk"):
            found, score = found.chunk, getattr(found, "score", None)
        if len(self._numbers) != len(self._chunks):
            self._numbers = {_key(chunk): number for number, chunk in enumerate(self._chunks)}
        is_chunk = isinstance(found, Chunk | PositionAwareChunk)
        return (self._numbers.get(_key(found)) if is_chunk else None), score


def _key(chunk: AnyChunk) -> tuple[Any, ...]:
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    return chunk.doc_id, chunk.id, chunk.metadata.get("ordinal")
