"""Whole retrieval systems that you already have: a function, an object of another library, a service."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Any, Protocol, TypeGuard

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.placement import SkippedChunkWarning
from rag_eval.errors import ConfigurationError, SpanError, SpanMismatchError, preview
from rag_eval.parts.objects import Foreign, Origin
from rag_eval.retrieval.foreign_retrieval import RETRIEVERS, searcher, text_of
from rag_eval.retrieval.retriever import Hit, check_k
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query
from rag_eval.types.ids import generate_pa_chunk_id

_ACCEPTED = (
    "(doc_id, start, end), a span, a chunk, a mapping with doc_id, start and end or with text, a document or node of "
    "another library, or a text"
)
_DOCUMENT = ("doc_id", "source", "file_path", "file_name", "path")
_START = ("start", "start_index", "split_idx_start", "start_char_idx")
"""Where mappings, and the metadata of other libraries' documents, have the document and the start."""


@dataclass(frozen=True, slots=True)
class SystemAnswer:
    """What a system returned: the place of it, or why it has none, its text, and its score where one is told."""

    span: CharacterSpan | None
    text: str
    score: float | None
    chunk_id: str | None = None
    reason: str = ""


class AnswerReader:
    """Reads what a system returns, and finds where it is in the documents.

    An answer is (doc_id, start, end), a span, a chunk, a mapping with ``doc_id``, ``start`` and ``end``, or a text: a
    string, a mapping with ``text`` and perhaps ``doc_id``, or a document or node of another library. A text that comes
    with a place must be there. One without is placed where the documents have it, to the letter or after evening out
    whitespace, Unicode form and quotes: of several places at the first, by document and start, that no earlier answer
    to the question has. Where copies count, evidence that is wholly in it is found wherever that is.
    """

    def __init__(self, name: str, documents: Iterable[Document]) -> None:
        self._name = name
        self._documents = {
            str(document.id): document for document in sorted(documents, key=lambda document: str(document.id))
        }
        self._aligned: dict[str, AlignedText] = {}
        self._taken: set[CharacterSpan] = set()

    def read_all(self, answers: Any, query_id: str, k: int) -> list[SystemAnswer]:
        """Return the first k answers; raises ``SpanError`` on a wrong place, ``ConfigurationError`` on other things."""
        if not isinstance(answers, Iterable) or isinstance(answers, str | bytes | Mapping):
            raise ConfigurationError(
                f"{self._name} returned {preview(repr(answers))} for {query_id}: it must return a list of answers"
            )
        self._taken.clear()
        try:
            return [self._read(answer, query_id) for answer in islice(answers, k)]
        except SpanError as error:
            raise type(error)(f"{self._name} returned for {query_id} a place that is none: {error}") from None

    def _read(self, answer: Any, query_id: str) -> SystemAnswer:
        score = None
        if isinstance(answer, tuple | list) and len(answer) == 2 and isinstance(answer[1], Real):
            answer, score = answer
        elif hasattr(answer, "node"):  # LlamaIndex
            answer, score = answer.node, answer.score
        if isinstance(answer, tuple | list) and len(answer) == 3:
            doc_id, start, end = answer
            return self._placed(doc_id, start, end, None, score)
        if isinstance(answer, str):
            return self._found(answer, None, score)
        if isinstance(answer, CharacterSpan | PositionAwareChunk):
            text = answer.text if isinstance(answer, CharacterSpan) else answer.content
            return self._placed(answer.doc_id, answer.start, answer.end, text, score)
        if isinstance(answer, Chunk):
            return self._found(answer.content, answer.doc_id, score, answer.id)
        if isinstance(answer, Mapping):
            return self._from_mapping(answer, score, query_id)
        found = text_of(answer)
        if found is None:
            raise self._unknown(answer, query_id)
        kept = next(
            (metadata for name in ("metadata", "meta") if isinstance(metadata := getattr(answer, name, None), dict)), {}
        )
        score = getattr(answer, "score", None) if score is None else score
        known = self._known_document(next((kept[key] for key in _DOCUMENT if key in kept), None))
        begin = next((kept[key] for key in _START if _is_whole(kept.get(key))), None)
        if known is not None and begin is not None and self._documents[known].content.startswith(found, begin):
            return self._placed(known, begin, begin + len(found), found, score)
        return self._found(found, known, score)

    def _from_mapping(self, answer: Mapping[Any, Any], score: float | None, query_id: str) -> SystemAnswer:
        doc_id, start, end, text = (answer.get(key) for key in ("doc_id", "start", "end", "text"))
        given = answer.get("score") if score is None else score
        if given is not None and (not isinstance(given, Real) or isinstance(given, bool)):
            raise ConfigurationError(f"{self._name} returned the score {preview(repr(given))}: give a number")
        number = None if given is None else float(given)
        if doc_id is not None and start is not None and end is not None:
            return self._placed(doc_id, start, end, text, number)
        chunk_id = answer.get("chunk_id")
        if isinstance(text, str):
            return self._found(text, doc_id, number, chunk_id if isinstance(chunk_id, str) else None)
        if isinstance(chunk_id, str):
            return SystemAnswer(None, "", number, chunk_id, "has no text")
        raise self._unknown(answer, query_id)

    def _unknown(self, answer: Any, query_id: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._name} returned {preview(repr(answer))} for {query_id}: an answer must be {_ACCEPTED}"
        )

    def _known_document(self, named: Any) -> str | None:
        """Return the id of the document that another library names, perhaps by its whole path; None if unknown."""
        path = str(named).replace("\\", "/")
        ending = [doc_id for doc_id in self._documents if path == doc_id or path.endswith(f"/{doc_id}")]
        return max(ending, key=len) if named is not None and ending else None

    def _document(self, doc_id: object) -> Document:
        if str(doc_id) not in self._documents:
            raise SpanMismatchError(
                f"{doc_id!r} is not in the corpus: use the documents' paths relative to the corpus folder"
            )
        return self._documents[str(doc_id)]

    def _placed(self, doc_id: object, start: object, end: object, text: object, score: float | None) -> SystemAnswer:
        if not _is_whole(start) or not _is_whole(end):
            raise ConfigurationError(f"{self._name} returned the place [{start!r}, {end!r}): use whole numbers")
        document = self._document(doc_id)
        span = document.span(int(start), int(end))
        if isinstance(text, str) and text != span.text:
            document.check_span(CharacterSpan(span.doc_id, span.start, span.end, text))
        self._taken.add(span)
        return SystemAnswer(span, span.text, score)

    def _found(self, text: str, doc_id: object, score: float | None, chunk_id: str | None = None) -> SystemAnswer:
        documents = list(self._documents.values()) if doc_id is None else [self._document(doc_id)]
        first = None
        for span in self._places(text, documents):
            first = first or span
            if span not in self._taken:
                self._taken.add(span)
                return SystemAnswer(span, text, score, chunk_id)
        return SystemAnswer(first, text, score, chunk_id, "" if first else "is not in the corpus")

    def _places(self, text: str, documents: Sequence[Document]) -> Iterator[CharacterSpan]:
        """Return where the documents have the text: to the letter, or where none has it so, evened out."""
        is_found = False
        for document in documents:
            for start in _starts(document.content, text):
                is_found = True
                yield document.span(start, start + len(text))
        form = "" if is_found else aligned_form(text)
        for document in documents if form else ():
            if document.id not in self._aligned:
                self._aligned[document.id] = AlignedText.of(document.content)
            aligned = self._aligned[document.id]
            for start in _starts(aligned.form, form):
                yield document.span(*aligned.span(start, start + len(form)))


