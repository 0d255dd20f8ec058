"""Evaluate a folder of documents against a LangSmith dataset, and publish evaluations there."""

import io
import uuid
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.embedding.embedder import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError, RagEvalError, ServiceError, preview
from rag_eval.evaluation.metrics import ChunkLevelF1, ChunkLevelPrecision, ChunkLevelRecall, get_langsmith_evaluators
from rag_eval.evaluation.metrics.base import Metrics
from rag_eval.ground_truth.check import check_chunk_ids, check_chunker
from rag_eval.retrieval.retriever import AnyChunker, Reranker
from rag_eval.retrieval.retrievers import VectorRAGRetriever
from rag_eval.retry import BRIEF
from rag_eval.services.langsmith_client import LangSmithService, has_langsmith_key, langsmith_client
from rag_eval.services.langsmith_datasets import RELEVANT_CHUNK_IDS, chunk_level_truth, read_examples
from rag_eval.services.langsmith_experiments import ExperimentUpload, RowOutcome, matched_rows, publish_experiment
from rag_eval.stores.store import VectorStore
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import EvaluationResult, Query

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

    from rag_eval.evaluation.metrics.langsmith_evaluators import LangSmithEvaluator

REASON_CHARACTERS = 300
DEFAULT_METRICS: dict[str, Metrics] = {
    "recall": ChunkLevelRecall(),
    "precision": ChunkLevelPrecision(),
    "f1": ChunkLevelF1(),
}


class UnpublishedRunWarning(UserWarning):
    """A run is complete, but not all of it was published to LangSmith."""


class LangSmithLink:
    """A dataset and its client; the default client uses ``LANGSMITH_API_KEY``."""

    def __init__(self, dataset_name: str, client: "Client | None" = None) -> None:
        self.dataset_name = dataset_name
        self._client = client
        self._examples: list[Example] | None = None

    @property
    def has_key(self) -> bool:
        return self._client is not None or has_langsmith_key()

    def examples(self) -> "list[Example]":
        """Return the examples of the dataset, which are read once; raises ``GroundTruthError`` or ``ServiceError``."""
        if self._examples is None:
            with self._service() as service:
                self._examples = read_examples(service, self.dataset_name)
        return self._examples

    def publish(self, name: str, outcomes: Sequence[RowOutcome], metadata: Mapping[str, object]) -> str | None:
        """Send a run as an experiment and return its address.

        If this fails, warns with ``UnpublishedRunWarning`` and returns None. Also warns if the dataset lacks some
        queries.
        """
        try:
            with self._service() as service:
                rows = matched_rows(self.examples(), outcomes, self.dataset_name)
                url = publish_experiment(
                    service, ExperimentUpload(uuid.uuid4(), name, metadata, rows, datetime.now(UTC))
                )
        except RagEvalError as error:
            warnings.warn(f"{error}; the run is complete without it", UnpublishedRunWarning, stacklevel=4)
            return None
        if len(rows) < len(outcomes):
            warnings.warn(
                f"{len(outcomes) - len(rows)} of the {len(outcomes)} queries of the run are not in the LangSmith "
                f"dataset {self.dataset_name!r}, so they are not in the experiment: add them to the dataset",
                UnpublishedRunWarning,
                stacklevel=4,
            )
        return url

    @contextmanager
    def _service(self) -> Iterator[LangSmithService]:
        if self._client is not None:
            yield LangSmithService(self._client)
        else:
            with closing(LangSmithService.connect(BRIEF)) as service:
                yield service


