"""Combine the hits of a configuration's retrievers, and query whole systems.

``retrieve`` merges shards, fuses rankings, selects, reranks and returns passages, as configured.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.models import Configuration
from rag_eval.embedding.embedder import Vectors, embed_queries
from rag_eval.parts import label
from rag_eval.pipeline.caches import CachedReranker, cached_embedder, cached_reranker, spent
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.hits import (
    answers_table,
    found_chunks,
    fuse_tables,
    fuse_variants,
    hits_of,
    hits_table,
    merge_tables,
    rerank_table,
    select_table,
    unsure,
)
from rag_eval.pipeline.references import Effort, HitsRef
from rag_eval.pipeline.search_steps import ChunkVectors, fallback_count, likely_hits, nearest, timed, word_index
from rag_eval.pipeline.step import Index, SearchHits, Shards, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.bm25 import WordScoring
from rag_eval.retrieval.fusion import Fusion
from rag_eval.retrieval.passages import Passages, Place
from rag_eval.retrieval.retriever import Reranker, Retriever, checked_hits
from rag_eval.retrieval.scoring import Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.searching import HybridSearch, SingleSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Selection
from rag_eval.retrieval.systems import AnswerReader, System
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.stores.rankings import Numbers
from rag_eval.tables import PASSAGES, PLACE, as_searches, queries_from_table, table_with
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import EvaluationType


class Retrieved(NamedTuple):
    """The hits by the stage of the retrieval, and the passages if they are more than the hits."""

    stages: dict[str, pa.Table]
    passages: pa.Table | None = None


def write_hits(workspace: Workspace, retrieved: Retrieved) -> HitsRef:
    """Write hits and passages, and return their reference."""
    stages = {name: workspace.write_table("hits", hits) for name, hits in retrieved.stages.items()}
    passages = None if retrieved.passages is None else workspace.write_table("passages", retrieved.passages)
    return HitsRef(stages=stages, passages=passages, unplaced=unplaced(list(retrieved.stages.values())[-1]))


def unplaced(hits: pa.Table) -> int:
    """Count the hits that are a text without a place in the documents; one without a text is the id of a chunk."""
    has_text = pc.fill_null(pc.not_equal(hits.column("text"), ""), False)
    return pc.sum(pc.and_(pc.is_null(hits.column("doc_id")), has_text)).as_py() or 0


@step(version=4, write=write_hits, packages=("tiktoken",))  # to count the tokens of limits
def retrieve(
    configuration: Configuration,
    rankings: Sequence[Sequence[SearchHits]],
    queries: pa.Table,
    documents: Shards,
    candidates: int,
    sums: Shards | None = None,
    workspace: Workspace | None = None,
) -> tuple[Retrieved, Effort]:
    """Combine the hits of the retrievers: merge shards, fuse, select, rerank, and return passages.

    Args:
        configuration: The parts of the configuration.
        rankings: For each retriever its hits in every index that it searched: one, or one for each shard.
        queries: The queries of the ground truth.
        documents: All documents.
        candidates: How many of the first hits are reranked, unless the selection has a ``fetch_k``.
        sums: The sums of the vectors of each shard, for a fusion that reads their scores.
        workspace: Where vectors and rankings are cached; None in memory.
    """
    selection, retrieval = configuration.selection, configuration.retrieval
    stages = _Stages(configuration, rankings, queries, sums, workspace)
    stages.search()
    if isinstance(retrieval, HybridSearch):
        stages.fuse(retrieval.fusion)
    if configuration.queries is not None and configuration.queries.fusion is not None:
        stages.join_variants(configuration.queries.fusion)
    if selection is not None and selection.cuts:
        stages.select(selection)
    if configuration.reranker is not None:
        stages.rerank(configuration.reranker, (selection and selection.fetch_k) or candidates)
    passages = None if configuration.returns is None else stages.passages(configuration.returns, documents)
    return Retrieved(stages.tables, passages), stages.effort


class _Stages:
    """The tables of hits of a retrieval by stage; each method adds a stage that is made from the previous one."""

    def __init__(
        self,
        configuration: Configuration,
        rankings: Sequence[Sequence[SearchHits]],
        queries: pa.Table,
        sums: Shards | None,
        workspace: Workspace | None,
    ) -> None:
        self._configuration, self._rankings, self._workspace = configuration, rankings, workspace
        first = rankings[0][0]
        self._queries, self._prepared, self._depth = as_searches(queries), first.queries, first.depth
        self._chunks, self._sums = [shard for part in rankings[0] for shard in part.index.chunks], sums
        self._efforts = [Effort.of(0, "queries")]
        self.tables: dict[str, pa.Table] = {}

    @property
    def last(self) -> pa.Table:
        return list(self.tables.values())[-1]

    @property
    def effort(self) -> Effort:
        """The effort of all stages; ``fresh`` counts the queries that a reranker answered now."""
        count = self._queries.num_rows
        fresh = min([count, *(effort.fresh for effort in self._efforts if effort.unit == "answers")])
        return Effort.total_of(self._efforts).model_copy(update={"fresh": fresh, "total": count})

    def _add(self, name: str, hits: pa.Table) -> None:
        numbered = (f"{name} {number}" for number in range(2, len(self.tables) + 3))
        self.tables[next(stage for stage in [name, *numbered] if stage not in self.tables)] = hits

    def _add_timed(
        self, name: str, searches: pa.Table, answer: Callable[[pa.Table], pa.Table], fallbacks: str = ""
    ) -> None:
        """Add the answer to the searches, with its time; ``fallbacks`` counts searches without an answer."""
        found, effort = timed(searches, answer, warm_up=self._workspace is not None)
        if fallbacks:
            had, left = (len(pc.unique(table.column("query_id"))) for table in (self.last, found))
            effort = effort.model_copy(update={"fallbacks": fallback_count(fallbacks, had - left)})
        self._add(name, found)
        self._efforts.append(effort)

    def search(self) -> None:
        """Add the hits of each retriever, merged if they are from several shards."""
        for retriever, ranking in zip(self._configuration.searches, self._rankings, strict=True):
            name = "vector" if isinstance(retriever, VectorSearch) else "words"
            name = name if isinstance(retriever, VectorSearch | WordSearch) else label(retriever)
            if len(ranking) == 1:
                self._add(name, ranking[0].hits)
                continue
            hits, effort = self._merged([part.hits for part in ranking], [part.index for part in ranking])
            self._add(name, hits)
            self._efforts.append(effort)

    def _merged(self, shards: list[pa.Table], indexes: Sequence[Index]) -> tuple[pa.Table, Effort]:
        """Merge the nearest chunks of all shards; search shards again that may have more."""
        searches, depth, fetched = self._prepared.searches, self._depth, likely_hits(self._depth, len(shards))
        embedder, store = self._configuration.embedder, self._configuration.store
        used = cached_embedder(self._workspace, embedder)
        embed_queries(used, searches.column("text").to_pylist())

        def merged() -> tuple[tuple[pa.Table, Numbers], Effort]:
            return timed(searches, lambda queries: merge_tables(shards, queries, depth))

        best, effort = merged()
        efforts = [effort]
        for shard, rows in unsure(*best, searches, fetched) if fetched < depth else ():
            again = self._prepared._replace(searches=searches.take(pa.array(rows)))
            deeper, more = nearest(indexes[shard], again, embedder, store, depth, self._workspace)
            shards[shard] = pa.concat_tables([hits_of(shards[shard], searches, rows), deeper])
            efforts.append(more)
        if efforts[1:]:
            best, more = merged()
            efforts.append(more)
        seconds = round(sum(effort.query_seconds for effort in efforts), 6)
        return best[0], effort.model_copy(update={"query_seconds": seconds, "tokens": spent(used)["tokens"]})

    def fuse(self, fusion: Fusion) -> None:
        """Fuse rankings; a fusion that reads scores gets those of every chunk that any retriever found."""
        found, searches, scorings = list(self.tables.values()), self._prepared.searches, list[Scoring | None]()
        if fusion.reads_scores:
            texts = searches.column("text").to_pylist()
            pairs = zip(self._configuration.searches, self._rankings, strict=True)
            scorings = [self._scoring(retriever, ranking, texts) for retriever, ranking in pairs]

        def fused(batch: pa.Table) -> pa.Table:
            hits = [hits_of(ranking, batch) for ranking in found]
            return fuse_tables(hits, batch, fusion, self._depth, "fused", self._chunks, scorings)

        self._add_timed("fused", searches, fused)

    def _scoring(self, retriever: SingleSearch, ranking: Sequence[SearchHits], texts: Sequence[str]) -> Scoring | None:
        if isinstance(retriever, WordSearch):
            return WordScoring(word_index(retriever, ranking[0].index, texts), texts)
        if not isinstance(retriever, VectorSearch):
            return None
        embedder = cached_embedder(self._workspace, self._configuration.embedder)
        queries = unit_vectors(embed_queries(embedder, texts), "query vectors")
        vectors = ChunkVectors(self._chunks, [shard for part in ranking for shard in part.index.vectors])

        def units(numbers: Numbers) -> Vectors:
            return unit_vectors(vectors.of(numbers), "embeddings")

        count = sum(shard.num_rows for shard in self._chunks)
        return VectorScoring(queries, units, VectorSums.from_tables(self._sums or ()), count)

    def join_variants(self, fusion: Fusion) -> None:
        """Fuse the hits of all variants of each query by their ranks."""
        hits = self.last
        depth = pc.max(hits.column("rank")).as_py() or self._depth
        self._add_timed("variants", self._queries, lambda batch: fuse_variants(hits, batch, fusion, depth))

    def select(self, selection: Selection) -> None:
        """Keep the hits that reach the threshold and do not repeat a better hit."""
        hits, chunks = self.last, found_chunks(self._chunks, self.last)
        self._add_timed(
            "selected",
            self._queries,
            lambda batch: select_table(hits_of(hits, batch), chunks, batch, selection),
            "questions have no hits left: all were below score_threshold",
        )

    def rerank(self, reranker: Reranker, first: int) -> None:
        """Rerank the ``first`` hits of every query; the others follow."""
        hits, chunks, queries = self.last, found_chunks(self._chunks, self.last), self._queries
        with cached_reranker(self._workspace, reranker) as used:
            if not isinstance(used, CachedReranker):
                self._add_timed(
                    "reranked", queries, lambda batch: rerank_table(hits_of(hits, batch), chunks, batch, used, first)
                )
                return
            self._add("reranked", rerank_table(hits, chunks, queries, used, first))
            charged, seconds = spent(used.reranker) if used.fresh else {}, round(used.seconds, 6)
            count = queries.num_rows
            self._efforts.append(
                Effort(fresh=used.fresh, total=count, unit="answers", query_seconds=seconds, **charged)
            )

    def passages(self, returns: Passages, documents: Shards) -> pa.Table:
        """Return the passage of every hit at its rank, or the hit itself if the passage exceeds the limit."""
        hits, started = self.last, time.perf_counter()
        doc_ids, hit_chunks = pc.unique(hits.column("doc_id")), list(_columns(hits, "doc_id", "ordinal"))
        ordinals: dict[str, list[int]] = {}
        for doc_id, ordinal in sorted(set(hit_chunks)):
            ordinals.setdefault(doc_id, []).append(ordinal)
        read, passages, too_long = StoredDocuments(documents, doc_ids), dict[tuple[str, int], Place](), set[Any]()
        for shard in self._chunks:
            near = shard.select(list(PLACE)).filter(pc.is_in(shard.column("doc_id"), doc_ids))
            for doc_id, rows in groupby(_columns(near, *PLACE), key=itemgetter(0)):
                places = [(start, end) for _, start, end in rows]
                for ordinal, passage in returns.passages(read[doc_id], places, ordinals[doc_id]).items():
                    passages[doc_id, ordinal] = passage or places[ordinal]
                    too_long |= set() if passage else {(doc_id, ordinal)}
        returned = [passages[hit] for hit in hit_chunks]
        starts, ends = zip(*returned, strict=True) if returned else ((), ())
        columns = {name: hits.column(name) for name in ("query_id", "rank", "doc_id")} | {
            "start": pa.array(starts, pa.int64()),
            "end": pa.array(ends, pa.int64()),
            "hit_ranks": pa.array(
                [[rank] for rank in hits.column("rank").to_pylist()], PASSAGES.field("hit_ranks").type
            ),
        }
        seconds, count = round(time.perf_counter() - started, 6), sum(hit in too_long for hit in hit_chunks)
        fallback = fallback_count("hits are returned unchanged, because the text around them exceeds max_tokens", count)
        self._efforts.append(Effort.of(hits.num_rows, "hits", query_seconds=seconds, fallbacks=fallback))
        return table_with(PASSAGES, columns, hits.num_rows)


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


@step(version=2, write=write_hits)
def ask_system(
    system: System | Retriever[Any],
    documents: Shards,
    queries: pa.Table,
    level: EvaluationType,
    depth: int,
) -> tuple[Retrieved, Effort]:
    """Query a whole retrieval system, after it has indexed the documents if it does so.

    A text that is not in the documents keeps its rank. Raises what the system raises, and ``ConfigurationError`` on
    an invalid answer.
    """
    corpus = Corpus(list(StoredDocuments(documents).values()))
    kind = PositionAwareChunk if level == "token-level" else Chunk
    reader = AnswerReader(label(system), corpus.documents)

    def ask(batch: pa.Table) -> pa.Table:
        queries_asked = queries_from_table(batch)
        if not isinstance(system, Retriever):
            answers = zip(queries_asked, system.search_many(queries_asked, depth), strict=True)
            read = [reader.read_all(given, query.id, depth) for query, given in answers]
            return answers_table(level, [query.id for query in queries_asked], read)
        found = checked_hits(system.retrieve(queries_asked, depth), len(queries_asked), system.name, kind)
        return hits_table(level, queries_asked, found, corpus)

    # No warm-up, because a system may charge for every query.
    with getattr(system, "lock", None) or nullcontext():
        if hasattr(system, "index"):
            system.index(corpus)
        hits, effort = timed(queries, ask)
    return Retrieved({"retrieved": hits}), effort.model_copy(update={"fallbacks": getattr(system, "fallbacks", {})})
