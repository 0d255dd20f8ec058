"""Publish results as LangSmith experiments.

Ids and times come from the results, so that publishing again completes an interrupted experiment and creates no
duplicates.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

import pyarrow as pa

from rag_eval.errors import GroundTruthError
from rag_eval.metrics.metric import score_name
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import match_queries
from rag_eval.storage.files import data_sha256
from rag_eval.tables import Row
from rag_eval.types.documents import Document, Documents, by_id
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example, TracerSession

NAMESPACE = UUID("6b0f2f54-4c1e-5d0a-9a53-0c2d1f6f7c11")
REQUEST_RECORDS = 200
REQUEST_BYTES = 4_000_000
SCORE_DIGITS = 4  # limits of LangSmith, and of its SDK
SELECTED = "?selectedSessions="

Parts = list[tuple[str, bytes]]
"""The parts of one record in a multipart request: names and JSON."""


def service_id(*names: str) -> UUID:
    """Return an id derived from names."""
    return uuid5(NAMESPACE, data_sha256(names))


def comparison_url(urls: Sequence[str]) -> str:
    """Return the address where LangSmith compares experiments on one dataset, given their addresses."""
    page, ids = urls[0].partition(SELECTED)[0], [url.partition(SELECTED)[2] for url in urls]
    return f"{page}{SELECTED}{'%2C'.join(ids)}"


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outputs, scores and comments for a row of a dataset, or an error instead of scores.

    ``id`` is that of a query or of an example. ``comments`` explain a score, or why it is missing.
    """

    id: str
    text: str = ""
    outputs: Mapping[str, object] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


def row_outcomes(
    level: EvaluationType,
    queries: Sequence[Query],
    passages: pa.Table,
    scores: pa.Table,
    documents: Documents,
    measured: Collection[str] | None = None,
) -> list[RowOutcome]:
    """Return the retrieved chunk ids or spans of each query and its scores, by default of all metrics."""
    retrieved: dict[str, list[object]] = {query.id: [] for query in queries}
    contents = by_id(documents)
    for row in passages.sort_by("rank").to_pylist():
        found = row["chunk_id"] if level == "chunk-level" else _span_record(contents, row)
        retrieved[row["query_id"]].append(found)
    scores_of: dict[str, dict[str, float]] = {query.id: {} for query in queries}
    for row in scores.to_pylist():
        name = score_name(row["metric"], row["cut"], row["size"])
        if measured is None or name in measured:
            scores_of[row["query_id"]][name] = row["value"]
    key = "retrieved_chunk_ids" if level == "chunk-level" else "retrieved_spans"
    return [RowOutcome(query.id, query.text, {key: retrieved[query.id]}, scores_of[query.id]) for query in queries]


def _span_record(contents: Mapping[str, Document], row: Row) -> object:
    place = {key: row[key] for key in ("doc_id", "start", "end")}
    if row["start"] is None:
        return {**place, "text": row["text"] or ""}
    return {**place, "text": contents[row["doc_id"]].content[row["start"] : row["end"]]}


@dataclass(frozen=True, slots=True)
class ExperimentUpload:
    """An experiment with its rows, its time, and the name and type of its runs.

    ``id`` distinguishes experiments of one name; all other ids are derived from it.
    """

    id: UUID
    name: str
    metadata: Mapping[str, object]
    rows: "Sequence[tuple[Example, RowOutcome]]"
    at: datetime
    run_name: str = "retrieve"
    run_type: str = "retriever"

    @property
    def unique_name(self) -> str:
        """The name under which LangSmith lists the experiment."""
        return f"{self.name} {self.id.hex[:8]}"

    def id_of(self, *names: str) -> UUID:
        """Return the id of a run or of feedback within the experiment."""
        return uuid5(self.id, data_sha256(names))


