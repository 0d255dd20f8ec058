"""The link of an evaluation to a LangSmith dataset: ground truth from it, runs back to it."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rag_eval.errors import ServiceError
from rag_eval.metrics.table import score_name
from rag_eval.publishing.langsmith_client import langsmith_client
from rag_eval.publishing.langsmith_datasets import query_of, read_examples
from rag_eval.publishing.langsmith_experiments import ExampleOutcome, publish_experiment
from rag_eval.types.ids import QueryId

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example


class UnpublishedRunWarning(UserWarning):
    """A run is complete, and LangSmith did not take it."""


class LangSmithLink:
    """A dataset, and the client that reaches it: the one given, or one for the key in ``LANGSMITH_API_KEY``."""

    def __init__(self, dataset_name: str, client: "Client | None" = None) -> None:
        self.dataset_name = dataset_name
        self._client = client
        self._examples: list[Example] | None = None

    @property
    def has_key(self) -> bool:
        """Whether LangSmith can be asked at all."""
        return self._client is not None or bool(os.environ.get("LANGSMITH_API_KEY"))

    def examples(self) -> "list[Example]":
        """The examples of the dataset, read once; raises ``GroundTruthError`` or ``ServiceError``."""
        if self._examples is None:
            client = self._client or langsmith_client()
            try:
                self._examples = read_examples(client, self.dataset_name)
            finally:
                self._close(client)
        return self._examples

    def publish(
        self,
        name: str,
        outputs: Mapping[QueryId, Mapping[str, object]],
        scores: pa.Table,
        metadata: Mapping[str, object],
    ) -> str | None:
        """Send a run as an experiment and give back its address.

        None, with an ``UnpublishedRunWarning``, when LangSmith does not take it: the run itself is not lost by that.
        """
        by_query: dict[str, dict[str, float]] = {}
        for row in scores.to_pylist():
            by_query.setdefault(row["query_id"], {})[score_name(row["metric"], row["k"])] = row["value"]
        failures: list[Exception] = []
        client = self._client or langsmith_client(on_upload_error=failures.append)
        try:
            outcomes = _outcomes(self.examples(), self.dataset_name, outputs, by_query)
            return publish_experiment(client, name, outcomes, metadata, failures)
        except ServiceError as error:
            warnings.warn(f"{error}; the run is complete without it", UnpublishedRunWarning, stacklevel=3)
            return None
        finally:
            self._close(client)

    def _close(self, client: "Client") -> None:
        if client is not self._client:
            client.close()


def _outcomes(
    examples: "Sequence[Example]",
    dataset_name: str,
    outputs: Mapping[QueryId, Mapping[str, object]],
    scores: Mapping[str, Mapping[str, float]],
) -> list[ExampleOutcome]:
    found = []
    for example in examples:
        query_id = query_of(example, dataset_name).id
        if query_id in outputs:
            found.append(ExampleOutcome(example, outputs[query_id], scores.get(query_id, {})))
    if not found:
        raise ServiceError(f"no example of the LangSmith dataset {dataset_name!r} is a query of this run")
    return found
