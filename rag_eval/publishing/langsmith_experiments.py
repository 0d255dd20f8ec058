"""A run as a LangSmith experiment: what was retrieved for each example, and its scores as feedback."""

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag_eval.errors import ServiceError

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

# LangSmith answers an upload before it can be read: how long to look for it, and how often.
READ_BACK_SECONDS = 15.0
READ_BACK_STEP = 0.25


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
    upload_errors: list[Exception] | None = None,
) -> str | None:
    """Create an experiment on the examples' dataset, send everything, and give back its address.

    ``name`` gets a random suffix: experiments of one name stand side by side. Runs and feedback go out in the
    background; ``upload_errors`` is where the client's ``on_upload_error`` puts what fails there. Without it the
    experiment is read back. Raises ``ServiceError`` when LangSmith does not take it all.
    """
    from langsmith.utils import LangSmithError

    dataset_id = outcomes[0].example.dataset_id
    experiment = f"{name}-{uuid.uuid4().hex[:8]}"
    keys = Counter(key for outcome in outcomes for key in outcome.scores)
    try:
        project = client.create_project(
            experiment,
            reference_dataset_id=dataset_id,
            metadata=dict(metadata),
            num_examples=len(outcomes),
            evaluator_keys=list(keys),
        )
        for outcome in outcomes:
            _send(client, experiment, project.id, outcome)
        client.flush()
        client.update_project(project.id, end_time=datetime.now(UTC))
    except LangSmithError as error:
        raise _not_taken(experiment, [error]) from None
    check_uploads(client, experiment, len(outcomes), keys, upload_errors)
    return project.url


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
