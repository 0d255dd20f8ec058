"""The document each query belongs to: the one that holds most of its truth.

A query whose truth lies in several documents is put with one of them, because sets of documents that are linked by
such queries would soon be the whole corpus and leave nothing to resample.
"""

from collections.abc import Iterable

import pyarrow as pa

from rag_eval.tables import PLAIN_CHUNKS, TRUTH_CHUNKS, TRUTH_SPANS, check_schema


def documents_by_spans(spans: pa.Table) -> dict[str, str]:
    """For each query with truth spans the document that holds the most characters of them; of equal ones, the first
    by name. Overlaps count again."""
    check_schema(spans, TRUTH_SPANS, "truth spans")
    lengths = (end - start for start, end in zip(*(spans.column(c).to_pylist() for c in ("start", "end")), strict=True))
    rows = zip(spans.column("query_id").to_pylist(), spans.column("doc_id").to_pylist(), lengths, strict=True)
    return _heaviest(rows)


def documents_by_chunks(truth: pa.Table, chunks: pa.Table) -> dict[str, str]:
    """For each query with relevant chunks the document that holds the most of them; of equal ones, the first by name.

    A chunk whose text stands in several documents counts in each. A query none of whose chunks is there belongs to a
    document without a name.
    """
    check_schema(truth, TRUTH_CHUNKS, "truth chunks")
    check_schema(chunks, PLAIN_CHUNKS, "chunks")
    holders: dict[str, list[str]] = {}
    places = (chunks.column(name).to_pylist() for name in ("chunk_id", "doc_id"))
    for chunk_id, doc_id in zip(*places, strict=True):
        holders.setdefault(chunk_id, []).append(doc_id)
    pairs = zip(truth.column("query_id").to_pylist(), truth.column("chunk_id").to_pylist(), strict=True)
    return _heaviest((query, doc, 1) for query, chunk in pairs for doc in holders.get(chunk, [""]))


def _heaviest(rows: Iterable[tuple[str, str, int]]) -> dict[str, str]:
    weights: dict[str, dict[str, int]] = {}
    for query, doc, weight in rows:
        held = weights.setdefault(query, {})
        held[doc] = held.get(doc, 0) + weight
    return {query: min(held, key=lambda doc: (-held[doc], doc)) for query, held in weights.items()}
