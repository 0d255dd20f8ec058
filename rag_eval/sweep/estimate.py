"""Estimate what a benchmark costs before anything is spent: the texts, tokens and price of each sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import pyarrow as pa

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.config.sweep_settings import Search
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence
from rag_eval.evaluation.in_memory import InMemoryInputs, evaluate
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.metric import score_name
from rag_eval.metrics.score_tables import average_scores
from rag_eval.parts import digest, is_remote
from rag_eval.pipeline.document_steps import CorpusSource, add_context, chunk, count_texts, load_corpus, texts_left
from rag_eval.pipeline.ground_truth_steps import (
    Observation,
    find_copies,
    join_copies,
    join_ground_truth,
    load_ground_truth,
)
from rag_eval.pipeline.inputs import measured_metrics, search_depth
from rag_eval.pipeline.plan import chunkings
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sweep.guided import (
    Key,
    TextCosts,
    choose,
    chunking_key,
    cost_notes,
    free_chunking,
    is_local_guide,
    stand_in,
)
from rag_eval.tables import TruthTables


@dataclass(frozen=True)
class SearchEstimate:
    """The cost of a sweep: how many configurations it evaluates, what they embed, and what is left to embed."""

    search: Search
    configurations: int
    all: Usage
    left: Usage


class Estimates:
    """Estimates of the sweeps of one benchmark, for which documents are chunked and counted without calling a service.

    ``notes`` has what the figures leave out.
    """

    def __init__(self, workspace: Workspace, config: BenchmarkConfig) -> None:
        self._workspace, self._config = workspace, config
        self._source = CorpusSource.of(config.corpus, config.glob, config.loaders)
        (shard,) = self._source.shards(1)
        self._documents, _ = load_corpus(shard, self._workspace)
        self._every = config.configurations()
        self._costs = self._count_texts()
        self.notes: list[str] = []

    def of(self, searches: Sequence[Search] = get_args(Search)) -> list[SearchEstimate]:
        """Estimate these sweeps."""
        estimates = []
        if all(isinstance(source, FileTruth) for source in self._config.ground_truth):
            inputs = self._inputs()
            plans = {name: self._plan(name, inputs) for name in searches}
            estimates = [self._estimate(name, plan) for name, plan in plans.items() if plan is not None]
            if not any(map(is_remote, self._config.embedders)):
                self.notes.append("all embedders run on this machine: a guided sweep saves time, but no money")
        else:
            self.notes.append("a guided sweep can be estimated once the ground truth is in a file")
            estimates = [self._estimate("full", self._every)]
        self.notes = [*dict.fromkeys([*self.notes, *self._costs.failed.values(), *cost_notes(self._every)])]
        return estimates

    def _estimate(self, name: Search, configurations: Sequence[Configuration]) -> SearchEstimate:
        left = partial(texts_left, self._workspace)
        return SearchEstimate(
            name, len(configurations), self._costs.of(configurations), self._costs.of(configurations, left)
        )

    def _plan(self, name: Search, inputs: InMemoryInputs) -> Sequence[Configuration] | None:
        """Return the configurations that a sweep evaluates; None, with a note, if it cannot serve this benchmark."""
        if name == "full":
            return self._every
        config = self._config.model_copy(update={"search": name})
        by_local = is_local_guide(config)
        expected: dict[str, float] = {}
        means: dict[str, float] = {}
        try:
            for configuration in self._every:
                if configuration.embedder is None or self._costs.is_failed(configuration):
                    continue
                guide = stand_in(configuration, by_local=by_local)
                if guide.name not in means:
                    averages = average_scores(evaluate(guide, inputs, self._workspace).scores).to_pylist()
                    by_name = {score_name(row["metric"], row["cut"], row["size"]): row["mean"] for row in averages}
                    means[guide.name] = by_name[config.objective]
                expected[configuration.name] = means[guide.name]
            choice = choose(config, self._every, expected, self._costs)
        except ConfigurationError as error:
            self.notes.append(str(error))
            return None
        self.notes += choice.record.notes if choice.record else ()
        return choice.configurations

    def _inputs(self) -> InMemoryInputs:
        config, level = self._config, self._config.evaluation_type
        tables: list[TruthTables] = []
        for source in config.ground_truth:
            is_alone = len(config.ground_truth) == 1
            observed = Observation.of(source, level)
            tables.append(
                load_ground_truth(observed, [self._documents], level, False, is_alone, workspace=self._workspace)[0]
            )
        titles = [source.title for source in config.ground_truth]
        truth = tables[0] if len(tables) == 1 else join_ground_truth(tables, titles, level)[0]
        if config.copies != "off" and level == "token-level":
            truth, _ = join_copies(truth, [find_copies(self._documents, truth)[0]])
        metrics = measured_metrics(config)
        return InMemoryInputs(level, self._documents, truth, metrics, config.k, search_depth(config, metrics))

    def _chunks(self, configuration: Configuration) -> pa.Table:
        chunker, context = configuration.chunker, configuration.context
        if chunker is None:  # a system has its own chunks and nothing to embed
            raise ConfigurationError(f"{configuration.name} has no chunker")
        chunks, _ = chunk(self._documents, chunker, workspace=self._workspace)
        return chunks if context is None else add_context(chunks, self._documents, context, self._workspace)[0]

    def _count_texts(self) -> TextCosts:
        texts: dict[tuple[Key, str], dict[str, int]] = {}
        failed: dict[Key, str] = {}
        embedded = [configuration for configuration in self._every if configuration.embedder is not None]
        free = [free_chunking(configuration) for configuration in embedded if not is_remote(configuration.chunker)]
        for chunking in chunkings(free):
            key = chunking_key(chunking.configurations[0])
            try:
                chunks = self._chunks(chunking.configurations[0])
            except RagEvalError as error:
                failed[key] = as_sentence(error)
                continue
            for embedder in chunking.embedders:
                texts[key, digest(embedder)] = TextCosts.read(count_texts(chunks, embedder)[0])
        return TextCosts(texts, failed)
