"""A corpus cut into chunks, for one kind of evaluation or the other."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeGuard

from rag_eval.chunking.adapter import as_position_aware
from rag_eval.chunking.base import Chunker, PositionAwareChunker
from rag_eval.chunking.foreign import as_chunker
from rag_eval.errors import ConfigurationError
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ids import DocumentId, EvaluationType, generate_chunk_id


class TextSplitter(Protocol):
    """A text splitter in LangChain's manner."""

    def split_text(self, text: str, /) -> Iterable[object]:
        """The pieces, as strings or as objects with a text."""


class NamelessChunker(Protocol):
    """A chunker in chonkie's manner: without a name of its own."""

    def chunk(self, text: str, /) -> Iterable[object]:
        """The pieces, as strings or as objects with a text."""


AnyChunker = Chunker | PositionAwareChunker | TextSplitter | NamelessChunker | Callable[[str], Iterable[object]]
"""Any chunker will do, one of another library or a function too: it is wrapped where a name or places are needed."""


def cut(chunker: AnyChunker, corpus: Corpus, evaluation_type: EvaluationType) -> list[Any]:
    """The chunks of the corpus that the evaluation needs, in the order that breaks ties: by document, then place.

    They are ``PositionAwareChunk`` for token-level and ``Chunk`` for chunk-level evaluation.
    Raises ``ConfigurationError`` when there are none.
    """
    used = usable_chunker(chunker, evaluation_type)
    chunks: list[Any]
    if evaluation_type == "token-level":
        chunks = cut_with_positions(as_position_aware(used), corpus)
    else:
        chunks = cut_without_positions(used, corpus)
    if not chunks:
        skipped = getattr(used, "skipped_chunks", 0)
        raise ConfigurationError(
            f"{used.name} made no chunk of {len(corpus)} documents ({skipped} were left out for lack of a sure place): "
            "there is nothing to search, check the chunker and the documents"
        )
    return chunks


def usable_chunker(chunker: AnyChunker, evaluation_type: EvaluationType) -> Chunker | PositionAwareChunker:
    """The chunker as the evaluation uses it: with a name, and with the adapter where one is needed.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """
    if evaluation_type == "token-level":
        return as_position_aware(chunker)
    return chunker if _has_only_positions(chunker) else as_chunker(chunker)


def cut_with_positions(chunker: PositionAwareChunker, corpus: Corpus) -> list[PositionAwareChunk]:
    """Every chunk of the corpus with its place; a place that is given twice is kept once."""
    return in_place_order(chunk for document in corpus.documents for chunk in chunker.chunk_with_positions(document))


def in_place_order(chunks: Iterable[PositionAwareChunk]) -> list[PositionAwareChunk]:
    """The chunks by document and place; a place that is given twice is kept once."""
    places: dict[tuple[str, int, int], PositionAwareChunk] = {}
    for chunk in chunks:
        places.setdefault((chunk.doc_id, chunk.start, chunk.end), chunk)
    return [places[place] for place in sorted(places)]


def without_positions(chunks: Iterable[PositionAwareChunk]) -> list[Chunk]:
    """The chunks by their text alone, numbered within their documents in the order given; none is dropped."""
    numbered: dict[DocumentId, list[Chunk]] = {}
    for chunk in chunks:
        others = numbered.setdefault(chunk.doc_id, [])
        metadata = {**chunk.metadata, "ordinal": len(others)}
        others.append(Chunk(generate_chunk_id(chunk.content), chunk.content, chunk.doc_id, metadata))
    return [chunk for doc_id in sorted(numbered) for chunk in numbered[doc_id]]


def cut_without_positions(chunker: AnyChunker, corpus: Corpus) -> list[Chunk]:
    """Every chunk of the corpus by its text, none dropped; ``metadata["ordinal"]`` counts within its document."""
    return [
        Chunk(generate_chunk_id(text), text, document.id, {"ordinal": ordinal})
        for document in sorted(corpus.documents, key=lambda document: document.id)
        for ordinal, text in enumerate(_texts(chunker, document))
    ]


def _texts(chunker: AnyChunker, document: Document) -> list[str]:
    if _has_only_positions(chunker):
        return [chunk.content for chunk in chunker.chunk_with_positions(document)]
    return as_chunker(chunker).chunk(document.content)


def _has_only_positions(chunker: object) -> TypeGuard[PositionAwareChunker]:
    is_class = isinstance(chunker, type)
    return not is_class and isinstance(chunker, PositionAwareChunker) and not isinstance(chunker, Chunker)
