"""A stage: a function with a name and a version, the key of what it makes, and how it runs.

The key is the stage's name and version, the digests of its inputs and the identities of its parts, which hold the
versions of the packages that make the result; nothing else: not the time, not the workspace, not the worker. Equal
keys mean equal work.

A stage runs on tables in memory with parts as they are, or in a workspace that keeps all that is made. It may use its
tables, one part, and a ``Context``, which in a workspace has caches of cuts, vectors and answers.
"""

import functools
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from rag_eval.benchmark.caches import CachedReranker, LoadedFiles, TokenCounts, cut_once
from rag_eval.benchmark.references import Effort, IndexRef, Made, Observation, Reference, TableRef, TruthRef
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.disk.files import data_sha256
from rag_eval.disk.rows import identity_folder
from rag_eval.documents.reading import FileText, Load, load_file
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.embedder import Embedder, ReportsUsage
from rag_eval.errors import ConfigurationError
from rag_eval.llm.writing import Answers
from rag_eval.metrics.metric import MetricAtCut
from rag_eval.metrics.score_tables import TokenCount
from rag_eval.parts import digest, fresh, identity, is_part, is_remote, located, replaced, versions_of
from rag_eval.parts.objects import check_unchanged
from rag_eval.retrieval.retriever import Reranker, usable_chunker
from rag_eval.stores.store import VectorStore
from rag_eval.tables import TruthTables, has_places
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

T = TypeVar("T")

Shards = Sequence[pa.Table]
"""A table in parts, one for each shard of the documents."""


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline; calling it runs it in a workspace."""

    name: str
    version: int
    compute: Callable[..., Any]
    """The work itself, on tables in memory: it gives what it made, and what that took."""
    makes: Any = TableRef
    """What it makes in a workspace: a reference, or a list of them, one for each shard."""
    kind: str = ""
    """What kind of tables a workspace keeps it as."""
    packages: tuple[str, ...] = ()
    """Those that decide what it makes, beside those of its parts: their versions are in the key."""
    looks: Callable[..., tuple[Any, ...]] | None = None
    """Looks at what is outside the workspace: gives the inputs with what it found in the place of where to look."""
    by_shard: bool = False
    """Whether what it makes of a shard depends on that shard alone, so that each is kept by itself."""
    divided: Callable[..., list[tuple[Any, ...]]] | None = None
    """Gives the inputs of each shard, where they do not come in shards."""

    @property
    def whole(self) -> "Stage":
        """The same step on all shards at once."""
        return replace(self, by_shard=False)

    def pieces(self, *inputs: Any) -> list[tuple[Any, ...]]:
        """Return the inputs of each piece of the work: of each shard, where it is done by shard, else of all."""
        if self.divided is not None:
            pieces = self.divided(*inputs)
            return pieces if len(pieces) > 1 else [inputs]
        if not self.by_shard or len(inputs[0]) < 2:
            return [inputs]
        return [
            tuple([one[shard]] if isinstance(one, list) else one for one in inputs) for shard in range(len(inputs[0]))
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process by name, as a function does."""
        named = getattr(sys.modules.get(self.compute.__module__), self.compute.__name__, None)
        if not isinstance(named, Stage) or named.compute is not self.compute:
            return Stage, tuple(getattr(self, one.name) for one in fields(self))
        return _named_stage, (self.compute.__module__, self.compute.__name__, self.name, self.by_shard)

    def key(self, *inputs: Any) -> str:
        """Return the key of the work that a call with these inputs is; safe as a file name."""
        call = _signature(self.compute).bind(*inputs, context=None)
        call.apply_defaults()
        # A table that there need not be is part of the key where there is one.
        optional = {name for name, one in call.signature.parameters.items() if one.default is None}
        named = {
            name: value
            for name, value in call.arguments.items()
            if name != "context" and not (value is None and name in optional)
        }
        named |= {"packages": versions_of(self.packages)} if self.packages else {}
        return f"{self.name}-v{self.version}-{data_sha256(key_part(named))[:40]}"

    def looked(self, workspace: Workspace, *inputs: Any) -> tuple[Any, ...]:
        """Return the inputs, with what is found outside the workspace in the place of where to look."""
        return inputs if self.looks is None else self.looks(workspace, *inputs)

    def key_after(self, *inputs: Any) -> str:
        """Return the key of the same work once it is done: what it looked at may have grown by it."""
        return self.key(*(one.renewed() if isinstance(one, Observation) else one for one in inputs))

    def __call__(self, workspace: Workspace, *given: Any) -> Any:
        """Run the step on references into a workspace, and return references to what it made there.

        They say when that began and how long it took, also to whoever uses them again. Raises ``ConfigurationError``
        when the code of a part changed meanwhile.
        """
        begun, started = datetime.now(UTC), time.perf_counter()
        inputs = self.looked(workspace, *given)
        context = Context(workspace, self.key(*inputs))
        made, effort = self.compute(*(_read(workspace, one) for one in inputs), context=context)
        refs = [_kept(workspace, self.kind, one) for one in (made if isinstance(made, list) else [made])]
        total = effort() if callable(effort) else effort
        seconds = round(time.perf_counter() - started, 6)
        # All of it counts as the first shard's: the effort of a list is the sum.
        efforts = [Effort(fresh=0, total=0, unit=total.unit) for _ in refs]
        efforts[:1] = [total.model_copy(update={"seconds": seconds})]
        check_unchanged(inputs)
        outside = next((one.digest for one in inputs if isinstance(one, Observation)), None)
        kept = [
            ref.model_copy(update={"made": begun, "effort": one, "source": outside})
            for ref, one in zip(refs, efforts, strict=False)
        ]
        return kept if isinstance(made, list) else kept[0]


