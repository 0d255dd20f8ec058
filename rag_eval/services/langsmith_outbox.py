"""LangSmith through the outbox: ground truth and experiments that are put for it, and what sends them."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError

from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, ServiceError
from rag_eval.metrics.metric import score_name
from rag_eval.parts.part_settings import Record
from rag_eval.retry import PATIENT, RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService, has_langsmith_key
from rag_eval.services.langsmith_datasets import check_type, match_queries, push_records, read_examples, truth_records
from rag_eval.services.outbox import Delivery, Message, Outbox
from rag_eval.storage.files import data_sha256
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example, TracerSession

LANGSMITH_CHANNEL = "langsmith"
REQUEST_RECORDS = 200
REQUEST_BYTES = 4_000_000
SCORE_DIGITS = 4  # what LangSmith keeps, and its SDK sends

SELECTED = "?selectedSessions="
"""What stands between the page that compares the experiments of a dataset and the ids of those it shows."""

MakeId = Callable[..., UUID]
"""Gives an id for names: the same for the same names."""

Parts = list[tuple[str, bytes]]
"""What belongs together in a multipart request: names, and JSON."""


def comparison_url(urls: Sequence[str]) -> str:
    """Return where LangSmith shows experiments of one dataset, by their addresses, side by side."""
    page, ids = urls[0].partition(SELECTED)[0], [url.partition(SELECTED)[2] for url in urls]
    return f"{page}{SELECTED}{'%2C'.join(ids)}"


class RowOutcome(Record):
    """What one row of a dataset got: outputs, scores and comments by feedback key, or the error that it failed with.

    The row is an example by its id; a query of a benchmark may be one by its text too. A row that failed has no
    scores: that is not the same as scores of 0. ``comments`` explain scores, or why there is none under a key.
    """

    id: str
    text: str = ""
    outputs: dict[str, Any] = Field(default={})
    scores: dict[str, float] = Field(default={})
    comments: dict[str, str] = Field(default={})
    error: str | None = None


def row_outcomes(
    level: EvaluationType,
    queries: Sequence[Query],
    returned: pa.Table,
    scores: pa.Table,
    documents: Mapping[Any, Document],
    measured: Collection[str] | None = None,
) -> list[RowOutcome]:
    """Return what was retrieved for each query, ids of chunks or spans with their texts, and its scores.

    ``measured`` are the metrics to tell, by default all.
    """
    by_chunk = level == "chunk-level"
    found: dict[str, list[Any]] = {one.id: [] for one in queries}
    for row in returned.sort_by("rank").to_pylist():
        place = {key: row[key] for key in ("doc_id", "start", "end")}
        is_slice = not by_chunk and row["start"] is not None
        text = documents[row["doc_id"]].content[row["start"] : row["end"]] if is_slice else row["text"] or ""
        found[row["query_id"]].append(row["chunk_id"] if by_chunk else {**place, "text": text})
    given: dict[str, dict[str, float]] = {one.id: {} for one in queries}
    for row in scores.to_pylist():
        name = score_name(row["metric"], row["cut"], row["size"])
        if measured is None or name in measured:
            given[row["query_id"]][name] = row["value"]
    key = "retrieved_chunk_ids" if by_chunk else "retrieved_spans"
    return [RowOutcome(id=one.id, text=one.text, outputs={key: found[one.id]}, scores=given[one.id]) for one in queries]


@dataclass(frozen=True, slots=True)
class ExperimentUpload:
    """An experiment by its name, which nothing else in the workspace has, when it took place, and what its runs are."""

    name: str
    metadata: Mapping[str, object]
    rows: "Sequence[tuple[Example, RowOutcome]]"
    at: datetime
    run_name: str = "retrieve"
    run_type: str = "retriever"


class TruthPayload(Record):
    """Ground truth for a dataset, as the records of ``record_of``; see ``push_records`` for ``only_if_new``."""

    kind: Literal["truth"] = "truth"
    dataset: str
    evaluation_type: EvaluationType
    records: list[dict[str, Any]]
    only_if_new: bool = False


class ExperimentPayload(Record):
    """A configuration of a run, or a task of an experiment, for an experiment on a dataset.

    The rows of a run are its queries, known by their ids or their texts. Without an ``evaluation_type`` they are those
    of a task, known by the ids of their examples.
    """

    kind: Literal["experiment"] = "experiment"
    dataset: str
    name: str
    run: str
    at: datetime
    metadata: dict[str, Any]
    rows: list[RowOutcome]
    evaluation_type: EvaluationType | None = None
    run_name: str = "retrieve"
    run_type: str = "retriever"

    def on(self, examples: "Sequence[Example]", suffix: str) -> ExperimentUpload:
        """The experiment on the examples of the dataset; raises ``GroundTruthError`` when no row is one of them."""
        if self.evaluation_type is None:
            known = {str(example.id): example for example in examples}
            matches = [known.get(row.id) for row in self.rows]
        else:
            check_type(examples, self.evaluation_type, self.dataset)
            matches, _ = match_queries(examples, [(row.id, row.text) for row in self.rows], self.dataset)
        rows = [(example, row) for example, row in zip(matches, self.rows, strict=True) if example is not None]
        if not rows:
            raise GroundTruthError(
                f"no example of the LangSmith dataset {self.dataset!r} is one of {self.name!r}: push the ground truth "
                "of the run, read the rows of an experiment with LangSmithDataset, or name another dataset"
            )
        return ExperimentUpload(f"{self.name} {suffix}", self.metadata, rows, self.at, self.run_name, self.run_type)


_PAYLOADS: TypeAdapter[TruthPayload | ExperimentPayload] = TypeAdapter(
    Annotated[TruthPayload | ExperimentPayload, Field(discriminator="kind")]
)


def experiment_key(run: str, configuration: str, dataset: str) -> str:
    """Return the key of a configuration's message."""
    return f"experiment {configuration!r} of {run} on {dataset!r}"


