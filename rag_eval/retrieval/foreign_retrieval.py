"""Rerankers and retrievers of other libraries and of users, told apart by what they can do."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, is_callable_part, settled, signature_of
from rag_eval.retrieval.retriever import C, place_of
from rag_eval.retrieval.tokenizers import words

RERANKERS = (
    "an object with rerank(query, chunks), a LangChain compressor (compress_documents), a LlamaIndex postprocessor "
    "(postprocess_nodes), a Haystack ranker (run), one of the package rerankers (rank), "
    "or a function of a query and chunks that gives them in a better order, or a score for each"
)
RETRIEVERS = (
    "an object with search(query, k), a LangChain retriever (invoke), a LlamaIndex retriever (retrieve), "
    "a Haystack retriever (run), or a function of a query and k"
)
_NUMBER = "rag_eval_number"


class ForeignReranker(Foreign):
    """A reranker that is not built in. Chunks that it leaves out follow in the order they had.

    Raises ``ConfigurationError`` when the object is no reranker.
    """

    kind = "reranker"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        methods = ("rerank", "rank", "compress_documents", "postprocess_nodes")
        knows = any(callable(getattr(source, one, None)) for one in methods) or hasattr(source, "__haystack_input__")
        if inspect.isclass(source) or not (knows or callable(source)):
            raise ConfigurationError(f"{preview(repr(source))} is not a reranker: give {RERANKERS}")

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        """Return the chunks, best first, or the ``top_k`` best; raises ``ConfigurationError`` on anything else."""
        order: dict[Any, None] = dict.fromkeys(self._order(query, chunks))
        if not all(isinstance(number, int) and 0 <= number < len(chunks) for number in order):
            raise ConfigurationError(f"the reranker {self.label} gave chunks that it was not given")
        numbers = [*order, *(number for number in range(len(chunks)) if number not in order)]
        return [chunks[number] for number in numbers[:top_k]]

    def _order(self, query: str, chunks: Sequence[Any]) -> Iterable[Any]:
        source, texts, numbers = self.source, [chunk.content for chunk in chunks], range(len(chunks))
        if callable(getattr(source, "rerank", None)):
            takes_count = takes_arguments(source.rerank, 3)
            given = self.ask(source.rerank, query, list(chunks), *([len(chunks)] if takes_count else []))
        elif callable(getattr(source, "compress_documents", None)):
            made = importlib.import_module("langchain_core.documents").Document
            documents = [made(page_content=text, metadata={_NUMBER: number}) for number, text in enumerate(texts)]
            given = self.ask(with_depth(source, len(chunks)).compress_documents, documents, query)
            return [document.metadata.get(_NUMBER) for document in given]
        elif callable(getattr(source, "postprocess_nodes", None)):
            schema = importlib.import_module("llama_index.core.schema")
            nodes = [
                schema.NodeWithScore(node=schema.TextNode(id_=str(number), text=text), score=1 / (number + 1))
                for number, text in enumerate(texts)
            ]
            given = self.ask(with_depth(source, len(chunks)).postprocess_nodes, nodes, query_str=query)
            return [int(found.node.node_id) for found in given]
        elif hasattr(source, "__haystack_input__"):
            made = importlib.import_module("haystack").Document
            documents = [made(content=text, meta={_NUMBER: number}) for number, text in enumerate(texts)]
            given = self.ask(source.run, documents=documents, query=query, top_k=len(chunks))
            return [document.meta.get(_NUMBER) for document in given["documents"]]
        elif callable(getattr(source, "rank", None)):
            given = self.ask(source.rank, query, texts, doc_ids=list(numbers))
            return [int(result.document.doc_id) for result in given.results]
        else:
            given = self.ask(source, query, list(chunks))
        return self._positions(given, chunks)

    def _positions(self, given: Any, chunks: Sequence[Any]) -> list[int]:
        """The numbers of chunks that were given back, or those of all chunks by the scores that were."""
        listed: list[Any] = (
            list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else [given]
        )
        if len(listed) == len(chunks) and all(isinstance(one, Real) for one in listed):
            return sorted(range(len(chunks)), key=lambda number: -listed[number])
        places = {place_of(chunk): number for number, chunk in enumerate(chunks)}
        try:
            return [places[place_of(chunk)] for chunk in listed]
        except (AttributeError, KeyError):
            told = preview(repr(given))
        raise ConfigurationError(
            f"the reranker {self.label} gave {told} for {len(chunks)} chunks: give chunks of these, or a score for each"
        )


def with_depth(source: Any, depth: int) -> Any:
    """Return a copy of an object that keeps so many hits; itself where it keeps all, or cannot be copied."""
    for name in ("top_n", "similarity_top_k", "k"):
        if isinstance(getattr(source, name, None), int) and hasattr(source, "model_copy"):
            return source.model_copy(update={name: depth})
    arguments = getattr(source, "search_kwargs", None)
    if isinstance(arguments, dict) and hasattr(source, "model_copy"):
        return source.model_copy(update={"search_kwargs": arguments | {"k": depth}})
    if isinstance(getattr(source, "_similarity_top_k", None), int):  # LlamaIndex's retrievers are no models
        copied = source.__class__.__new__(source.__class__)
        copied.__dict__ = source.__dict__ | {"_similarity_top_k": depth}
        return copied
    return source


def searcher(source: Any) -> Callable[[str, int], Any] | None:
    """How an object is searched with a query and k; None where it cannot be."""
    if callable(getattr(source, "search", None)):
        return source.search  # type: ignore[no-any-return]  # a method of another library
    if callable(getattr(source, "invoke", None)):
        return lambda query, k: with_depth(source, k).invoke(query)
    if callable(getattr(source, "retrieve", None)):
        return lambda query, k: with_depth(source, k).retrieve(query)
    if hasattr(source, "__haystack_input__"):
        return lambda query, k: source.run(query=query, top_k=k)["documents"]
    if callable(getattr(source, "get_scores", None)):  # rank_bm25
        return lambda query, k: _best(source.get_scores(words(query)), k)
    return source if callable(source) and not inspect.isclass(source) else None


def _best(scores: Any, k: int) -> list[tuple[int, float]]:
    listed = [float(score) for score in scores]
    best = sorted(range(len(listed)), key=lambda number: (-listed[number], number))[:k]
    return [(number, listed[number]) for number in best if listed[number] > 0]


class ForeignRetriever(Foreign):
    """A retriever over chunks that is not built in: a class or a factory that is given the chunks, or an object.

    What has ``index(chunks)`` is given them by it. Other classes are called with the chunks' texts (LangChain's by
    ``from_texts``, those of rank_bm25 with their words), and factories with the chunks.
    Raises ``ConfigurationError`` when the object is no retriever.
    """

    kind = "retriever"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        if not is_callable_part(source) and (not callable(getattr(source, "index", None)) or searcher(source) is None):
            raise ConfigurationError(
                f"{preview(repr(source))} is not a retriever: give a class or a factory that takes chunks, or an "
                "object with index(chunks) and search(query, k)"
            )

    def search_chunks(self, chunks: Sequence[Any], texts: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """For every text the numbers of the best k chunks with their scores, best first; equal scores by number.

        Where no scores are told, a score is 1 / rank. Raises ``ConfigurationError`` on what was not given to it.
        """
        with self.turn:
            search = searcher(self.ask(self._filled, chunks))
            if search is None:
                raise ConfigurationError(f"the retriever {self.label} made nothing to search: give {RETRIEVERS}")
            found = []
            depth = min(k, len(chunks))
            for text in texts:
                given = self.ask(search, text, depth)
                if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
                    raise ConfigurationError(f"the retriever {self.label} gave {preview(repr(given))}: give a list")
                found.append(self._read(list(given)[:depth], chunks))
            return found

    def _filled(self, chunks: Sequence[Any]) -> Any:
        source, texts = self.source, [chunk.content for chunk in chunks]
        told = getattr(source, "func", source)
        if callable(getattr(told, "index", None)):
            made = source() if is_callable_part(source) else source
            settled(made.index(chunks))
            return made
        if callable(getattr(told, "from_texts", None)):
            settings = getattr(source, "keywords", {})
            return told.from_texts(texts, metadatas=[{_NUMBER: number} for number in range(len(texts))], **settings)
        if callable(getattr(told, "get_scores", None)):
            return source([words(text) for text in texts])
        return source(chunks)

    def _read(self, given: list[Any], chunks: Sequence[Any]) -> list[tuple[int, float]]:
        numbers: dict[str, list[int]] = {}
        for number, chunk in enumerate(chunks):
            numbers.setdefault(chunk.content, []).append(number)
        places = {place_of(chunk): number for number, chunk in enumerate(chunks)}
        found: dict[int, float] = {}
        for rank, one in enumerate(given, start=1):
            at, score = self._number(one, numbers, places)
            if at is None or not 0 <= at < len(chunks):
                raise ConfigurationError(
                    f"the retriever {self.label} gave {preview(repr(one))}: give chunks that it was given, their "
                    "numbers or their texts"
                )
            found.setdefault(at, 1 / rank if score is None else float(score))
        return list(found.items())

    def _number(
        self, one: Any, by_text: Mapping[str, list[int]], by_place: Mapping[Any, int]
    ) -> tuple[int | None, float | None]:
        score = None
        if isinstance(one, tuple | list) and len(one) == 2:
            one, score = one
        score = getattr(one, "score", None) if score is None else score
        one = getattr(one, "node", getattr(one, "chunk", one))
        if isinstance(one, int) and not isinstance(one, bool):
            return one, score
        for kept in (getattr(one, "metadata", None), getattr(one, "meta", None)):
            if isinstance(kept, Mapping) and isinstance(kept.get(_NUMBER), int):
                return kept[_NUMBER], score
        try:
            return by_place[place_of(one)], score
        except (AttributeError, KeyError, ConfigurationError):
            text = one if isinstance(one, str) else text_of(one)
        left = by_text.get(text or "", [])
        # Equal texts are given one after another, in the order of their places.
        return (left.pop(0) if len(left) > 1 else left[0] if left else None), score


def text_of(answer: Any) -> str | None:
    """Return the text of something retrieved: a node, a document or a chunk of any library."""
    for name in ("page_content", "content", "text"):
        text = getattr(answer, name, None)
        if isinstance(text, str):
            return text
    return None


def takes_arguments(function: Any, count: int) -> bool:
    """Whether a function takes so many arguments by position."""
    signature = signature_of(function)
    if signature is None:
        return False
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
