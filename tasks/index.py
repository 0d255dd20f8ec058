"""Index the chunks: LanceDB tables of vectors, word statistics for BM25, and the indexes of search engines."""

from typing import Any

from prefect import task, unmapped
from prefect.futures import PrefectFuture

from rag_eval.parts import locations
from rag_eval.pipeline import search_steps as steps
from rag_eval.pipeline.plan import IndexSettings
from rag_eval.pipeline.references import ChunksRef, IndexRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.tokenizers import WordTokenizer
from rag_eval.stores.store import VectorStore
from tasks.caching import cached
from tasks.network import named_by


@task(**cached(steps.index_vectors), tags=["index"], task_run_name=named_by("store"))
def index_vectors(
    chunks: list[ChunksRef], vectors: list[TableRef], store: VectorStore, workspace: Workspace
) -> IndexRef:
    """Put chunks and their vectors into an index in the workspace.

    Args:
        chunks: One shard, or all shards for one index.
        vectors: Their vectors, from ``embed``.
        store: The kind of store and index.
        workspace: Where the index is written.
    """
    key = steps.index_vectors.cache_key({"chunks": chunks, "vectors": vectors, "store": store})
    return steps.index_vectors.run(workspace, chunks, vectors, store, key)


@task(**cached(steps.index_engine), tags=["index"], task_run_name=named_by("engine"))
def index_engine(
    chunks: list[ChunksRef], vectors: list[TableRef] | None, engine: Any, workspace: Workspace
) -> IndexRef:
    """Have a search engine index chunks in the workspace.

    Args:
        chunks: All shards.
        vectors: Their vectors, from ``embed``; None if the engine uses none.
        engine: The search engine, with the settings of its index.
        workspace: Where the index is written.
    """
    key = steps.index_engine.cache_key({"chunks": chunks, "vectors": vectors, "engine": engine})
    return steps.index_engine.run(workspace, chunks, vectors, engine, key)


@task(**cached(steps.index_words), tags=["index"], task_run_name=named_by("tokenizer"))
def index_words(chunks: ChunksRef, tokenizer: WordTokenizer, workspace: Workspace) -> TableRef:
    """Count the words of the chunks of one shard.

    Args:
        chunks: The shard, from ``chunk``.
        tokenizer: The tokenizer.
        workspace: Where tables are read and written.
    """
    return steps.index_words.run(workspace, chunks, tokenizer)


@task(**cached(steps.sum_words), tags=["index"], task_run_name="sum words")
def sum_words(chunks: list[ChunksRef], postings: list[TableRef], workspace: Workspace) -> TableRef:
    """Count the chunks of the corpus that contain each word."""
    return steps.sum_words.run(workspace, chunks, postings)


@task(**cached(steps.sum_vectors), tags=["index"], task_run_name="sum vectors")
def sum_vectors(chunks: ChunksRef, vectors: TableRef, workspace: Workspace) -> TableRef:
    """Sum the vectors of one shard; z-scores of any query follow from the sums."""
    return steps.sum_vectors.run(workspace, chunks, vectors)


Futures = list[PrefectFuture[Any]]
IndexFutures = dict[str, Any]
"""An index by the names of its parts: futures, or lists with one future per shard."""


def build_index(
    settings: IndexSettings, chunks: Futures, vectors: Futures | None, workspace: Workspace
) -> IndexFutures:
    """Submit the tasks that build an index; a retriever of the user searches the chunks."""
    if settings.tokenizer is not None:
        postings = index_words.map(chunks, unmapped(settings.tokenizer), unmapped(workspace))
        statistics = sum_words.submit(chunks, postings, workspace)
        return {"chunks": chunks, "postings": postings, "statistics": statistics}
    index: IndexFutures = {"chunks": chunks} if vectors is None else {"chunks": chunks, "vectors": vectors}
    if settings.engine is not None:
        index["engine"] = index_engine.submit(chunks, vectors, settings.engine, workspace)
    if vectors is None:
        return index
    if locations(settings.store):
        shards = [([part], [own]) for part, own in zip(chunks, vectors, strict=True)]
        parts = shards if settings.is_sharded else [(chunks, vectors)]
        index["index"] = [index_vectors.submit(*part, settings.store, workspace) for part in parts]
    if settings.has_sums:
        index["sums"] = sum_vectors.map(chunks, vectors, unmapped(workspace))
    return index


def index_shards(settings: IndexSettings, index: IndexFutures) -> list[IndexFutures]:
    """Return the parts of an index that are searched separately."""
    if not settings.is_sharded:
        whole = {name: part for name, part in index.items() if name != "sums"}
        return [whole | ({"index": index["index"][0]} if "index" in index else {})]
    names = [name for name in ("vectors", "index") if name in index]
    return [
        {"chunks": [chunks]}
        | {name: index[name][number] if name == "index" else [index[name][number]] for name in names}
        for number, chunks in enumerate(index["chunks"])
    ]