def put_experiment(outbox: Outbox, key: str, payload: ExperimentPayload) -> Message:
    """Put one configuration of a run, or one task of an experiment."""
    return outbox.put(LANGSMITH_CHANNEL, key, payload.model_dump(mode="json"))


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
    kind, records = truth_records(truth, dataset)
    payload = TruthPayload(
        dataset=dataset, evaluation_type=kind, records=[dict(one) for one in records], only_if_new=only_if_new
    )
    suffix = f" for {dataset!r}" + (", if it is new" if only_if_new else "")
    key = f"ground truth {data_sha256(records)[:12]}{suffix}"
    # The new one first: a kill in between must not leave neither.
    message = outbox.put(LANGSMITH_CHANNEL, key, payload.model_dump(mode="json"), again=True)
    for older in () if only_if_new else outbox.waiting(LANGSMITH_CHANNEL):
        if older.key != key and older.key.startswith("ground truth ") and older.key.endswith(suffix):
            outbox.withdraw(LANGSMITH_CHANNEL, older.key)
    return message


def deliver_to_langsmith(outbox: Outbox, patience: RetryPolicy = PATIENT) -> list[Delivery]:
    """Send what waits for LangSmith alone, and say what became of each; raises what ``Outbox.deliver`` raises."""
    with closing(LangSmithSender(patience)) as sender:
        return outbox.deliver({LANGSMITH_CHANNEL: sender})


class LangSmithSender:
    """Sends the messages of the channel, with the key and the endpoint of the environment; ``close`` it."""

    def __init__(self, patience: RetryPolicy = PATIENT, *, timeout_seconds: float = 20.0) -> None:
        self._patience, self._timeout = patience, timeout_seconds
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
        service, dataset = self._connected(), payload.dataset
        if isinstance(payload, TruthPayload):
            self._examples.pop(dataset, None)
            report = push_records(
                service, dataset, payload.records, payload.evaluation_type, only_if_new=payload.only_if_new
            )
            counts = {"created": report.created, "updated": report.updated, "unchanged": report.unchanged}
            return {"url": report.url, "dataset": dataset, **counts}
        if dataset not in self._examples:
            self._examples[dataset] = read_examples(service, dataset)
        experiment = payload.on(self._examples[dataset], message.id.hex[:8])
        sent = {"url": publish_experiment(service, experiment, message.uuid), "dataset": dataset}
        absent = len(payload.rows) - len(experiment.rows)
        return {**sent, "absent": absent, **({"run": payload.run} if payload.evaluation_type else {})}

    def close(self) -> None:
        if self._service is not None:
            self._service.close()

    def _connected(self) -> LangSmithService:
        if not has_langsmith_key():
            raise ServiceError("LangSmith asks for a key and there is none: set LANGSMITH_API_KEY, then publish again")
        if self._service is None:
            try:
                self._service = LangSmithService.connect(self._patience, timeout_seconds=self._timeout)
            except ConfigurationError as error:  # it goes for every message
                raise ServiceError(str(error)) from None
        return self._service


