"""Cache what loaders read and chunkers cut, so that a workspace reads each file and cuts each document once."""

import functools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from rag_eval.chunking.chunker import BuiltInChunker, PositionAwareChunker
from rag_eval.chunking.placement import ChunkerPositionAdapter, as_position_aware
from rag_eval.documents.loaders import Loader
from rag_eval.documents.reading import FileText, Load, load_file
from rag_eval.errors import UnfinishedDocumentError, UnreadableDocumentError
from rag_eval.parts import digest, is_remote, label, replaced
from rag_eval.parts.objects import check_unchanged
from rag_eval.pipeline.caches import cached_embedder, cached_rows, spent
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import AnyChunker
from rag_eval.storage.bucket import Storage
from rag_eval.storage.rows import KEY, KeyedRows, Row
from rag_eval.tables import metadata_to_json, schema_of
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import text_sha256

logger = logging.getLogger("rag_eval.pipeline")

LOADED_VERSION = 3
"""Raise this, and the version of the step ``load_corpus``, whenever the text from a built-in loader changes."""

LOADED = schema_of(
    "text fault",
    file_sha256=KEY,
    text=pa.large_string(),
    metadata=pa.string(),
    fault=pa.string(),
    boxes=pa.large_binary(),
)
WITHOUT_BOXES = ("text", "metadata", "fault")

MAX_PENDING = 2**24
"""Maximum number of characters and bytes of loaded files in memory before they are written."""


class LoadedFiles:
    """The texts and boxes that one loader read from files, by the digest of the file.

    A file that cannot be read is stored as unreadable, unless its loader took too long or crashed.
    """

    def __init__(self, workspace: Workspace, loader: Loader) -> None:
        self._loader = loader
        self._rows = cached_rows(workspace, "loaded", f"{digest(loader)} v{LOADED_VERSION}", label(loader), LOADED)
        self._pending: dict[str, Row] = {}
        self._size = 0

    def load(self, data: bytes) -> FileText:
        """Return the text of a file without boxes, from the cache or the loader; raises as the loader does."""
        key = sha256(data).hexdigest()
        row = self._pending.get(key) or self._rows.get([key], [*WITHOUT_BOXES]).get(key) or self._load(key, data)
        if row["fault"] is not None:
            raise UnreadableDocumentError(row["fault"])
        return FileText(row["text"], json.loads(row["metadata"]))

    def _load(self, key: str, data: bytes) -> Row:
        try:
            file = load_file(self._loader, data)
            row = {"text": file.text, "metadata": json.dumps(file.metadata), "fault": None, "boxes": file.boxes}
            self._size += len(file.text) + len(file.boxes)
        except UnfinishedDocumentError:
            raise
        except UnreadableDocumentError as error:
            row = {"text": None, "metadata": "{}", "fault": str(error), "boxes": b""}
        self._pending[key] = row
        if self._size > MAX_PENDING:
            self.close()
        return row

    def close(self) -> None:
        """Write pending rows; raises ``ArtifactError`` if they cannot be written."""
        self._rows.put(self._pending)
        self._pending.clear()
        self._size = 0


@functools.lru_cache(maxsize=8)
def stored_boxes(cache: Path, storage: Storage, file_digest: str, text_digest: str) -> bytes:
    """Return the stored boxes of the text that a loader read from a file, or empty bytes."""
    storage.fetch_missing(cache / "loaded")
    for folder in sorted((cache / "loaded").glob("*/")):
        row = KeyedRows(folder, LOADED, storage).get([file_digest], ("text", "boxes")).get(file_digest)
        if row is not None and row["boxes"] and text_sha256(row["text"]) == text_digest:
            return bytes(row["boxes"])
    return b""


@contextmanager
def file_loading(workspace: Workspace | None) -> Iterator[Load]:
    """Yield a function that loads files; in a workspace, a loader reads each file once."""
    if workspace is None:
        yield load_file
        return
    caches: dict[str, LoadedFiles] = {}
    with ExitStack() as stack:

        def load(loader: Loader, data: bytes) -> FileText:
            if (name := digest(loader)) not in caches:
                caches[name] = stack.enter_context(closing(LoadedFiles(workspace, loader)))
            return caches[name].load(data)

        yield load


CUTS_VERSION = 3
"""Raise this whenever a chunker cuts differently: cached cuts of another version are not used."""

CUTS = schema_of(
    "tokens",
    document_sha256=KEY,
    starts=pa.list_(pa.int64()),
    ends=pa.list_(pa.int64()),
    metadata=pa.list_(pa.string()),
    skipped=pa.int64(),
    tokens=pa.int64(),
)


