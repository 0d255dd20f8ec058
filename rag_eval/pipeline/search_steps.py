"""The steps from chunks to hits: index the chunks, prepare the queries, search, and retrieve.

``search`` asks one retriever. ``retrieve`` combines what the retrievers of a configuration found: it merges shards,
fuses rankings, selects, reranks, and returns passages. All of these are settings of a retrieval, not steps.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.embedding.embedder import Vectors, embed_queries
from rag_eval.parts import label
from rag_eval.pipeline.caches import CachedReranker
from rag_eval.pipeline.document_steps import ROWS_AT_ONCE, StoredDocuments, asked
from rag_eval.pipeline.hits import (
    IDENTITY,
    answers_table,
    found_chunks,
    fuse_tables,
    fuse_variants,
    hits_at,
    hits_of,
    hits_table,
    merge_tables,
    rerank_table,
    select_table,
    unsure,
)
from rag_eval.pipeline.references import ChunksRef, Effort, Frozen
from rag_eval.pipeline.step import Context, Shards, spent, step
from rag_eval.retrieval.bm25 import BM25Index, Postings, WordScoring, search_words, word_statistics
from rag_eval.retrieval.retriever import Numbers, Ranking, Retriever, checked_hits
from rag_eval.retrieval.scoring import Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.searching import HybridSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Eligible, Selection, allowed_documents, search_deeper, search_filters
from rag_eval.retrieval.systems import AnswerReader
from rag_eval.retrieval.vector import search_vectors
from rag_eval.stores.exact_search import BuiltInStore, Mask, unit_vectors
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.store import VectorStore
from rag_eval.tables import (
    CHUNKS,
    PASSAGES,
    PLACE,
    SEARCHES,
    as_searches,
    chunks_from_table,
    queries_from_table,
    searched_texts,
    table_of,
    table_with,
)
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import EvaluationType, text_sha256

MOST_HITS = 500
"""However small the chunks are, no more hits are fetched for a budget."""

CHARACTERS_A_TOKEN = 6
"""A token has at most so many characters of a chunk, so that as many hits as that asks for fill a budget."""

SPARE = 32
SAMPLED = 50
"""On how many queries an approximate search is compared with the exact one."""


class SearchDepth(Frozen):
    """How many hits are fetched: at least the ``candidates`` that are reranked, and enough to fill ``tokens``."""

    candidates: int
    tokens: int

    def hits(self, chunks: Sequence[ChunksRef]) -> int:
        """Return the number of hits to fetch from chunks of this length."""
        return self.hits_of_length(sum(one.characters for one in chunks), sum(one.rows for one in chunks))

    def hits_of_length(self, characters: int, count: int) -> int:
        """Return the number of hits to fetch from so many chunks that have so many characters together."""
        fitting = math.ceil(CHARACTERS_A_TOKEN * self.tokens / max(1.0, characters / count if count else 1.0))
        return max(self.candidates, min(fitting, MOST_HITS))


class RetrievalSettings(Protocol):
    """The parts of a configuration that say how it retrieves."""

    retrieval: Any
    embedder: Any
    store: Any
    queries: Any
    selection: Selection | None
    reranker: Any
    returns: Any

    @property
    def searches(self) -> list[Any]:
        """The retrievers whose rankings are fused; one where there is one."""


Index = Mapping[str, Any]
"""What a retriever searches, by name: ``chunks`` and, for vectors, ``vectors``, ``index`` and ``sums``; for words,
``postings`` and ``statistics``. Lists have a table for each shard."""


@step(version=3)
def index_vectors(
    chunks: Shards, vectors: Shards, store: Any, *, context: Context
) -> tuple[Callable[[VectorStore], None], Effort]:
    """Put chunks with their vectors into one store: returns the function that fills an empty one."""
    rows = sum(shard.num_rows for shard in chunks)
    return lambda empty: _fill(empty, chunks, vectors), Effort.of(rows, "chunks")


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
    """Return the numbers of the chunks in the order of their positions, in which each shard is by itself."""
    if len(chunks) == 1:
        return np.arange(chunks[0].num_rows)
    doc_ids = pa.chunked_array([piece for shard in chunks for piece in shard.column("doc_id").chunks], pa.string())
    order: Numbers = pc.sort_indices(doc_ids).to_numpy().astype(np.int64)
    return order


def _whole(chunks: Shards, columns: Sequence[str] = CHUNKS.names) -> pa.Table:
    """Columns of the chunks of all shards, in the order of their positions."""
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


@step(version=2)
def sum_vectors(chunks: pa.Table, vectors: pa.Table, *, context: Context) -> tuple[pa.Table, Effort]:
    """Sum up the vectors of a shard: mean and deviation of the scores of any query follow from the sums."""
    rows, matrices = ChunkVectors([chunks], [vectors]).shard(0)
    times = np.split(np.bincount(rows, minlength=vectors.num_rows), np.cumsum([len(one) for one in matrices])[:-1])
    units = (unit_vectors(matrix, "embeddings") for matrix in matrices)
    sums = VectorSums.of(zip(units, times, strict=True))
    return sums.to_table(), Effort.of(sums.count, "chunks")


@step(version=1)
def index_words(chunks: pa.Table, tokenizer: Any, *, context: Context) -> tuple[pa.Table, Effort]:
    """Count which chunks of a shard have which words how often."""
    counted = Postings.of(searched_texts(chunks).to_pylist(), tokenizer.words).to_table()
    return counted, Effort.of(chunks.num_rows, "chunks")


@step(version=1)
def sum_words(chunks: Shards, postings: Shards, *, context: Context) -> tuple[pa.Table, Effort]:
    """Count how many chunks of all shards have each word."""
    found = word_statistics(postings, [shard.num_rows for shard in chunks])
    return found, Effort.of(found.num_rows, "words")


class PreparedQueries(NamedTuple):
    """What is searched, and the documents that filters allow; None without filters."""

    searches: pa.Table
    allowed: pa.Table | None


@step(version=1)
def prepare_queries(
    queries: pa.Table, rewriter: Any, selection: Selection | None, documents: Shards, *, context: Context
) -> tuple[PreparedQueries, Effort]:
    """Rewrite the queries and find the documents that their filters allow."""
    searches, effort = _rewritten(queries, rewriter, context)
    if selection is None:
        return PreparedQueries(searches, None), effort
    read = queries_from_table(queries)
    filters = search_filters(selection, ((one.id, one.metadata) for one in read))
    column = pa.array([filters[one] for one in searches.column("query_id").to_pylist()], pa.string())
    place = SEARCHES.get_field_index("filter")
    searches = searches.set_column(place, SEARCHES.field(place), column)
    used = searches.column("filter")
    allowed = allowed_documents(pc.unique(used.drop_null()).to_pylist(), StoredDocuments(documents), selection)
    left = pc.list_value_length(allowed.column("doc_ids"))
    without = searches.filter(pc.is_in(used, allowed.column("filter").filter(pc.equal(left, 0)).combine_chunks()))
    empty = len(pc.unique(without.column("query_id")))
    told = _counted("questions find nothing: their filter matches no document", empty)
    return PreparedQueries(searches, allowed), effort.model_copy(update={"fallbacks": effort.fallbacks | told})


def _rewritten(queries: pa.Table, rewriter: Any, context: Context) -> tuple[pa.Table, Effort]:
    if rewriter is None:
        return as_searches(queries), Effort.of(queries.num_rows, "queries")
    ids, questions = (queries.column(name).to_pylist() for name in ("query_id", "text"))
    started = time.perf_counter()
    with context.answers() as answers:
        found = rewriter.searches(questions, answers)
    rows = [(one, variant, text) for one, texts in zip(ids, found, strict=True) for variant, text in enumerate(texts)]
    told = "questions are searched as they are asked: the model gave nothing to use in their place"
    effort = asked(answers, len(ids), "queries", told, time.perf_counter() - started)
    return table_of(SEARCHES, rows, ("query_id", "variant", "text")), effort


def _counted(sentence: str, count: int) -> dict[str, int]:
    return {sentence: count} if count else {}


@step(version=5)
def search(
    retriever: Any,
    index: Index,
    searches: pa.Table,
    allowed: pa.Table | None,
    embedder: Any,
    store: Any,
    depth: int,
    shards: int | None = None,
    *,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """Search one index by one retriever: by vectors, by words, or by a user's retriever.

    From one of several ``shards`` only as many hits are fetched as are likely to be among the best of all.
    """
    if isinstance(retriever, VectorSearch):
        found, effort = _nearest(index, searches, embedder, store, _likely(depth, shards), allowed, context)
        # The queries are embedded once for all shards, and ``retrieve`` counts their tokens.
        return found, effort if shards is None else effort.model_copy(update={"tokens": 0})
    if isinstance(retriever, WordSearch):
        return _search_words(retriever, index, searches, depth, allowed, context)
    return _search_chunks(retriever, index, searches, depth, allowed)


def _likely(most: int, shards: int | None) -> int:
    """How many of the best are in one of so many shards at most, unless the shards are very uneven."""
    return most if shards is None else min(most, -(-4 * most // shards) + SPARE)


@contextmanager
def _searchable(store: Any, index: Index, context: Context) -> Iterator[VectorStore]:
    if index.get("index") is not None:
        yield context.opened(store, index["index"])
        return
    with context.store(store) as used:
        if any(shard.num_rows for shard in index["chunks"]):
            _fill(used, index["chunks"], index["vectors"])
        yield used


def _nearest(
    index: Index,
    searches: pa.Table,
    embedder: Any,
    store: Any,
    count: int,
    allowed: pa.Table | None,
    context: Context,
) -> tuple[pa.Table, Effort]:
    table = _whole(index["chunks"], IDENTITY)
    eligible = Eligible.of(searches, allowed, table)
    with context.embedder(embedder) as used:
        vectors = embed_queries(used, searches.column("text").to_pylist())
    with _searchable(store, index, context) as filled:

        def ask(some: pa.Table) -> Ranking:
            return eligible.search(
                some.num_rows, lambda rows, among: search_vectors(filled, vectors[rows], count, table.num_rows, among)
            )

        ranking, effort = context.answered(searches, ask, used)
        if isinstance(filled, BuiltInStore) and not filled.is_exact:
            sample = vectors[:: -(-len(vectors) // SAMPLED)] if len(vectors) else vectors
            effort = effort.model_copy(update={"recall": filled.recall(sample, count)})
    return hits_at("vector", table, searches, ranking), _with_lacking(effort, eligible, ranking, count)


def _with_lacking(effort: Effort, eligible: Eligible, ranking: Ranking, depth: int) -> Effort:
    told = "questions have fewer hits than were fetched: their filter leaves no more"
    return effort.model_copy(update={"fallbacks": _counted(told, eligible.lacking(ranking, depth))})


def _search_words(
    bm25: WordSearch, index: Index, searches: pa.Table, depth: int, allowed: pa.Table | None, context: Context
) -> tuple[pa.Table, Effort]:
    chunks, texts = index["chunks"], searches.column("text").to_pylist()
    table, words = pa.concat_tables(chunks).select(IDENTITY), _word_index(bm25, index, texts)
    order = place_order(chunks) if len(chunks) > 1 else None
    eligible = Eligible.of(searches, allowed, table)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        return search_words(words, (texts[row] for row in rows), depth, among, order)

    ranking, effort = context.answered(searches, lambda some: eligible.search(some.num_rows, ask))
    return hits_at("words", table, searches, ranking), effort


def _word_index(bm25: WordSearch, index: Index, texts: Sequence[str]) -> BM25Index:
    counts = [shard.num_rows for shard in index["chunks"]]
    return BM25Index.of_tables(index["postings"], counts, index["statistics"], texts, bm25.k1, bm25.b, bm25.tokenizer)


def _search_chunks(
    retriever: Any, index: Index, searches: pa.Table, depth: int, allowed: pa.Table | None
) -> tuple[pa.Table, Effort]:
    """Ask a retriever that is not built in; with filters it is asked for more."""
    table = _whole(index["chunks"])
    read, texts = chunks_from_table(table), searches.column("text").to_pylist()
    eligible = Eligible.of(searches, allowed, table)

    def ask(rows: Numbers, among: Mask | None) -> Ranking:
        def best(count: int) -> Ranking:
            found = retriever.search_chunks(read, [texts[row] for row in rows], count)
            return Ranking.of((np.array([n for n, _ in one], np.int64), np.array([s for _, s in one])) for one in found)

        return best(depth) if among is None else search_deeper(best, len(rows), among, depth)

    ranking, effort = Context().answered(searches, lambda some: eligible.search(some.num_rows, ask))
    return hits_at(label(retriever), table, searches, ranking), _with_lacking(effort, eligible, ranking, depth)


class Retrieved(NamedTuple):
    """The hits by the stage of the retrieval, and the passages where they are more than the hits."""

    stages: dict[str, pa.Table]
    passages: pa.Table | None


@step(version=1, packages=("tiktoken",))  # which counts the tokens of limits
def retrieve(
    settings: RetrievalSettings,
    found: Sequence[Shards],
    indexes: Sequence[Index],
    queries: pa.Table,
    searches: pa.Table,
    allowed: pa.Table | None,
    documents: Shards,
    depth: int,
    candidates: int,
    *,
    context: Context,
) -> tuple[Retrieved, Effort]:
    """Combine what the retrievers found: merge shards, fuse, select, rerank, and return passages.

    Args:
        settings: The parts of the configuration.
        found: The hits of each retriever, a table for each of its indexes.
        indexes: What each retriever searched.
        queries: The queries as they were asked.
        searches: What was searched for them.
        allowed: The documents that their filters allow.
        documents: All documents.
        depth: How many hits were fetched.
        candidates: How many of the first hits are reranked.
        context: Where the step runs.
    """
    asked_queries, stages, efforts = as_searches(queries), dict[str, pa.Table](), list[Effort]()

    def keep(name: str, made: tuple[pa.Table, Effort]) -> None:
        stages[_unused(name, stages)] = made[0]
        efforts.append(made[1])

    for retriever, tables, index in zip(settings.searches, found, indexes, strict=True):
        name = "vector" if isinstance(retriever, VectorSearch) else "words"
        name = name if isinstance(retriever, VectorSearch | WordSearch) else label(retriever)
        if len(tables) == 1:
            stages[_unused(name, stages)] = tables[0]
        else:
            keep(name, _merged(settings, tables, index, searches, depth, allowed, context))
    if isinstance(settings.retrieval, HybridSearch):
        keep("fused", _fused(settings, list(stages.values()), indexes, searches, depth, context))
    if settings.queries is not None and settings.queries.several:
        keep("variants", _one_ranking(_last(stages), asked_queries, depth, settings.queries.fusion, context))
    if settings.selection is not None and settings.selection.cuts:
        keep("selected", _selected(_last(stages), indexes[0]["chunks"], asked_queries, settings.selection, context))
    if settings.reranker is not None:
        chunks = indexes[0]["chunks"]
        keep("reranked", _reranked(_last(stages), chunks, asked_queries, settings.reranker, candidates, context))
    passages = None
    if settings.returns is not None:
        passages, effort = _returned(_last(stages), indexes[0]["chunks"], documents, settings.returns)
        efforts.append(effort)
    count = queries.num_rows
    total = Effort.total_of([Effort.of(0, "queries"), *efforts])
    fresh = min([count, *(effort.fresh for effort in efforts if effort.unit == "answers")])
    return Retrieved(stages, passages), total.model_copy(update={"fresh": fresh, "total": count})


def _last(stages: Mapping[str, pa.Table]) -> pa.Table:
    return list(stages.values())[-1]


def _unused(name: str, used: Mapping[str, object]) -> str:
    numbered = (f"{name} {number}" for number in range(2, len(used) + 3))
    return next(one for one in [name, *numbered] if one not in used)


def _merged(
    settings: RetrievalSettings,
    hits: Shards,
    index: Index,
    searches: pa.Table,
    depth: int,
    allowed: pa.Table | None,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """Merge the nearest chunks of all shards; a shard that may have more is asked for all that may count."""
    fetched, found = _likely(depth, len(hits)), list(hits)
    with context.embedder(settings.embedder) as used:
        embed_queries(used, searches.column("text").to_pylist())

    def merged() -> tuple[tuple[pa.Table, Numbers], Effort]:
        # All at once: in a workspace the first query would be answered alone before.
        return Context().answered(searches, lambda some: merge_tables(found, some, depth))

    best, effort = merged()
    efforts = [effort]
    for shard, rows in unsure(*best, searches, fetched) if fetched < depth else ():
        again = searches.take(pa.array(rows))
        own = {name: [part[shard]] for name, part in index.items() if name in ("chunks", "vectors")}
        own |= {"index": index["index"][shard]} if index.get("index") else {}
        deeper, more = _nearest(own, again, settings.embedder, settings.store, depth, allowed, context)
        found[shard] = pa.concat_tables([hits_of(found[shard], searches, rows), deeper])
        efforts.append(more)
    if efforts[1:]:
        best, more = merged()
        efforts.append(more)
    seconds = round(sum(one.query_seconds for one in efforts), 6)
    return best[0], effort.model_copy(update={"query_seconds": seconds, "tokens": spent(used)["tokens"]})


def _fused(
    settings: RetrievalSettings,
    rankings: Shards,
    indexes: Sequence[Index],
    searches: pa.Table,
    depth: int,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """Fuse several rankings; a fusion that reads scores gets those of every chunk that any retriever found."""
    fusion, chunks = settings.retrieval.fusion, indexes[0]["chunks"]
    scorings: list[Scoring | None] = []
    if fusion.reads_scores:
        texts = searches.column("text").to_pylist()
        pairs = zip(settings.searches, indexes, strict=True)
        scorings = [_scoring(one, index, texts, settings.embedder, context) for one, index in pairs]
    return context.answered(
        searches,
        lambda some: fuse_tables(
            [hits_of(one, some) for one in rankings], some, fusion, depth, "fused", chunks, scorings
        ),
    )


def _scoring(retriever: Any, index: Index, texts: Sequence[str], embedder: Any, context: Context) -> Scoring | None:
    if isinstance(retriever, WordSearch):
        return WordScoring(_word_index(retriever, index, texts), texts)
    if not isinstance(retriever, VectorSearch):
        return None
    with context.embedder(embedder) as used:
        queries = unit_vectors(embed_queries(used, texts), "query vectors")
    vectors = ChunkVectors(index["chunks"], index["vectors"])

    def units(numbers: Numbers) -> Vectors:
        return unit_vectors(vectors.of(numbers), "embeddings")

    count = sum(shard.num_rows for shard in index["chunks"])
    return VectorScoring(queries, units, VectorSums.from_tables(index["sums"]), count)


def _one_ranking(
    hits: pa.Table, queries: pa.Table, depth: int, fusion: Any, context: Context
) -> tuple[pa.Table, Effort]:
    """Fuse the hits of all variants of each query by their ranks."""
    count = pc.max(hits.column("rank")).as_py() or depth
    return context.answered(queries, lambda some: fuse_variants(hits, some, fusion, count))


def _selected(
    hits: pa.Table, chunks: Shards, queries: pa.Table, selection: Selection, context: Context
) -> tuple[pa.Table, Effort]:
    """Keep the hits that reach the threshold and repeat no better one."""
    table = found_chunks(chunks, hits)
    found, effort = context.answered(queries, lambda some: select_table(hits_of(hits, some), table, some, selection))
    had, left = (len(pc.unique(one.column("query_id"))) for one in (hits, found))
    told = _counted("questions have no hit left: all were below score_threshold", had - left)
    return found, effort.model_copy(update={"fallbacks": told})


def _reranked(
    hits: pa.Table, chunks: Shards, queries: pa.Table, reranker: Any, first: int, context: Context
) -> tuple[pa.Table, Effort]:
    """Put the ``first`` hits of every query into the reranker's order, the others after them."""
    table = found_chunks(chunks, hits)
    with context.reranker(reranker) as used:
        if not isinstance(used, CachedReranker):
            return context.answered(queries, lambda some: rerank_table(hits_of(hits, some), table, some, used, first))
        found = rerank_table(hits, table, queries, used, first)
        charged, seconds = spent(used.reranker) if used.fresh else {}, round(used.seconds, 6)
        effort = Effort(fresh=used.fresh, total=queries.num_rows, unit="answers", query_seconds=seconds, **charged)
        return found, effort


