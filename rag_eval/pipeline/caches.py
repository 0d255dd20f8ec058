"""Cache vectors, rankings, model answers and token counts in a workspace, so that nothing is paid for twice.

Each function takes the workspace of the step, or None for a step in memory, which uses its parts without a cache.
"""

import functools
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import Embedder, ReportsUsage
from rag_eval.errors import ArtifactError
from rag_eval.llm.chat import ANSWERS_FOLDER
from rag_eval.llm.writing import Answers
from rag_eval.metrics.metric import Counts
from rag_eval.metrics.passage_tokens import Slices, TokenCount, count_each
from rag_eval.parts import digest, fresh, is_part, is_remote, versions_of
from rag_eval.parts.objects import check_unchanged
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import C, Reranker, reranked
from rag_eval.storage.files import data_sha256
from rag_eval.storage.rows import KEY, KeyedRows, Row, identity_folder, keys_from_hex, locate
from rag_eval.tables import schema_of
from rag_eval.types.ids import text_sha256

logger = logging.getLogger("rag_eval.pipeline")


def cached_rows(workspace: Workspace, kind: str, identity: str, label: str, schema: pa.Schema) -> KeyedRows:
    """Return the cached rows of a part with this identity, including those added by other machines."""
    folder = identity_folder(workspace.root / "cache" / kind, identity, label)
    workspace.fetch_missing(folder)
    return KeyedRows(folder, schema, workspace.storage, workspace.made_since)


def cached_embedder(workspace: Workspace | None, embedder: Any) -> Embedder:
    """Return the embedder; in a workspace, with a cache of its vectors."""
    if workspace is None:
        used: Embedder = embedder
        return used
    root = workspace.root / "cache" / "embeddings"
    cached = CachedEmbedder(fresh(embedder), root, workspace.storage, workspace.made_since)
    for folder in cached.folders:
        workspace.fetch_missing(folder)
    return cached


def spent(part: object) -> dict[str, Any]:
    """Return the tokens and the cost of a part since it was created; None if it does not report them.

    Cached tokens count like those read now, so that the number does not depend on the cache; they cost nothing.
    """
    usage = part.usage if isinstance(part, ReportsUsage) else None
    tokens = part.tokens_read if isinstance(part, CachedEmbedder) else usage.tokens if usage else None
    return {"tokens": tokens, "cost": usage.cost if usage else None}


@contextmanager
def model_answers(workspace: Workspace | None) -> Iterator[Answers]:
    """Yield the object that asks models; in a workspace, with a cache of their answers."""
    if workspace is None:
        with TemporaryDirectory() as folder:
            yield Answers(Path(folder))
        return
    folder_of_answers = workspace.root / ANSWERS_FOLDER
    workspace.fetch_missing(folder_of_answers)
    yield Answers(folder_of_answers, workspace.storage)


RANKINGS = schema_of(asked_sha256=KEY, order=pa.list_(pa.int64()), seconds=pa.float64())


