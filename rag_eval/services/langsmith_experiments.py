"""Experiments on LangSmith datasets: uploading runs with their feedback, and waiting until they have arrived."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rag_eval.errors import ServiceError
from rag_eval.services.langsmith_client import LangSmithService

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example, TracerSession

REQUEST_RECORDS = 200
REQUEST_BYTES = 4_000_000
SCORE_DIGITS = 4  # what LangSmith keeps, and its SDK sends

SELECTED = "?selectedSessions="
"""What stands between the page that compares the experiments of a dataset and the ids of those it shows."""

MakeId = Callable[..., UUID]
"""Gives an id for names: the same for the same names."""


@dataclass(frozen=True, slots=True)
class ExampleOutcome:
    """What a run gave for one example: its outputs and its scores by feedback key, or the error that it failed with.

    A run that failed has no scores: that is not the same as scores of 0. ``comments`` explain scores, or why there is
    none under a key.
    """

    example: "Example"
    outputs: Mapping[str, object]
    scores: Mapping[str, float]
    error: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment by its name, which nothing else in the workspace has, when it took place, and what its runs are."""

    name: str
    metadata: Mapping[str, object]
    outcomes: Sequence[ExampleOutcome]
    at: datetime
    run_name: str = "retrieve"
    run_type: str = "retriever"


def publish_experiment(service: LangSmithService, experiment: Experiment, make_id: MakeId) -> str:
    """Send an experiment on the dataset of its examples, and give back its address.

    All ids follow from ``make_id`` and all times from the experiment: sending it again completes it and
    never creates duplicates. Raises ``ServiceError`` when LangSmith does not take it all.
    """
    problem = f"LangSmith did not take the experiment {experiment.name!r}"
    project = service.ask(problem, partial(_project, experiment))
    runs = [_run_parts(outcome, experiment, make_id) for outcome in experiment.outcomes]
    scores = [
        parts for outcome in experiment.outcomes for parts in _score_parts(outcome, project.id, experiment, make_id)
    ]
    for batch in [*_requests(runs), *_requests(scores)]:
        if not service.ask(problem, partial(_ingest, batch)):
            # One of them is there already, from an attempt that was cut short: which, only they can tell.
            for parts in batch:
                service.ask(problem, partial(_ingest, [parts]))
    service.ask(problem, lambda client: client.update_project(project.id, end_time=datetime.now(UTC)))
    return _comparison_url(project, experiment.outcomes[0].example.dataset_id)


def _project(experiment: Experiment, client: "Client") -> "TracerSession":
    from langsmith.schemas import TracerSession
    from langsmith.utils import LangSmithConflictError

    try:
        project: TracerSession = client.create_project(
            experiment.name,
            reference_dataset_id=experiment.outcomes[0].example.dataset_id,
            metadata=dict(experiment.metadata),
            num_examples=len(experiment.outcomes),
            evaluator_keys=list(dict.fromkeys(key for outcome in experiment.outcomes for key in outcome.scores)),
        )
    except LangSmithConflictError:  # from an attempt that was cut short
        project = client.read_project(project_name=experiment.name)
    return project


Parts = list[tuple[str, bytes]]
"""What belongs together in a multipart request: names, and JSON."""


def _run_parts(outcome: ExampleOutcome, experiment: Experiment, make_id: MakeId) -> Parts:
    run_id = make_id("run", str(outcome.example.id))
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
        "reference_example_id": str(outcome.example.id),
    }
    parts = [(f"post.{run_id}", _json(record)), (f"post.{run_id}.inputs", _json(dict(outcome.example.inputs or {})))]
    if outcome.error is None:
        return [*parts, (f"post.{run_id}.outputs", _json(dict(outcome.outputs)))]
    return [*parts, (f"post.{run_id}.error", _json(outcome.error))]


def _score_parts(outcome: ExampleOutcome, project_id: UUID, experiment: Experiment, make_id: MakeId) -> Iterator[Parts]:
    run_id = make_id("run", str(outcome.example.id))
    for key in dict.fromkeys([*outcome.scores, *outcome.comments]):
        score = outcome.scores.get(key)
        feedback_id = make_id("feedback", str(outcome.example.id), key)
        record = {
            "id": str(feedback_id),
            "run_id": str(run_id),
            "trace_id": str(run_id),
            "session_id": str(project_id),
            "key": key,
            "score": None if score is None else round(score, SCORE_DIGITS),
            "comment": outcome.comments.get(key),
            "feedback_source": {"type": "api", "metadata": {}},
            "created_at": experiment.at.isoformat(),
            "modified_at": experiment.at.isoformat(),
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


def _comparison_url(project: "TracerSession", dataset_id: UUID) -> str:
    """Return where LangSmith shows the experiment beside the others of its dataset."""
    base = (project.url or "").split("/projects/p/")[0]
    return f"{base}/datasets/{dataset_id}/compare{SELECTED}{project.id}"


# LangSmith answers an upload before it can be read: how long to look for it, and how often.
READ_BACK_SECONDS = 15.0
READ_BACK_STEP = 0.25


def check_uploads(
    client: "Client",
    experiment: str,
    runs: int,
    feedback: Mapping[str, int],
    upload_errors: Sequence[Exception] | None,
) -> None:
    """Raise ``ServiceError`` unless LangSmith took all runs, and so many scores under each feedback key.

    ``upload_errors`` are those that the client met; None for a client that does not tell, whose experiment is read
    back until it is complete, for ``READ_BACK_SECONDS`` at most.
    """
    if upload_errors is None:
        _read_back(client, experiment, runs, feedback)
    elif upload_errors:
        raise _not_taken(experiment, upload_errors)


def _read_back(client: "Client", experiment: str, runs: int, feedback: Mapping[str, int]) -> None:
    from langsmith.utils import LangSmithError

    deadline = time.monotonic() + READ_BACK_SECONDS
    while True:
        try:
            kept = client.read_project(project_name=experiment, include_stats=True)
        except LangSmithError as error:
            raise _not_taken(experiment, [error]) from None
        scores = {key: (stats or {}).get("n", 0) for key, stats in (kept.feedback_stats or {}).items()}
        if (kept.run_count or 0) >= runs and all(scores.get(key, 0) >= count for key, count in feedback.items()):
            return
        if time.monotonic() > deadline:
            raise ServiceError(
                f"LangSmith has {kept.run_count or 0} of the {runs} runs of the experiment {experiment!r}, and "
                f"{sum(scores.values())} of their {sum(feedback.values())} scores: look at the log of the client"
            )
        time.sleep(READ_BACK_STEP)


def _not_taken(experiment: str, failures: Sequence[Exception]) -> ServiceError:
    return ServiceError(
        f"LangSmith did not take the experiment {experiment!r} ({type(failures[0]).__name__}, "
        f"{len(failures)} failures): check the key and the endpoint, then publish again"
    )
