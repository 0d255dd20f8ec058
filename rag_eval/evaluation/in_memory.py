"""Run the steps of the pipeline in memory, on tables and without a workspace.

``flows.benchmark`` runs the same steps as tasks; a test checks that both give the same results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.models import Configuration
from rag_eval.metrics.metric import Asked
from rag_eval.pipeline import document_steps, retrieve_steps, search_steps
from rag_eval.pipeline.plan import Chunking, IndexSettings, summed_embedder
from rag_eval.pipeline.retrieve_steps import Retrieved
from rag_eval.pipeline.score_steps import score
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.pipeline.step import Index, SearchHits
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import Retriever, no_chunks, usable_chunker
from rag_eval.tables import TruthTables
from rag_eval.types.ids import EvaluationType


@dataclass(frozen=True)
class InMemoryInputs:
    """Documents and ground truth as tables, metrics, cuts, and the depth of the search."""

    evaluation_type: EvaluationType
    documents: pa.Table
    truth: TruthTables
    metrics: Sequence[Asked]
    ks: list[int]
    depth: SearchDepth


@dataclass(frozen=True)
class EvaluatedTables:
    """The hits by stage, the passages if they differ from the hits, and the scores."""

    hits: dict[str, pa.Table]
    passages: pa.Table | None
    scores: pa.Table
    chunks: pa.Table | None = None


def evaluate(
    source: Configuration | Retriever[Any], inputs: InMemoryInputs, workspace: Workspace | None = None
) -> EvaluatedTables:
    """Evaluate a configuration or a whole retriever in memory, with the caches of a workspace if one is given."""
    documents, queries = [inputs.documents], inputs.truth.queries
    if isinstance(source, Configuration) and source.system is None:
        chunks = _chunks(source, inputs, workspace)
        retrieved = _retrieved(source, chunks, inputs, workspace)
    else:
        system: Any = source.system if isinstance(source, Configuration) else source
        chunks = None
        retrieved, _ = retrieve_steps.ask_system(
            system, documents, queries, inputs.evaluation_type, inputs.depth.candidates
        )
    passages = list(retrieved.stages.values())[-1] if retrieved.passages is None else retrieved.passages
    all_chunks = [] if chunks is None else [chunks]
    scores, _ = score(passages, inputs.truth, documents, all_chunks, inputs.metrics, inputs.ks, workspace=workspace)
    return EvaluatedTables(retrieved.stages, retrieved.passages, scores, chunks)


def _chunks(parts: Configuration, inputs: InMemoryInputs, workspace: Workspace | None) -> pa.Table:
    truth = inputs.truth if inputs.evaluation_type == "chunk-level" else None
    chunker: Any = parts.chunker
    chunks, effort = document_steps.chunk(inputs.documents, chunker, truth, workspace)
    if not chunks.num_rows:
        name = getattr(chunker, "label", None) or usable_chunker(chunker, "token-level").name
        raise no_chunks(name, inputs.documents.num_rows, effort.skipped)
    if parts.context is not None:
        chunks, _ = document_steps.add_context(chunks, inputs.documents, parts.context, workspace=workspace)
    return chunks


def _retrieved(
    parts: Configuration, chunks: pa.Table, inputs: InMemoryInputs, workspace: Workspace | None
) -> Retrieved:
    """Embed, index, search and retrieve."""
    lengths = document_steps.chunk_lengths(chunks)
    depth = inputs.depth.hits(pc.sum(lengths).as_py() or 0, len(lengths))
    ((_, searches),) = Chunking.model_construct(configurations=[parts]).plan(depth).configurations
    settings, queries, documents = searches[0].queries, inputs.truth.queries, [inputs.documents]
    prepared, _ = search_steps.prepare_queries(
        queries, settings.rewriter, settings.selection, documents, workspace=workspace
    )
    rankings: list[list[SearchHits]] = []
    for search in searches:
        index = _index(search.index, chunks, workspace)
        hits, _ = search_steps.search(
            search.retriever, index, prepared, search.depth, search.index.embedder, search.store, workspace=workspace
        )
        rankings.append([SearchHits(hits, index, prepared, search.depth)])
    vectors = next((ranking.index.vectors for (ranking,) in rankings if ranking.index.vectors), ())
    is_fused = summed_embedder(parts) is not None
    sums = [search_steps.sum_vectors(chunks, shard)[0] for shard in vectors] if is_fused else None
    candidates = inputs.depth.candidates
    return retrieve_steps.retrieve(parts, rankings, queries, documents, candidates, sums, workspace=workspace)[0]


def _index(settings: IndexSettings, chunks: pa.Table, workspace: Workspace | None) -> Index:
    if settings.tokenizer is not None:
        postings, _ = search_steps.index_words(chunks, settings.tokenizer)
        statistics, _ = search_steps.sum_words([chunks], [postings])
        return Index([chunks], postings=[postings], statistics=statistics)
    if settings.embedder is None:
        return Index([chunks])
    parts, _ = document_steps.embed(chunks, settings.embedder, workspace=workspace)
    index = Index([chunks], [pa.concat_tables(parts)])
    if not settings.is_kept_in_files:
        return index
    store: Any = settings.store
    store.clear()
    search_steps.fill_store(store, index.chunks, index.vectors)
    return index._replace(store=store)