class Evaluation:
    """Chunk-level evaluation of a folder of documents with LangSmith's ``evaluate`` and any ``Metrics``.

    Every run is an experiment on the dataset. Without a ``langsmith_client``, the key and the endpoint are
    ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.

    Example:
        Evaluation(langsmith_dataset_name="ferry", kb_data_path="docs").run(k=5, metrics={"recall": ChunkLevelRecall()})

    Raises:
        CorpusError: The folder cannot be read.
    """

    def __init__(
        self,
        langsmith_dataset_name: str,
        kb_data_path: str | Path,
        *,
        glob: str | Sequence[str] = "**/*.md",
        loaders: Mapping[str, object] | None = None,
        langsmith_client: "Client | None" = None,
    ) -> None:
        self._dataset_name = langsmith_dataset_name
        self._corpus = Corpus.from_folder(kb_data_path, glob, loaders)
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
        """Retrieve for every example, score with LangSmith, and return the averages by feedback key.

        ``raw_results`` is LangSmith's own result. ``experiment_url`` is None, with an ``UnpublishedRunWarning``, if
        LangSmith did not take all runs and scores.

        Args:
            k: How many chunks are retrieved.
            metrics: Metrics by name, or a list or set of them. Default: recall, precision and F1.
            chunker: A chunker. Default: recursive chunks of 1,000 characters.
            embedder: An embedder. Default: the local one.
            vector_store: A store. Default: in memory.
            reranker: A reranker.

        Raises:
            ConfigurationError: There is no key, k or a metric cannot be used, or a metric scored no example.
            GroundTruthError: The dataset is missing, or was made with another chunker or other documents.
            ServiceError: LangSmith fails.
        """
        evaluators = _evaluators(DEFAULT_METRICS if metrics is None else metrics, k)
        failures: list[Exception] = []
        client = self._client or langsmith_client(tracing_error_callback=failures.append)
        try:
            examples = read_examples(LangSmithService(client), self._dataset_name)
            retriever = VectorRAGRetriever(
                chunker or RecursiveCharacterChunker(),
                embedder or LocalEmbedder(),
                vector_store,
                reranker,
                evaluation_type="chunk-level",
            )
            retriever.index(self._corpus)
            # Other examples are for the user's own extraction.
            known = [item for item in examples if any(key in (item.outputs or {}) for key in RELEVANT_CHUNK_IDS)]
            truth = chunk_level_truth(known, self._dataset_name)
            check_chunker(truth, retriever.chunker_name)
            check_chunk_ids(truth, retriever.indexed_chunks())
            return _evaluate(client, examples, retriever, evaluators, k, failures)
        finally:
            if client is not self._client:
                client.close()


def _evaluators(metrics: Mapping[str, Metrics] | Collection[Metrics], k: int) -> "list[LangSmithEvaluator]":
    evaluators = get_langsmith_evaluators(metrics, k)
    if not evaluators:
        raise ConfigurationError("there is no metric to compute: name at least one, or leave metrics out")
    metric = next(iter(metrics.values() if isinstance(metrics, Mapping) else metrics))  # all metrics are of one level
    if metric.level != "chunk-level":
        raise ConfigurationError(
            f"{type(metric).__name__} is a {metric.level} metric and this is a chunk-level evaluation: "
            "use one that derives from Metrics, or TokenLevelEvaluation"
        )
    return evaluators


def _evaluate(
    client: "Client",
    examples: "Sequence[Example]",
    retriever: VectorRAGRetriever[Chunk],
    evaluators: "Sequence[LangSmithEvaluator]",
    k: int,
    upload_errors: Sequence[Exception],
) -> EvaluationResult:
    from langsmith.evaluation import evaluate
    from langsmith.utils import LangSmithError

    quiet = ExitStack()

    def retrieve(inputs: dict[str, str]) -> dict[str, list[str]]:
        quiet.close()  # parts and metrics may print
        (hits,) = retriever.retrieve([Query.from_text(inputs["query"])], k)
        return {"retrieved_chunk_ids": [hit.chunk.id for hit in hits]}

    try:
        with quiet:
            # LangSmith prints the experiment's address, which is in the result.
            quiet.enter_context(redirect_stdout(io.StringIO()))
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
        client.flush()
        url = results.url
    except LangSmithError as error:
        raise ServiceError(
            f"LangSmith did not take the experiment ({type(error).__name__}): check the key and the endpoint"
        ) from None
    scores = _scores(rows, [evaluator.name for evaluator in evaluators])
    if upload_errors:
        what = f"{results.experiment_name!r} ({type(upload_errors[0]).__name__}, {len(upload_errors)} failures)"
        problem = f"LangSmith did not take the experiment {what}: check the key and the endpoint"
        warnings.warn(f"{problem}; the averages are complete without it", UnpublishedRunWarning, stacklevel=3)
        url = None
    return EvaluationResult({key: fmean(values) for key, values in scores.items()}, url, results)


def _scores(rows: Sequence[Any], keys: Sequence[str]) -> dict[str, list[float]]:
    """Return the scores by feedback key; raise ``ConfigurationError`` with a reason if a key has no score."""
    scores: dict[str, list[float]] = {key: [] for key in keys}
    reasons: dict[str, str] = {}
    for row in rows:
        for feedback in row["evaluation_results"]["results"]:
            if feedback.key in scores and feedback.score is not None:
                scores[feedback.key].append(float(feedback.score))
            else:
                reasons.setdefault(feedback.key, row["run"].error or feedback.comment or "without a reason")
    for key, values in scores.items():
        if not values:
            first = reasons.get(key, "without feedback").splitlines()[0]  # the other lines are a traceback
            reason = preview(first, REASON_CHARACTERS)
            raise ConfigurationError(f"{key} scored none of the {len(rows)} examples; the first reason is {reason}")
    return scores
