"""A corpus cut into chunks, for one kind of evaluation or the other."""

from collections.abc import Iterable
from typing import Any

from rag_eval.chunking.adapter import as_position_aware
from rag_eval.chunking.base import Chunker, PositionAwareChunker
from rag_eval.chunking.foreign import as_chunker
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ids import DocumentId, EvaluationType, generate_chunk_id

AnyChunker = Chunker | PositionAwareChunker
"""Any chunker will do: a plain one is wrapped where places are needed."""


def cut(chunker: AnyChunker, corpus: Corpus, evaluation_type: EvaluationType) -> list[Any]:
    """The chunks of the corpus that the evaluation needs, in the order that breaks ties: by document, then place.

    They are ``PositionAwareChunk`` for token-level and ``Chunk`` for chunk-level evaluation.
    """
    if evaluation_type == "token-level":
        return cut_with_positions(as_position_aware(chunker), corpus)
    return cut_without_positions(chunker, corpus)


def chunker_name(chunker: AnyChunker, evaluation_type: EvaluationType) -> str:
    """The name of the chunker as the evaluation uses it: with the adapter where one is needed."""
    return as_position_aware(chunker).name if evaluation_type == "token-level" else chunker.name


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
    if isinstance(chunker, PositionAwareChunker) and not isinstance(chunker, Chunker):
        return [chunk.content for chunk in chunker.chunk_with_positions(document)]
    return as_chunker(chunker).chunk(document.content)
