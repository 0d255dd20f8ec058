"""A run as a LangSmith experiment: what was retrieved for each example, and its scores as feedback."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag_eval.errors import ServiceError

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example


@dataclass(frozen=True, slots=True)
class ExampleOutcome:
    """What a run gave for one example: its outputs, and its scores by feedback key."""

    example: "Example"
    outputs: Mapping[str, object]
    scores: Mapping[str, float]


def publish_experiment(
    client: "Client",
    name: str,
    outcomes: Sequence[ExampleOutcome],
    metadata: Mapping[str, object],
    upload_errors: list[Exception],
) -> str | None:
    """Create an experiment on the examples' dataset, send everything, and give back its address.

    ``name`` gets a random suffix: experiments of one name stand side by side. Runs and feedback go out in the
    background; ``upload_errors`` is where the client's ``on_upload_error`` puts what fails there.
    Raises ``ServiceError`` when LangSmith does not take it all.
    """
    from langsmith.utils import LangSmithError

    dataset_id = outcomes[0].example.dataset_id
    experiment = f"{name}-{uuid.uuid4().hex[:8]}"
    failures = upload_errors
    try:
        project = client.create_project(
            experiment,
            reference_dataset_id=dataset_id,
            metadata=dict(metadata),
            num_examples=len(outcomes),
            evaluator_keys=list(outcomes[0].scores),
        )
        for outcome in outcomes:
            _send(client, experiment, project.id, outcome)
        client.flush()
        client.update_project(project.id, end_time=datetime.now(UTC))
    except LangSmithError as error:
        failures.append(error)
    if failures:
        raise ServiceError(
            f"LangSmith did not take the experiment {experiment!r} ({type(failures[0]).__name__}, "
            f"{len(failures)} failures): check the key and the endpoint, then publish again"
        ) from None
    return project.url


def _send(client: "Client", experiment: str, project_id: uuid.UUID, outcome: ExampleOutcome) -> None:
    run_id, now = uuid.uuid4(), datetime.now(UTC)
    client.create_run(
        name="retrieve",
        inputs=dict(outcome.example.inputs or {}),
        run_type="retriever",
        project_name=experiment,
        id=run_id,
        trace_id=run_id,
        dotted_order=f"{now:%Y%m%dT%H%M%S%f}Z{run_id}",
        outputs=dict(outcome.outputs),
        start_time=now,
        end_time=now,
        reference_example_id=outcome.example.id,
    )
    for key, score in outcome.scores.items():
        client.create_feedback(run_id, key, score=score, trace_id=run_id, session_id=project_id)