def cut_documents(
    workspace: Workspace | None, chunker: AnyChunker, name: str, documents: Sequence[Document]
) -> tuple[list[PositionAwareChunk], Effort]:
    """Return the chunks of all documents in order; in a workspace, each document is cut once by a chunker.

    Raises ``SpanMismatchError`` if a chunk is not the text of its document at its place.
    """
    if workspace is None:
        in_memory = as_position_aware(chunker)
        chunks = [chunk for document in documents for chunk in _checked_chunks(in_memory, document)]
        skipped = getattr(in_memory, "skipped_chunks", 0)
        return chunks, Effort.of(len(documents), "documents", skipped=skipped)
    rows = cached_rows(workspace, "chunks", f"{digest(chunker)} v{CUTS_VERSION}", name, CUTS)
    embedder = getattr(chunker, "embedder", None)
    # Local vectors are not cached, because most chunkers ask for a vector of every sentence only once.
    if embedder is None or not is_remote(embedder):
        return cut_once(rows, as_position_aware(chunker), documents)
    cached = cached_embedder(workspace, embedder)
    position_aware = as_position_aware(replaced(chunker, embedder=cached))
    chunks, effort = cut_once(rows, position_aware, documents, tokens_read=lambda: spent(cached)["tokens"])
    return chunks, effort.model_copy(update={"cost": spent(cached)["cost"] if effort.fresh else 0.0})


def cut_once(
    rows: KeyedRows,
    chunker: PositionAwareChunker,
    documents: Sequence[Document],
    *,
    tokens_read: Callable[[], int | None] = lambda: 0,
) -> tuple[list[PositionAwareChunk], Effort]:
    """Cut the documents that are not in ``rows``, and add them.

    ``tokens_read`` counts the tokens that a model has read so far. The tokens of the effort include all documents,
    cached or not; None if unknown.
    """
    digests = [text_sha256(document.content) for document in documents]
    known = rows.get(digests)
    fresh: dict[str, Row] = {}
    chunks: list[PositionAwareChunk] = []
    skipped, tokens = 0, [0]
    for document, document_digest in zip(documents, digests, strict=True):
        row = fresh.get(document_digest) or known.get(document_digest)
        cut = None if row is None else _chunks_at(document, row)
        if row is None or cut is None:
            cut, row = _cut(chunker, document, tokens_read)
            fresh[document_digest] = row
        chunks += cut
        skipped += row["skipped"]
        tokens.append(row["tokens"])
    if fresh:
        check_unchanged(getattr(chunker, "chunker", chunker))
    rows.put(fresh)
    total = None if None in tokens else sum(tokens)
    return chunks, Effort(fresh=len(fresh), total=len(documents), unit="documents", skipped=skipped, tokens=total)


def _checked_chunks(chunker: PositionAwareChunker, document: Document) -> list[PositionAwareChunk]:
    chunks = chunker.chunk_with_positions(document)
    for chunk in [] if isinstance(chunker, BuiltInChunker) else chunks:
        document.check_span(chunk.to_span())
    return chunks


def _cut(
    chunker: PositionAwareChunker, document: Document, tokens_read: Callable[[], int | None]
) -> tuple[list[PositionAwareChunk], Row]:
    before, skipped = tokens_read(), list[str]()
    if isinstance(chunker, ChunkerPositionAdapter):  # a run shows the number of skipped pieces, without warnings
        chunks, skipped = chunker.placed(document)
    else:
        chunks = _checked_chunks(chunker, document)
    after = tokens_read()
    return chunks, {
        "starts": [chunk.start for chunk in chunks],
        "ends": [chunk.end for chunk in chunks],
        "metadata": [metadata_to_json(chunk.metadata, f"a chunk of {document.id!r}") for chunk in chunks],
        "skipped": len(skipped),
        "tokens": None if before is None or after is None else after - before,
    }


def _chunks_at(document: Document, row: Row) -> list[PositionAwareChunk] | None:
    """Return the chunks of a document at cached cuts; if they do not fit it, log that and return None."""
    chunks = []
    try:
        for start, end, metadata in zip(row["starts"], row["ends"], row["metadata"], strict=True):
            if not 0 <= start < end <= len(document.content):
                raise ValueError
            chunks.append(document.chunk_at(start, end, dict(json.loads(metadata)) if metadata != "{}" else {}))
    except (TypeError, ValueError, RecursionError):
        logger.warning("the cached cuts of %s are damaged: it is cut again", document.id)
        return None
    return chunks
