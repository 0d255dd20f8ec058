"""Whether what the SDK uploads in the background has arrived."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rag_eval.errors import ServiceError

if TYPE_CHECKING:
    from langsmith import Client

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

    ``upload_errors`` are those that the client met; None for a client that
    does not tell, whose experiment is read back until it is complete, for ``READ_BACK_SECONDS`` at most.
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
