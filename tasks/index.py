"""Index the chunks: LanceDB tables of vectors, word statistics for BM25, and the indexes of search engines."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from prefect import task, unmapped
from prefect.futures import PrefectFuture

from rag_eval.embedding.embedder import Embedder
from rag_eval.pipeline import search_steps as steps
from rag_eval.pipeline.plan import IndexSettings, is_kept_in_files
from rag_eval.pipeline.references import ChunksRef, Effort, IndexRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.engines import SearchEngine
from rag_eval.retrieval.tokenizers import WordTokenizer
from rag_eval.stores.store import VectorStore
from tasks.caching import cached
from tasks.network import named_by


@task(**cached(steps.index_vectors), tags=["index"], task_run_name=named_by("store"))
def index_vectors(
    chunks: list[ChunksRef], vectors: list[TableRef], store: VectorStore, *, workspace: Workspace
) -> IndexRef:
    """Index chunks by their vectors: in the workspace, if the store is kept in files.

    Args:
        chunks: One shard, or all shards for one index.
        vectors: Their vectors, from ``embed``.
        store: The kind of store and index.
        workspace: Where the index is written.

    Returns:
        The index, to be searched by ``search``.
    """
    index = IndexRef(chunks=chunks, vectors=vectors)
    if not is_kept_in_files(store):  # each search fills it
        return index.model_copy(update={"made": datetime.now(UTC), "effort": Effort(fresh=0, total=0, unit="chunks")})
    key = steps.index_vectors.cache_key({"chunks": chunks, "vectors": vectors, "store": store})
    files = steps.index_vectors.run(workspace, chunks, vectors, store, key)
    return index.model_copy(update={"store": files, "made": files.made, "effort": files.effort})


@task(**cached(steps.sum_vectors), tags=["index"], task_run_name="sum vectors")
def sum_vectors(chunks: ChunksRef, vectors: TableRef, *, workspace: Workspace) -> TableRef:
    """Sum the vectors of one shard; z-scores of any query follow from the sums."""
    return steps.sum_vectors.run(workspace, chunks, vectors)


@task(**cached(steps.index_engine), tags=["index"], task_run_name=named_by("engine"))
def index_engine(
    chunks: list[ChunksRef], vectors: list[TableRef] | None, engine: SearchEngine, *, workspace: Workspace
) -> IndexRef:
    """Have a search engine index chunks in the workspace.

    Args:
        chunks: All shards.
        vectors: Their vectors, from ``embed``; None if the engine uses none.
        engine: The search engine, with the settings of its index.
        workspace: Where the index is written.

    Returns:
        The index, to be searched by ``search``.
    """
    key = steps.index_engine.cache_key({"chunks": chunks, "vectors": vectors, "engine": engine})
    files = steps.index_engine.run(workspace, chunks, vectors, engine, key)
    return IndexRef(chunks=chunks, vectors=vectors or [], store=files, made=files.made, effort=files.effort)


@task(**cached(steps.index_words), tags=["index"], task_run_name=named_by("tokenizer"))
def index_words(chunks: ChunksRef, tokenizer: WordTokenizer, *, workspace: Workspace) -> TableRef:
    """Count the words of the chunks of one shard.

    Args:
        chunks: The shard, from ``chunk``.
        tokenizer: The tokenizer.
        workspace: Where tables are read and written.
    """
    return steps.index_words.run(workspace, chunks, tokenizer)


@task(**cached(steps.sum_words), tags=["index"], task_run_name="sum words")
def sum_words(chunks: list[ChunksRef], postings: list[TableRef], *, workspace: Workspace) -> IndexRef:
    """Count the chunks of the corpus that contain each word.

    Args:
        chunks: All shards, from ``chunk``.
        postings: The words of each shard, from ``index_words``.
        workspace: Where tables are read and written.

    Returns:
        The index, to be searched by ``search``.
    """
    words = steps.sum_words.run(workspace, chunks, postings)
    return IndexRef(chunks=chunks, postings=postings, statistics=words, made=words.made, effort=words.effort)


Futures = list[PrefectFuture[Any]]


class IndexRuns(NamedTuple):
    """The task runs that build an index, by the name of the step, and what is searched, in one or several parts."""

    steps: dict[str, Futures]
    parts: list[PrefectFuture[IndexRef] | Futures]


def build_index(settings: IndexSettings, chunks: Futures, vectors: Futures | None, workspace: Workspace) -> IndexRuns:
    """Submit the tasks that build an index of vectors or of words; a retriever of the user searches the chunks."""
    if settings.tokenizer is not None:
        postings = index_words.map(chunks, unmapped(settings.tokenizer), workspace=unmapped(workspace))
        index = sum_words.submit(chunks, postings, workspace=workspace)
        return IndexRuns({"index words": postings, "sum words": [index]}, [index])
    if settings.engine is not None:
        index = index_engine.submit(chunks, vectors, settings.engine, workspace=workspace)
        return IndexRuns({"index engine": [index]}, [index])
    if vectors is None:
        return IndexRuns({}, [chunks])
    shards = [([part], [own]) for part, own in zip(chunks, vectors, strict=True)]
    parts = shards if settings.is_sharded else [(chunks, vectors)]
    indexes = [index_vectors.submit(*part, settings.store, workspace=workspace) for part in parts]
    return IndexRuns({"index vectors": indexes}, indexes)


def build_sums(
    embedders: Sequence[Embedder], chunks: Futures, vectors: Mapping[Embedder, Futures], workspace: Workspace
) -> dict[Embedder, Futures]:
    """Submit the tasks that sum the vectors of embedders."""
    return {
        embedder: sum_vectors.map(chunks, vectors[embedder], workspace=unmapped(workspace)) for embedder in embedders
    }
