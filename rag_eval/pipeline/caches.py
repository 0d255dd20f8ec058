"""Caches of what loaders, chunkers, rerankers and tokenizers computed: nothing is cut or paid for twice."""

import functools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_eval import parts
from rag_eval.chunking.chunker import PositionAwareChunker
from rag_eval.chunking.placement import ChunkerPositionAdapter
from rag_eval.documents.reading import FileText, load_file
from rag_eval.errors import ArtifactError, UnfinishedDocumentError, UnreadableDocumentError
from rag_eval.metrics.metric import Counts
from rag_eval.metrics.passage_tokens import Slices, count_each
from rag_eval.parts.objects import check_unchanged
from rag_eval.retrieval.retriever import C, Reranker, reranked
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import data_sha256
from rag_eval.storage.rows import KEY, KeyedRows, Row, identity_folder, keys_from_hex, locate
from rag_eval.tables import metadata_to_json, schema_of
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import text_sha256

logger = logging.getLogger("rag_eval.pipeline")

CUTS = schema_of(
    "tokens",
    document_sha256=KEY,
    starts=pa.list_(pa.int64()),
    ends=pa.list_(pa.int64()),
    metadata=pa.list_(pa.string()),
    skipped=pa.int64(),
    tokens=pa.int64(),
)


LOADED = schema_of("text fault", file_sha256=KEY, text=pa.large_string(), metadata=pa.string(), fault=pa.string())
BOXES = schema_of(boxes_key=KEY, boxes=pa.large_binary())
"""Apart from the texts: few who read these need them."""

LOADED_VERSION = 2
"""Raise it, and that of the stage ``load_corpus``, whenever a built-in loader makes another text than before."""

MOST_WAITING = 2**24
"""How many characters and bytes of loaded files are in memory before they are written."""


class LoadedFiles:
    """The texts that one loader made of files, by the files' digests; boxes by those of file and text.

    That no text can be made of a file is stored as well, but not that its loader took too long or ended.
    """

    def __init__(self, cache: Path, loader: Any, storage: Storage, made_since: datetime | None) -> None:
        self._loader = loader
        made_by, name = f"{parts.digest(loader)} v{LOADED_VERSION}", parts.label(loader)
        self.folders = [identity_folder(cache / kind, made_by, name) for kind in ("loaded", BOXES_KIND)]
        texts, boxes = self.folders
        self._rows = KeyedRows(texts, LOADED, storage, made_since), KeyedRows(boxes, BOXES, storage, made_since)
        self._waiting: tuple[dict[str, Row], dict[str, Row]] = {}, {}
        self._size = 0

    def load(self, data: bytes) -> FileText:
        """Return what the loader makes of a file, now or before, without boxes; raises as it does."""
        key = sha256(data).hexdigest()
        row = self._waiting[0].get(key) or self._rows[0].get([key]).get(key) or self._load(key, data)
        if row["fault"] is not None:
            raise UnreadableDocumentError(row["fault"])
        return FileText(row["text"], json.loads(row["metadata"]))

    def _load(self, key: str, data: bytes) -> Row:
        row: dict[str, Any] = {"text": None, "metadata": "{}", "fault": None}
        try:
            found = load_file(self._loader, data)
            row |= {"text": found.text, "metadata": json.dumps(found.metadata)}
            if found.boxes:
                self._waiting[1][boxes_key(key, text_sha256(found.text))] = {"boxes": found.boxes}
            self._size += len(found.text) + len(found.boxes)
        except UnfinishedDocumentError:
            raise
        except UnreadableDocumentError as error:
            row["fault"] = str(error)
        self._waiting[0][key] = row
        if self._size > MOST_WAITING:
            self.close()
        return row

    def close(self) -> None:
        """Write what waits to be stored; raises ``ArtifactError`` when it cannot be written."""
        # Boxes first: who finds a stored text does not look for them again.
        for rows, waiting in zip(self._rows[::-1], self._waiting[::-1], strict=True):
            rows.put(waiting)
            waiting.clear()
        self._size = 0


BOXES_KIND = "boxes"


def boxes_key(file_digest: str, text_digest: str) -> str:
    """Return the key of the boxes of a text that some loader made of a file."""
    return data_sha256([file_digest, text_digest])