def publish_experiment(service: LangSmithService, experiment: ExperimentUpload, make_id: MakeId) -> str:
    """Send an experiment on the dataset of its examples, and give back its address.

    All ids follow from ``make_id`` and all times from the experiment: sending it again completes it and
    never creates duplicates. Raises ``ServiceError`` when LangSmith does not take it all.
    """
    problem = f"LangSmith did not take the experiment {experiment.name!r}"
    project = service.ask(problem, partial(_project, experiment))
    runs = [_run_parts(example, row, experiment, make_id) for example, row in experiment.rows]
    scores = [
        parts
        for example, row in experiment.rows
        for parts in _score_parts(example, row, project.id, experiment.at.isoformat(), make_id)
    ]
    for batch in [*_requests(runs), *_requests(scores)]:
        if not service.ask(problem, partial(_ingest, batch)):
            # One of them is there already, from an attempt that was cut short: which, only they can tell.
            for parts in batch:
                service.ask(problem, partial(_ingest, [parts]))
    service.ask(problem, lambda client: client.update_project(project.id, end_time=datetime.now(UTC)))
    base, dataset = (project.url or "").split("/projects/p/")[0], experiment.rows[0][0].dataset_id
    return f"{base}/datasets/{dataset}/compare{SELECTED}{project.id}"


def _project(experiment: ExperimentUpload, client: "Client") -> "TracerSession":
    from langsmith.schemas import TracerSession
    from langsmith.utils import LangSmithConflictError

    try:
        project: TracerSession = client.create_project(
            experiment.name,
            reference_dataset_id=experiment.rows[0][0].dataset_id,
            metadata=dict(experiment.metadata),
            num_examples=len(experiment.rows),
            evaluator_keys=list(dict.fromkeys(key for _, row in experiment.rows for key in row.scores)),
        )
    except LangSmithConflictError:  # from an attempt that was cut short
        project = client.read_project(project_name=experiment.name)
    return project


def _run_parts(example: "Example", row: RowOutcome, experiment: ExperimentUpload, make_id: MakeId) -> Parts:
    run_id = make_id("run", str(example.id))
    # LangSmith knows a run by its start too: another time would make another run.
    at = experiment.at
    record = {
        "id": str(run_id),
        "trace_id": str(run_id),
        "dotted_order": f"{at:%Y%m%dT%H%M%S%f}Z{run_id}",
        "name": experiment.run_name,
        "run_type": experiment.run_type,
        "session_name": experiment.name,
        "start_time": at.isoformat(),
        "end_time": at.isoformat(),
        "reference_example_id": str(example.id),
    }
    result = ("outputs", row.outputs) if row.error is None else ("error", row.error)
    return [
        (f"post.{run_id}", _json(record)),
        (f"post.{run_id}.inputs", _json(dict(example.inputs or {}))),
        (f"post.{run_id}.{result[0]}", _json(result[1])),
    ]


def _score_parts(example: "Example", row: RowOutcome, project_id: UUID, at: str, make_id: MakeId) -> Iterator[Parts]:
    run_id = make_id("run", str(example.id))
    for key in dict.fromkeys([*row.scores, *row.comments]):
        score = row.scores.get(key)
        feedback_id = make_id("feedback", str(example.id), key)
        record = {
            "id": str(feedback_id),
            "run_id": str(run_id),
            "trace_id": str(run_id),
            "session_id": str(project_id),
            "key": key,
            "score": None if score is None else round(score, SCORE_DIGITS),
            "comment": row.comments.get(key),
            "feedback_source": {"type": "api", "metadata": {}},
            "created_at": at,
            "modified_at": at,
        }
        yield [(f"feedback.{feedback_id}", _json(record))]


def _ingest(batch: Sequence[Parts], client: "Client") -> bool:
    """Send records in one request; False when LangSmith has one of them already."""
    from langsmith.utils import LangSmithConflictError

    files = [
        (name, (None, data, "application/json", {"Content-Length": str(len(data))}))
        for parts in batch
        for name, data in parts
    ]
    try:
        # The SDK's own way to send runs hides failures, and logs them with a part of the key.
        client.request_with_retries("POST", "/runs/multipart", request_kwargs={"files": files})
    except LangSmithConflictError:
        return False
    return True


def _requests(records: Sequence[Parts]) -> Iterator[list[Parts]]:
    """Yield the records in requests of bounded number and size."""
    batch: list[Parts] = []
    size = 0
    for parts in records:
        own = sum(len(data) for _, data in parts)
        if batch and (len(batch) == REQUEST_RECORDS or size + own > REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(parts)
        size += own
    if batch:
        yield batch


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
