"""The link of an evaluation to a LangSmith dataset: ground truth from it, runs back to it."""

import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from rag_eval.errors import RagEvalError, ServiceError
from rag_eval.metrics.table import score_name
from rag_eval.publishing.langsmith_client import has_langsmith_key
from rag_eval.publishing.langsmith_datasets import query_ids, read_examples
from rag_eval.publishing.langsmith_experiments import ExampleOutcome, Experiment, publish_experiment
from rag_eval.publishing.langsmith_service import BRIEF, LangSmithService
from rag_eval.types.ids import QueryId

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example


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
            by_query.setdefault(row["query_id"], {})[score_name(row["metric"], row["k"])] = row["value"]
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