def _returned(hits: pa.Table, chunks: Shards, documents: Shards, returns: Any) -> tuple[pa.Table, Effort]:
    """Return the passage of every hit at its rank; the hit itself where the passage is beyond the limit."""
    doc_ids = pc.unique(hits.column("doc_id"))
    read = StoredDocuments(documents, doc_ids)
    started = time.perf_counter()
    hit_places = list(_columns(hits, "doc_id", "ordinal"))
    ordinals: dict[str, set[int]] = {}
    for doc_id, ordinal in hit_places:
        ordinals.setdefault(doc_id, set()).add(ordinal)
    own: dict[tuple[str, int], tuple[int, int]] = {}
    returned: dict[str, Any] = {}
    for shard in chunks:
        some = shard.select(list(PLACE)).filter(pc.is_in(shard.column("doc_id"), doc_ids))
        for doc_id, rows in groupby(_columns(some, *PLACE), key=itemgetter(0)):
            places = [(start, end) for _, start, end in rows]
            own |= {(doc_id, ordinal): places[ordinal] for ordinal in ordinals[doc_id]}
            returned[doc_id] = returns.passages(read[doc_id], places, sorted(ordinals[doc_id]))
    given = [returned[doc_id][ordinal] for doc_id, ordinal in hit_places]
    both = [place or own[hit] for place, hit in zip(given, hit_places, strict=True)]
    starts, ends = zip(*both, strict=True) if both else ((), ())
    columns = {name: hits.column(name) for name in ("query_id", "rank", "doc_id")} | {
        "start": pa.array(starts, pa.int64()),
        "end": pa.array(ends, pa.int64()),
        "hit_ranks": pa.array([[rank] for rank in hits.column("rank").to_pylist()], PASSAGES.field("hit_ranks").type),
    }
    seconds = round(time.perf_counter() - started, 6)
    told = _counted("hits are returned as they are: the text around them has over max_tokens", given.count(None))
    effort = Effort.of(hits.num_rows, "hits", query_seconds=seconds, fallbacks=told)
    return table_with(PASSAGES, columns, hits.num_rows), effort


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


