"""What a reranker that asks a service has answered, kept by what it was asked: no question is paid for twice."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from rag_eval.chunking.chunker import PositionAwareChunker
from rag_eval.disk.arrow import Row, RowFiles
from rag_eval.disk.files import data_sha256
from rag_eval.retrieval.ranking import reranked
from rag_eval.retrieval.retriever import C, Reranker
from rag_eval.tables import metadata_to_json
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
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


RANKINGS = pa.schema(
    [
        pa.field("asked", pa.string(), nullable=False),
        pa.field("order", pa.list_(pa.int64()), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("made", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
KEEP_EVERY = 50


class KeptRankings:
    """A reranker that asks only what it was not asked before: same name, same order.

    ``fresh`` is how many questions it has asked, ``seconds`` how long all answers took when they were given.
    """

    def __init__(self, reranker: Reranker, folder: Path, since: datetime | None) -> None:
        self._reranker = reranker
        self._files = RowFiles(folder, RANKINGS)
        self._known = {key: row for key, row in self._files.read().items() if since is None or row["made"] >= since}
        self._new: dict[str, Row] = {}
        self.fresh, self.seconds = 0, 0.0

    @property
    def name(self) -> str:
        """The reranker's."""
        return self._reranker.name

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first."""
        key = data_sha256([query, [chunk.content for chunk in chunks]])
        if key not in self._known:
            self._known[key] = self._new[key] = self._answer(key, query, chunks)
            self.fresh += 1
            if len(self._new) >= KEEP_EVERY:
                self.keep()
        self.seconds += self._known[key]["seconds"]
        return [chunks[number] for number in self._known[key]["order"][:top_k]]

    def keep(self) -> None:
        """Keep the answers that are not by now; raises ``ArtifactError`` when they cannot be written."""
        self._files.add(self._new)
        self._new = {}

    def _answer(self, key: str, query: str, chunks: Sequence[C]) -> Row:
        made, started = datetime.now(UTC), time.perf_counter()
        order = reranked(self._reranker, query, chunks)
        return {"asked": key, "order": order, "seconds": time.perf_counter() - started, "made": made}


@contextmanager
def kept_rankings(reranker: Reranker, folder: Path, since: datetime | None) -> Iterator[KeptRankings]:
    """The reranker; its answers are kept, also when an error ends the work. None from before ``since`` is used."""
    kept = KeptRankings(reranker, folder, since)
    try:
        yield kept
    finally:
        kept.keep()