_signature = functools.cache(inspect.signature)


def _named_stage(module: str, function: str, name: str, by_shard: bool) -> Stage:
    found: Stage = getattr(import_module(module), function)
    return replace(found, name=name, by_shard=by_shard)


def stage(kind: str, *, version: int, **settings: Any) -> Callable[[Callable[..., Any]], Stage]:
    """Make a function a stage under its own name, with settings of ``Stage``.

    Raise the version whenever its result would change.

    The function is given tables where a call of the stage has references, and a keyword ``context``. It returns a
    table, a list of shards, ground truth or a filled store, and the effort; a large shard may come in parts, one at a
    time in memory, and then the effort is a function to be called at the end. ``by_shard`` promises that what it makes
    of a shard depends on no other, as ``divided`` does, which gives the inputs of each.
    """
    return lambda function: Stage(function.__name__.replace("_", "-"), version, function, kind=kind, **settings)


def unused_name(name: str, used: Collection[str]) -> str:
    """Return the name, numbered where it is used: a stage may run for each retriever, or each source of truth."""
    numbered = (f"{name} {number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in used)


def key_part(value: object) -> object:
    """Return an argument as plain data for a key; raises ``ConfigurationError`` on what has no digest."""
    if isinstance(value, Reference):
        return value.key_data
    if is_part(value):
        return identity(value)
    if isinstance(value, MetricAtCut):
        return {"metric": key_part(value.metric), "name": str(value)}
    if isinstance(value, BaseModel):
        parts = type(value).model_fields.keys() - Made.model_fields.keys()
        return {"type": type(value).__name__} | {name: key_part(getattr(value, name)) for name in parts}
    if isinstance(value, Mapping):
        return {str(name): key_part(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [key_part(part) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(getattr(value, "name", None), str):
        return identity(value)
    raise ConfigurationError(f"a {type(value).__name__} cannot be part of a cache key: pass a reference or a setting")


def _read(workspace: Workspace, value: Any) -> Any:
    """What a stage is given for its input: tables in the place of references to them."""
    if isinstance(value, TableRef):
        return workspace.read_table(value)
    if isinstance(value, TruthRef):
        return workspace.read_truth(value)
    return [_read(workspace, one) for one in value] if isinstance(value, list) else value


def _kept(workspace: Workspace, kind: str, made: Any) -> Made:
    """The reference to what a stage made, written if it is not in the workspace yet."""
    if isinstance(made, Made):
        return made
    if isinstance(made, TruthTables):
        return TruthRef(
            evaluation_type="token-level" if has_places(made.answers) else "chunk-level",
            queries=workspace.write_table("queries", made.queries),
            answers=workspace.write_table(kind, made.answers),
        )
    return workspace.write_table(kind, made)


CUTS_VERSION = 3
"""Raise it whenever a chunker cuts otherwise than before: kept cuts of another version are not used."""


class Cuts(NamedTuple):
    """The chunks that a chunker made of documents, and what that took."""

    chunker: str
    chunks: list[PositionAwareChunk]
    effort: Effort


@dataclass(frozen=True)
class Context:
    """Where a stage works: in memory, where parts are used as they are and nothing is kept, or in a workspace.

    A workspace keeps cuts, vectors and what services answered, so that nothing is paid for twice. ``key`` is that of
    the work.
    """

    workspace: Workspace | None = None
    key: str = ""

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
            stack.enter_context(self.workspace.growing(folder))
            used = as_position_aware(chunker if asked is None else replaced(chunker, embedder=asked))
            read = (lambda: asked.tokens_read) if isinstance(asked, CachedEmbedder) else lambda: 0
            refresh = self.workspace.refresh
            chunks, new, skipped, tokens = cut_once(folder, used, documents, refresh=refresh, tokens_read=read)
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
                        stack.enter_context(workspace.growing(folder))
                    stack.enter_context(closing(used[name]))
                return used[name].load(data)

            yield load

    @contextmanager
    def embedder(self, embedder: Any) -> Iterator[Embedder]:
        """The embedder to ask, in a workspace with its cache around it."""
        if self.workspace is None:
            yield embedder
            return
        cache = _embedding_cache(self.workspace.root / "cache" / "embeddings", self.workspace.storage)
        cached = CachedEmbedder(fresh(embedder), cache, made_since=self.workspace.made_since)
        with ExitStack() as stack:
            for folder in cached.folders:
                stack.enter_context(self.workspace.growing(folder))
            yield cached

    @contextmanager
    def reranker(self, reranker: Any) -> Iterator[Reranker]:
        """The reranker to ask; one that uses the network is in a workspace asked only what it was not asked before."""
        if self.workspace is None or not is_remote(reranker):
            yield reranker
            return
        own = fresh(reranker)
        folder = identity_folder(self.workspace.root / "cache" / "rankings", digest(own), own.name)
        with (
            # Its connections end with it; an object that a user made is the user's to close.
            closing(own) if is_part(own) and hasattr(own, "close") else nullcontext(),
            self.workspace.growing(folder),
            closing(CachedReranker(own, folder, self.workspace.made_since, self.workspace.storage)) as asking,
        ):
            yield asking

    @contextmanager
    def token_counts(self) -> Iterator[TokenCount]:
        """What counts the tokens of texts; a workspace keeps every count."""
        if self.workspace is None:
            yield _token_counts()
            return
        folder = self.workspace.root / "cache" / "tokens" / "slices"
        counts = _token_counts(folder, self.workspace.storage)
        with self.workspace.growing(folder):
            try:
                yield counts
            finally:
                counts.keep()

    @contextmanager
    def answers(self) -> Iterator[Answers]:
        """What models are asked by; a workspace keeps every answer."""
        with ExitStack() as stack:
            if self.workspace is None:
                yield Answers(Path(stack.enter_context(TemporaryDirectory())))
                return
            folder = self.workspace.root / "cache" / "answers"
            stack.enter_context(self.workspace.growing(folder))
            yield Answers(folder, self.workspace.storage)

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

    def filled(self, store: Any, rows: int, fill: Callable[[VectorStore], None]) -> VectorStore | IndexRef:
        """The store with so many rows that ``fill`` puts into it; in a workspace, the index that it is there."""
        if self.workspace is not None:
            return self.workspace.write_index(data_sha256(self.key), rows, lambda folder: fill(located(store, folder)))
        filled: VectorStore = store
        filled.clear()
        fill(filled)
        return filled

    def opened(self, store: Any, index: Any) -> VectorStore:
        """The store as it was filled; raises ``ArtifactError`` when its index is gone or is not what was written."""
        opened: VectorStore = index if self.workspace is None else located(store, self.workspace.path(index))
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
_embedding_cache = functools.cache(EmbeddingCache)
_token_counts = functools.cache(TokenCounts)


def spent(part: object) -> dict[str, Any]:
    """Tokens and cost of a part since it was built: None where it does not tell.

    Tokens found in a cache count like those read now, so that they are the same number whatever was kept; they cost
    nothing.
    """
    usage = part.usage if isinstance(part, ReportsUsage) else None
    tokens = part.tokens_read if isinstance(part, CachedEmbedder) else usage.tokens if usage else None
    return {"tokens": tokens, "cost": usage.cost if usage else None}
