"""The pipeline without a Prefect server: the functions of the tasks, called one after the other."""

import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from prefect import Task

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence
from rag_eval.parts import digest, is_remote, locations
from rag_eval.pipeline.document_steps import CorpusSource, texts_left
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import Chunking, IndexSettings, chunkings
from rag_eval.pipeline.references import ChunksRef, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, Evaluated, StepRecorder
from rag_eval.results.unchanged import source_digest
from rag_eval.sweep.guided import (
    Choice,
    HeldOut,
    TextCosts,
    choose,
    chunking_key,
    free_chunking,
    full_record,
    is_local_guide,
    over_limit,
    stand_in,
)
from tasks.chunk import add_context, chunk, hits_to_fetch
from tasks.conclude import Gathered, conclude, failure_of
from tasks.corpus import load_corpus
from tasks.embed import count_texts, embed
from tasks.ground_truth import (
    add_near_copies,
    find_copies,
    join_copies,
    join_ground_truth,
    load_ground_truth,
    pull_ground_truth,
)
from tasks.index import index_shards, index_vectors, index_words, sum_vectors, sum_words
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
    source = source_digest([one.digest for one in seen])
    truth = read[0] if len(read) == 1 else join_ground_truth.fn(read, titles, level, workspace, source)
    if config.copies == "exact" and level == "token-level":
        places = [find_copies.fn(one, truth, workspace) for one in documents]
        truth = join_copies.fn(truth, places, workspace, source)
    elif config.copies != "off" and level == "token-level":
        truth = add_near_copies.fn(truth, documents, config.copies, workspace, source)
    return truth


def load_inputs(workspace: Workspace, config: BenchmarkConfig, *, reanchor: bool = False) -> BenchmarkInputs:
    """The documents and the ground truth of a benchmark."""
    documents = load_documents(workspace, config)
    return BenchmarkInputs.of(config, documents, load_truth(workspace, config, documents, reanchor=reanchor))


def chunk_steps(
    workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs
) -> dict[str, list[ChunksRef]]:
    """What the steps return that cut the documents, and put a context around the chunks where there is one."""
    parts: tuple[Any, ...] = configuration.chunker, workspace, inputs.chunk_truth
    steps = {"chunk": [chunk.fn(shard, *parts) for shard in inputs.documents]}
    if configuration.context is not None:
        both = zip(steps["chunk"], inputs.documents, strict=True)
        steps["add context"] = [add_context.fn(one, shard, configuration.context, workspace) for one, shard in both]
    return steps