@functools.lru_cache(maxsize=8)
def kept_boxes(cache: Path, storage: Storage, key: str) -> bytes:
    """Return the boxes of a text that a loader made of a file; none where none are stored."""
    storage.fetch_missing(cache / BOXES_KIND)
    for folder in sorted((cache / BOXES_KIND).glob("*/")):
        if found := KeyedRows(folder, BOXES, storage).get([key]):
            return bytes(found[key]["boxes"])
    return b""


def cut_once(
    cuts: KeyedRows,
    chunker: PositionAwareChunker,
    documents: Sequence[Document],
    *,
    tokens_read: Callable[[], int | None] = lambda: 0,
) -> tuple[list[PositionAwareChunk], int, int, int | None]:
    """Return the chunks of all documents, how many documents had to be cut, and how many pieces had no certain place.

    ``cuts`` has what the chunker has cut before. ``tokens_read`` tells what a model has read for the chunker so far;
    last is what it reads for all documents, the same number whatever was cached.
    """
    digests = [text_sha256(document.content) for document in documents]
    known = cuts.get(digests)
    fresh: dict[str, Row] = {}
    chunks: list[PositionAwareChunk] = []
    skipped, tokens = 0, [0]
    for document, digest in zip(documents, digests, strict=True):
        kept = fresh.get(digest) or known.get(digest)
        made = None if kept is None else _chunks_at(document, kept)
        if made is None:
            before = tokens_read()
            # In place of a warning for each piece, a run shows their number.
            if isinstance(chunker, ChunkerPositionAdapter):
                made, lost = chunker.placed(document)
            else:
                made, lost = chunker.chunk_with_positions(document), []
            after = tokens_read()
            fresh[digest] = kept = {
                "starts": [chunk.start for chunk in made],
                "ends": [chunk.end for chunk in made],
                "metadata": [metadata_to_json(chunk.metadata, f"a chunk of {document.id!r}") for chunk in made],
                "skipped": len(lost),
                "tokens": None if before is None or after is None else after - before,
            }
        chunks += made
        skipped += kept["skipped"] if kept else 0
        tokens.append(kept["tokens"] if kept else 0)
    if fresh:
        check_unchanged(getattr(chunker, "chunker", chunker))
    cuts.put(fresh)
    return chunks, len(fresh), skipped, None if None in tokens else sum(tokens)


def _chunks_at(document: Document, cuts: Row) -> list[PositionAwareChunk] | None:
    """Return the chunks of a document at cached cuts; None, which is logged, when they are not cuts of it."""
    chunks = []
    try:
        for start, end, metadata in zip(cuts["starts"], cuts["ends"], cuts["metadata"], strict=True):
            if not 0 <= start < end <= len(document.content):
                raise ValueError
            chunks.append(document.chunk_at(start, end, dict(json.loads(metadata)) if metadata != "{}" else {}))
    except (TypeError, ValueError, RecursionError):
        logger.warning("the cached cuts of %s are damaged: it is cut again", document.id)
        return None
    return chunks


SLICES = schema_of(text_sha256=KEY, **dict.fromkeys(("starts", "ends", "tokens"), pa.list_(pa.int32())))

TEXTS_AT_ONCE = 1_024
"""Of how many texts the counts are looked up at once."""

MOST_REMEMBERED = 2**20
"""Of about how many slices the counts stay in memory."""


