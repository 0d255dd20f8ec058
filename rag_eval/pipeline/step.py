"""A step of the pipeline: a function from tables and parts to tables, with a name and a version.

A step runs on tables in memory, or in a workspace on references. In a workspace its result is stored under a cache key:
the step's name and version, the digests of its inputs, the identities of its parts, and the versions of the packages
that produce the result. Nothing else is part of the key: not the time, not the workspace, not the worker.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.documents.reading import FileText, Load, load_file
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.embedder import Embedder, ReportsUsage
from rag_eval.errors import ConfigurationError
from rag_eval.llm.chat import ANSWERS_FOLDER
from rag_eval.llm.writing import Answers
from rag_eval.metrics.metric import MetricAtCut
from rag_eval.metrics.passage_tokens import TokenCount
from rag_eval.parts import digest, fresh, identity, is_part, is_remote, located, replaced, versions_of
from rag_eval.parts.objects import check_unchanged
from rag_eval.pipeline.caches import CUTS, RANKINGS, CachedReranker, LoadedFiles, TokenCounts, cut_once
from rag_eval.pipeline.references import ChunksRef, Effort, IndexRef, Result, ScoresRef, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import Reranker, usable_chunker
from rag_eval.storage.files import data_sha256
from rag_eval.storage.rows import KeyedRows, identity_folder
from rag_eval.stores.store import VectorStore
from rag_eval.tables import TruthTables, has_places
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

T = TypeVar("T")
R = TypeVar("R", bound=Result)

Shards = Sequence[pa.Table]
"""A table in parts, one for each shard of the documents."""


@dataclass(frozen=True)
class Step:
    """What is known of a step beside its function: nothing is looked up by the step's name."""

    function: Callable[..., Any]
    version: int
    """Raise it whenever the result would change."""
    packages: tuple[str, ...] = ()
    """The packages that decide the result, beside those of the parts: their versions are in the cache key."""

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", "-")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, as a function is."""
        return _named, (self.function.__module__, self.function.__name__)

    def __call__(self, *inputs: Any, context: "Context | None" = None) -> Any:
        """Run the step on tables in memory: return what it makes, and the effort."""
        return self.function(*inputs, context=context or Context())

    def cache_key(self, inputs: Mapping[str, object]) -> str:
        """Return the cache key of a run with these inputs, by their names; safe as a file name."""
        named = {name: key_part(value) for name, value in inputs.items() if value is not None}
        named |= {"packages": versions_of(self.packages)} if self.packages else {}
        return f"{self.name}-v{self.version}-{data_sha256(named)[:40]}"

    def run(self, workspace: Workspace, keep: Callable[..., R], *inputs: Any) -> R:
        """Run the step on references into a workspace.

        Args:
            workspace: Where the inputs are read from.
            keep: Writes what the step made, and returns the reference to it.
            inputs: References, which are read as tables, parts and settings.

        Returns:
            The reference, with when the step began and what it took.

        Raises:
            ConfigurationError: The code of a part changed meanwhile.
        """
        begun, started = datetime.now(UTC), time.perf_counter()
        made, effort = self.function(*(read(workspace, one) for one in inputs), context=Context(workspace))
        result = keep(made)
        total: Effort = effort() if callable(effort) else effort
        check_unchanged(inputs)
        seconds = round(time.perf_counter() - started, 6)
        return result.model_copy(update={"made": begun, "effort": total.model_copy(update={"seconds": seconds})})


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def step(*, version: int, packages: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Step]:
    """Make a function a step under its own name.

    The function takes tables, parts and settings, and a keyword ``context``. It returns what it made and the effort. A
    large table may come in parts, one at a time in memory; then the effort is a function to be called at the end.
    """
    return lambda function: Step(function, version, packages)


