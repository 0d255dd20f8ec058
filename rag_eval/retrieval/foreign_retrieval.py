"""Adapt rerankers, retrievers and systems of other libraries and of users, recognised by their methods."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, is_callable_part, settled, signature_of
from rag_eval.retrieval.retriever import C, ChunkPlace, place_of
from rag_eval.retrieval.tokenizers import words
from rag_eval.stores.foreign_stores import NUMBER, langchain_documents
from rag_eval.stores.rankings import Mask, Ranking, search_deeper
from rag_eval.stores.store import AnyChunk
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query

RERANKERS = (
    "an object with rerank(query, chunks), a LangChain compressor (compress_documents), a LlamaIndex postprocessor "
    "(postprocess_nodes), a Haystack ranker (run), one of the package rerankers (rank), "
    "or a function of a query and chunks that returns them in a better order, or a score for each"
)
RETRIEVERS = (
    "an object with search(query, k), a LangChain retriever (invoke), a LlamaIndex retriever (retrieve), "
    "a Haystack retriever (run), or a function of a query and k"
)


class ForeignReranker(Foreign):
    """A reranker that is not built in. Chunks that it omits follow in their previous order.

    Raises ``ConfigurationError`` if the object is not a reranker.
    """

    kind = "reranker"

    def __init__(self, source: object, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        self._shape = next((shape for method, shape in RERANKER_SHAPES.items() if hasattr(source, method)), None)
        if inspect.isclass(source) or not (self._shape or callable(source)):
            raise ConfigurationError(f"{preview(repr(source))} is not a reranker: give {RERANKERS}")

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        """Return the chunks, best first, or the ``top_k`` best; raises ``ConfigurationError`` on an invalid answer."""
        if self._shape is None:
            numbers = self.positions(self.ask(self.source, query, list(chunks)), chunks)
        else:
            numbers = self._shape(self, query, chunks)
        order: dict[int, None] = dict.fromkeys(numbers)
        if not all(isinstance(number, int) and 0 <= number < len(chunks) for number in order):
            raise ConfigurationError(f"the reranker {self.label} returned chunks that it was not given")
        numbers = [*order, *(number for number in range(len(chunks)) if number not in order)]
        return [chunks[number] for number in numbers[:top_k]]

    def positions(self, answer: object, chunks: Sequence[AnyChunk]) -> list[int]:
        """Return the positions of the chunks in an answer, or of all chunks if it has a score for each."""
        is_listed = isinstance(answer, Iterable) and not isinstance(answer, str | Mapping)
        listed: list[Any] = list(answer) if is_listed else [answer]  # type: ignore[call-overload]  # just checked
        if len(listed) == len(chunks) and all(isinstance(score, Real) for score in listed):
            return sorted(range(len(chunks)), key=lambda number: -listed[number])
        places = {place_of(chunk): number for number, chunk in enumerate(chunks)}
        try:
            return [places[place_of(chunk)] for chunk in listed]
        except (AttributeError, KeyError):
            raise ConfigurationError(
                f"the reranker {self.label} returned {preview(repr(answer))} for {len(chunks)} chunks: "
                "return some of these chunks, or a score for each"
            ) from None


def _rerank_by_users(part: ForeignReranker, query: str, chunks: Sequence[AnyChunk]) -> list[int]:
    count = [len(chunks)] if takes_arguments(part.source.rerank, 3) else []
    return part.positions(part.ask(part.source.rerank, query, list(chunks), *count), chunks)


def _rerank_by_langchain(part: ForeignReranker, query: str, chunks: Sequence[AnyChunk]) -> list[int]:
    documents = langchain_documents(chunks)
    found = part.ask(with_depth(part.source, len(chunks)).compress_documents, documents, query)
    return [document.metadata.get(NUMBER) for document in found]


def _rerank_by_llama_index(part: ForeignReranker, query: str, chunks: Sequence[AnyChunk]) -> list[int]:
    schema = importlib.import_module("llama_index.core.schema")
    texts = [schema.TextNode(id_=str(number), text=chunk.content) for number, chunk in enumerate(chunks)]
    nodes = [schema.NodeWithScore(node=node, score=1 / rank) for rank, node in enumerate(texts, start=1)]
    found = part.ask(with_depth(part.source, len(chunks)).postprocess_nodes, nodes, query_str=query)
    return [int(node.node.node_id) for node in found]


def _rerank_by_haystack(part: ForeignReranker, query: str, chunks: Sequence[AnyChunk]) -> list[int]:
    document = importlib.import_module("haystack").Document
    documents = [document(content=chunk.content, meta={NUMBER: number}) for number, chunk in enumerate(chunks)]
    found = part.ask(part.source.run, documents=documents, query=query, top_k=len(chunks))
    return [document.meta.get(NUMBER) for document in found["documents"]]


def _rerank_by_rerankers(part: ForeignReranker, query: str, chunks: Sequence[AnyChunk]) -> list[int]:
    texts = [chunk.content for chunk in chunks]
    found = part.ask(part.source.rank, query, texts, doc_ids=list(range(len(texts))))
    return [int(result.document.doc_id) for result in found.results]


RERANKER_SHAPES: dict[str, Callable[[ForeignReranker, str, Sequence[AnyChunk]], list[int]]] = {
    "rerank": _rerank_by_users,
    "compress_documents": _rerank_by_langchain,
    "postprocess_nodes": _rerank_by_llama_index,
    "__haystack_input__": _rerank_by_haystack,
    "rank": _rerank_by_rerankers,
}
"""The method that identifies a reranker, and the function that returns the positions of the chunks in its order."""


def with_depth(source: Any, depth: int) -> Any:
    """Return a copy of an object that returns this many hits, or the object itself if it has no such setting."""
    settings: dict[str, Any] = {
        name: depth for name in ("top_n", "similarity_top_k", "k") if isinstance(getattr(source, name, None), int)
    }
    if isinstance(arguments := getattr(source, "search_kwargs", None), dict):
        settings["search_kwargs"] = arguments | {"k": depth}
    if settings and hasattr(source, "model_copy"):
        return source.model_copy(update=settings)
    if isinstance(getattr(source, "_similarity_top_k", None), int):  # LlamaIndex's retrievers are not Pydantic models
        copied = source.__class__.__new__(source.__class__)
        copied.__dict__ = source.__dict__ | {"_similarity_top_k": depth}
        return copied
    return source


def _search_rank_bm25(source: Any, query: str, k: int) -> list[tuple[int, float]]:
    scores = [float(score) for score in source.get_scores(words(query))]
    best = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:k]
    return [(number, scores[number]) for number in best if scores[number] > 0]


SEARCH_SHAPES: dict[str, Callable[[Any, str, int], object]] = {
    "search": lambda source, query, k: source.search(query, k),
    "invoke": lambda source, query, k: with_depth(source, k).invoke(query),  # LangChain
    "retrieve": lambda source, query, k: with_depth(source, k).retrieve(query),  # LlamaIndex
    "__haystack_input__": lambda source, query, k: source.run(query=query, top_k=k)["documents"],
    "get_scores": _search_rank_bm25,
}
"""The method that identifies an object that can be searched, and how to call it."""


def searcher(source: Any) -> Callable[[str, int], object] | None:
    """Return a function that searches an object with a query and k, or None if it cannot be searched."""
    shape = next((shape for method, shape in SEARCH_SHAPES.items() if hasattr(source, method)), None)
    if shape is None:
        return source if callable(source) and not inspect.isclass(source) else None
    return lambda query, k: shape(source, query, k)


class ForeignRetriever(Foreign):
    """A retriever of chunks that is not built in: a class or a factory that takes the chunks, or an object.

    The chunks are passed to ``index(chunks)`` if there is one. Other classes are called with the chunks' texts
    (LangChain's by ``from_texts``, those of rank_bm25 with their words), and factories with the chunks.
    Raises ``ConfigurationError`` if the object is no retriever.
    """

    kind = "retriever"

    def __init__(self, source: object, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        if not is_callable_part(source) and (not callable(getattr(source, "index", None)) or searcher(source) is None):
            raise ConfigurationError(
                f"{preview(repr(source))} is not a retriever: give a class or a factory that takes chunks, or an "
                "object with index(chunks) and search(query, k)"
            )

    def search_chunks(
        self, chunks: Sequence[AnyChunk], texts: Sequence[str], k: int, among: Mask | None = None
    ) -> Ranking:
        """Return the best k chunks for every text, of those that ``among`` allows.

        If the retriever returns no scores, a score is 1 / rank. Raises ``ConfigurationError`` on chunks that it was not
        given.
        """
        with self.lock:
            search = searcher(self.ask(self._filled, chunks))
            if search is None:
                raise ConfigurationError(f"the retriever {self.label} cannot be searched: give {RETRIEVERS}")
            find = search

            def best(depth: int) -> Ranking:
                depth, found = min(depth, len(chunks)), []
                for text in texts:
                    answer = self.ask(find, text, depth)
                    if not isinstance(answer, Iterable) or isinstance(answer, str | Mapping):
                        raise ConfigurationError(
                            f"the retriever {self.label} returned {preview(repr(answer))}: return a list"
                        )
                    scores = self._read(list(answer)[:depth], chunks)
                    found.append((np.array([*scores], np.int64), np.array([*scores.values()], np.float64)))
                return Ranking.of(found)

            return search_deeper(best, len(texts), k, among)

    def _filled(self, chunks: Sequence[AnyChunk]) -> Any:
        source, texts = self.source, [chunk.content for chunk in chunks]
        made = getattr(source, "func", source)
        if callable(getattr(made, "index", None)):
            retriever = source() if is_callable_part(source) else source
            settled(retriever.index(chunks))
            return retriever
        if callable(getattr(made, "from_texts", None)):
            settings = getattr(source, "keywords", {})
            return made.from_texts(texts, metadatas=[{NUMBER: number} for number in range(len(texts))], **settings)
        if callable(getattr(made, "get_scores", None)):
            return source([words(text) for text in texts])
        return source(chunks)

    def _read(self, answer: list[object], chunks: Sequence[AnyChunk]) -> dict[int, float]:
        """Return the score of each chunk by its number."""
        by_text: dict[str, list[int]] = {}
        for place, chunk in enumerate(chunks):
            by_text.setdefault(chunk.content, []).append(place)
        by_place = {place_of(chunk): place for place, chunk in enumerate(chunks)}
        scores: dict[int, float] = {}
        for rank, hit in enumerate(answer, start=1):
            found, score = hit if isinstance(hit, tuple | list) and len(hit) == 2 else (hit, None)
            score = getattr(found, "score", None) if score is None else score
            number = _number_of(getattr(found, "node", getattr(found, "chunk", found)), by_text, by_place)
            if number is None or not 0 <= number < len(chunks):
                raise ConfigurationError(
                    f"the retriever {self.label} returned {preview(repr(hit))}: return chunks that it was given, their "
                    "numbers or their texts"
                )
            scores.setdefault(number, 1 / rank if score is None else float(score))
        return scores


def _number_of(answer: object, by_text: Mapping[str, list[int]], by_place: Mapping[ChunkPlace, int]) -> int | None:
    """Return the number of a chunk; repeated texts get their numbers in the order of their places."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        return answer
    if isinstance(recorded := metadata_of(answer).get(NUMBER), int):
        return recorded
    if isinstance(answer, Chunk | PositionAwareChunk):
        with suppress(KeyError, ConfigurationError):  # chunks of others, or without an ordinal
            return by_place[place_of(answer)]
    numbers = by_text.get(answer if isinstance(answer, str) else text_of(answer) or "", [])
    return numbers.pop(0) if len(numbers) > 1 else next(iter(numbers), None)


def text_of(answer: object) -> str | None:
    """Return the text of a node, a document or a chunk of any library."""
    texts = (getattr(answer, name, None) for name in ("page_content", "content", "text"))
    return next((text for text in texts if isinstance(text, str)), None)


def metadata_of(answer: object) -> Mapping[str, Any]:
    """Return the metadata of a node, a document or a chunk of any library."""
    records = (getattr(answer, name, None) for name in ("metadata", "meta"))
    return next((record for record in records if isinstance(record, Mapping)), {})


def takes_arguments(function: object, count: int) -> bool:
    """Return whether a function takes this many positional arguments."""
    signature = signature_of(function) if callable(function) else None
    try:
        return signature is not None and signature.bind(*range(count)) is not None
    except TypeError:
        return False


class ForeignSystem(Foreign):
    """A whole retrieval system that is not built in, searched with a query and k.

    Raises ``ConfigurationError`` if the object cannot be searched.
    """

    kind = "system"

    def __init__(self, source: object, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        search = searcher(source)
        if search is None:
            raise ConfigurationError(f"{preview(repr(source))} cannot be searched: give {RETRIEVERS}")
        self._search: Callable[[str, int], object] = search

    def index(self, corpus: Corpus) -> None:
        index = getattr(self.source, "index", None)
        if callable(index):
            self.ask(index, corpus)

    def search_many(self, queries: Sequence[Query], k: int) -> list[object]:
        return [self.ask(self._search, query.text, k) for query in queries]
