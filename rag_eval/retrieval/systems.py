"""Use whole retrieval systems that already exist: their answers are located in the documents."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Protocol, TypeGuard

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.placement import SkippedChunkWarning
from rag_eval.errors import ConfigurationError, SpanError, SpanMismatchError, preview
from rag_eval.retrieval.foreign_retrieval import ForeignSystem, metadata_of, text_of
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
"""Metadata keys of the document and the start in other libraries' documents."""


@dataclass(frozen=True, slots=True)
class SystemAnswer:
    """A system's answer: its place, or why it has none, its text, and its score if there is one."""

    span: CharacterSpan | None
    text: str
    score: float | None
    chunk_id: str | None = None
    reason: str = ""


class AnswerReader:
    """Reads the answers of a system and locates them in the documents.

    An answer is (doc_id, start, end), a span, a chunk, a mapping with ``doc_id``, ``start`` and ``end``, or a text: a
    string, a mapping with ``text`` and perhaps ``doc_id``, or a document or node of another library. If a text has a
    place, the document must have the text there. Otherwise, it is located verbatim, or else ignoring whitespace,
    Unicode form and quotes, at the first place, by document and start, that no earlier answer to the question has.
    """

    def __init__(self, name: str, documents: Iterable[Document]) -> None:
        self._name = name
        self._documents = {
            str(document.id): document for document in sorted(documents, key=lambda document: str(document.id))
        }
        self._aligned: dict[str, AlignedText] = {}
        self._taken: set[CharacterSpan] = set()

    def read_all(self, answers: object, query_id: str, k: int) -> list[SystemAnswer]:
        """Return the first k answers.

        Raises ``SpanError`` on a place that is not in the documents, ``ConfigurationError`` on any other object.
        """
        if not isinstance(answers, Iterable) or isinstance(answers, str | bytes | Mapping):
            raise ConfigurationError(
                f"{self._name} returned {preview(repr(answers))} for {query_id}: return a list of answers"
            )
        self._taken.clear()
        try:
            return [self._read(answer, query_id) for answer in islice(answers, k)]
        except SpanError as error:
            raise type(error)(f"{self._name} returned an invalid place for {query_id}: {error}") from None

    def _read(self, answer: object, query_id: str) -> SystemAnswer:
        score: object = None
        if isinstance(answer, tuple | list) and len(answer) == 2 and isinstance(answer[1], Real):
            answer, score = answer
        elif hasattr(answer, "node"):  # LlamaIndex
            answer, score = answer.node, getattr(answer, "score", None)
        fields = self._fields(answer)
        score = self._score(fields.get("score") if score is None else score)
        doc_id, start, end, text = (fields.get(key) for key in ("doc_id", "start", "end", "text"))
        chunk_id = fields.get("chunk_id")
        known_id = chunk_id if isinstance(chunk_id, str) else None
        if None not in (doc_id, start, end):
            return self._placed(doc_id, start, end, text, score)
        if isinstance(text, str):
            return self._located(text, doc_id, score, known_id)
        if known_id is not None:
            return SystemAnswer(None, "", score, known_id, "has no text")
        raise ConfigurationError(
            f"{self._name} returned {preview(repr(answer))} for {query_id}: an answer must be {_ACCEPTED}"
        )

    def _score(self, score: object) -> float | None:
        if score is not None and (not isinstance(score, Real) or isinstance(score, bool)):
            raise ConfigurationError(f"{self._name} returned the score {preview(repr(score))}: return a number")
        return None if score is None else float(score)

    def _fields(self, answer: object) -> Mapping[str, object]:
        """Return an answer as a mapping; empty if it is not one."""
        if isinstance(answer, Mapping):
            return answer
        if isinstance(answer, str):
            return {"text": answer}
        if isinstance(answer, tuple | list):
            return dict(zip(("doc_id", "start", "end"), answer, strict=True)) if len(answer) == 3 else {}
        if isinstance(answer, CharacterSpan):
            return {"doc_id": answer.doc_id, "start": answer.start, "end": answer.end, "text": answer.text}
        if isinstance(answer, PositionAwareChunk):
            return {"doc_id": answer.doc_id, "start": answer.start, "end": answer.end, "text": answer.content}
        if isinstance(answer, Chunk):
            return {"doc_id": answer.doc_id, "text": answer.content, "chunk_id": answer.id}
        return self._foreign_fields(answer)

    def _foreign_fields(self, answer: object) -> Mapping[str, object]:
        """Read a document or node of another library; a start counts only if its text is there."""
        text, metadata = text_of(answer), metadata_of(answer)
        if text is None:
            return {}
        doc_id = self._known_document(next((metadata[key] for key in _DOCUMENT if key in metadata), None))
        fields = {"doc_id": doc_id, "text": text, "score": getattr(answer, "score", None)}
        start = next((metadata[key] for key in _START if _is_whole(metadata.get(key))), None)
        if doc_id is not None and start is not None and self._documents[doc_id].content.startswith(text, start):
            fields |= {"start": start, "end": start + len(text)}
        return fields

    def _known_document(self, named: object) -> str | None:
        """Return the id of the document that another library names, perhaps by its whole path; None if unknown."""
        path = str(named).replace("\\", "/")
        matching = [doc_id for doc_id in self._documents if path == doc_id or path.endswith(f"/{doc_id}")]
        return max(matching, key=len) if named is not None and matching else None

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

    def _located(self, text: str, doc_id: object, score: float | None, chunk_id: str | None = None) -> SystemAnswer:
        documents = list(self._documents.values()) if doc_id is None else [self._document(doc_id)]
        first = None
        for span in self._places(text, documents):
            first = first or span
            if span not in self._taken:
                self._taken.add(span)
                return SystemAnswer(span, text, score, chunk_id)
        return SystemAnswer(first, text, score, chunk_id, "" if first else "is not in the corpus")

    def _places(self, text: str, documents: Sequence[Document]) -> Iterator[CharacterSpan]:
        """Yield the places that have the text verbatim, or, if there are none, in the aligned form."""
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


class CallableRetriever:
    """Wraps any function ``search(query, k)``, or object that can be searched, as a retriever of places.

    ``AnswerReader`` says what it may return; texts that are not in the corpus are left out with a
    ``SkippedChunkWarning`` and counted in ``unplaced``. A hit's score is 1 / rank. Coroutines are awaited.
    Raises ``ConfigurationError`` if the object cannot be searched.

    >>> retriever = CallableRetriever(lambda query, k: [("guide.md", 0, 120)])
    """

    def __init__(self, search: object, name: str | None = None) -> None:
        self._system = ForeignSystem(
            search, name=name or getattr(search, "__qualname__", None) or type(search).__name__
        )
        self._reader: AnswerReader | None = None
        self.unplaced = 0

    @property
    def name(self) -> str:
        """The given name, or the name of the function."""
        return self._system.name

    def index(self, corpus: Corpus) -> None:
        """Read the documents, and pass them to the system if it has ``index``."""
        self._system.index(corpus)
        self._reader, self.unplaced = AnswerReader(self.name, corpus.documents), 0

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        """Return the first k answers of the system to each query.

        Raises ``SpanError`` if a place is not in the corpus or has another text, and ``ConfigurationError`` if there is
        no index yet, k is below 1, or an answer is of another kind.
        """
        check_k(k)
        if self._reader is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        answers = zip(queries, self._system.search_many(queries, k), strict=True)
        return [self._hits(self._reader.read_all(answer, query.id, k), query) for query, answer in answers]

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
    """Return the positions where the text starts."""
    start = content.find(text) if text else -1
    while start >= 0:
        yield start
        start = content.find(text, start + 1)
