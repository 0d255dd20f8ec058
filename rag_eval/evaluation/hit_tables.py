"""What a retriever found, checked and as tables."""

from collections.abc import Sequence

import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.base import Hit
from rag_eval.retrieval.hybrid import place_of
from rag_eval.tables import CHUNK_HITS, HITS, table_of
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query


def span_hits_table(
    queries: Sequence[Query], found: Sequence[Sequence[Hit[PositionAwareChunk]]], corpus: Corpus
) -> pa.Table:
    """The hits of token-level retrieval.

    Raises ``SpanMismatchError`` when a chunk is not what its document has at its place, and ``ConfigurationError``
    when a list or a place is missing.
    """
    check_found(queries, found, PositionAwareChunk)
    documents = corpus.by_id()
    for chunk in {place_of(hit.chunk): hit.chunk for hits in found for hit in hits}.values():
        if chunk.doc_id not in documents:
            raise ConfigurationError(f"a chunk of {chunk.doc_id!r} was retrieved, which is not in the corpus")
        documents[chunk.doc_id].check_span(chunk.to_span())
    rows = [
        (query.id, rank, hit.score, hit.chunk.doc_id, hit.chunk.start, hit.chunk.end, hit.chunk.id)
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return table_of(HITS, rows)


def chunk_hits_table(queries: Sequence[Query], found: Sequence[Sequence[Hit[Chunk]]]) -> pa.Table:
    """The hits of chunk-level retrieval; raises ``ConfigurationError`` when a list or an ordinal is missing."""
    check_found(queries, found, Chunk)
    rows = [
        (query.id, rank, hit.score, hit.chunk.doc_id, place_of(hit.chunk)[1], hit.chunk.id)
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return table_of(CHUNK_HITS, rows)


def check_found(queries: Sequence[Query], found: Sequence[Sequence[Hit[object]]], kind: type) -> None:  # type: ignore[type-var]
    """Raise ``ConfigurationError`` unless there is a list of chunks of this kind for every query."""
    if len(found) != len(queries):
        raise ConfigurationError(
            f"the retriever answered {len(found)} of {len(queries)} queries: it must give a list for each"
        )
    for hits in found:
        for hit in hits:
            if not isinstance(hit.chunk, kind):
                raise ConfigurationError(
                    f"the retriever gave a {type(hit.chunk).__name__}, this evaluation needs a {kind.__name__}: "
                    "use a retriever of the same evaluation type"
                )
