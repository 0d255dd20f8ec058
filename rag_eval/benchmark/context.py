"""How stages run: on tables in memory with parts as they are, or in a workspace that keeps all that is made.

A stage may use its tables, one part, and a ``Context``, which in a workspace has caches of cuts, vectors and answers.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import pyarrow as pa

from rag_eval.benchmark.caches import ChunkCache, kept_rankings
from rag_eval.benchmark.references import Effort, IndexRef, TableRef, TruthRef
from rag_eval.benchmark.stage import Stage, stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.chunker import BuiltInChunker, PositionAwareChunker
from rag_eval.chunking.placement import as_position_aware
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.embedder import Embedder, ReportsUsage
from rag_eval.parts import digest, fresh, is_remote, located, replaced
from rag_eval.retrieval.retriever import Reranker, usable_chunker
from rag_eval.stores.store import VectorStore
from rag_eval.tables import TruthTables
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import EvaluationType

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
