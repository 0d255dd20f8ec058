"""Evaluation through LangSmith's own ``evaluate``: a dataset there, a folder of documents here."""

import contextlib
import io
import uuid
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.embedding.embedder import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError, RagEvalError, ServiceError, preview
from rag_eval.ground_truth.check import check_chunk_ids, check_chunker
from rag_eval.metrics.metric import score_name
from rag_eval.retrieval.retriever import AnyChunker, Reranker
from rag_eval.retrieval.vector import VectorRAGRetriever
from rag_eval.retry import BRIEF
from rag_eval.services.langsmith_client import LangSmithService, has_langsmith_key, langsmith_client
from rag_eval.services.langsmith_datasets import RELEVANT_CHUNK_IDS, chunk_level_truth, query_ids, read_examples
from rag_eval.services.langsmith_experiments import ExampleOutcome, Experiment, check_uploads, publish_experiment
from rag_eval.services.langsmith_metrics import (
    ChunkLevelF1,
    ChunkLevelPrecision,
    ChunkLevelRecall,
    Metrics,
    get_langsmith_evaluators,
)
from rag_eval.stores.store import VectorStore
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import EvaluationResult, Query
from rag_eval.types.ids import QueryId

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

    from rag_eval.services.langsmith_evaluators import LangSmithEvaluator


class UnpublishedRunWarning(UserWarning):
    """A run is complete, and LangSmith did not take it, or not all of it."""


class LangSmithLink:
    """A dataset, and the client that reaches it: the one given, or one for the key in ``LANGSMITH_API_KEY``."""

    def __init__(self, dataset_name: str, client: "Client | None" = None) -> None:
        self.dataset_name = dataset_name
        self._client = client
        self._examples: list[Example] | None = None

    @property
    def has_key(self) -> bool:
        """Whether LangSmith can be asked at all."""
        return self._client is not None or has_langsmith_key()

    def examples(self) -> "list[Example]":
        """The examples of the dataset, read once; raises ``GroundTruthError`` or ``ServiceError``."""
        if self._examples is None:
            with self._service() as service:
                self._examples = read_examples(service, self.dataset_name)
        return self._examples

    def publish(
        self,
        name: str,
        outputs: Mapping[QueryId, Mapping[str, object]],
        scores: pa.Table,
        metadata: Mapping[str, object],
    ) -> str | None:
        """Send a run as an experiment and give back its address.

        None, with an ``UnpublishedRunWarning``, when that fails: the run itself is not lost by it. The same warning,
        and the address, when the dataset lacks queries of the run.
        """
        by_query: dict[str, dict[str, float]] = {}
        for row in scores.to_pylist():
            name = score_name(row["metric"], row["cut"], row["size"])
            by_query.setdefault(row["query_id"], {})[name] = row["value"]
        # Experiments of one name stand side by side.
        unique = uuid.uuid4()
        try:
            with self._service() as service:
                outcomes = _outcomes(self.examples(), self.dataset_name, outputs, by_query)
                experiment = Experiment(f"{name}-{unique.hex[:8]}", metadata, outcomes, datetime.now(UTC))
                url = publish_experiment(service, experiment, lambda *names: uuid.uuid5(unique, "/".join(names)))
        except RagEvalError as error:
            warnings.warn(f"{error}; the run is complete without it", UnpublishedRunWarning, stacklevel=4)
            return None
        absent = len(outputs.keys() - set(query_ids([one.example for one in outcomes], self.dataset_name)))
        if absent:
            warnings.warn(
                f"{absent} of the {len(outputs)} queries of the run are not in the LangSmith dataset "
                f"{self.dataset_name!r}, and not in its experiment: add them there",
                UnpublishedRunWarning,
                stacklevel=4,
            )
        return url

    @contextmanager
    def _service(self) -> Iterator[LangSmithService]:
        if self._client is not None:
            yield LangSmithService(self._client)
            return
        service = LangSmithService.connect(BRIEF)
        try:
            yield service
        finally:
            service.close()


def _outcomes(
    examples: "Sequence[Example]",
    dataset_name: str,
    outputs: Mapping[QueryId, Mapping[str, object]],
    scores: Mapping[str, Mapping[str, float]],
) -> list[ExampleOutcome]:
    found = []
    for query_id, example in zip(query_ids(examples, dataset_name), examples, strict=True):
        if query_id in outputs:
            found.append(ExampleOutcome(example, outputs[query_id], scores.get(query_id, {})))
    if not found:
        raise ServiceError(f"no example of the LangSmith dataset {dataset_name!r} is a query of this run")
    return found


REASON_CHARACTERS = 300
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
        in memory. Examples that cannot be scored (see ``Metrics``) are outside the averages. ``raw_results`` is
        LangSmith's own result. ``experiment_url`` is None, with an ``UnpublishedRunWarning``, when LangSmith evaluated
        and did not keep all runs and scores.
        Raises ``ConfigurationError`` on a k or metrics that cannot be used, and when a metric scored no example at
        all, with the first reason; ``GroundTruthError`` when the dataset was made with another chunker or other
        documents, and ``ServiceError`` when LangSmith fails.
        """
        evaluators = _evaluators(DEFAULT_METRICS if metrics is None else metrics, k)
        failures: list[Exception] | None = None if self._client else []
        client = self._client or langsmith_client(on_upload_error=None if failures is None else failures.append)
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
            self._check_chunks(examples, retriever)
            return _evaluate(client, examples, retriever, evaluators, k, failures)
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
    evaluators: "Sequence[LangSmithEvaluator]",
    k: int,
    upload_errors: list[Exception] | None,
) -> EvaluationResult:
    from langsmith.evaluation import evaluate
    from langsmith.utils import LangSmithError

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
        client.flush()
        url = results.url
    except LangSmithError as error:
        raise ServiceError(
            f"LangSmith did not take the experiment ({type(error).__name__}): check the key and the endpoint"
        ) from None
    scores = _scores(rows, [evaluator.name for evaluator in evaluators])
    given = Counter({key: len(values) for key, values in scores.items()})
    try:
        check_uploads(client, results.experiment_name, len(rows), given, upload_errors)
    except ServiceError as error:
        warnings.warn(f"{error}; the averages are complete without it", UnpublishedRunWarning, stacklevel=3)
        url = None
    return EvaluationResult({key: fmean(values) for key, values in scores.items()}, url, results)


def _evaluators(metrics: Mapping[str, Metrics] | Collection[Metrics], k: int) -> "list[LangSmithEvaluator]":
    given = list(metrics.values()) if isinstance(metrics, Mapping) else metrics
    evaluators = get_langsmith_evaluators(metrics, k)
    if not evaluators:
        raise ConfigurationError("there is no metric to compute: name at least one, or leave metrics out")
    for metric in given:
        if metric.level != "chunk-level":
            raise ConfigurationError(
                f"{type(metric).__name__} is a {metric.level} metric and this is a chunk-level evaluation: "
                "use one that derives from Metrics, or TokenLevelEvaluation"
            )
    return evaluators


def _scores(rows: Sequence[Any], keys: Sequence[str]) -> dict[str, list[float]]:
    """The scores by feedback key; raises ``ConfigurationError``, with the first reason, when there are none for one."""
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
            first = reasons.get(key, "without feedback").splitlines()[0]  # the rest of an error is its traceback
            raise ConfigurationError(
                f"{key} scored none of the {len(rows)} examples, the first for {preview(first, REASON_CHARACTERS)}"
            )
    return scores