def matched_rows(
    examples: "Sequence[Example]", outcomes: Sequence[RowOutcome], dataset: str
) -> "list[tuple[Example, RowOutcome]]":
    """Return the outcomes that have an example, paired with it; raises ``GroundTruthError`` if there are none."""
    matches, _ = match_queries(examples, [(row.id, row.text) for row in outcomes], dataset)
    rows = [(example, row) for example, row in zip(matches, outcomes, strict=True) if example is not None]
    if not rows:
        raise GroundTruthError(
            f"no example of the LangSmith dataset {dataset!r} is a query of this run: push the ground truth of the "
            "run, or name another dataset"
        )
    return rows


def publish_experiment(service: LangSmithService, experiment: ExperimentUpload) -> str:
    """Send an experiment on the dataset of its examples and return its address.

    Raises:
        ServiceError: LangSmith did not take all of it. Publishing it again completes it.
    """
    problem = f"LangSmith did not take the experiment {experiment.unique_name!r}"
    project = service.ask(problem, partial(_project, experiment))
    runs = [_run_parts(example, row, experiment) for example, row in experiment.rows]
    scores = [parts for example, row in experiment.rows for parts in _score_parts(example, row, project.id, experiment)]
    for batch in [*_requests(runs), *_requests(scores)]:
        if not service.ask(problem, partial(_ingest, batch)):
            # LangSmith has some of the records from an earlier attempt, and does not tell which.
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
            experiment.unique_name,
            reference_dataset_id=experiment.rows[0][0].dataset_id,
            metadata=dict(experiment.metadata),
            num_examples=len(experiment.rows),
            evaluator_keys=list(dict.fromkeys(key for _, row in experiment.rows for key in row.scores)),
        )
    except LangSmithConflictError:  # from an earlier attempt
        project = client.read_project(project_name=experiment.unique_name)
    return project


def _run_parts(example: "Example", row: RowOutcome, experiment: ExperimentUpload) -> Parts:
    run_id = experiment.id_of("run", str(example.id))
    # The start is part of the identity of a run in LangSmith.
    at = experiment.at
    record = {
        "id": str(run_id),
        "trace_id": str(run_id),
        "dotted_order": f"{at:%Y%m%dT%H%M%S%f}Z{run_id}",
        "name": experiment.run_name,
        "run_type": experiment.run_type,
        "session_name": experiment.unique_name,
        "start_time": at.isoformat(),
        "end_time": at.isoformat(),
        "reference_example_id": str(example.id),
    }
    result = ("outputs", dict(row.outputs)) if row.error is None else ("error", row.error)
    return [
        (f"post.{run_id}", _json(record)),
        (f"post.{run_id}.inputs", _json(dict(example.inputs or {}))),
        (f"post.{run_id}.{result[0]}", _json(result[1])),
    ]


def _score_parts(
    example: "Example", row: RowOutcome, project_id: UUID, experiment: ExperimentUpload
) -> Iterator[Parts]:
    run_id, at = experiment.id_of("run", str(example.id)), experiment.at.isoformat()
    for key in dict.fromkeys([*row.scores, *row.comments]):
        score = row.scores.get(key)
        feedback_id = experiment.id_of("feedback", str(example.id), key)
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
    """Send records in one request; return False if LangSmith already has one of them."""
    from langsmith.utils import LangSmithConflictError

    files = [
        (name, (None, data, "application/json", {"Content-Length": str(len(data))}))
        for parts in batch
        for name, data in parts
    ]
    try:
        # The SDK hides failures to send runs, and logs them with a part of the key.
        client.request_with_retries("POST", "/runs/multipart", request_kwargs={"files": files})
    except LangSmithConflictError:
        return False
    return True


def _requests(records: Sequence[Parts]) -> Iterator[list[Parts]]:
    """Yield the records in batches of limited number and size."""
    batch: list[Parts] = []
    size = 0
    for parts in records:
        part_size = sum(len(data) for _, data in parts)
        if batch and (len(batch) == REQUEST_RECORDS or size + part_size > REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(parts)
        size += part_size
    if batch:
        yield batch


def _json(data: object) -> bytes:
    return json.dumps(data).encode()
