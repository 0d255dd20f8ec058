"""One evaluation: the sequence of stages that notebooks, the command line and the flows all run.

A ``Run`` decides where: ``InMemoryRun`` hands tables from stage to stage, the runner of the tasks hands references
into a workspace, whose kept work it uses again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rag_eval.benchmark import stages
from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.references import BenchmarkInputs
from rag_eval.benchmark.stage import Context, Shards, Stage
from rag_eval.errors import ConfigurationError
from rag_eval.parts import Searching, has_location, without
from rag_eval.retrieval.retriever import Retriever
from rag_eval.tables import TruthTables
from rag_eval.types.ids import EvaluationType

Run = Callable[..., Any]
"""Gives what a stage, its first argument, makes of parts, settings and what other stages of the same run made."""


@dataclass(frozen=True)
class InMemoryParts:
    """The parts of a configuration as they are, of any kind; ``retrieval`` is ``vector``, ``bm25`` or ``hybrid``."""

    chunker: Any
    retrieval: str = "vector"
    embedder: Any | None = None
    store: Any | None = None
    reranker: Any | None = None


@dataclass(frozen=True)
class InMemoryInputs:
    """What ``BenchmarkInputs`` has, as tables; metrics are names, or an object that scores passages."""

    level: EvaluationType
    documents: Shards
    truth: TruthTables
    metrics: Any
    ks: list[int]
    depth: int

    @property
    def queries(self) -> pa.Table:
        """Every query."""
        return self.truth.queries

    @property
    def chunk_truth(self) -> TruthTables | None:
        """The ground truth where it is chunk ids, which must fit the chunks."""
        return self.truth if self.level == "chunk-level" else None


Parts = Configuration | InMemoryParts
Inputs = BenchmarkInputs | InMemoryInputs


@dataclass(frozen=True)
class Evaluated:
    """What the stages made, as tables or references: ``hits`` by the name of their stage, the last ones scored."""

    hits: Mapping[str, Any]
    scores: Any
    chunks: Sequence[Any] = ()
    index: Any | None = None

    @property
    def final_hits(self) -> Any:
        """The hits of the last stage."""
        return list(self.hits.values())[-1]


def evaluate(run: Run, parts: Parts, inputs: Inputs) -> Evaluated:
    """Chunk, embed, index, retrieve, fuse, rerank and score with one configuration."""
    chunks = run(stages.chunk, inputs.documents, parts.chunker, inputs.chunk_truth)
    hits: dict[str, Any] = {}
    index = None
    if parts.embedder is not None:
        embeddings = run(stages.embed, chunks, parts.embedder)
        index = run(stages.index, chunks, embeddings, _as_filled(parts.store))
        hits["vector"] = run(
            stages.retrieve_by_vector, chunks, index, inputs.queries, parts.embedder, parts.store, inputs.depth
        )
    if parts.retrieval in ("bm25", "hybrid"):
        hits["words"] = run(stages.retrieve_by_words, chunks, inputs.queries, inputs.depth)
    if len(hits) > 1:
        hits["fused"] = run(stages.fuse, list(hits.values()), inputs.queries, inputs.depth)
    if parts.reranker is not None:
        found = list(hits.values())[-1]
        hits["reranked"] = run(stages.rerank, found, chunks, inputs.queries, parts.reranker)
    return _scored(run, inputs, hits, chunks, index)


def evaluate_system(run: Run, system: Retriever[Any], level: EvaluationType, inputs: Inputs) -> Evaluated:
    """Let a whole retrieval system index and retrieve, and score what it finds."""
    found = run(stages.ask_system, inputs.documents, inputs.queries, system, level, inputs.depth)
    return _scored(run, inputs, {"retrieved": found}, (), None)


def _scored(run: Run, inputs: Inputs, hits: dict[str, Any], chunks: Sequence[Any], index: Any) -> Evaluated:
    final = list(hits.values())[-1]
    scores = run(stages.score, final, inputs.truth, inputs.documents, chunks, inputs.metrics, inputs.ks)
    return Evaluated(hits, scores, chunks, index)


def _as_filled(store: Any) -> Any:
    """The store as its index depends on it: without what only a search uses; one that is filled in place, as it is."""
    return store if has_location(store) else without(store, Searching)


class InMemoryRun:
    """Runs stages on tables in memory, with parts of any kind; nothing is kept."""

    def __call__(self, stage: Stage[..., Any], *inputs: Any) -> Any:
        """What the stage makes; raises ``ConfigurationError`` on a stage that needs a workspace."""
        if stage.compute is None:
            raise ConfigurationError(f"the stage {stage.name} needs a workspace: it cannot be run in memory")
        made, _ = stage.compute(*inputs, context=Context())
        return [_whole(shard) for shard in made] if isinstance(made, list) else made


def _whole(shard: Any) -> pa.Table:
    return shard if isinstance(shard, pa.Table) else pa.concat_tables(shard)