class System(Protocol):
    """A whole retrieval system, which may also have ``index(corpus)``."""

    def search_many(self, queries: Sequence[Query], k: int) -> Sequence[object]:
        """Return the answers to every query, each a list of what ``AnswerReader`` reads."""


class ForeignSystem(Foreign):
    """A whole system that is not built in: it is asked with a query and k, after ``index(corpus)`` if it has one.

    Raises ``ConfigurationError`` when the object cannot be searched.
    """

    kind = "system"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        search = searcher(source)
        if search is None:
            raise ConfigurationError(f"{preview(repr(source))} cannot be searched with: give {RETRIEVERS}")
        self._search: Callable[[str, int], Any] = search

    def index(self, corpus: Corpus) -> None:
        """Give the system the documents, where it takes them."""
        index = getattr(self.source, "index", None)
        if callable(index):
            self.ask(index, corpus)

    def search_many(self, queries: Sequence[Query], k: int) -> list[Any]:
        """Return what the system answers to every query; raises ``ConfigurationError`` when it raises."""
        return [self.ask(self._search, query.text, k) for query in queries]


class CallableRetriever:
    """Any function ``search(query, k)``, or object that can be searched, as a retriever of places.

    What it may return is told by ``AnswerReader``; texts that are not in the corpus are left out with a
    ``SkippedChunkWarning`` and counted in ``unplaced``. A hit's score is 1 / rank. Coroutines are awaited.
    Raises ``ConfigurationError`` on what cannot be searched.
    """

    def __init__(self, search: Callable[[str, int], Any] | Any, name: str | None = None) -> None:
        self._system = ForeignSystem(
            search, name=name or getattr(search, "__qualname__", None) or type(search).__name__
        )
        self._reader: AnswerReader | None = None
        self.unplaced = 0

    @property
    def name(self) -> str:
        """The name given, or that of the function."""
        return self._system.name

    def index(self, corpus: Corpus) -> None:
        """Take note of the documents, and give them to the system where it takes them."""
        self._system.index(corpus)
        self._reader, self.unplaced = AnswerReader(self.name, corpus.documents), 0

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        """Return for each query what the system returns, cut at k.

        Raises ``SpanError`` when a place is not in the corpus or has another text, and ``ConfigurationError`` before
        ``index``, on k below 1, and on an answer of another kind.
        """
        check_k(k)
        if self._reader is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        answers = zip(queries, self._system.search_many(queries, k), strict=True)
        return [self._hits(self._reader.read_all(given, query.id, k), query) for query, given in answers]

    def _hits(self, answers: Sequence[SystemAnswer], query: Query) -> list[Hit[PositionAwareChunk]]:
        chunks = []
        for answer in answers:
            if answer.span is None:
                self.unplaced += 1
                message = f"{self.name} returned a text for {query.id} that {answer.reason} and is left out"
                warnings.warn(f"{message}: {preview(answer.text, 50)}", SkippedChunkWarning, stacklevel=4)
                continue
            doc_id, start, end, text = answer.span.doc_id, answer.span.start, answer.span.end, answer.span.text
            chunks.append(PositionAwareChunk(generate_pa_chunk_id(text), text, doc_id, start, end))
        return [Hit(chunk, 1 / rank) for rank, chunk in enumerate(chunks, start=1)]


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _starts(content: str, text: str) -> Iterator[int]:
    """Return the places where the text starts."""
    start = content.find(text) if text else -1
    while start >= 0:
        yield start
        start = content.find(text, start + 1)
