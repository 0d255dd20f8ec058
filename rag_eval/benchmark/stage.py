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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import pyarrow as pa
from pydantic import BaseModel

from rag_eval.benchmark.caches import ChunkCache, kept_rankings
from rag_eval.benchmark.references import Effort, IndexRef, Made, Reference, TableRef, TruthRef
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.chunker import BuiltInChunker, PositionAwareChunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.disk.files import data_sha256
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.embedder import Embedder, ReportsUsage
from rag_eval.errors import ConfigurationError
from rag_eval.parts import digest, fresh, identity, is_part, is_remote, located, replaced
from rag_eval.retrieval.retriever import Reranker, usable_chunker
from rag_eval.stores.store import VectorStore
from rag_eval.tables import TruthTables
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Stage(Generic[P, R]):
    """One step of the pipeline; calling it runs it."""

    name: str
    version: int
    run: Callable[P, R]
    compute: Callable[..., Any] | None = None
    """The same work on tables in memory, which gives them and what they took."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step."""
        return self.run(*args, **kwargs)

    @functools.cached_property
    def result_type(self) -> Any:
        """The type that the function declares to return: a reference, or a list of them."""
        return get_type_hints(self.run)["return"]

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of the work that a call with these arguments is; safe as a file name."""
        call = inspect.signature(self.run).bind(*args, **kwargs)
        call.apply_defaults()
        return f"{self.name}-v{self.version}-{data_sha256(key_part(call.arguments))[:40]}"


def stage(version: int) -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function a stage under its own name; raise the version whenever its result would change.

    The result says when it was made and how long that took, also to whoever uses it again.
    """

    def decorate(function: Callable[P, R]) -> Stage[P, R]:
        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            made, started = datetime.now(UTC), time.perf_counter()
            result = function(*args, **kwargs)
            return _taking(result, made, time.perf_counter() - started)

        return Stage(function.__name__.replace("_", "-"), version, timed)

    return decorate


def _taking(result: R, made: datetime, seconds: float) -> R:
    if isinstance(result, Made):
        return result.taking(made, seconds)
    if isinstance(result, list | tuple):  # shards, which were made together
        items = [_taking(item, made, seconds / len(result)) for item in result]
        return cast("R", items if isinstance(result, list) else tuple(items))
    return result