@step(version=2)
def ask_system(
    documents: Shards, queries: pa.Table, system: Any, level: EvaluationType, depth: int, *, context: Context
) -> tuple[Retrieved, Effort]:
    """Ask a whole retrieval system, which is given the documents to index if it takes them.

    A text that is not in the documents keeps its rank. Raises what the system raises, and ``ConfigurationError`` if
    it breaks its interface.
    """
    corpus = Corpus(list(StoredDocuments(documents).values()))
    kind = PositionAwareChunk if level == "token-level" else Chunk
    reader = AnswerReader(label(system), corpus.documents)

    def ask(some: pa.Table) -> pa.Table:
        asked_queries = queries_from_table(some)
        if not isinstance(system, Retriever):
            texts = [query.text for query in asked_queries]
            search_many = getattr(system, "search_many", None)
            given = search_many(texts, depth) if search_many else [system.search(one, depth) for one in texts]
            read = [reader.read_all(one, query.id, depth) for query, one in zip(asked_queries, given, strict=True)]
            return answers_table(level, [query.id for query in asked_queries], read)
        found = checked_hits(system.retrieve(asked_queries, depth), len(asked_queries), system.name, kind)
        return hits_table(level, asked_queries, found, corpus)

    # Timed as in memory, wherever it is: a system is not asked once more to warm up.
    with getattr(system, "turn", None) or nullcontext():
        if hasattr(system, "index"):
            system.index(corpus)
        hits, effort = Context().answered(queries, ask)
    return Retrieved({"retrieved": hits}, None), effort
