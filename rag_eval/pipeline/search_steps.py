"""Run the steps from chunks to the hits of one retriever: index the chunks, prepare the queries, and search."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries
from rag_eval.parts import fresh, label, located
from rag_eval.pipeline.caches import cached_embedder, model_answers, spent
from rag_eval.pipeline.document_steps import ROWS_AT_ONCE, StoredDocuments, effort_of_answers
from rag_eval.pipeline.hits import IDENTITY, hits_at
from rag_eval.pipeline.references import Effort, Frozen, IndexFilesRef, QueriesRef
from rag_eval.pipeline.step import Index, Shards, as_table, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.bm25 import BM25Index, Postings, word_statistics
from rag_eval.retrieval.engines import SearchEngine, searched
from rag_eval.retrieval.foreign_retrieval import ForeignRetriever
from rag_eval.retrieval.queries import Rewriter
from rag_eval.retrieval.scoring import VectorSums
from rag_eval.retrieval.searching import SingleSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Eligible, Selection, allowed_documents, search_filters
from rag_eval.retrieval.tokenizers import Tokenizer
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.stores.rankings import Mask, Numbers, Ranking
from rag_eval.stores.store import BuiltInStore, VectorStore
from rag_eval.tables import (
    CHUNKS,
    SEARCHES,
    PreparedQueries,
    as_searches,
    chunks_from_table,
    queries_from_table,
    searched_texts,
    table_of,
)
from rag_eval.types.ids import text_sha256

MOST_HITS = 500
"""Maximum number of hits that are fetched for a budget, however small the chunks are."""

CHARACTERS_A_TOKEN = 6
"""Upper estimate of the characters per token, so that enough hits are fetched to fill a budget."""

SPARE = 32
SAMPLED = 50
"""Number of queries on which an approximate search is compared with exact search."""


class SearchDepth(Frozen):
    """How many hits to fetch: at least the ``candidates`` to rerank, and enough to fill ``tokens``."""

    candidates: int
    tokens: int = 0

    def hits(self, characters: int, count: int) -> int:
        """Return the number of hits to fetch from this many chunks with this many characters in total."""
        fitting = math.ceil(CHARACTERS_A_TOKEN * self.tokens / max(1.0, characters / count if count else 1.0))
        return max(self.candidates, min(fitting, MOST_HITS))


T = TypeVar("T")


class FilledIndex(NamedTuple):
    """An index that ``write`` writes to an empty folder, with the digest of what it is made from."""

    digest: str
    rows: int
    write: Callable[[Path], None]


def write_index(workspace: Workspace, index: FilledIndex) -> IndexFilesRef:
    """Write an index, and return its reference."""
    return workspace.write_index(index.digest, index.rows, index.write)


@step(version=5, write=write_index)
def index_vectors(chunks: Shards, vectors: Shards, store: VectorStore, digest: str = "") -> tuple[FilledIndex, Effort]:
    """Put chunks with their vectors into one store."""
    rows = sum(shard.num_rows for shard in chunks)
    index = FilledIndex(digest, rows, lambda folder: fill_store(located(store, folder), chunks, vectors))
    return index, Effort.of(rows, "chunks")


@step(version=2, write=write_index)
def index_engine(
    chunks: Shards, vectors: Shards | None, engine: SearchEngine, digest: str = ""
) -> tuple[FilledIndex, Effort]:
    """Have a search engine index chunks, with their vectors if it uses them."""
    rows = sum(shard.num_rows for shard in chunks)
    index = FilledIndex(digest, rows, lambda folder: _build(engine, folder, chunks, vectors))
    return index, Effort.of(rows, "chunks")


def _build(engine: SearchEngine, folder: Path, chunks: Shards, embeddings: Shards | None) -> None:
    table = _whole(chunks)
    columns = {"number": np.arange(table.num_rows), "doc_id": table.column("doc_id"), "text": searched_texts(table)}
    vectors = None if embeddings is None else ChunkVectors(chunks, embeddings).of(place_order(chunks))
    engine.build(folder, pa.table(columns), vectors)


def fill_store(store: VectorStore, chunks: Shards, embeddings: Shards) -> None:
    """Put chunks with their vectors into an empty store."""
    vectors, order = ChunkVectors(chunks, embeddings), place_order(chunks)
    if isinstance(store, BuiltInStore):
        parts = range(0, len(order), ROWS_AT_ONCE)
        store.fill(vectors.of(order[begin : begin + ROWS_AT_ONCE]) for begin in parts)
    else:
        store.add(chunks_from_table(_whole(chunks)), vectors.of(order))


def place_order(chunks: Shards) -> Numbers:
    """Return the numbers of the chunks in the order of their positions; each shard is already in order."""
    if len(chunks) == 1:
        return np.arange(chunks[0].num_rows)
    doc_ids = pa.chunked_array([piece for shard in chunks for piece in shard.column("doc_id").chunks], pa.string())
    order: Numbers = pc.sort_indices(doc_ids).to_numpy().astype(np.int64)
    return order


def _whole(chunks: Shards, columns: Sequence[str] = CHUNKS.names) -> pa.Table:
    """Return columns of the chunks of all shards, ordered by position."""
    table = pa.concat_tables(chunks).select(columns)
    return table if len(chunks) == 1 else table.take(pa.array(place_order(chunks)))


class ChunkVectors:
    """The vectors of chunks by their numbers over all shards, read from disk when needed."""

    def __init__(self, chunks: Shards, embeddings: Shards) -> None:
        self._chunks, self._embeddings = chunks, embeddings
        self._begins = np.cumsum([0, *(shard.num_rows for shard in chunks)])
        self._known: dict[int, tuple[Numbers, list[Vectors]]] = {}

    def shard(self, number: int) -> tuple[Numbers, list[Vectors]]:
        """Return for each chunk of a shard its row in the embeddings, and the embeddings as matrices."""
        if number not in self._known:
            table = self._embeddings[number]
            digests = pa.array(map(text_sha256, searched_texts(self._chunks[number]).to_pylist()), pa.string())
            rows = pc.index_in(digests, table.column("text_sha256"))
            kind = table.schema.field("vector").type
            parts = table.column("vector").chunks or [pa.array([], kind)]  # an empty column has no chunks
            matrices = [part.flatten().to_numpy().reshape(-1, kind.list_size) for part in parts]
            self._known[number] = rows.to_numpy(zero_copy_only=False).astype(np.int64), matrices
        return self._known[number]

    def of(self, numbers: Numbers) -> Vectors:
        """Return the vectors of chunks, in the given order."""
        # The embeddings of an empty shard may have no dimension.
        filled = next((table for table in self._embeddings if table.num_rows), self._embeddings[0])
        dimension = filled.schema.field("vector").type.list_size
        vectors = np.empty((len(numbers), dimension), np.float32)
        homes = np.searchsorted(self._begins, numbers, side="right") - 1
        for home in np.unique(homes).tolist():
            here = np.flatnonzero(homes == home)
            rows, matrices = self.shard(home)
            wanted, begin = rows[numbers[here] - self._begins[home]], 0
            for matrix in matrices:
                inside = (wanted >= begin) & (wanted < begin + len(matrix))
                vectors[here[inside]] = matrix[wanted[inside] - begin]
                begin += len(matrix)
        return vectors


@step(version=2, write=as_table("sums"))
def sum_vectors(chunks: pa.Table, vectors: pa.Table) -> tuple[pa.Table, Effort]:
    """Sum the vectors of a shard, from which mean and deviation of the scores of any query follow."""
    rows, matrices = ChunkVectors([chunks], [vectors]).shard(0)
    times = np.split(
        np.bincount(rows, minlength=vectors.num_rows), np.cumsum([len(matrix) for matrix in matrices])[:-1]
    )
    units = (unit_vectors(matrix, "embeddings") for matrix in matrices)
    sums = VectorSums.of(zip(units, times, strict=True))
    return sums.to_table(), Effort.of(sums.count, "chunks")


@step(version=1, write=as_table("postings"))
def index_words(chunks: pa.Table, tokenizer: Tokenizer) -> tuple[pa.Table, Effort]:
    """Count the words of each chunk of a shard."""
    counted = Postings.of(searched_texts(chunks).to_pylist(), tokenizer.words).to_table()
    return counted, Effort.of(chunks.num_rows, "chunks")


@step(version=2, write=as_table("words"))
def sum_words(chunks: Shards, postings: Shards) -> tuple[pa.Table, Effort]:
    """Count how many chunks of all shards have each word."""
    statistics = word_statistics(postings, [shard.num_rows for shard in chunks])
    return statistics, Effort.of(statistics.num_rows, "words")


def write_queries(workspace: Workspace, queries: PreparedQueries) -> QueriesRef:
    """Write prepared queries, and return their reference."""
    allowed = None if queries.allowed is None else workspace.write_table("allowed", queries.allowed)
    return QueriesRef(searches=workspace.write_table("searches", queries.searches), allowed=allowed)


@step(version=1, write=write_queries)
def prepare_queries(
    queries: pa.Table,
    rewriter: Rewriter | None,
    selection: Selection | None,
    documents: Shards,
    workspace: Workspace | None = None,
) -> tuple[PreparedQueries, Effort]:
    """Rewrite the queries and find the documents that their filters allow."""
    searches, effort = _rewritten(queries, rewriter, workspace)
    if selection is None:
        return PreparedQueries(searches, None), effort
    read = queries_from_table(queries)
    filters = search_filters(selection, ((query.id, query.metadata) for query in read))
    column = pa.array([filters[query_id] for query_id in searches.column("query_id").to_pylist()], pa.string())
    place = SEARCHES.get_field_index("filter")
    searches = searches.set_column(place, SEARCHES.field(place), column)
    used = searches.column("filter")
    allowed = allowed_documents(pc.unique(used.drop_null()).to_pylist(), StoredDocuments(documents), selection)
    left = pc.list_value_length(allowed.column("doc_ids"))
    without = searches.filter(pc.is_in(used, allowed.column("filter").filter(pc.equal(left, 0)).combine_chunks()))
    empty = len(pc.unique(without.column("query_id")))
    fallback = fallback_count("questions find nothing: their filter matches no document", empty)
    return PreparedQueries(searches, allowed), effort.model_copy(update={"fallbacks": effort.fallbacks | fallback})


def _rewritten(queries: pa.Table, rewriter: Rewriter | None, workspace: Workspace | None) -> tuple[pa.Table, Effort]:
    if rewriter is None:
        return as_searches(queries), Effort.of(queries.num_rows, "queries")
    ids, questions = (queries.column(name).to_pylist() for name in ("query_id", "text"))
    started = time.perf_counter()
    with model_answers(workspace) as answers:
        rewritten = rewriter.searches(questions, answers)
    rows = [
        (query_id, variant, text)
        for query_id, texts in zip(ids, rewritten, strict=True)
        for variant, text in enumerate(texts)
    ]
    fallback = "questions are searched unchanged, because the model gave no usable rewrite"
    effort = effort_of_answers(answers, len(ids), "queries", fallback, time.perf_counter() - started)
    return table_of(SEARCHES, rows, ("query_id", "variant", "text")), effort


def fallback_count(sentence: str, count: int) -> dict[str, int]:
    """Return the record of a fallback and how often it happened."""
    return {sentence: count} if count else {}


@step(version=7, write=as_table("hits"))
def search(
    retriever: SingleSearch,
    index: Index,
    queries: PreparedQueries,
    depth: int,
    embedder: Embedder | None = None,
    store: VectorStore | None = None,
    shards: int | None = None,
    workspace: Workspace | None = None,
) -> tuple[pa.Table, Effort]:
    """Search one index by one retriever: by vectors, by words, by a search engine, or by a user's retriever.

    From one of several ``shards``, fetch only as many hits as are likely to be among the best of all shards.
    """
    if isinstance(retriever, VectorSearch):
        found, effort = nearest(index, queries, embedder, store, likely_hits(depth, shards), workspace)
        # The queries are embedded once for all shards; ``retrieve`` counts their tokens.
        return found, effort if shards is None else effort.model_copy(update={"tokens": 0})
    if isinstance(retriever, WordSearch):
        return _search_words(retriever, index, queries, depth, workspace)
    if isinstance(retriever, SearchEngine):
        return _search_engine(retriever, index, queries, depth, embedder, workspace)
    return _search_chunks(retriever, index, queries, depth)


def likely_hits(most: int, shards: int | None) -> int:
    """Return an upper estimate of the best hits in one of so many shards; uneven shards may have more."""
    return most if shards is None else min(most, -(-4 * most // shards) + SPARE)


@contextmanager
def _searchable(store: VectorStore | None, index: Index, workspace: Workspace | None) -> Iterator[VectorStore]:
    """Yield the store of an index, either filled by ``index_vectors``, or filled now and emptied afterwards."""
    if index.store is not None:
        built = index.store
        opened: Any = located(store, workspace.path(built)) if isinstance(built, IndexFilesRef) and workspace else built
        yield opened
        return
    used: Any = store if workspace is None else fresh(store)
    # All configurations share an object of a user's module.
    with getattr(used, "lock", None) or nullcontext():
        used.clear()
        try:
            if any(shard.num_rows for shard in index.chunks):
                fill_store(used, index.chunks, index.vectors)
            yield used
        finally:
            if workspace is not None:
                used.clear()


def timed(
    searches: pa.Table, answer: Callable[[pa.Table], T], part: object = None, *, warm_up: bool = False
) -> tuple[T, Effort]:
    """Return the answer to the searches, with its time and cost; ``warm_up`` runs the first search before.

    Steps warm up in a workspace, where the time is shown.
    """
    if warm_up:
        answer(searches.slice(0, 1))
    started = time.perf_counter()
    result = answer(searches)
    seconds, count = round(time.perf_counter() - started, 6), len(pc.unique(searches.column("query_id")))
    return result, Effort.of(count, "queries", query_seconds=seconds, **({} if part is None else spent(part)))


def nearest(
    index: Index,
    queries: PreparedQueries,
    embedder: Embedder | None,
    store: VectorStore | None,
    count: int,
    workspace: Workspace | None,
) -> tuple[pa.Table, Effort]:
    """Return the ``count`` nearest chunks of every query."""
    table, searches = _whole(index.chunks, IDENTITY), queries.searches
    eligible = Eligible.of(searches, queries.allowed, table)
    used = cached_embedder(workspace, embedder)
    vectors = embed_queries(used, searches.column("text").to_pylist())
    with _searchable(store, index, workspace) as filled:

        def ask(batch: pa.Table) -> Ranking:
            return eligible.search(batch.num_rows, lambda rows, among: filled.search_many(vectors[rows], count, among))

        ranking, effort = timed(searches, ask, used, warm_up=workspace is not None)
        if isinstance(filled, BuiltInStore) and not filled.is_exact:
            sample = vectors[:: -(-len(vectors) // SAMPLED)] if len(vectors) else vectors
            effort = effort.model_copy(update={"recall": filled.recall(sample, count)})
    return hits_at("vector", table, searches, ranking), _with_lacking(effort, eligible, ranking, count)


def _with_lacking(effort: Effort, eligible: Eligible, ranking: Ranking, depth: int) -> Effort:
    fallback = "questions have fewer hits than requested, because their filter leaves no more"
    return effort.model_copy(update={"fallbacks": fallback_count(fallback, eligible.lacking(ranking, depth))})


def _search_words(
    bm25: WordSearch, index: Index, queries: PreparedQueries, depth: int, workspace: Workspace | None
) -> tuple[pa.Table, Effort]:
    chunks, searches = index.chunks, queries.searches
    texts = searches.column("text").to_pylist()
    table, words = pa.concat_tables(chunks).select(IDENTITY), word_index(bm25, index, texts)
    order = place_order(chunks) if len(chunks) > 1 else None
    eligible = Eligible.of(searches, queries.allowed, table)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        return words.search((texts[row] for row in rows), depth, among, order)

    ranking, effort = timed(searches, lambda batch: eligible.search(batch.num_rows, ask), warm_up=workspace is not None)
    return hits_at("words", table, searches, ranking), effort


def word_index(bm25: WordSearch, index: Index, texts: Sequence[str]) -> BM25Index:
    """Return the index of the words of these texts."""
    counts = [shard.num_rows for shard in index.chunks]
    return BM25Index.of_tables(index.postings, counts, index.statistics, texts, bm25.k1, bm25.b, bm25.tokenizer)


def _search_engine(
    engine: SearchEngine,
    index: Index,
    queries: PreparedQueries,
    depth: int,
    embedder: Embedder | None,
    workspace: Workspace | None,
) -> tuple[pa.Table, Effort]:
    """Ask a search engine; without a workspace, in an index that is built for this search."""
    table, searches = _whole(index.chunks, IDENTITY), queries.searches
    eligible, texts = Eligible.of(searches, queries.allowed, table), searches.column("text").to_pylist()
    used = None if embedder is None else cached_embedder(workspace, embedder)
    vectors = None if used is None else embed_queries(used, texts)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if workspace is not None and isinstance(index.store, IndexFilesRef):
            folder = workspace.path(index.store)
        else:
            _build(engine, folder, index.chunks, index.vectors or None)

        def ask(rows: Numbers, among: Mask | None) -> Ranking:
            doc_ids = None if among is None else pc.unique(table.column("doc_id").filter(pa.array(among))).to_pylist()
            units = None if vectors is None else vectors[rows]
            return searched(engine, folder, [texts[row] for row in rows], units, depth, doc_ids, table.num_rows)

        ranking, effort = timed(
            searches, lambda batch: eligible.search(batch.num_rows, ask), used, warm_up=workspace is not None
        )
    return hits_at(label(engine), table, searches, ranking), effort


def _search_chunks(
    retriever: ForeignRetriever, index: Index, queries: PreparedQueries, depth: int
) -> tuple[pa.Table, Effort]:
    """Query a user's retriever; with filters, ask it for more hits."""
    table, searches = _whole(index.chunks), queries.searches
    read, texts = chunks_from_table(table), searches.column("text").to_pylist()
    eligible = Eligible.of(searches, queries.allowed, table)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        return retriever.search_chunks(read, [texts[row] for row in rows], depth, among)

    ranking, effort = timed(searches, lambda batch: eligible.search(batch.num_rows, ask))
    return hits_at(label(retriever), table, searches, ranking), _with_lacking(effort, eligible, ranking, depth)