def key_part(value: object) -> object:
    """Return an argument as plain data for a key; raises ``ConfigurationError`` on what has no digest."""
    if isinstance(value, Reference):
        return {"digest": value.digest}
    if is_part(value):
        return identity(value)
    if isinstance(value, BaseModel):
        parts = type(value).model_fields.keys() - Made.model_fields.keys()
        return {"type": type(value).__name__} | {name: key_part(getattr(value, name)) for name in parts}
    if isinstance(value, Mapping):
        return {str(name): key_part(part) for name, part in value.items() if not isinstance(part, Workspace)}
    if isinstance(value, list | tuple):
        return [key_part(part) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(getattr(value, "name", None), str):
        return identity(value)
    raise ConfigurationError(f"a {type(value).__name__} cannot be part of a cache key: pass a reference or a setting")


CUTS_VERSION = 1
"""Raise it whenever a chunker cuts otherwise than before: kept cuts of another version are not used."""


class Cuts(NamedTuple):
    """The chunks that a chunker made of documents, and how many it left out for lack of a sure place."""

    chunker: str
    chunks: list[PositionAwareChunk]
    skipped: int
    effort: Effort


class Context:
    """Work in memory: parts are used as they are, and nothing is kept."""

    rehearses = False
    """Whether a search is made once before it is timed."""

    def cut(self, chunker: Any, documents: Sequence[Document], level: EvaluationType) -> Cuts:
        """The chunks of all documents in order, and what cutting them took.

        Raises ``SpanMismatchError`` when a chunk is not what its document has at its place.
        """
        used, chunks = as_position_aware(chunker), []
        for document in documents:
            cut = used.chunk_with_positions(document)
            if not isinstance(used, BuiltInChunker):
                for chunk in cut:
                    document.check_span(chunk.to_span())
            chunks += cut
        effort = Effort(fresh=len(documents), total=len(documents), unit="documents")
        return Cuts(usable_chunker(chunker, level).name, chunks, getattr(used, "skipped_chunks", 0), effort)

    def embedder(self, embedder: Embedder) -> AbstractContextManager[Embedder]:
        """The embedder to ask."""
        return nullcontext(embedder)

    def reranker(self, reranker: Reranker) -> AbstractContextManager[Reranker]:
        """The reranker to ask."""
        return nullcontext(reranker)

    def opened(self, store: Any, index: Any) -> VectorStore:
        """The store with what the stage ``index`` put into it."""
        filled: VectorStore = index
        return filled


class WorkspaceContext(Context):
    """Work in a workspace, which keeps cuts, vectors and what services answered, so that nothing is paid for twice."""

    rehearses = True

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def cut(self, chunker: Any, documents: Sequence[Document], level: EvaluationType) -> Cuts:
        """As in memory; only documents that this chunker has not cut before are cut."""
        with self._chunker(chunker) as (built, asked):
            folder = self._workspace.chunk_cache(f"{digest(chunker)} v{CUTS_VERSION}", built.name)
            with self._workspace.growing(folder):
                cut, new = ChunkCache(folder).chunk(built, documents, refresh=self._workspace.refresh)
        used = spent(asked) if asked and new else {}
        return Cuts(built.name, cut, 0, Effort(fresh=new, total=len(documents), unit="documents", **used))

    @contextmanager
    def embedder(self, embedder: Any) -> Iterator[Embedder]:
        """The embedder with the workspace's cache around it."""
        cache = _embedding_cache(self._workspace.embedding_cache)
        cached = CachedEmbedder(fresh(embedder), cache, made_since=self._workspace.made_since)
        with ExitStack() as stack:
            for folder in cached.folders:
                stack.enter_context(self._workspace.growing(folder))
            yield cached

    @contextmanager
    def reranker(self, reranker: Any) -> Iterator[Reranker]:
        """The reranker; one that uses the network is asked only what it was not asked before."""
        if not is_remote(reranker):
            yield reranker
            return
        own = fresh(reranker)
        folder = self._workspace.ranking_cache(digest(own), own.name)
        with (
            own if isinstance(own, AbstractContextManager) else nullcontext(),  # its connection ends with it
            self._workspace.growing(folder),
            kept_rankings(own, folder, self._workspace.made_since) as asking,
        ):
            yield asking

    def opened(self, store: Any, index: IndexRef) -> VectorStore:
        """The store on the index's folder; raises ``ArtifactError`` when it is gone or is not what was written."""
        opened: VectorStore = located(store, self._workspace.index_folder(index))
        return opened

    @contextmanager
    def _chunker(self, chunker: Any) -> Iterator[tuple[PositionAwareChunker, Embedder | None]]:
        """The chunker, and the service that it asks for vectors, if any, with the workspace's cache around it.

        Vectors that are made here are not kept: most chunkers ask for a vector of every sentence, once.
        """
        embedder = getattr(chunker, "embedder", None)
        if embedder is not None and is_remote(embedder):
            with self.embedder(embedder) as cached:
                yield replaced(chunker, embedder=cached), cached
        else:
            yield chunker, None


@functools.cache
def _embedding_cache(folder: Path) -> EmbeddingCache:
    """One for all stages of a process: what it has read of the disk and checked, it does not read and check again."""
    return EmbeddingCache(folder)


def spent(part: object) -> dict[str, Any]:
    """Tokens and cost of a part since it was built: None where it does not tell."""
    usage = part.usage if isinstance(part, ReportsUsage) else None
    return {"tokens": usage.tokens if usage else None, "cost": usage.cost if usage else None}


Shards = Sequence[pa.Table]
"""A table in parts, one for each shard of the documents."""


def table_stage(kind: str, version: int) -> Callable[[Callable[..., Any]], Stage[..., Any]]:
    """Make a function of tables and parts a stage; a workspace keeps its tables as this ``kind``.

    Such a function is given tables where a call of the stage has references, and a keyword ``context``. It returns a
    table, or a list of shards, and the effort; what is large may come in parts, one at a time in memory, and then the
    effort is a function to be called at the end.
    """

    def decorate(function: Callable[..., Any]) -> Stage[..., Any]:
        parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "context"]
        workspace = inspect.Parameter("workspace", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        is_list = get_origin(get_args(inspect.get_annotations(function)["return"])[0]) is list

        def run(*args: Any, **kwargs: Any) -> Any:
            call = signature.bind(*args, **kwargs).arguments
            here: Workspace = call.pop("workspace")
            made, effort = function(
                **{name: _read(here, value) for name, value in call.items()}, context=WorkspaceContext(here)
            )
            refs = [_kept(here, kind, table) for table in (made if is_list else [made])]
            total = effort() if callable(effort) else effort
            # All of it counts as the first shard's: the effort of a list is the sum.
            efforts = [total, *(Effort(fresh=0, total=0, unit=total.unit) for _ in refs[1:])]
            refs = [ref.model_copy(update={"effort": one}) for ref, one in zip(refs, efforts, strict=True)]
            return refs if is_list else refs[0]

        signature = inspect.Signature([workspace, *parameters])
        run.__signature__ = signature  # type: ignore[attr-defined]  # what ``inspect.signature`` looks for
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {"return": list[TableRef] if is_list else TableRef}
        return replace(stage(version)(run), compute=function)

    return decorate


def _read(workspace: Workspace, value: object) -> object:
    if isinstance(value, TableRef):
        return workspace.read_table(value)
    if isinstance(value, TruthRef):
        return TruthTables(workspace.read_table(value.queries), workspace.read_table(value.answers))
    if isinstance(value, list) and value and all(isinstance(one, TableRef) for one in value):
        return [workspace.read_table(one) for one in value]
    return value


def _kept(workspace: Workspace, kind: str, made: Any) -> TableRef:
    if isinstance(made, pa.Table):
        return workspace.write_table(kind, made)
    parts = iter(made)
    first = next(parts)
    return workspace.write_parts(kind, first.schema, itertools.chain([first], parts))
