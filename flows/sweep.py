"""The guided sweep: from the configurations of a benchmark to those that are evaluated, before the fan-out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prefect import unmapped
from prefect.futures import PrefectFuture

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.errors import ConfigurationError, as_sentence
from rag_eval.parts import digest, is_remote
from rag_eval.pipeline.document_steps import texts_left
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import Chunking, chunkings
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sweep.guided import (
    Choice,
    HeldOut,
    Key,
    TextCosts,
    choose,
    chunking_key,
    free_chunking,
    full_record,
    is_local_guide,
    over_limit,
    stand_in,
)
from tasks.chunk import add_context, chunk
from tasks.conclude import first_error, gather
from tasks.embed import count_texts

EvaluateAll = Callable[[list[Chunking]], Sequence[PrefectFuture[Any]]]


def choose_configurations(
    config: BenchmarkConfig, inputs: BenchmarkInputs, workspace: Workspace, evaluate_all: EvaluateAll
) -> Choice:
    """Choose the configurations that the benchmark evaluates: all, or those that the guide ranks first.

    Raises:
        ConfigurationError: A full sweep costs more than is allowed, or a guided one has no guide.
    """
    every = config.configurations()
    held_out = HeldOut(config.holdout, workspace.read_truth(inputs.truth))
    if config.search == "full":
        if config.max_cost is not None:
            left = text_costs(every, inputs, workspace).of(every, partial(texts_left, workspace))
            if told := over_limit(left, config):
                raise ConfigurationError(f"{told}: allow more, or use search: guided")
        return Choice(every, full_record(config, len(every)), held_out)
    costs = text_costs(every, inputs, workspace)
    guided = {one.name: stand_in(one, by_local=is_local_guide(config)) for one in every if one.embedder is not None}
    stand_ins = chunkings(list({one.name: one for one in guided.values()}.values()))
    guide = {one.name: one for one in gather(stand_ins, evaluate_all(stand_ins)).outcomes}
    expected = {
        name: held_out.mean(workspace.read_table(guide[one.name].scores), config.objective)
        for name, one in guided.items()
        if one.name in guide
    }
    return choose(config, every, expected, costs, held_out)


def text_costs(configurations: Sequence[Configuration], inputs: BenchmarkInputs, workspace: Workspace) -> TextCosts:
    """Count the texts that configurations would embed; nothing is embedded."""
    here, counting, failed = unmapped(workspace), dict[tuple[Key, str], Any](), dict[Key, str]()
    free = [free_chunking(one) for one in configurations if one.embedder is not None and not is_remote(one.chunker)]
    for one in chunkings(free):
        chunks = chunk.map(inputs.documents, unmapped(one.chunker), here, unmapped(inputs.chunk_truth))
        if one.context is not None:
            chunks = add_context.map(chunks, inputs.documents, unmapped(one.context), here)
        key = chunking_key(one.configurations[0])
        if (error := first_error(chunks)) is not None:
            failed[key] = as_sentence(error)
            continue
        for embedder in one.embedders:
            counting[key, digest(embedder)] = count_texts.map(chunks, unmapped(embedder), here)
    texts = {key: workspace.read_tables(futures.result()) for key, futures in counting.items()}
    return TextCosts({key: TextCosts.read(table) for key, table in texts.items()}, failed)
