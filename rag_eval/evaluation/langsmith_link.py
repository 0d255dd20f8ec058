"""The link of an evaluation to a LangSmith dataset: ground truth from it, runs back to it."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rag_eval.errors import RagEvalError, ServiceError
from rag_eval.metrics.table import score_name
from rag_eval.publishing.langsmith_client import langsmith_client
from rag_eval.publishing.langsmith_datasets import query_of, read_examples
from rag_eval.publishing.langsmith_experiments import ExampleOutcome, publish_experiment
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

        None, with an ``UnpublishedRunWarning``, when that fails: the run itself is not lost by it. The same warning,
        and the address, when the dataset lacks queries of the run.
        """
        by_query: dict[str, dict[str, float]] = {}
        for row in scores.to_pylist():
            by_query.setdefault(row["query_id"], {})[score_name(row["metric"], row["k"])] = row["value"]
        failures: list[Exception] = []
        client: Client | None = None
        try:
            client = self._client or langsmith_client(on_upload_error=failures.append)
            outcomes = _outcomes(self.examples(), self.dataset_name, outputs, by_query)
            ours = client is not self._client
            url = publish_experiment(client, name, outcomes, metadata, failures if ours else None)
        except RagEvalError as error:
            warnings.warn(f"{error}; the run is complete without it", UnpublishedRunWarning, stacklevel=4)
            return None
        finally:
            self._close(client)
        absent = len(outputs.keys() - {query_of(one.example, self.dataset_name).id for one in outcomes})
        if absent:
            warnings.warn(
                f"{absent} of the {len(outputs)} queries of the run are not in the LangSmith dataset "
                f"{self.dataset_name!r}, and not in its experiment: add them there",
                UnpublishedRunWarning,
                stacklevel=4,
            )
        return url

    def _close(self, client: "Client | None") -> None:
        if client is not None and client is not self._client:
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
