"""Where documents were cut, kept by document: a document that did not change is not cut again."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from rag_eval.chunking.base import PositionAwareChunker
from rag_eval.pipeline.row_files import Row, RowFiles
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunk import PositionAwareChunk
from rag_eval.types.document import Document
from rag_eval.types.ids import generate_pa_chunk_id, text_sha256

CUTS = pa.schema(
    [
        pa.field("document_sha256", pa.string(), nullable=False),
        pa.field("starts", pa.list_(pa.int64()), nullable=False),
        pa.field("ends", pa.list_(pa.int64()), nullable=False),
        pa.field("metadata", pa.list_(pa.string()), nullable=False),
    ]
)


class ChunkCache:
    """The cuts that one chunker made, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._cuts = RowFiles(folder, CUTS)

    def chunk(
        self, chunker: PositionAwareChunker, documents: Sequence[Document], *, refresh: bool = False
    ) -> tuple[list[PositionAwareChunk], int]:
        """The chunks of all documents, in order, and how many documents had to be cut; ``refresh`` cuts them all."""
        kept_before = self._cuts.read()
        known = {} if refresh else kept_before
        digests = [text_sha256(document.content) for document in documents]
        fresh: dict[str, Row] = {}
        chunks: list[PositionAwareChunk] = []
        for document, digest in zip(documents, digests, strict=True):
            kept = known.get(digest) or fresh.get(digest)
            if kept is not None:
                chunks += _chunks_at(document, kept)
                continue
            made = chunker.chunk_with_positions(document)
            fresh[digest] = _cuts(digest, document, made)
            chunks += made
        self._cuts.add(fresh, replace=refresh)
        return chunks, len(fresh)


def _cuts(digest: str, document: Document, chunks: Sequence[PositionAwareChunk]) -> Row:
    return {
        "document_sha256": digest,
        "starts": [chunk.start for chunk in chunks],
        "ends": [chunk.end for chunk in chunks],
        "metadata": [metadata_to_json(chunk.metadata, f"a chunk of {document.id!r}") for chunk in chunks],
    }


def _chunks_at(document: Document, cuts: Row) -> list[PositionAwareChunk]:
    chunks = []
    for start, end, metadata in zip(cuts["starts"], cuts["ends"], cuts["metadata"], strict=True):
        content = document.content[start:end]
        read = json.loads(metadata) if metadata != "{}" else {}
        chunks.append(PositionAwareChunk(generate_pa_chunk_id(content), content, document.id, start, end, read))
    return chunks