def cut(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> list[ChunksRef]:
    """The chunks of a configuration, with their context."""
    return list(chunk_steps(workspace, configuration, inputs).values())[-1]


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


class _Done(NamedTuple):
    """A task run that is done."""

    made: ChunksRef

    def result(self) -> ChunksRef:
        return self.made


def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> Evaluated:
    """What the steps of a configuration return."""
    documents, truth = inputs.documents, inputs.truth
    if configuration.system is not None:
        level = inputs.evaluation_type
        hits = ask_system.fn(configuration.system, documents, truth.queries, level, inputs.candidates, workspace)
        scores = score.fn(hits, truth, documents, [], inputs.metrics, inputs.ks, workspace)
        return Evaluated(configuration, {"retrieve": [hits], "score": [scores]}, [], [], None, hits, scores)
    steps: dict[str, Any] = {**chunk_steps(workspace, configuration, inputs)}
    chunks = list(steps.values())[-1]
    depth = hits_to_fetch([_Done(one) for one in chunks], configuration.chunker, inputs.depth)  # type: ignore[arg-type,misc]
    ((_, searches),) = Chunking(configurations=[configuration]).plan(depth).configurations
    vectors = None
    if configuration.embedder is not None:
        vectors = steps["embed"] = [embed.fn(one, configuration.embedder, workspace) for one in chunks]
    asked = searches[0].queries
    searched = prepare_queries.fn(truth.queries, asked.rewriter, asked.selection, documents, workspace)
    steps["prepare queries"] = [searched]
    rankings: list[Mapping[str, Any]] = []
    for number, one in enumerate(searches):
        index = build_index(one.index, chunks, vectors if one.embedder is not None else None, workspace)
        parts = index_shards(one.index, index)
        own = one.embedder, one.store, len(parts) if len(parts) > 1 else None
        hits_of_parts = [search.fn(one.retriever, part, searched, one.depth, workspace, *own) for part in parts]
        steps |= {f"index {number}": index.get("index", []), f"search {number}": hits_of_parts}
        rankings.append({"hits": hits_of_parts, "index": index, "queries": searched, "depth": one.depth})
    hits = retrieve.fn(configuration, rankings, truth.queries, documents, inputs.candidates, workspace)
    scores = score.fn(hits, truth, documents, chunks, inputs.metrics, inputs.ks, workspace)
    steps = {name: results for name, results in steps.items() if results} | {"retrieve": [hits], "score": [scores]}
    built = [one for ranking in rankings for one in ranking["index"].get("index", [])]
    return Evaluated(configuration, steps, chunks, built, searched, hits, scores)


def evaluate_all(
    workspace: Workspace, configurations: Sequence[Configuration], inputs: BenchmarkInputs, work: StepRecorder
) -> Gathered:
    """What becomes of configurations in a run."""
    found = Gathered([], {})
    for one in configurations:
        try:
            found.outcomes.append(evaluate(workspace, one, inputs).summary(work, inputs.truth.queries.rows))
        except RagEvalError as error:
            found.failures[one.name] = failure_of(one, error)
    return found


def text_costs(workspace: Workspace, configurations: Sequence[Configuration], inputs: BenchmarkInputs) -> TextCosts:
    """The texts that configurations would embed."""
    texts, failed = {}, {}
    free = [free_chunking(one) for one in configurations if one.embedder is not None and not is_remote(one.chunker)]
    for chunking in chunkings(free):
        first, key = chunking.configurations[0], chunking_key(chunking.configurations[0])
        try:
            chunks = cut(workspace, first, inputs)
        except RagEvalError as error:
            failed[key] = as_sentence(error)
            continue
        for embedder in chunking.embedders:
            counted = workspace.read_tables([count_texts.fn(one, embedder, workspace) for one in chunks])
            texts[key, digest(embedder)] = TextCosts.read(counted)
    return TextCosts(texts, failed)


def choose_configurations(workspace: Workspace, config: BenchmarkConfig, inputs: BenchmarkInputs) -> Choice:
    """The configurations that a benchmark evaluates, chosen as ``flows.sweep`` chooses them."""
    every, held_out = config.configurations(), HeldOut(config.holdout, workspace.read_truth(inputs.truth))
    if config.search == "full":
        if config.max_cost is not None:
            left = text_costs(workspace, every, inputs).of(every, partial(texts_left, workspace))
            if told := over_limit(left, config):
                raise ConfigurationError(f"{told}: allow more, or use search: guided")
        return Choice(every, full_record(config, len(every)), held_out)
    guided = {one.name: stand_in(one, by_local=is_local_guide(config)) for one in every if one.embedder is not None}
    stand_ins = list({one.name: one for one in guided.values()}.values())
    found = {
        one.name: one
        for one in evaluate_all(workspace, stand_ins, inputs, StepRecorder(begun=datetime.now(UTC))).outcomes
    }
    expected = {
        name: held_out.mean(workspace.read_table(found[one.name].scores), config.objective)
        for name, one in guided.items()
        if one.name in found
    }
    return choose(config, every, expected, text_costs(workspace, every, inputs), held_out)


def run_benchmark(
    workspace: Workspace,
    config: BenchmarkConfig,
    configurations: Sequence[Configuration] | None = None,
    *,
    reanchor: bool = False,
) -> BenchmarkOutcome:
    """Run a benchmark and keep it; configurations that fail are in its failures."""
    work, workspace = StepRecorder(begun=datetime.now(UTC)), workspace.start_run()
    inputs = load_inputs(workspace, config, reanchor=reanchor)
    choice = choose_configurations(workspace, config, inputs)
    if configurations is not None:
        choice = Choice(list(configurations), full_record(config, len(configurations)), choice.held_out)
    found = evaluate_all(workspace, choice.configurations, inputs, work)
    files = CorpusSource.of(config.corpus, config.glob, config.loaders).shards(config.corpus_shards)
    return conclude(workspace, config, work, files, inputs, choice, found, reanchor)


def cache_key(task: Task[..., Any], *given: object) -> str | None:
    """The cache key under which Prefect stores the result of a task that is called like this."""
    called = inspect.signature(task.fn).bind(*given)
    called.apply_defaults()
    key: str | None = task.cache_policy.compute_key(None, called.arguments, {})  # type: ignore[arg-type]
    return key