def key_part(value: object) -> object:
    """Return an input as plain data for a cache key; raises ``ConfigurationError`` on what has no digest."""
    if isinstance(value, Result):
        return value.key_data
    if is_part(value):
        return identity(value)
    if isinstance(value, MetricAtCut):
        return {"metric": key_part(value.metric), "name": str(value)}
    if isinstance(value, BaseModel):
        own = getattr(value, "key_data", None)
        fields = {name: key_part(getattr(value, name)) for name in type(value).model_fields} if own is None else own
        return {"type": type(value).__name__, "fields": fields}
    if isinstance(value, Mapping):
        return {str(name): key_part(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [key_part(part) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(getattr(value, "name", None), str):
        return identity(value)
    raise ConfigurationError(f"a {type(value).__name__} cannot be part of a cache key: pass a reference or a setting")


def read(workspace: Workspace, value: Any) -> Any:
    """Return what a step is given for an input: tables in the place of references to them."""
    if isinstance(value, TableRef):
        return workspace.read_table(value)
    if isinstance(value, ChunksRef | ScoresRef):
        return workspace.read_table(value.table)
    if isinstance(value, TruthRef):
        return workspace.read_truth(value)
    if isinstance(value, Mapping):
        return {name: read(workspace, one) for name, one in value.items()}
    return [read(workspace, one) for one in value] if isinstance(value, list) else value


def keep_truth(workspace: Workspace, tables: TruthTables) -> TruthRef:
    """Write the tables of ground truth, and return their reference."""
    return TruthRef(
        evaluation_type="token-level" if has_places(tables.answers) else "chunk-level",
        queries=workspace.write_table("queries", tables.queries),
        answers=workspace.write_table("truth", tables.answers),
    )


CUTS_VERSION = 3
"""Raise it whenever a chunker cuts otherwise than before: kept cuts of another version are not used."""


class Cuts(NamedTuple):
    """The chunks that a chunker made of documents, and what that took."""

    chunker: str
    chunks: list[PositionAwareChunk]
    effort: Effort


@dataclass(frozen=True)
class Context:
    """Where a step runs: in memory, where parts are used as they are, or in a workspace with its caches.

    A workspace caches cuts, vectors and what services answered, so that nothing is paid for twice.
    """

    workspace: Workspace | None = None

    def cut(self, chunker: Any, documents: Sequence[Document], level: EvaluationType) -> Cuts:
        """The chunks of all documents in order, and what cutting them took.

        In a workspace only documents that this chunker has not cut before are cut. Raises ``SpanMismatchError`` when
        a chunk is not what its document has at its place.
        """
        name, count = usable_chunker(chunker, level).name, len(documents)
        if self.workspace is None:
            used, chunks = as_position_aware(chunker), []
            for document in documents:
                cut = used.chunk_with_positions(document)
                if not isinstance(used, BuiltInChunker):
                    for chunk in cut:
                        document.check_span(chunk.to_span())
                chunks += cut
            skipped = getattr(used, "skipped_chunks", 0)
            return Cuts(name, chunks, Effort.of(count, "documents", skipped=skipped))
        with ExitStack() as stack:
            asked = None
            # Vectors that are made here are not kept: most chunkers ask for a vector of every sentence, once.
            if (embedder := getattr(chunker, "embedder", None)) is not None and is_remote(embedder):
                asked = stack.enter_context(self.embedder(embedder))
            made_by = f"{digest(chunker)} v{CUTS_VERSION}"
            folder = identity_folder(self.workspace.root / "cache" / "chunks", made_by, name)
            self.workspace.fetch_missing(folder)
            used = as_position_aware(chunker if asked is None else replaced(chunker, embedder=asked))
            read = (lambda: asked.tokens_read) if isinstance(asked, CachedEmbedder) else lambda: 0
            cuts = KeyedRows(folder, CUTS, self.workspace.storage, self.workspace.made_since)
            chunks, new, skipped, tokens = cut_once(cuts, used, documents, tokens_read=read)
        cost = spent(asked)["cost"] if asked and new else 0.0
        return Cuts(
            name, chunks, Effort(fresh=new, total=count, unit="documents", skipped=skipped, tokens=tokens, cost=cost)
        )

    @contextmanager
    def loading(self) -> Iterator[Load]:
        """What has loaders read files; in a workspace a loader reads each once."""
        if self.workspace is None:
            yield load_file
            return
        workspace, used = self.workspace, dict[str, LoadedFiles]()
        with ExitStack() as stack:

            def load(loader: Any, data: bytes) -> FileText:
                if (name := digest(loader)) not in used:
                    cache, since = workspace.root / "cache", workspace.made_since
                    used[name] = LoadedFiles(cache, loader, workspace.storage, since)
                    for folder in used[name].folders:
                        workspace.fetch_missing(folder)
                    stack.enter_context(closing(used[name]))
                return used[name].load(data)

            yield load

    @contextmanager
    def embedder(self, embedder: Any) -> Iterator[Embedder]:
        """The embedder to ask, in a workspace with its cache around it."""
        if self.workspace is None:
            yield embedder
            return
        cache = EmbeddingCache(self.workspace.root / "cache" / "embeddings", self.workspace.storage)
        cached = CachedEmbedder(fresh(embedder), cache, made_since=self.workspace.made_since)
        for folder in cached.folders:
            self.workspace.fetch_missing(folder)
        yield cached

    @contextmanager
    def reranker(self, reranker: Any) -> Iterator[Reranker]:
        """The reranker to ask; one that uses the network is in a workspace asked only what it was not asked before."""
        if self.workspace is None or not is_remote(reranker):
            yield reranker
            return
        own = fresh(reranker)
        folder = identity_folder(self.workspace.root / "cache" / "rankings", digest(own), own.name)
        self.workspace.fetch_missing(folder)
        rankings = KeyedRows(folder, RANKINGS, self.workspace.storage, self.workspace.made_since)
        # Its connections end with it; an object that a user made is the user's to close.
        with closing(own) if is_part(own) and hasattr(own, "close") else nullcontext():
            yield CachedReranker(own, rankings)

    @contextmanager
    def token_counts(self) -> Iterator[TokenCount]:
        """What counts the tokens of texts; a workspace keeps every count."""
        if self.workspace is None:
            yield _token_counts()
            return
        folder = self.workspace.root / "cache" / "tokens" / "slices"
        counts = _token_counts(folder)
        try:
            yield counts
        finally:
            counts.keep()

    @contextmanager
    def answers(self) -> Iterator[Answers]:
        """What models are asked by; a workspace keeps every answer."""
        if self.workspace is None:
            with TemporaryDirectory() as folder:
                yield Answers(Path(folder))
            return
        answers = self.workspace.root / ANSWERS_FOLDER
        self.workspace.fetch_missing(answers)
        yield Answers(answers, self.workspace.storage)

    @contextmanager
    def store(self, store: Any) -> Iterator[VectorStore]:
        """The store, empty, for one filling and its searches; in a workspace one of its own, which is emptied again."""
        used: Any = store if self.workspace is None else fresh(store)
        # An object of a module is one for all configurations: they take turns.
        with getattr(used, "turn", None) or nullcontext():
            used.clear()
            try:
                yield used
            finally:
                if self.workspace is not None:
                    used.clear()

    def opened(self, store: Any, index: Any) -> VectorStore:
        """The store as it was filled; raises ``ArtifactError`` when its index is gone or is not what was written."""
        if isinstance(index, IndexRef) and self.workspace is not None:
            index = located(store, self.workspace.path(index))
        opened: VectorStore = index
        return opened

    def answered(self, searches: pa.Table, answer: Callable[[pa.Table], T], asked: object = None) -> tuple[T, Effort]:
        """What ``answer`` finds for the searches, and how long that took, with what the part ``asked`` has used.

        In a workspace the first search is made once before it is timed.
        """
        if self.workspace is not None:
            answer(searches.slice(0, 1))
        started = time.perf_counter()
        found = answer(searches)
        seconds, count = round(time.perf_counter() - started, 6), len(pc.unique(searches.column("query_id")))
        charged = {} if asked is None else spent(asked)
        return found, Effort.of(count, "queries", query_seconds=seconds, **charged)


# One for all stages of a process: what it has read of the disk and checked, it does not read and check again.
_token_counts = functools.cache(TokenCounts)


def spent(part: object) -> dict[str, Any]:
    """Tokens and cost of a part since it was built: None where it does not tell.

    Tokens found in a cache count like those read now, so that they are the same number whatever was kept; they cost
    nothing.
    """
    usage = part.usage if isinstance(part, ReportsUsage) else None
    tokens = part.tokens_read if isinstance(part, CachedEmbedder) else usage.tokens if usage else None
    return {"tokens": tokens, "cost": usage.cost if usage else None}
