"""The guided sweep: choose which configurations of a benchmark to evaluate."""

from collections.abc import Sequence
from functools import partial

from prefect import unmapped
from prefect.futures import PrefectFuture

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.errors import ConfigurationError, as_sentence
from rag_eval.parts import digest, is_remote
from rag_eval.pipeline.document_steps import texts_left
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import chunkings
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sweep.guided import (
    Choice,
    Key,
    TextCosts,
    choose,
    chunking_key,
    free_chunking,
    is_local_guide,
    over_limit,
    stand_in,
)
from tasks.chunk import add_context, chunk
from tasks.conclude import Gathered, first_error
from tasks.embed import count_texts


def guide_configurations(config: BenchmarkConfig) -> list[Configuration]:
    """Return the cheap configurations that a guided sweep evaluates first; empty for a full sweep."""
    return list({guide.name: guide for guide in _guides(config).values()}.values())


def _guides(config: BenchmarkConfig) -> dict[str, Configuration]:
    """Return the stand-in of each configuration with an embedder, by the name of the latter."""
    if config.search == "full":
        return {}
    by_local = is_local_guide(config)
    embedded = [configuration for configuration in config.configurations() if configuration.embedder is not None]
    return {configuration.name: stand_in(configuration, by_local=by_local) for configuration in embedded}


def choose_configurations(
    config: BenchmarkConfig, inputs: BenchmarkInputs, workspace: Workspace, guides: Gathered
) -> Choice:
    """Choose the configurations that the benchmark evaluates: all, or those that their guides rank first.

    Raises:
        ConfigurationError: A full sweep costs more than is allowed, or a guided one has no guide.
    """
    configurations = config.configurations()
    if config.search == "full":
        if config.max_cost is not None:
            costs = text_costs(configurations, inputs, workspace)
            if problem := over_limit(costs.of(configurations, partial(texts_left, workspace)), config):
                raise ConfigurationError(f"{problem}: allow more, or use search: guided")
        return Choice(configurations)
    means = {outcome.name: outcome.metrics[config.objective] for outcome in guides.outcomes}
    expected = {name: means[guide.name] for name, guide in _guides(config).items() if guide.name in means}
    return choose(config, configurations, expected, text_costs(configurations, inputs, workspace))


def text_costs(configurations: Sequence[Configuration], inputs: BenchmarkInputs, workspace: Workspace) -> TextCosts:
    """Count the texts that configurations would embed, without embedding any."""
    counts: dict[tuple[Key, str], Sequence[PrefectFuture[TableRef]]] = {}
    failed: dict[Key, str] = {}
    embedded = [one for one in configurations if one.embedder is not None and not is_remote(one.chunker)]
    for chunking in chunkings([free_chunking(configuration) for configuration in embedded]):
        chunks = chunk.map(
            inputs.documents, unmapped(chunking.chunker), unmapped(inputs.chunk_truth), workspace=unmapped(workspace)
        )
        if chunking.context is not None:
            chunks = add_context.map(
                chunks, inputs.documents, unmapped(chunking.context), workspace=unmapped(workspace)
            )
        key = chunking_key(chunking.configurations[0])
        if (error := first_error(chunks)) is not None:
            failed[key] = as_sentence(error)
            continue
        for embedder in chunking.embedders:
            counts[key, digest(embedder)] = count_texts.map(chunks, unmapped(embedder), workspace=unmapped(workspace))
    tables = {key: workspace.read_tables([run.result() for run in runs]) for key, runs in counts.items()}
    return TextCosts({key: TextCosts.read(table) for key, table in tables.items()}, failed)