class CachedReranker:
    """A reranker with a cache, with the same name and order.

    An answer is stored before it is used. ``fresh`` counts the answers that were not cached; ``seconds`` is the time
    that all answers took originally.
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
                # The previous holder of the lock may have sent the same request.
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


@contextmanager
def cached_reranker(workspace: Workspace | None, reranker: Any) -> Iterator[Reranker]:
    """Yield the reranker; in a workspace, a reranker that uses the network has a cache of its rankings."""
    if workspace is None or not is_remote(reranker):
        yield reranker
        return
    used = fresh(reranker)
    rankings = cached_rows(workspace, "rankings", digest(used), used.name, RANKINGS)
    # Close the connections of our own instance; users close their own objects.
    with closing(used) if is_part(used) and hasattr(used, "close") else nullcontext():
        yield CachedReranker(used, rankings)


SLICES = schema_of(text_sha256=KEY, **dict.fromkeys(("starts", "ends", "tokens"), pa.list_(pa.int32())))

TEXTS_AT_ONCE = 1_024
"""Number of texts to look up at once."""

MOST_REMEMBERED = 2**20
"""Approximate number of slices that stay in memory with their counts."""


class TokenCounts:
    """Counts the tokens of slices of texts, each slice once, because most configurations share their slices."""

    def __init__(self, folder: Path | None = None) -> None:
        # Not shared through a bucket, because counting again is cheaper than fetching.
        self._rows = None if folder is None else KeyedRows(folder, SLICES)
        # Starts, ends and tokens of slices, ordered by place, by the digest of the text and its encoding.
        self._counts: dict[str, Counts] = {}
        self._changed: set[str] = set()
        self._guard = threading.Lock()

    def __call__(self, slices: Iterable[Slices], encoding: str) -> Iterator[Counts]:
        """Yield the number of tokens of each slice of each text."""
        counter = f"{encoding} of tiktoken {versions_of(('tiktoken',))['tiktoken']}"
        remaining = iter(slices)
        while block := list(islice(remaining, TEXTS_AT_ONCE)):
            digests = [text_sha256(f"{counter} {text.sha256 or text_sha256(text.read())}") for text in block]
            for key, text, known in zip(digests, block, self._known(digests), strict=True):
                wanted, numbers = _numbers(text.places.T), _numbers(known)
                missing = np.append(numbers, -1)[np.searchsorted(numbers, wanted)] != wanted
                if missing.any():
                    known = self._count(
                        key, known, text._replace(places=np.unique(text.places[missing], axis=0)), encoding
                    )
                    numbers = _numbers(known)
                yield known[2][np.searchsorted(numbers, wanted)]

    def _known(self, digests: Sequence[str]) -> list[Counts]:
        with self._guard:
            if sum(counts.shape[1] for counts in self._counts.values()) > MOST_REMEMBERED:
                self._counts = {key: self._counts[key] for key in self._changed}
            self._counts |= self._stored([key for key in digests if key not in self._counts])
            return [self._counts.get(key, _NO_COUNTS) for key in digests]

    def _count(self, key: str, known: Counts, text: Slices, encoding: str) -> Counts:
        """Count more slices of a text, and return them together with the known ones."""
        counted = np.vstack([text.places.T, *count_each([text], encoding)])
        with self._guard:  # another thread may have counted other slices, or dropped the known ones
            merged = np.hstack([known, self._counts.get(key, _NO_COUNTS), counted])
            self._counts[key] = known = np.unique(merged, axis=1)
            if self._rows is not None:
                self._changed.add(key)
        return known

    def _stored(self, digests: Sequence[str]) -> dict[str, Counts]:
        stored: dict[str, Counts] = {}
        for file, places, rows in locate(keys_from_hex(digests), [] if self._rows is None else self._rows.files()):
            lists = [file.table.column(name).take(pa.array(rows)).combine_chunks() for name in SLICES.names[1:]]
            values = np.stack([column.flatten().to_numpy() for column in lists]).astype(np.int64)
            texts = np.split(values, lists[0].offsets.to_numpy()[1:-1], axis=1)
            pairs = zip(places.tolist(), texts, strict=True)
            stored |= {digests[place]: np.unique(counts, axis=1) for place, counts in pairs}
        return stored

    def store(self) -> None:
        """Write new counts; if that fails, log it and continue."""
        with self._guard:
            changed = {key: self._counts[key] for key in self._changed}
            self._changed = set()
        if self._rows is None:
            return
        try:
            self._rows.put({key: dict(zip(SLICES.names[1:], counts, strict=True)) for key, counts in changed.items()})
        except ArtifactError as error:
            logger.warning("token counts were not cached: %s", error)


_NO_COUNTS = np.empty((3, 0), np.int64)


def _numbers(places: Counts) -> Counts:
    """Return each place as one number, so that numbers sort as places do."""
    numbers: Counts = places[0] << 32 | places[1]
    return numbers


# One for all steps of a process, so that data read from disk and checked is not read again.
_token_counts = functools.cache(TokenCounts)


@contextmanager
def token_counts(workspace: Workspace | None) -> Iterator[TokenCount]:
    """Yield an object that counts the tokens of texts; in a workspace, every count is stored."""
    counts = _token_counts(None if workspace is None else workspace.root / "cache" / "tokens" / "slices")
    try:
        yield counts
    finally:
        counts.store()
