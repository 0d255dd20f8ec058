"""Define the inputs of every configuration: documents and ground truth by reference, metrics and search depth."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from rag_eval.config.models import BenchmarkConfig
from rag_eval.config.objective import measured_by, metric_column
from rag_eval.errors import EmptyCorpusError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics.metric import largest_budget, largest_hits, requested_metrics
from rag_eval.pipeline.references import Frozen, TableRef, TruthRef, digest_of
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.retrieval.retriever import candidates_for
from rag_eval.storage.files import data_sha256
from rag_eval.types.ids import EvaluationType


class TruthSource(Frozen):
    """The source of a run's ground truth: a file, or the names of sources with the digest of the result."""

    digest: str
    path: Path | None = None
    name: str = ""

    @classmethod
    def of(cls, config: BenchmarkConfig, truth: TruthRef) -> "TruthSource":
        """Return the sources of a benchmark with this ground truth."""
        files = [source.path for source in config.ground_truth if isinstance(source, FileTruth)]
        if len(config.ground_truth) == 1 and files and truth.source is not None:
            return cls(path=files[0], name=str(files[0]), digest=truth.source)
        name = ", ".join(source.title for source in config.ground_truth)
        return cls(name=name, digest=data_sha256([truth.queries.digest, truth.answers.digest]))


def measured_metrics(config: BenchmarkConfig) -> list[Any]:
    """Return the metrics of a benchmark."""
    return measured_by(config.metrics, config.k, config.objective, config.evaluation_type, config.budget)


def search_depth(config: BenchmarkConfig, metrics: list[Any]) -> SearchDepth:
    """Return how many hits a benchmark fetches: ``fetch_k``, or as many as its metrics need."""
    requested = requested_metrics(metrics, config.k, config.evaluation_type)
    candidates = candidates_for(max(*config.k, largest_hits(requested)), config.fetch_k)
    return SearchDepth(candidates=candidates, tokens=0 if config.fetch_k is not None else largest_budget(requested))


class BenchmarkInputs(BaseModel):
    """Documents and ground truth by reference, the metrics, and the search depth."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: list[TableRef]
    truth: TruthRef
    metrics: list[Annotated[Any, PlainSerializer(metric_column, return_type=str), WithJsonSchema({"type": "string"})]]
    """Names of built-in metrics, and metrics of users, which are stored by name."""
    ks: list[int]
    depth: SearchDepth
    """How many hits to fetch: ``fetch_k``, or enough to fuse, to rerank and to fill the largest budget. It is the same
    for all configurations of a chunker, so that they share searches."""

    @classmethod
    def of(cls, config: BenchmarkConfig, documents: list[TableRef], truth: TruthRef) -> "BenchmarkInputs":
        """Return the inputs of a benchmark; raises ``EmptyCorpusError`` if no document can be read."""
        if not sum(shard.rows for shard in documents):
            raise EmptyCorpusError(f"no document in {str(config.corpus)!r} can be read: rag-eval validate says why")
        metrics = measured_metrics(config)
        depth = search_depth(config, metrics)
        return cls(documents=documents, truth=truth, metrics=metrics, ks=config.k, depth=depth)

    @property
    def documents_digest(self) -> str:
        """Return the digest of all documents."""
        return digest_of(self.documents)

    @property
    def evaluation_type(self) -> EvaluationType:
        """Return whether spans (token-level) or chunk ids (chunk-level) are scored."""
        return self.truth.evaluation_type

    @property
    def chunk_truth(self) -> TruthRef | None:
        """Return the ground truth to check chunks against: chunk-level ground truth."""
        return self.truth if self.evaluation_type == "chunk-level" else None
