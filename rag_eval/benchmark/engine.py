"""One evaluation: the sequence of stages that notebooks, the command line and the flows all run.

A ``Run`` decides where: ``run_in_memory`` hands tables from stage to stage, the runner of the tasks hands references
into a workspace, whose kept work it uses again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rag_eval.benchmark import search_stages, stages
from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.references import BenchmarkInputs, SearchDepth, TableRef
from rag_eval.benchmark.stage import Context, Shards, Stage, unused_name
from rag_eval.parts import Searching, label, locations, without
from rag_eval.retrieval.retriever import Retriever, no_chunks, usable_chunker
from rag_eval.retrieval.searching import HybridSearch, VectorSearch, WordSearch
from rag_eval.tables import TruthTables
from rag_eval.types.ids import EvaluationType

Run = Callable[..., Any]
"""Gives what a stage, its first argument, makes of parts, settings and what other stages of the same run made."""


@dataclass(frozen=True)
class InMemoryInputs:
    """What ``BenchmarkInputs`` has, as tables; metrics are names, or metrics at their cuts."""

    evaluation_type: EvaluationType
    documents: Shards
    truth: TruthTables
    metrics: Any
    ks: list[int]
    depth: int | SearchDepth


@dataclass(frozen=True)
class Evaluated:
    """What the stages made, as tables or references: ``hits`` by the name of their stage.

    ``passages`` are scored where there are some, else the last hits. ``searches`` are what was searched where that is
    not the questions as asked, in all documents; ``allowed`` the documents that their filters leave.
    """

    hits: Mapping[str, Any]
    scores: Any
    chunks: Sequence[Any] = ()
    indexes: Sequence[Any] = ()
    searches: Any | None = None
    passages: Any | None = None
    allowed: Any | None = None


def evaluate(
    run: Run,
    searched_by: Configuration | Retriever[Any],
    inputs: BenchmarkInputs | InMemoryInputs,
    pool: list[int] | None = None,
) -> Evaluated:
    """Chunk, put context, embed, index, rewrite, filter, retrieve, fuse, select, rerank, return and score.

    A whole retrieval system in its place indexes and retrieves by itself. With a ``pool`` only those chunks are
    embedded and searched, by their numbers; how rare a word is, and how many hits are fetched, is that of all.
    """
    level, queries, depth = inputs.evaluation_type, inputs.truth.queries, inputs.depth
    first = depth.candidates if isinstance(depth, SearchDepth) else depth
    hits: dict[str, Any] = {}
    chunks, indexes, searches, passages = (), (), None, None
    allowed: list[Any] = []
    if isinstance(searched_by, Configuration) and searched_by.system is None:
        parts = searched_by
        fuses_scores = isinstance(parts.retrieval, HybridSearch) and parts.retrieval.fusion.reads_scores
        chunks = cut(run, parts, inputs.documents, inputs.truth if level == "chunk-level" else None)
        asked = queries
        if parts.queries is not None:
            asked = searches = run(stages.rewrite, queries, parts.queries)
        selection = parts.selection
        if selection is not None and selection.fetch_k is not None:
            depth = first = selection.fetch_k
        if selection is not None and selection.filters:
            asked = searches = run(search_stages.filter_searches, asked, queries, selection)
            allowed = [run(search_stages.filter_documents, searches, inputs.documents, selection)]
        if isinstance(depth, SearchDepth) and (len(chunks) > 1 or pool is not None):
            depth = run(search_stages.measure_depth, chunks, depth)
        whole = chunks
        if pool is not None:
            chunks = run(search_stages.take_chunks, whole, pool)
        # What each retriever finds of a pool is of no use where their fusion ranks all of it.
        ranks_all = pool is not None and isinstance(parts.retrieval, HybridSearch) and parts.retrieval.independent
        reference = getattr(getattr(parts.retrieval, "fusion", None), "reference", None)
        typical: Any = None
        if reference is not None:
            typical = cut(run, parts.model_copy(update={"chunker": reference, "context": None}), inputs.documents)
        sources: list[list[Any]] = []
        for one in parts.searches:
            source: list[Any] = []
            if isinstance(one, VectorSearch):
                embeddings = run(stages.embed, chunks, parts.embedder)
                is_local = any(locations(parts.store).values())
                steps = search_stages.index, search_stages.retrieve_by_vector
                if is_local or not getattr(parts.store, "is_exact", False):
                    steps = steps[0].whole, steps[1].whole  # an approximate index is one, and so is a user's store
                searched_in = embeddings
                if locations(parts.store):
                    # An index does not depend on what only a search uses; one filled in place is taken as it is.
                    as_filled = parts.store if is_local else without(parts.store, Searching)
                    searched_in = indexes = run(steps[0], chunks, embeddings, as_filled)
                if not ranks_all:
                    given = searched_in, asked, parts.embedder, parts.store, depth, allowed[0] if allowed else None
                    parted = steps[1].by_shard and len(chunks) > 1
                    found = run(steps[1], chunks, *given, len(chunks) if parted else None)
                    hits["vector"] = run(search_stages.merge, found, chunks, *given) if parted else found[0]
                if fuses_scores:
                    summed = (
                        (chunks, embeddings)
                        if typical is None
                        else (typical, run(stages.embed, typical, parts.embedder))
                    )
                    source = [parts.embedder, embeddings, run(search_stages.sum_vectors, *summed)]
            elif isinstance(one, WordSearch):
                postings = run(search_stages.count_words, chunks, one.tokenizer)
                counted = postings if pool is None else run(search_stages.count_words, whole, one.tokenizer)
                source = [one, postings, run(search_stages.sum_words, whole, counted)]
                if not ranks_all:
                    name = unused_name("words", hits)
                    searched = chunks, *source[1:], asked, one, depth, name, *allowed
                    hits[name] = run(search_stages.retrieve_by_words, *searched)
                if typical is not None:
                    counted = run(search_stages.count_words, typical, one.tokenizer)
                    source += [typical, counted, run(search_stages.sum_words, typical, counted)]
            else:
                hits[unused_name(label(one), hits)] = run(search_stages.retrieve, chunks, asked, one, depth, *allowed)
            sources.append(source)
        if isinstance(parts.retrieval, HybridSearch):
            fused = sources if fuses_scores else [], asked, parts.retrieval.fusion, depth, *allowed
            hits["fused"] = run(search_stages.fuse, list(hits.values()), chunks, *fused)
        if parts.queries is not None and parts.queries.several:
            hits["variants"] = run(
                search_stages.fuse_searches, list(hits.values())[-1], queries, depth, parts.queries.fusion
            )
        if selection is not None and selection.cuts:
            hits["selected"] = run(search_stages.select, list(hits.values())[-1], chunks, queries, selection)
        if parts.reranker is not None:
            hits["reranked"] = run(stages.rerank, list(hits.values())[-1], chunks, queries, parts.reranker, first)
        if parts.returns is not None:
            found = list(hits.values())[-1]
            passages = run(stages.return_passages, found, chunks, inputs.documents, parts.returns)
    else:
        system = searched_by.system if isinstance(searched_by, Configuration) else searched_by
        hits["retrieved"] = run(stages.ask_system, inputs.documents, queries, system, level, first)
    returned = list(hits.values())[-1] if passages is None else passages
    scores = run(stages.score, returned, inputs.truth, inputs.documents, chunks, inputs.metrics, inputs.ks)
    return Evaluated(hits, scores, chunks, indexes, searches, passages, *allowed)


def cut(run: Run, parts: Configuration, documents: Any, chunk_truth: Any = None) -> Any:
    """The chunks of the documents, with what is searched of them; for chunk-level evaluation by the truth of that."""
    chunks = run(stages.chunk if chunk_truth is None else stages.chunk.whole, documents, parts.chunker, chunk_truth)
    _check_any(chunks, documents, parts.chunker)
    return chunks if parts.context is None else run(stages.contextualise, chunks, documents, parts.context)


def _check_any(chunks: Sequence[Any], documents: Sequence[Any], chunker: Any) -> None:
    """Raise ``ConfigurationError`` when there is nothing to search."""
    if not any(_rows(one) for one in chunks):
        efforts = [one.effort for one in chunks if isinstance(one, TableRef) and one.effort is not None]
        told = getattr(chunker, "label", None) or usable_chunker(chunker, "token-level").name
        raise no_chunks(told, sum(map(_rows, documents)), sum(one.skipped for one in efforts))


def _rows(shard: Any) -> int:
    rows: int = shard.rows if isinstance(shard, TableRef) else shard.num_rows
    return rows


def run_in_memory(stage: Stage, *inputs: Any) -> Any:
    """What a stage makes of tables in memory and of parts of any kind; nothing is kept."""
    shards: list[Any] = []
    for piece in stage.pieces(*inputs):
        made, effort = stage.compute(*piece, context=Context())
        if not isinstance(made, list):
            return made
        shards += [pa.concat_tables(shard) if isinstance(shard, Iterator) else shard for shard in made]
        if callable(effort):
            effort()  # which may find a fault in what was read
    return shards
