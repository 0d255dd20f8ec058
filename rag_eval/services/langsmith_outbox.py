"""LangSmith through the outbox: what is put for it, and what sends it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rag_eval.disk.files import data_sha256
from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, ServiceError
from rag_eval.retry import PATIENT, RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService, has_langsmith_key
from rag_eval.services.langsmith_datasets import check_type, match_queries, read_examples
from rag_eval.services.langsmith_experiments import (
    ExampleOutcome,
    Experiment,
    publish_experiment,
)
from rag_eval.services.langsmith_push import push_records, record_of
from rag_eval.services.outbox import Delivery, Message, Outbox
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

if TYPE_CHECKING:
    from langsmith.schemas import Example

LANGSMITH_CHANNEL = "langsmith"


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowOutcome(_Plain):
    """What one row of a dataset got: outputs, scores and comments by feedback key, or the error that it failed with.

    The row is an example by its id; a query of a benchmark may be one by its text too.
    """

    id: str
    text: str = ""
    outputs: dict[str, Any] = {}
    scores: dict[str, float] = {}
    comments: dict[str, str] = {}
    error: str | None = None


class TruthPayload(_Plain):
    """Ground truth for a dataset, as the records of ``record_of``; see ``push_records`` for ``only_if_new``."""

    kind: Literal["truth"] = "truth"
    dataset: str
    evaluation_type: EvaluationType
    records: list[dict[str, Any]]
    only_if_new: bool = False


class ExperimentPayload(_Plain):
    """One configuration of a run, for an experiment on a dataset."""

    kind: Literal["experiment"] = "experiment"
    dataset: str
    evaluation_type: EvaluationType
    run: str
    configuration: str
    at: datetime
    metadata: dict[str, Any]
    queries: list[RowOutcome]


class TaskPayload(_Plain):
    """One task of an experiment, on a dataset."""

    kind: Literal["task"] = "task"
    dataset: str
    experiment: str
    run: str
    task: str
    at: datetime
    metadata: dict[str, Any]
    rows: list[RowOutcome]

    @property
    def key(self) -> str:
        """The key of its message."""
        return f"task {self.task!r} of {self.experiment!r}, {self.run}, on {self.dataset!r}"


_PAYLOADS: TypeAdapter[TruthPayload | ExperimentPayload | TaskPayload] = TypeAdapter(
    Annotated[TruthPayload | ExperimentPayload | TaskPayload, Field(discriminator="kind")]
)


def put_truth(
    outbox: Outbox,
    dataset: str,
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    *,
    only_if_new: bool = False,
) -> Message:
    """Put ground truth for a dataset; what still waits for it from before is taken back.

    What was sent before is put again: the dataset may have got other truth since, or have been deleted. With
    ``only_if_new`` it is for a dataset that is not there, or is empty, and takes nothing back. Raises
    ``GroundTruthError`` when there is none.
    """
    if not truth:
        raise GroundTruthError(f"there is no ground truth for {dataset!r}: give at least one query")
    kind: EvaluationType = "token-level" if isinstance(truth[0], TokenLevelGroundTruth) else "chunk-level"
    records = [dict(record_of(item)) for item in truth]
    payload = TruthPayload(dataset=dataset, evaluation_type=kind, records=records, only_if_new=only_if_new)
    suffix = f" for {dataset!r}" + (", if it is new" if only_if_new else "")
    key = f"ground truth {data_sha256(records)[:12]}{suffix}"
    # The new one first: a kill in between must not leave neither.
    message = outbox.put(LANGSMITH_CHANNEL, key, payload.model_dump(mode="json"), again=True)
    for older in () if only_if_new else outbox.waiting(LANGSMITH_CHANNEL):
        if older.key != key and older.key.startswith("ground truth ") and older.key.endswith(suffix):
            outbox.withdraw(LANGSMITH_CHANNEL, older.key)
    return message


def experiment_key(run: str, configuration: str, dataset: str) -> str:
    """Return the key of a configuration's message."""
    return f"experiment {configuration!r} of {run} on {dataset!r}"


def put_experiment(outbox: Outbox, payload: ExperimentPayload) -> Message:
    """Put one configuration of a run."""
    key = experiment_key(payload.run, payload.configuration, payload.dataset)
    return outbox.put(LANGSMITH_CHANNEL, key, payload.model_dump(mode="json"))


