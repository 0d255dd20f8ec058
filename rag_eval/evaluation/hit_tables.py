"""What a retriever found, as tables."""

from collections.abc import Sequence

import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.base import Hit, place_of
from rag_eval.tables import CHUNK_HITS, HITS, table_of
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query


def span_hits_table(
    queries: Sequence[Query], found: Sequence[Sequence[Hit[PositionAwareChunk]]], corpus: Corpus
) -> pa.Table:
    """The hits of token-level retrieval.

    Raises ``SpanMismatchError`` when a chunk is not what its document has at its place, and ``ConfigurationError``
    when its document is not in the corpus.
    """
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
    """The hits of chunk-level retrieval; raises ``ConfigurationError`` when an ordinal is missing."""
    rows = [
        (query.id, rank, hit.score, hit.chunk.doc_id, place_of(hit.chunk)[1], hit.chunk.id)
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return table_of(CHUNK_HITS, rows)
