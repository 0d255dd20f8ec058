"""What a benchmark takes before anything is spent: texts, tokens, money and time of each way to sweep its grid."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import pyarrow as pa

from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.config.sweep_settings import Search
from rag_eval.embedding.embedder import Usage
from rag_eval.errors import ConfigurationError, RagEvalError, as_sentence
from rag_eval.evaluation.in_memory import InMemoryInputs, evaluate
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.metric import DEFAULT_ENCODING
from rag_eval.parts import digest, fresh, is_remote, label
from rag_eval.pipeline.document_steps import CorpusSource, add_context, chunk, count_texts, load_corpus, texts_left
from rag_eval.pipeline.ground_truth_steps import Observation, add_copies, join_ground_truth, load_ground_truth
from rag_eval.pipeline.inputs import measured_metrics, search_depth
from rag_eval.pipeline.plan import chunkings
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import read_run
from rag_eval.retrieval.searching import WordSearch
from rag_eval.sweep.guided import (
    HeldOut,
    Key,
    TextCosts,
    choose,
    chunking_key,
    cost_notes,
    free_chunking,
    is_local_guide,
    stand_in,
)
from rag_eval.tables import TruthTables, searched_texts
from rag_eval.tokens import count_tokens

TIMED = 200
"""How many texts a local embedder is timed on."""


@dataclass(frozen=True)
class SearchEstimate:
    """What a sweep takes: how many configurations it evaluates, what these embed, and what of it is left to embed.

    ``seconds`` is None where nothing tells how long it takes.
    """

    search: Search
    configurations: int
    all: Usage
    left: Usage
    seconds: float | None


@dataclass(frozen=True)
class Pace:
    """The seconds that a configuration takes, embedding aside, and those of a token of each embedder by its label."""

    configuration: float
    token: dict[str, float]

    @classmethod
    def of(cls, work: Iterable[tuple[str, str, Effort]], configurations: int) -> "Pace":
        """Take it from steps, each once: the name of each, the label of the embedder and its effort."""
        beside, token = 0.0, dict[str, float]()
        for name, embedder, effort in work:
            if not name.startswith("embed"):
                beside += effort.seconds
            elif effort.fresh and effort.tokens:  # of those found in a cache nothing was read
                token[embedder] = effort.seconds * effort.total / (effort.fresh * effort.tokens)
        return cls(beside / max(1, configurations), token)

    def seconds(self, configurations: Sequence[Configuration], costs: TextCosts, left: Any) -> float:
        """Return what configurations take, with what of their texts is left for the embedders that it knows."""
        texts = 0.0
        for told, each in self.token.items():
            some = [one for one in configurations if label(one.embedder) == told]
            texts += each * (costs.of(some, left).tokens or 0)
        return len(configurations) * self.configuration + texts


class Estimates:
    """Estimates sweeps of one benchmark; documents are cut and counted here, and no service is asked for anything.

    ``notes`` are what to know besides.
    """

    def __init__(self, workspace: Workspace, config: BenchmarkConfig) -> None:
        self._workspace, self._config = workspace, config
        self._source = CorpusSource.of(config.corpus, config.glob, config.loaders)
        (shard,) = self._source.shards(1)
        self._documents, _ = load_corpus(shard, workspace)
        self._every = config.configurations()
        self._costs = self._count_texts()
        self._left = partial(texts_left, workspace)
        self.notes: list[str] = []

    def of(self, searches: Sequence[Search] = get_args(Search)) -> list[SearchEstimate]:
        """Estimate these sweeps."""
        if not all(isinstance(one, FileTruth) for one in self._config.ground_truth):
            self.notes.append("what a guided search takes, and how long, is known once the ground truth is in a file")
            self.notes += self._cost_notes()
            return [self._estimate("full", self._every, None)]
        inputs = self._inputs()
        plans = {name: self._planned(name, inputs) for name in searches}
        pace = self._pace(inputs)
        found = [self._estimate(name, some, pace) for name, some in plans.items() if some is not None]
        unknown = [label(one) for one in self._config.embedders if label(one) not in pace.token]
        self.notes += [f"how long {name} takes to answer is not in the times" for name in unknown]
        if not any(map(is_remote, self._config.embedders)):
            self.notes.append("these embedders run here: guided saves no money with them, and time on long documents")
        self.notes = [*dict.fromkeys(self.notes), *self._cost_notes()]
        return found

    def _cost_notes(self) -> list[str]:
        return [*dict.fromkeys(self._costs.failed.values()), *cost_notes(self._every)]

    def _estimate(self, name: Search, some: Sequence[Configuration], pace: Pace | None) -> SearchEstimate:
        seconds = None if pace is None else pace.seconds(some, self._costs, self._left)
        return SearchEstimate(name, len(some), self._costs.of(some), self._costs.of(some, self._left), seconds)

    def _planned(self, name: Search, inputs: InMemoryInputs) -> Sequence[Configuration] | None:
        """Return the configurations that a sweep evaluates; None, with a note, where it cannot serve this benchmark."""
        if name == "full":
            return self._every
        own = self._config.model_copy(update={"search": name})
        by_local, held_out = is_local_guide(own), HeldOut(own.holdout, inputs.truth)
        guided = [one for one in self._every if one.embedder is not None and not self._costs.is_failed(one)]
        try:
            known: dict[str, float] = {}
            for one in guided:
                guide = stand_in(one, by_local=by_local)
                if guide.name not in known:
                    scores = evaluate(guide, inputs, self._workspace).scores
                    known[guide.name] = held_out.mean(scores, own.objective)
            expected = {one.name: known[stand_in(one, by_local=by_local).name] for one in guided}
            choice = choose(own, self._every, expected, self._costs, held_out)
        except ConfigurationError as error:
            self.notes.append(str(error))
            return None
        self.notes += choice.record.notes
        return choice.configurations

    def _inputs(self) -> InMemoryInputs:
        config, level = self._config, self._config.evaluation_type
        read: list[TruthTables] = []
        for source in config.ground_truth:
            given = Observation.of(source, level), [self._documents], level, False, len(config.ground_truth) == 1
            read.append(load_ground_truth(*given, workspace=self._workspace)[0])
        titles = [one.title for one in config.ground_truth]
        truth = read[0] if len(read) == 1 else join_ground_truth(read, titles, level)[0]
        if config.copies != "off" and level == "token-level":
            truth, _ = add_copies(truth, [self._documents], config.copies)
        metrics = measured_metrics(config)
        return InMemoryInputs(level, self._documents, truth, metrics, config.k, search_depth(config, metrics))

    def _chunks(self, one: Configuration) -> pa.Table:
        chunker: Any = one.chunker
        chunks, _ = chunk(self._documents, chunker, workspace=self._workspace)
        return chunks if one.context is None else add_context(chunks, self._documents, one.context, self._workspace)[0]

    def _count_texts(self) -> TextCosts:
        texts: dict[tuple[Key, str], dict[str, int]] = {}
        failed: dict[Key, str] = {}
        free = [free_chunking(one) for one in self._every if one.embedder is not None and not is_remote(one.chunker)]
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

    def _pace(self, inputs: InMemoryInputs) -> Pace:
        """Return the pace of the latest run on these documents, else of a search by words here and now."""
        with suppress(RagEvalError):  # there is none, or none that can be read
            latest = read_run(self._workspace)
            if latest.corpus == self._source and latest.configurations:
                work = {
                    f"{name} {step.effort.model_dump_json()}": (name, label(one.configuration.embedder), step.effort)
                    for one in latest.configurations
                    for name, step in one.steps.items()
                    if step.effort is not None
                }
                self.notes.append(f"times are those of run {latest.run}, without starting a server")
                return Pace.of(work.values(), len(latest.configurations))
        chunkers = [chunker for chunker in self._config.chunkers if not is_remote(chunker)][:2]
        if not chunkers:
            self.notes.append("how long this takes is known after a first run")
            return Pace(0.0, {})
        for chunker in chunkers:  # the first loads what all use
            words, begun = Configuration(chunker=chunker, retrieval=WordSearch()), time.perf_counter()
            chunks = evaluate(words, replace(inputs), self._workspace).chunks
            pace = Pace(time.perf_counter() - begun, {})
        texts = [] if chunks is None else searched_texts(chunks).to_pylist()[:TIMED]
        tokens = sum(count_tokens(text, DEFAULT_ENCODING) for text in texts)
        for embedder in (part for part in self._config.embedders if not is_remote(part)):
            begun = time.perf_counter()
            fresh(embedder).embed(texts)
            pace.token[label(embedder)] = (time.perf_counter() - begun) / tokens
        self.notes.append(f"times are those of {words.name}, measured here, without starting a server")
        return pace
