"""The pipeline without a Prefect server: the functions of the tasks, called one after the other."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.guided import HeldOut, full_record
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.benchmark.outcome import (
    BenchmarkOutcome,
    ConfigurationFailure,
    ConfigurationOutcome,
    Evaluated,
    StepWork,
    keep_outcome,
)
from rag_eval.benchmark.plan import Chunking, IndexSettings
from rag_eval.benchmark.unchanged import source_digest
from rag_eval.errors import RagEvalError
from rag_eval.parts import locations
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.references import ChunksRef, TableRef, TruthRef
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.pipeline.workspace import Workspace
from tasks.chunk import add_context, chunk
from tasks.corpus import load_corpus
from tasks.embed import embed
from tasks.ground_truth import (
    add_near_copies,
    find_copies,
    join_copies,
    join_ground_truth,
    load_ground_truth,
    pull_ground_truth,
)
from tasks.index import index_shards, index_vectors, index_words, sum_vectors, sum_words
from tasks.results import failure_of
from tasks.retrieve import ask_system, prepare_queries, retrieve, search
from tasks.score import score


def load_documents(workspace: Workspace, config: BenchmarkConfig) -> list[TableRef]:
    """The documents of a benchmark, in shards."""
    source = CorpusSource.of(config.corpus, config.glob, config.loaders)
    return [load_corpus.fn(one, workspace) for one in source.shards(config.corpus_shards)]


def load_truth(
    workspace: Workspace, config: BenchmarkConfig, documents: list[TableRef], *, reanchor: bool = False
) -> TruthRef:
    """The ground truth of a benchmark, joined, with copies."""
    level = config.evaluation_type
    seen = [pull_ground_truth.fn(source, level, workspace) for source in config.ground_truth]
    read = [load_ground_truth.fn(one, documents, level, workspace, reanchor, len(seen) == 1) for one in seen]
    titles = [source.title for source in config.ground_truth]
    truth = read[0] if len(read) == 1 else join_ground_truth.fn(read, titles, level, workspace)
    if config.copies == "exact" and level == "token-level":
        truth = join_copies.fn(truth, [find_copies.fn(one, truth, workspace) for one in documents], workspace)
    elif config.copies != "off" and level == "token-level":
        truth = add_near_copies.fn(truth, documents, config.copies, workspace)
    return truth.model_copy(update={"source": source_digest([one.digest for one in seen])})


def load_inputs(workspace: Workspace, config: BenchmarkConfig) -> BenchmarkInputs:
    """The documents and the ground truth of a benchmark."""
    documents = load_documents(workspace, config)
    return BenchmarkInputs.of(config, documents, load_truth(workspace, config, documents))


def cut(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> list[ChunksRef]:
    """The chunks of a configuration, with their context."""
    parts = configuration.chunker, workspace, inputs.chunk_truth
    chunks = [chunk.fn(shard, *parts) for shard in inputs.documents]
    if configuration.context is not None:
        both = zip(chunks, inputs.documents, strict=True)
        chunks = [add_context.fn(one, shard, configuration.context, workspace) for one, shard in both]
    return chunks


def build_index(
    settings: IndexSettings, chunks: list[ChunksRef], vectors: list[TableRef] | None, workspace: Workspace
) -> dict[str, Any]:
    """What a retriever searches."""
    if settings.tokenizer is not None:
        postings = [index_words.fn(one, settings.tokenizer, workspace) for one in chunks]
        return {"chunks": chunks, "postings": postings, "statistics": sum_words.fn(chunks, postings, workspace)}
    if vectors is None:
        return {"chunks": chunks}
    index: dict[str, Any] = {"chunks": chunks, "vectors": vectors}
    pairs = list(zip(chunks, vectors, strict=True))
    if locations(settings.store):
        parts = [([one], [own]) for one, own in pairs] if settings.is_sharded else [(chunks, vectors)]
        index["index"] = [index_vectors.fn(*part, settings.store, workspace) for part in parts]
    if settings.has_sums:
        index["sums"] = [sum_vectors.fn(one, own, workspace) for one, own in pairs]
    return index


def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> Evaluated:
    """What the steps of a configuration return."""
    documents, truth = inputs.documents, inputs.truth
    if configuration.system is not None:
        level = inputs.evaluation_type
        hits = ask_system.fn(configuration.system, documents, truth.queries, level, inputs.candidates, workspace)
        scores = score.fn(hits, truth, documents, [], inputs.metrics, inputs.ks, workspace)
        return Evaluated(configuration, {"retrieve": [hits], "score": [scores]}, [], [], None, hits, scores)
    chunks = cut(workspace, configuration, inputs)
    steps: dict[str, Any] = {"chunk": chunks}
    depth = inputs.depth.hits(chunks) if isinstance(inputs.depth, SearchDepth) else inputs.depth
    ((_, searches),) = Chunking(configurations=[configuration]).plan(depth).configurations
    vectors = None
    if configuration.embedder is not None:
        vectors = steps["embed"] = [embed.fn(one, configuration.embedder, workspace) for one in chunks]
    asked = searches[0].queries
    searched = prepare_queries.fn(truth.queries, asked.rewriter, asked.selection, documents, workspace)
    steps["prepare queries"] = [searched]
    indexes, found = [], []
    for number, one in enumerate(searches):
        index = build_index(one.index, chunks, vectors if one.embedder is not None else None, workspace)
        parts = index_shards(one.index, index)
        own = one.embedder, one.store, len(parts) if len(parts) > 1 else None
        hits_of_parts = [search.fn(one.retriever, part, searched, one.depth, workspace, *own) for part in parts]
        steps |= {f"index {number}": index.get("index", []), f"search {number}": hits_of_parts}
        indexes.append(index)
        found.append(hits_of_parts)
    given = found, indexes, truth.queries, searched, documents, searches[0].depth, inputs.candidates
    hits = retrieve.fn(configuration, *given, workspace)
    scores = score.fn(hits, truth, documents, chunks, inputs.metrics, inputs.ks, workspace)
    steps = {name: results for name, results in steps.items() if results} | {"retrieve": [hits], "score": [scores]}
    built = [one for index in indexes for one in index.get("index", [])]
    return Evaluated(configuration, steps, chunks, built, searched, hits, scores)


def run_benchmark(
    workspace: Workspace, config: BenchmarkConfig, configurations: Sequence[Configuration] | None = None
) -> BenchmarkOutcome:
    """Run a benchmark and keep it; configurations that fail are in its failures."""
    begun = datetime.now(UTC)
    inputs = load_inputs(workspace, config)
    done: list[ConfigurationOutcome] = []
    failures: dict[str, ConfigurationFailure] = {}
    work = StepWork(begun)
    for one in config.configurations() if configurations is None else configurations:
        try:
            done.append(evaluate(workspace, one, inputs).summary(work, inputs.truth.queries.rows))
        except RagEvalError as error:
            failures[one.name] = failure_of(one, error)
    corpus = CorpusSource.of(config.corpus, config.glob, config.loaders)
    shared = {"load-corpus": work.of(inputs.documents), "load-ground-truth": work.of([inputs.truth])}
    held_out = HeldOut(config.holdout, workspace.read_truth(inputs.truth))
    scores = {one.name: workspace.read_table(one.scores) for one in done}
    holdout = held_out.judge(scores, config.objective)
    record = None if holdout is None else full_record(config, len(done)).model_copy(update={"holdout": holdout})
    return keep_outcome(workspace, begun, config, corpus, inputs, done, failures, shared, record)
