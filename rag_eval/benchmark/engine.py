"""One evaluation: the sequence of stages that notebooks, the command line and the flows all run.

A ``Run`` decides where: ``run_in_memory`` hands tables from stage to stage, the runner of the tasks hands references
into a workspace, whose kept work it uses again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rag_eval.benchmark import search_stages, stages
from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.references import BenchmarkInputs, SearchDepth
from rag_eval.benchmark.stage import Context, Shards, Stage, unused_name
from rag_eval.parts import Searching, has_location, keeps_data, label, without
from rag_eval.retrieval.retriever import Retriever
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
    index: Any | None = None
    searches: Any | None = None
    passages: Any | None = None
    allowed: Any | None = None


def evaluate(
    run: Run, searched_by: Configuration | Retriever[Any], inputs: BenchmarkInputs | InMemoryInputs
) -> Evaluated:
    """Chunk, put context, embed, index, rewrite, filter, retrieve, fuse, select, rerank, return and score.

    A whole retrieval system in its place indexes and retrieves by itself.
    """
    level, queries, depth = inputs.evaluation_type, inputs.truth.queries, inputs.depth
    first = depth.candidates if isinstance(depth, SearchDepth) else depth
    hits: dict[str, Any] = {}
    chunks, index, searches, passages = (), None, None, None
    allowed: list[Any] = []
    if isinstance(searched_by, Configuration) and searched_by.system is None:
        parts = searched_by
        fuses_scores = isinstance(parts.retrieval, HybridSearch) and parts.retrieval.fusion.reads_scores
        chunks = run(stages.chunk, inputs.documents, parts.chunker, inputs.truth if level == "chunk-level" else None)
        if parts.context is not None:
            chunks = run(stages.contextualise, chunks, inputs.documents, parts.context)
        asked = queries
        if parts.queries is not None:
            asked = searches = run(stages.rewrite, queries, parts.queries)
        selection = parts.selection
        if selection is not None and selection.fetch_k is not None:
            depth = first = selection.fetch_k
        if selection is not None and selection.filters:
            asked = searches = run(search_stages.filter_searches, asked, queries, selection)
            allowed = [run(search_stages.filter_documents, searches, inputs.documents, selection)]
        sources: list[list[Any]] = []
        for one in parts.searches:
            source: list[Any] = []
            if isinstance(one, VectorSearch):
                embeddings = run(stages.embed, chunks, parts.embedder)
                searched = asked, parts.embedder, parts.store, depth, *allowed
                if keeps_data(parts.store):
                    # An index does not depend on what only a search uses; one filled in place is taken as it is.
                    as_filled = parts.store if has_location(parts.store) else without(parts.store, Searching)
                    index = run(stages.index, chunks, embeddings, as_filled)
                    hits["vector"] = run(stages.retrieve_by_vector, chunks, index, *searched)
                else:
                    hits["vector"] = run(stages.index_and_retrieve, chunks, embeddings, *searched)
                if fuses_scores:
                    source = [parts.embedder, embeddings, run(search_stages.sum_vectors, chunks, embeddings)]
            elif isinstance(one, WordSearch):
                postings = run(search_stages.count_words, chunks, one.tokenizer)
                source = [one, postings, run(search_stages.sum_words, chunks, postings)]
                name = unused_name("words", hits)
                hits[name] = run(
                    search_stages.retrieve_by_words, chunks, *source[1:], asked, one, depth, name, *allowed
                )
            else:
                hits[unused_name(label(one), hits)] = run(stages.retrieve, chunks, asked, one, depth, *allowed)
            sources.append(source)
        if isinstance(parts.retrieval, HybridSearch):
            fused = parts.retrieval.fusion, depth
            hits["fused"] = run(
                search_stages.fuse, list(hits.values()), chunks, sources if fuses_scores else [], asked, *fused
            )
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
    return Evaluated(hits, scores, chunks, index, searches, passages, *allowed)


def run_in_memory(stage: Stage, *inputs: Any) -> Any:
    """What a stage makes of tables in memory and of parts of any kind; nothing is kept."""
    made, _ = stage.compute(*inputs, context=Context())
    if not isinstance(made, list):
        return made
    return [shard if isinstance(shard, pa.Table) else pa.concat_tables(shard) for shard in made]
