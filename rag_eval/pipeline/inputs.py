"""What all configurations of a benchmark share."""

from pydantic import BaseModel, ConfigDict

from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.pipeline.references import TableRef, TruthRef
from rag_eval.retrieval.base import candidates_for


class BenchmarkInputs(BaseModel):
    """Documents and truth by reference, and what is asked of every configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: TableRef
    truth: TruthRef
    metrics: list[str]
    ks: list[int]
    depth: int
    """How many candidates are fetched: deep enough to be fused or reranked, and the same for all configurations, so
    that what one has searched another can use."""

    @classmethod
    def of(cls, config: BenchmarkConfig, documents: TableRef, truth: TruthRef) -> "BenchmarkInputs":
        """The inputs of a benchmark."""
        depth = candidates_for(max(config.k), config.fetch_k)
        return cls(documents=documents, truth=truth, metrics=config.metrics, ks=config.k, depth=depth)

    @property
    def queries(self) -> TableRef:
        """Every query."""
        return self.truth.queries

    @property
    def deepest_k(self) -> int:
        """The largest k."""
        return max(self.ks)

    @property
    def chunk_truth(self) -> TruthRef | None:
        """The ground truth where it is chunk ids, which must fit the chunks."""
        return self.truth if self.truth.evaluation_type == "chunk-level" else None
