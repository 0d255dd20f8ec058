"""A system that you already have, as a retriever."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from numbers import Integral
from typing import TypeGuard

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.placement import SkippedChunkWarning
from rag_eval.errors import ConfigurationError, SpanMismatchError, preview
from rag_eval.retrieval.retriever import Hit, check_k
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import Query

Answer = object
"""A span, a chunk, (doc_id, start, end), a mapping with doc_id, start and end or with text, or a text."""

_ACCEPTED = "(doc_id, start, end), a span, a chunk, a mapping with doc_id, start and end or with text, or a text"


class CallableRetriever:
    """Any function ``search(query, k)`` that returns places, or texts that can be placed.

    Each answer is (doc_id, start, end), a ``CharacterSpan``, a ``PositionAwareChunk``, a mapping with ``doc_id``,
    ``start`` and ``end``, or a text: a string, a ``Chunk``, or a mapping with ``text`` and perhaps ``doc_id``. A text
    that comes with a place must stand there. One without is placed where the corpus has it exactly once, to the letter
    or after evening out whitespace, Unicode form and quotes; other texts are left out with a ``SkippedChunkWarning``
    and counted in ``unplaced``. A hit's score is 1 / rank.
    Raises ``ConfigurationError`` on what is not a function, or an ``async`` one.
    """

    def __init__(self, search: Callable[[str, int], Iterable[Answer]], name: str | None = None) -> None:
        if not callable(search) or inspect.iscoroutinefunction(search):
            raise ConfigurationError(
                f"{preview(repr(search))} cannot be searched with: give a function of a query and k that is not async"
            )
        self._search = search
        self.name: str = name or getattr(search, "__qualname__", None) or type(search).__name__
        """The name given, or that of the function."""
        self._documents: dict[str, Document] = {}
        self._aligned: dict[str, AlignedText] = {}
        self.unplaced = 0

    def index(self, corpus: Corpus) -> None:
        """Take note of the documents; the system itself is expected to know them."""
        self._documents = {str(document.id): document for document in corpus.documents}
        self._aligned = {}
        self.unplaced = 0

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        """For each query what the function returns, cut at k.

        Raises ``SpanError`` when a place is not in the corpus or has another text, and ``ConfigurationError`` before
        ``index``, on k below 1, and on an answer of another kind.
        """
        check_k(k)
        if not self._documents:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        found = []
        for query in queries:
            answers = self._search(query.text, k)
            if not isinstance(answers, Iterable) or isinstance(answers, str | bytes | Mapping):
                raise ConfigurationError(
                    f"{self.name} returned {preview(repr(answers))} for {query.id}: it must return a list of answers"
                )
            placed = [self._place(answer, query) for answer in islice(answers, k)]
            chunks = [chunk for chunk in placed if chunk is not None]
            found.append([Hit(chunk, 1 / rank) for rank, chunk in enumerate(chunks, start=1)])
        return found

    def _place(self, answer: Answer, query: Query) -> PositionAwareChunk | None:
        if isinstance(answer, CharacterSpan):
            return self._chunk(answer.doc_id, answer.start, answer.end, answer.text)
        if isinstance(answer, PositionAwareChunk):
            return self._chunk(answer.doc_id, answer.start, answer.end, answer.content)
        if isinstance(answer, str):
            return self._place_text(answer, None, query)
        if isinstance(answer, Chunk):
            return self._place_text(answer.content, answer.doc_id, query)
        if isinstance(answer, Mapping):
            doc_id, start, end, text = (answer.get(key) for key in ("doc_id", "start", "end", "text"))
            if doc_id is not None and start is not None and end is not None:
                return self._chunk(doc_id, start, end, text)
            if isinstance(text, str):
                return self._place_text(text, doc_id, query)
        if isinstance(answer, tuple | list) and len(answer) == 3:
            return self._chunk(*answer)
        raise ConfigurationError(
            f"{self.name} returned {preview(repr(answer))} for {query.id}: an answer must be {_ACCEPTED}"
        )

    def _document(self, doc_id: object) -> Document:
        if str(doc_id) not in self._documents:
            raise SpanMismatchError(
                f"{self.name} returned a place in {doc_id!r}, which is not in the corpus: "
                "use the documents' paths relative to the corpus folder"
            )
        return self._documents[str(doc_id)]

    def _chunk(self, doc_id: object, start: object, end: object, text: object = None) -> PositionAwareChunk:
        if not _is_whole(start) or not _is_whole(end):
            raise ConfigurationError(f"{self.name} returned the place [{start!r}, {end!r}): use whole numbers")
        document = self._document(doc_id)
        span = document.span(int(start), int(end))
        if isinstance(text, str) and text != span.text:
            document.check_span(CharacterSpan(span.doc_id, span.start, span.end, text))
        return document.chunk_at(span.start, span.end)

    def _place_text(self, text: str, doc_id: object, query: Query) -> PositionAwareChunk | None:
        documents = list(self._documents.values()) if doc_id is None else [self._document(doc_id)]
        places = [
            (document, start, start + len(text)) for document in documents for start in _starts(document.content, text)
        ]
        if not places:
            places = self._aligned_places(text, documents)
        if len(places) == 1:
            document, start, end = places[0]
            return self._chunk(document.id, start, end)
        self.unplaced += 1
        reason = "stands in several places" if places else "is not in the corpus"
        warnings.warn(
            f"{self.name} returned a text for {query.id} that {reason} and is left out: {preview(text, 50)}",
            SkippedChunkWarning,
            stacklevel=4,
        )
        return None

    def _aligned_places(self, text: str, documents: Sequence[Document]) -> list[tuple[Document, int, int]]:
        form = aligned_form(text)
        places = []
        for document in documents if form else ():
            if document.id not in self._aligned:
                self._aligned[document.id] = AlignedText.of(document.content)
            aligned = self._aligned[document.id]
            places += [(document, *aligned.span(start, start + len(form))) for start in _starts(aligned.form, form)]
        return places


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _starts(content: str, text: str) -> list[int]:
    """The first two places where the text starts: more make no difference."""
    first = content.find(text) if text else -1
    if first < 0:
        return []
    second = content.find(text, first + 1)
    return [first] if second < 0 else [first, second]