class TokenCounts:
    """Counts the tokens of slices, each once: configurations and runs find mostly the same places of a document."""

    def __init__(self, folder: Path | None = None) -> None:
        # Not shared by a bucket: counting again costs less than fetching.
        self._rows = None if folder is None else KeyedRows(folder, SLICES)
        # By the digest of a text and what counts: starts, ends and tokens of its slices, in the order of their places.
        self._counts: dict[str, Counts] = {}
        self._changed: set[str] = set()
        self._guard = threading.Lock()

    def __call__(self, slices: Iterable[Slices], encoding: str) -> Iterator[Counts]:
        """Return how many tokens each slice of the texts is."""
        counted_by = f"{encoding} of tiktoken {parts.versions_of(('tiktoken',))['tiktoken']}"
        rest = iter(slices)
        while block := list(islice(rest, TEXTS_AT_ONCE)):
            digests = [text_sha256(f"{counted_by} {one.sha256 or text_sha256(one.read())}") for one in block]
            with self._guard:
                if sum(one.shape[1] for one in self._counts.values()) > MOST_REMEMBERED:
                    self._counts = {digest: self._counts[digest] for digest in self._changed}
                self._counts |= self._stored([digest for digest in digests if digest not in self._counts])
                kept = [self._counts.get(digest, _NOTHING) for digest in digests]
            for digest, one, known in zip(digests, block, kept, strict=True):
                wanted, numbers = _numbers(one.places.T), _numbers(known)
                missing = np.append(numbers, -1)[np.searchsorted(numbers, wanted)] != wanted
                if missing.any():
                    new = one._replace(places=np.unique(one.places[missing], axis=0))
                    counted = np.vstack([new.places.T, *count_each([new], encoding)])
                    with self._guard:  # another thread may have counted others, or dropped these
                        all_known = [known, self._counts.get(digest, _NOTHING), counted]
                        known = np.unique(np.hstack(all_known), axis=1)
                        self._counts[digest], numbers = known, _numbers(known)
                        if self._rows is not None:
                            self._changed.add(digest)
                yield known[2][np.searchsorted(numbers, wanted)]

    def _stored(self, digests: Sequence[str]) -> dict[str, Counts]:
        found: dict[str, Counts] = {}
        for file, places, rows in locate(keys_from_hex(digests), [] if self._rows is None else self._rows.files()):
            lists = [file.table.column(name).take(pa.array(rows)).combine_chunks() for name in SLICES.names[1:]]
            every = np.stack([one.flatten().to_numpy() for one in lists]).astype(np.int64)
            of_each = zip(places.tolist(), np.split(every, lists[0].offsets.to_numpy()[1:-1], axis=1), strict=True)
            found |= {digests[place]: np.unique(one, axis=1) for place, one in of_each}
        return found

    def keep(self) -> None:
        """Write what was counted; where it cannot be written, log that and continue."""
        with self._guard:
            changed = {digest: self._counts[digest] for digest in self._changed}
            self._changed = set()
        try:
            if self._rows is not None:
                self._rows.put(
                    {digest: dict(zip(SLICES.names[1:], one, strict=True)) for digest, one in changed.items()}
                )
        except ArtifactError as error:
            logger.warning("how many tokens texts are was not kept: %s", error)


_NOTHING = np.empty((3, 0), np.int64)


def _numbers(places: Counts) -> Counts:
    """Return each place as one number, by which places are in order."""
    numbers: Counts = places[0] << 32 | places[1]
    return numbers


RANKINGS = schema_of(asked_sha256=KEY, order=pa.list_(pa.int64()), seconds=pa.float64())


class CachedReranker:
    """A reranker that is asked only what it was not asked before: same name, same order.

    An answer is stored in ``rankings`` before it is used. ``fresh`` is how many questions the reranker was asked,
    ``seconds`` how long all answers took when they were given.
    """

    def __init__(self, reranker: Reranker, rankings: KeyedRows) -> None:
        self.reranker, self._rows = reranker, rankings
        self._guard = threading.Lock()
        self.fresh, self.seconds = 0, 0.0

    @property
    def name(self) -> str:
        return self.reranker.name

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best chunks, best first; raises ``ArtifactError`` when the answer cannot be stored."""
        key = data_sha256([query, [chunk.content for chunk in chunks]])
        row = self._cached(key, len(chunks))
        if row is None:
            with self._rows.locked(key[:3]):
                # Whoever had the turn before may have asked the very same.
                row = self._cached(key, len(chunks)) or self._ask(key, query, chunks)
        with self._guard:
            self.seconds += row["seconds"]
        return [chunks[number] for number in row["order"][:top_k]]

    def _cached(self, key: str, count: int) -> Row | None:
        row = self._rows.get([key]).get(key)
        return row if row is not None and sorted(row["order"]) == list(range(count)) else None

    def _ask(self, key: str, query: str, chunks: Sequence[C]) -> Row:
        started = time.perf_counter()
        order = reranked(self.reranker, query, chunks)
        row = {"order": order, "seconds": time.perf_counter() - started}
        check_unchanged(self.reranker)
        self._rows.put({key: row})
        with self._guard:
            self.fresh += 1
        return row
