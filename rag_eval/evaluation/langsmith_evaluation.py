"""Evaluation through LangSmith's own ``evaluate``: a dataset there, a folder of documents here."""

import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rag_eval.chunking.recursive_character import RecursiveCharacterChunker
from rag_eval.embedding.base import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ServiceError
from rag_eval.evaluation.chunker_match import check_chunk_ids, check_chunker
from rag_eval.evaluation.metrics import ChunkLevelF1, ChunkLevelPrecision, ChunkLevelRecall, Metrics
from rag_eval.evaluation.metrics.base import get_langsmith_evaluators
from rag_eval.evaluation.metrics.extraction import RELEVANT_CHUNK_IDS
from rag_eval.publishing.langsmith_client import langsmith_client
from rag_eval.publishing.langsmith_datasets import chunk_level_truth, read_examples
from rag_eval.retrieval.base import Reranker
from rag_eval.retrieval.chunked import AnyChunker
from rag_eval.retrieval.vector import VectorRAGRetriever
from rag_eval.stores.base import VectorStore
from rag_eval.types.chunk import Chunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query
from rag_eval.types.result import EvaluationResult

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

DEFAULT_METRICS: dict[str, Metrics] = {
    "recall": ChunkLevelRecall(),
    "precision": ChunkLevelPrecision(),
    "f1": ChunkLevelF1(),
}


class Evaluation:
    """Chunk-level evaluation of a folder of documents against a LangSmith dataset, with any ``Metrics``.

    Every run is an experiment of the dataset. The key and the endpoint are those of the environment unless a
    ``langsmith_client`` is given. Raises ``ConfigurationError`` without a key, ``CorpusError`` on the folder, and
    ``GroundTruthError`` on the dataset.
    """

    def __init__(
        self,
        langsmith_dataset_name: str,
        kb_data_path: str | Path,
        *,
        glob: str = "**/*.md",
        langsmith_client: "Client | None" = None,
    ) -> None:
        self._dataset_name = langsmith_dataset_name
        self._corpus = Corpus.from_folder(kb_data_path, glob)
        self._client = langsmith_client

    def run(
        self,
        k: int = 5,
        metrics: Mapping[str, Metrics] | Collection[Metrics] | None = None,
        *,
        chunker: AnyChunker | None = None,
        embedder: Embedder | None = None,
        vector_store: VectorStore | None = None,
        reranker: Reranker | None = None,
    ) -> EvaluationResult:
        """Retrieve for every example, let LangSmith evaluate, and give back the averages by feedback key.

        Unless given: recall, precision and F1; recursive chunks of 1,000 characters; the local embedder; the store
        in memory. Examples that cannot be scored (see ``Metrics``) are outside the averages; a metric that scored
        none is left out. ``raw_results`` is LangSmith's own result.
        Raises ``GroundTruthError`` when the dataset was made with another chunker or other documents, and
        ``ServiceError`` when LangSmith fails.
        """
        client = self._client or langsmith_client()
        try:
            examples = read_examples(client, self._dataset_name)
            retriever = VectorRAGRetriever(
                chunker or RecursiveCharacterChunker(),
                embedder or LocalEmbedder(),
                vector_store,
                reranker,
                evaluation_type="chunk-level",
            )
            retriever.index(self._corpus)
            self._check_chunks(examples, retriever)
            return _evaluate(client, examples, retriever, DEFAULT_METRICS if metrics is None else metrics, k)
        finally:
            if client is not self._client:
                client.close()

    def _check_chunks(self, examples: "Sequence[Example]", retriever: VectorRAGRetriever[Chunk]) -> None:
        # A dataset of another shape is for the metrics' own extraction to read.
        known = [example for example in examples if any(key in (example.outputs or {}) for key in RELEVANT_CHUNK_IDS)]
        truth = chunk_level_truth(known, self._dataset_name)
        check_chunker(truth, retriever.chunker_name)
        check_chunk_ids(truth, retriever.indexed_chunks())


def _evaluate(
    client: "Client",
    examples: "Sequence[Example]",
    retriever: VectorRAGRetriever[Chunk],
    metrics: Mapping[str, Metrics] | Collection[Metrics],
    k: int,
) -> EvaluationResult:
    from langsmith.evaluation import evaluate
    from langsmith.utils import LangSmithError

    evaluators = get_langsmith_evaluators(metrics, k)

    def retrieve(inputs: dict[str, Any]) -> dict[str, list[str]]:
        (hits,) = retriever.retrieve([Query.from_text(inputs["query"])], k)
        return {"retrieved_chunk_ids": [hit.chunk.id for hit in hits]}

    try:
        # LangSmith announces the experiment on standard output; its address is in the result.
        with contextlib.redirect_stdout(io.StringIO()):
            results = evaluate(
                retrieve,
                data=examples,
                evaluators=evaluators,
                experiment_prefix="rag-eval",
                metadata={"retriever": retriever.name, "k": k},
                client=client,
                disable_evaluator_tracing=True,
            )
        rows = list(results)
        url = results.url
    except LangSmithError as error:
        raise ServiceError(
            f"LangSmith did not take the experiment ({type(error).__name__}): check the key and the endpoint"
        ) from None
    scores: dict[str, list[float]] = {evaluator.name: [] for evaluator in evaluators}
    for row in rows:
        for feedback in row["evaluation_results"]["results"]:
            if feedback.key in scores and feedback.score is not None:
                scores[feedback.key].append(float(feedback.score))
    averages = {key: fmean(values) for key, values in scores.items() if values}
    return EvaluationResult(averages, url, results)
