"""The stages that index, filter, search, join what shards gave, fuse rankings and select among the hits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.benchmark.hits import (
    IDENTITY,
    found_chunks,
    fuse_tables,
    fuse_variants,
    hits_at,
    hits_of,
    merge_tables,
    select_table,
    unsure,
)
from rag_eval.benchmark.references import Effort, IndexRef, SearchDepth, TableRef, hits_to_fetch
from rag_eval.benchmark.stage import Context, Shards, spent, stage
from rag_eval.benchmark.stages import ROWS_AT_ONCE, StoredDocuments
from rag_eval.embedding.embedder import Vectors, embed_queries
from rag_eval.parts import label
from rag_eval.retrieval.bm25 import BM25Index, Postings, WordScoring, search_words, word_statistics
from rag_eval.retrieval.retriever import Numbers, Ranking
from rag_eval.retrieval.scoring import Renumbered, Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.searching import WordSearch
from rag_eval.retrieval.selection import Eligible, Selection, allowed_documents, search_deeper, search_filters
from rag_eval.retrieval.vector import search_vectors
from rag_eval.stores.exact_search import BuiltInStore, Mask, unit_vectors
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.store import VectorStore
from rag_eval.tables import CHUNKS, SEARCHES, as_searches, chunks_from_table, queries_from_table, searched_texts
from rag_eval.types.ids import text_sha256


@stage("searches", version=1)
def filter_searches(
    searches: pa.Table, queries: pa.Table, selection: Selection, *, context: Context
) -> tuple[pa.Table, Effort]:
    """The searches with the filter that holds for each."""
    asked, read = as_searches(searches), queries_from_table(queries)
    filters = search_filters(selection, ((one.id, one.metadata) for one in read))
    column = pa.array([filters[one] for one in asked.column("query_id").to_pylist()], pa.string())
    place = SEARCHES.get_field_index("filter")
    filtered = asked.set_column(place, SEARCHES.field(place), column)
    return filtered, Effort.of(len(read), "queries")


@stage("allowed", version=1)
def filter_documents(
    searches: pa.Table, documents: Shards, selection: Selection, *, context: Context
) -> tuple[pa.Table, Effort]:
    """The documents that each filter leaves; a question whose filter leaves none is counted."""
    used = searches.column("filter")
    allowed = allowed_documents(pc.unique(used.drop_null()).to_pylist(), StoredDocuments(documents), selection)
    left = pc.list_value_length(allowed.column("doc_ids"))
    without = searches.filter(pc.is_in(used, allowed.column("filter").filter(pc.equal(left, 0)).combine_chunks()))
    count = len(pc.unique(searches.column("query_id")))
    empty = len(pc.unique(without.column("query_id")))
    return allowed, Effort.of(count, "queries", fallbacks=empty)


@stage("hits", version=1)
def select(
    hits: pa.Table, chunks: Shards, queries: pa.Table, selection: Selection, *, context: Context
) -> tuple[pa.Table, Effort]:
    """The hits that reach the threshold and repeat no better one; a question that has none left is counted."""
    asked, table = as_searches(queries), found_chunks(chunks, hits)
    found, effort = context.answered(asked, lambda some: select_table(hits_of(hits, some), table, some, selection))
    had, left = (len(pc.unique(one.column("query_id"))) for one in (hits, found))
    return found, effort.model_copy(update={"fallbacks": had - left})


@stage("index", version=3, makes=list[IndexRef], by_shard=True)
def index(
    chunks: Shards, embeddings: Shards, store: Any, *, context: Context
) -> tuple[list[VectorStore | IndexRef], Effort]:
    """Put the chunks with their vectors into one store."""
    rows = sum(shard.num_rows for shard in chunks)
    filled = context.filled(store, rows, lambda empty: _fill(empty, chunks, embeddings))
    return [filled], Effort.of(rows, "chunks")


def _fill(store: VectorStore, chunks: Shards, embeddings: Shards) -> None:
    table, vectors = pa.concat_tables(chunks), ChunkVectors(chunks, embeddings)
    order = place_order(chunks)

    def parts() -> Iterator[tuple[pa.Table, Vectors]]:
        for begin in range(0, table.num_rows, ROWS_AT_ONCE):
            numbers = order[begin : begin + ROWS_AT_ONCE]
            yield table.take(pa.array(numbers)), vectors.of(numbers)

    if isinstance(store, LanceDBVectorStore):
        store.add_tables(parts())
    else:
        store.add(chunks_from_table(table.take(pa.array(order))), vectors.of(order))


def place_order(chunks: Shards) -> Numbers:
    """The numbers of the chunks in the order of their places, in which each shard is by itself."""
    if len(chunks) == 1:
        return np.arange(chunks[0].num_rows)
    doc_ids = pa.chunked_array([piece for shard in chunks for piece in shard.column("doc_id").chunks], pa.string())
    order: Numbers = pc.sort_indices(doc_ids).to_numpy().astype(np.int64)
    return order


def _whole(chunks: Shards, columns: Sequence[str] = CHUNKS.names) -> pa.Table:
    """Columns of the chunks of all shards, in the order of their places."""
    table = pa.concat_tables(chunks).select(columns)
    return table if len(chunks) == 1 else table.take(pa.array(place_order(chunks)))


class ChunkVectors:
    """The vectors of chunks, by their numbers over all shards; they stay on the disk until they are asked for."""

    def __init__(self, chunks: Shards, embeddings: Shards) -> None:
        self._chunks, self._embeddings = chunks, embeddings
        self._begins = np.cumsum([0, *(shard.num_rows for shard in chunks)])
        self._known: dict[int, tuple[Numbers, list[Vectors]]] = {}

    def shard(self, number: int) -> tuple[Numbers, list[Vectors]]:
        """Return of each chunk of a shard its row in the embeddings, and these as matrices."""
        if number not in self._known:
            table = self._embeddings[number]
            digests = pa.array(map(text_sha256, searched_texts(self._chunks[number]).to_pylist()), pa.string())
            rows = pc.index_in(digests, table.column("text_sha256"))
            kind = table.schema.field("vector").type
            parts = table.column("vector").chunks or [pa.array([], kind)]  # an empty one has none when it is read
            matrices = [part.flatten().to_numpy().reshape(-1, kind.list_size) for part in parts]
            self._known[number] = rows.to_numpy(zero_copy_only=False).astype(np.int64), matrices
        return self._known[number]

    def of(self, numbers: Numbers) -> Vectors:
        """Return the vectors of chunks, in the order asked for."""
        # Of no texts an embedder need not know the dimension.
        filled = next((one for one in self._embeddings if one.num_rows), self._embeddings[0])
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


@stage("hits", version=3, makes=list[TableRef], by_shard=True)
def retrieve_by_vector(
    chunks: Shards,
    sources: list[Any],
    searches: pa.Table,
    embedder: Any,
    store: Any,
    depth: Any,
    allowed: pa.Table | None = None,
    shards: int | None = None,
    *,
    context: Context,
) -> tuple[list[pa.Table], Effort]:
    """The nearest chunks of every search, by an index, or by a store that is filled with the embeddings.

    Of one of several ``shards`` only as many as are likely to be among the best of all.
    """
    asked, most = as_searches(searches), _likely(hits_to_fetch(depth, chunks), shards)
    found, effort = _nearest(chunks, sources, asked, embedder, store, most, allowed, context)
    # The texts of the searches are read once for all shards, which merging them counts.
    return [found], effort if shards is None else effort.model_copy(update={"tokens": 0, "unit": "searches"})


@stage("hits", version=1)
def merge(
    hits: Shards,
    chunks: Shards,
    sources: list[Any],
    searches: pa.Table,
    embedder: Any,
    store: Any,
    depth: Any,
    allowed: pa.Table | None = None,
    *,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """The nearest chunks of all shards; a shard that may have more for a search is asked for all that may count."""
    asked, most = as_searches(searches), hits_to_fetch(depth, [])
    fetched, found = _likely(most, len(hits)), list(hits)
    with context.embedder(embedder) as used:
        embed_queries(used, asked.column("text").to_pylist())

    def merged() -> tuple[tuple[pa.Table, Numbers], Effort]:
        # All at once: in a workspace the first search would be answered alone before.
        return Context().answered(asked, lambda some: merge_tables(found, some, most))

    best, effort = merged()
    efforts = [effort]
    for shard, rows in unsure(*best, asked, fetched) if fetched < most else ():
        again = asked.take(pa.array(rows))
        deeper, more = _nearest([chunks[shard]], [sources[shard]], again, embedder, store, most, allowed, context)
        found[shard] = pa.concat_tables([hits_of(found[shard], asked, rows), deeper])
        efforts.append(more)
    if efforts[1:]:
        best, more = merged()
        efforts.append(more)
    seconds = round(sum(one.query_seconds for one in efforts), 6)
    return best[0], effort.model_copy(update={"query_seconds": seconds, "tokens": spent(used)["tokens"]})


SPARE = 32
SAMPLED = 50
"""How many searches an approximate one is held against the exact one on."""


def _likely(most: int, shards: int | None) -> int:
    """How many of the best are in one of so many shards at most, unless they are very uneven."""
    return most if shards is None else min(most, -(-4 * most // shards) + SPARE)


@contextmanager
def _searchable(store: Any, sources: list[Any], chunks: Shards, context: Context) -> Iterator[VectorStore]:
    if not isinstance(sources[0], pa.Table):
        yield context.opened(store, sources[0])
        return
    with context.store(store) as used:
        if any(shard.num_rows for shard in chunks):
            _fill(used, chunks, sources)
        yield used


def _nearest(
    chunks: Shards,
    sources: list[Any],
    asked: pa.Table,
    embedder: Any,
    store: Any,
    count: int,
    allowed: pa.Table | None,
    context: Context,
) -> tuple[pa.Table, Effort]:
    table = _whole(chunks, IDENTITY)
    eligible = Eligible.of(asked, allowed, table)
    with context.embedder(embedder) as used:
        vectors = embed_queries(used, asked.column("text").to_pylist())
    with _searchable(store, sources, chunks, context) as filled:

        def ask(some: pa.Table) -> Ranking:
            return eligible.search(
                some.num_rows, lambda rows, among: search_vectors(filled, vectors[rows], count, table.num_rows, among)
            )

        ranking, effort = context.answered(asked, ask, used)
        if isinstance(filled, BuiltInStore) and not filled.is_exact:
            sample = vectors[:: -(-len(vectors) // SAMPLED)] if len(vectors) else vectors
            effort = effort.model_copy(update={"recall": filled.recall(sample, count)})
    return hits_at("vector", table, asked, ranking), _with_lacking(effort, eligible, ranking, count)


def _with_lacking(effort: Effort, eligible: Eligible, ranking: Ranking, depth: int) -> Effort:
    lacking = eligible.lacking(ranking, depth)
    return effort.model_copy(update={"fallbacks": lacking}) if lacking else effort


@stage("hits", version=1)
def retrieve(
    chunks: Shards, searches: pa.Table, retriever: Any, depth: Any, allowed: pa.Table | None = None, *, context: Context
) -> tuple[pa.Table, Effort]:
    """What a retriever that is not built in finds among the chunks for every search; filtered, it is asked for more."""
    asked, table = as_searches(searches), _whole(chunks)
    read, texts = chunks_from_table(table), asked.column("text").to_pylist()
    eligible, most = Eligible.of(asked, allowed, table), hits_to_fetch(depth, chunks)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        def best(count: int) -> Ranking:
            found = retriever.search_chunks(read, [texts[row] for row in rows], count)
            return Ranking.of((np.array([n for n, _ in one], np.int64), np.array([s for _, s in one])) for one in found)

        return best(most) if among is None else search_deeper(best, len(rows), among, most)

    ranking, effort = Context().answered(asked, lambda some: eligible.search(some.num_rows, ask))
    return hits_at(label(retriever), table, asked, ranking), _with_lacking(effort, eligible, ranking, most)


@stage("depth", version=1)
def measure_depth(chunks: Shards, depth: SearchDepth, *, context: Context) -> tuple[pa.Table, Effort]:
    """How many hits are fetched of every shard: as many as of all of them."""
    rows = sum(shard.num_rows for shard in chunks)
    return pa.table({"hits": [hits_to_fetch(depth, chunks)]}), Effort.of(rows, "chunks")


@stage("chunks", version=1, makes=list[TableRef])
def take_chunks(chunks: Shards, numbers: list[int], *, context: Context) -> tuple[list[pa.Table], Effort]:
    """Some of the chunks of all shards, by their numbers, as one shard in the order of their places."""
    taken = pa.concat_tables(chunks).take(pa.array(numbers, pa.int64()))
    taken = taken.take(pc.sort_indices(taken.column("doc_id"))) if len(chunks) > 1 else taken
    return [taken], Effort.of(len(numbers), "chunks")


@stage("postings", version=1, makes=list[TableRef], by_shard=True)
def count_words(chunks: Shards, tokenizer: Any, *, context: Context) -> tuple[list[pa.Table], Effort]:
    """Which chunks have which words how often, of what is searched in each shard."""
    counted = [Postings.of(searched_texts(shard).to_pylist(), tokenizer.words).to_table() for shard in chunks]
    rows = sum(shard.num_rows for shard in chunks)
    return counted, Effort.of(rows, "chunks")


@stage("words", version=1)
def sum_words(chunks: Shards, postings: Shards, *, context: Context) -> tuple[pa.Table, Effort]:
    """The words of the whole corpus, with how many chunks have each."""
    found = word_statistics(postings, [shard.num_rows for shard in chunks])
    return found, Effort.of(found.num_rows, "words")


@stage("hits", version=4)
def retrieve_by_words(
    chunks: Shards,
    postings: Shards,
    statistics: pa.Table,
    searches: pa.Table,
    bm25: WordSearch,
    depth: Any,
    name: str,
    allowed: pa.Table | None = None,
    *,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """The chunks that share most with every search, by BM25; ``name`` is that of these hits."""
    asked, table = as_searches(searches), pa.concat_tables(chunks).select(IDENTITY)
    texts = asked.column("text").to_pylist()
    words = _word_index(chunks, [bm25, postings, statistics], texts)
    order = place_order(chunks) if len(chunks) > 1 else None
    eligible, count = Eligible.of(asked, allowed, table), hits_to_fetch(depth, chunks)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        return search_words(words, (texts[row] for row in rows), count, among, order)

    ranking, effort = context.answered(asked, lambda some: eligible.search(some.num_rows, ask))
    return hits_at(name, table, asked, ranking), effort


def _word_index(chunks: Shards, source: Sequence[Any], texts: Sequence[str]) -> BM25Index:
    bm25, postings, statistics = source
    counts = [shard.num_rows for shard in chunks]
    return BM25Index.of_tables(postings, counts, statistics, texts, bm25.k1, bm25.b, bm25.tokenizer)


@stage("sums", version=2, makes=list[TableRef], by_shard=True)
def sum_vectors(chunks: Shards, embeddings: Shards, *, context: Context) -> tuple[list[pa.Table], Effort]:
    """The sums over the vectors of all chunks, from which mean and deviation of the scores of any search follow."""
    known, made = ChunkVectors(chunks, embeddings), []
    for shard, table in enumerate(embeddings):
        rows, matrices = known.shard(shard)
        times = np.split(np.bincount(rows, minlength=table.num_rows), np.cumsum([len(one) for one in matrices])[:-1])
        units = (unit_vectors(matrix, "embeddings") for matrix in matrices)
        made.append(VectorSums.of(zip(units, times, strict=True)))
    count = sum(one.count for one in made)
    return [one.to_table() for one in made], Effort.of(count, "chunks")


@stage("hits", version=5)
def fuse(
    rankings: Shards,
    chunks: Shards,
    sources: Sequence[Sequence[Any]],
    searches: pa.Table,
    fusion: Any,
    depth: Any,
    allowed: pa.Table | None = None,
    *,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """Several rankings as one; of all chunks where their scores depend on no other chunk.

    ``sources`` says of each what any chunk's score is made of: for vectors the embedder, the embeddings and their sums;
    for words BM25, the postings and their statistics, and the chunks, postings and statistics of a reference where the
    fusion has one; nothing where there are no scores. It is empty where the fusion asks for none.
    """
    asked = as_searches(searches)
    scorings = [_scoring(source, chunks, asked, context) for source in sources]
    count = hits_to_fetch(depth, chunks)
    known = [one for one in scorings if one is not None]
    if fusion.independent and len(known) == len(scorings):
        table, order = _whole(chunks, IDENTITY), place_order(chunks)
        eligible = Eligible.of(asked, allowed, table)
        best = partial(fusion.best, [Renumbered(one, order) for one in known], count)
        ranking, effort = context.answered(asked, lambda some: eligible.search(some.num_rows, best))
        return hits_at("fused", table, asked, ranking), effort
    return context.answered(
        asked,
        lambda some: fuse_tables(
            [hits_of(one, some) for one in rankings], some, fusion, count, "fused", chunks, scorings
        ),
    )


@stage("hits", version=2)
def fuse_searches(
    hits: pa.Table, queries: pa.Table, depth: Any, fusion: Any, *, context: Context
) -> tuple[pa.Table, Effort]:
    """The hits of all searches of a question as one ranking, by their ranks."""
    asked = as_searches(queries)
    # Not the depth, which is known of several shards and not of one: as many as any search has found.
    least = depth.candidates if isinstance(depth, SearchDepth) else hits_to_fetch(depth, [])
    count = pc.max(hits.column("rank")).as_py() or least
    return context.answered(asked, lambda some: fuse_variants(hits, some, fusion, count))


def _scoring(source: Sequence[Any], chunks: Shards, searches: pa.Table, context: Context) -> Scoring | None:
    if not source:
        return None
    texts = searches.column("text").to_pylist()
    if isinstance(source[0], WordSearch):
        typical = _word_index(source[3], [source[0], *source[4:]], texts) if source[3:] else None
        return WordScoring(_word_index(chunks, source[:3], texts), texts, typical)
    embedder, embeddings, sums = source
    with context.embedder(embedder) as used:
        asked = unit_vectors(embed_queries(used, texts), "query vectors")
    vectors = ChunkVectors(chunks, embeddings)

    def units(numbers: Numbers) -> Vectors:
        return unit_vectors(vectors.of(numbers), "embeddings")

    return VectorScoring(asked, units, VectorSums.from_tables(sums), sum(shard.num_rows for shard in chunks))
