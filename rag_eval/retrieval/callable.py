"""A system that you already have, as a retriever."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

from rag_eval.chunking.adapter import SkippedChunkWarning
from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.errors import ConfigurationError, SpanMismatchError, preview
from rag_eval.retrieval.base import Hit
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ground_truth import Query
from rag_eval.types.ids import generate_pa_chunk_id
from rag_eval.types.span import CharacterSpan

Answer = object
"""A span, a chunk, (doc_id, start, end), a mapping with doc_id, start and end or with text, or a text."""

_ACCEPTED = "(doc_id, start, end), a span, a chunk, a mapping with doc_id, start and end or with text, or a text"


class CallableRetriever:
    """Any function ``search(query, k)`` that returns places, or texts that can be placed.

    Each answer is (doc_id, start, end), a ``CharacterSpan``, a ``PositionAwareChunk``, a mapping with ``doc_id``,
    ``start`` and ``end``, or a text: a string, or a mapping with ``text`` and perhaps ``doc_id``. A text is placed
    where the corpus has it exactly once, to the letter or after evening out whitespace, Unicode form and quotes; other
    texts are left out with a ``SkippedChunkWarning`` and counted in ``unplaced``. A hit's score is 1 / rank.
    """

    def __init__(self, search: Callable[[str, int], Iterable[Answer]], name: str | None = None) -> None:
        self._search = search
        self._name: str = name or getattr(search, "__qualname__", None) or type(search).__name__
        self._documents: dict[str, Document] = {}
        self._aligned: dict[str, AlignedText] = {}
        self.unplaced = 0

    @property
    def name(self) -> str:
        """The name given, or that of the function."""
        return self._name

    def index(self, corpus: Corpus) -> None:
        """Take note of the documents; the system itself is expected to know them."""
        self._documents = {str(document.id): document for document in corpus.documents}
        self._aligned = {}
        self.unplaced = 0

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        """For each query what the function returns, cut at k.

        Raises ``SpanMismatchError`` when a place is not in the corpus and ``ConfigurationError`` on an answer of
        another kind.
        """
        found = []
        for query in queries:
            placed = [self._place(answer, query) for answer in list(self._search(query.text, k))[:k]]
            chunks = [chunk for chunk in placed if chunk is not None]
            found.append([Hit(chunk, 1 / rank) for rank, chunk in enumerate(chunks, start=1)])
        return found

    def _place(self, answer: Answer, query: Query) -> PositionAwareChunk | None:
        if isinstance(answer, CharacterSpan | PositionAwareChunk):
            return self._chunk(answer.doc_id, answer.start, answer.end)
        if isinstance(answer, str):
            return self._place_text(answer, self._documents.values(), query)
        if isinstance(answer, Mapping):
            if {"doc_id", "start", "end"} <= answer.keys():
                return self._chunk(answer["doc_id"], answer["start"], answer["end"])
            if isinstance(answer.get("text"), str):
                within = [self._document(answer["doc_id"])] if "doc_id" in answer else self._documents.values()
                return self._place_text(answer["text"], within, query)
        if isinstance(answer, tuple | list) and len(answer) == 3:
            return self._chunk(*answer)
        raise ConfigurationError(
            f"{self._name} returned {preview(repr(answer))} for {query.id}: an answer must be {_ACCEPTED}"
        )

    def _document(self, doc_id: object) -> Document:
        if str(doc_id) not in self._documents:
            raise SpanMismatchError(
                f"{self._name} returned a place in {doc_id!r}, which is not in the corpus: "
                "use the documents' paths relative to the corpus folder"
            )
        return self._documents[str(doc_id)]

    def _chunk(self, doc_id: object, start: object, end: object) -> PositionAwareChunk:
        if not isinstance(start, int) or not isinstance(end, int):
            raise ConfigurationError(f"{self._name} returned the place [{start!r}, {end!r}): use whole numbers")
        span = self._document(doc_id).span(start, end)
        return PositionAwareChunk(generate_pa_chunk_id(span.text), span.text, span.doc_id, start, end)

    def _place_text(self, text: str, within: Iterable[Document], query: Query) -> PositionAwareChunk | None:
        documents = list(within)
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
            f"{self._name} returned a text for {query.id} that {reason} and is left out: {preview(text, 50)}",
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


def _starts(content: str, text: str) -> list[int]:
    """The first two places where the text starts: more make no difference."""
    first = content.find(text) if text else -1
    if first < 0:
        return []
    second = content.find(text, first + 1)
    return [first] if second < 0 else [first, second]