class LangSmithSender:
    """Sends the messages of the channel, with the key and the endpoint of the environment; ``close`` it."""

    def __init__(self, patience: RetryPolicy = PATIENT, *, timeout_seconds: float = 20.0) -> None:
        self._patience = patience
        self._timeout = timeout_seconds
        self._service: LangSmithService | None = None
        self._examples: dict[str, list[Example]] = {}

    def __call__(self, message: Message) -> Mapping[str, Any]:
        """Send a message; the details have the address under ``url``.

        Raises ``ServiceError`` without a key and when LangSmith fails, ``GroundTruthError`` when the dataset does not
        fit, ``ArtifactError`` when the message makes no sense.
        """
        try:
            payload = _PAYLOADS.validate_python(message.payload)
        except ValidationError as error:
            first = error.errors()[0]
            raise ArtifactError(
                f"the message {str(message.path)!r} is of another version ({first['loc']}: {first['msg']}): "
                "remove it, and publish again what it was"
            ) from None
        service = self._connected()
        if isinstance(payload, ExperimentPayload):
            return self._send_experiment(service, message, payload)
        if isinstance(payload, TaskPayload):
            return self._send_task(service, message, payload)
        self._examples.pop(payload.dataset, None)
        report = push_records(
            service, payload.dataset, payload.records, payload.evaluation_type, only_if_new=payload.only_if_new
        )
        counts = {"created": report.created, "updated": report.updated, "unchanged": report.unchanged}
        return {"url": report.url, "dataset": payload.dataset, **counts}

    def close(self) -> None:
        """End the connections."""
        if self._service is not None:
            self._service.close()

    def _send_experiment(
        self, service: LangSmithService, message: Message, payload: ExperimentPayload
    ) -> Mapping[str, Any]:
        dataset = payload.dataset
        examples = self._examples_of(service, dataset)
        check_type(examples, payload.evaluation_type, dataset)
        matches, _ = match_queries(examples, [(query.id, query.text) for query in payload.queries], dataset)
        outcomes = [
            ExampleOutcome(example, query.outputs, query.scores, query.error)
            for query, example in zip(payload.queries, matches, strict=True)
            if example is not None
        ]
        if not outcomes:
            raise GroundTruthError(
                f"no example of the LangSmith dataset {dataset!r} is a query of the run {payload.run}: "
                "push its ground truth, or name another dataset"
            )
        name = f"{payload.configuration} {message.id.hex[:8]}"
        experiment = Experiment(name, payload.metadata, outcomes, payload.at)
        url = publish_experiment(service, experiment, message.uuid)
        absent = len(payload.queries) - len(outcomes)
        return {"url": url, "dataset": dataset, "run": payload.run, "queries": len(outcomes), "absent": absent}

    def _send_task(self, service: LangSmithService, message: Message, payload: TaskPayload) -> Mapping[str, Any]:
        experiment = _task_experiment(payload, message, self._examples_of(service, payload.dataset))
        url = publish_experiment(service, experiment, message.uuid)
        return {"url": url, "dataset": payload.dataset, "absent": len(payload.rows) - len(experiment.outcomes)}

    def _examples_of(self, service: LangSmithService, dataset: str) -> "list[Example]":
        if dataset not in self._examples:
            self._examples[dataset] = read_examples(service, dataset)
        return self._examples[dataset]

    def _connected(self) -> LangSmithService:
        if not has_langsmith_key():
            raise ServiceError("LangSmith asks for a key and there is none: set LANGSMITH_API_KEY, then publish again")
        if self._service is None:
            try:
                self._service = LangSmithService.connect(self._patience, timeout_seconds=self._timeout)
            except ConfigurationError as error:  # it goes for every message
                raise ServiceError(str(error)) from None
        return self._service


def _task_experiment(payload: TaskPayload, message: Message, examples: "Sequence[Example]") -> Experiment:
    """Return the experiment that a payload makes on the examples of its dataset.

    Raises ``GroundTruthError`` when no row is an example of it.
    """
    known = {str(example.id): example for example in examples}
    outcomes = [
        ExampleOutcome(known[row.id], row.outputs, row.scores, row.error, row.comments)
        for row in payload.rows
        if row.id in known
    ]
    if not outcomes:
        raise GroundTruthError(
            f"no row of {payload.experiment!r} is an example of the LangSmith dataset {payload.dataset!r}: "
            "read its rows with LangSmithDataset, or give them the id of their example"
        )
    name = f"{payload.experiment} {payload.task} {message.id.hex[:8]}"
    return Experiment(name, payload.metadata, outcomes, payload.at, payload.task, "chain")


def deliver_to_langsmith(outbox: Outbox, patience: RetryPolicy = PATIENT) -> list[Delivery]:
    """Send what waits for LangSmith alone, and say what became of each; raises what ``Outbox.deliver`` raises."""
    sender = LangSmithSender(patience)
    try:
        return outbox.deliver({LANGSMITH_CHANNEL: sender})
    finally:
        sender.close()
