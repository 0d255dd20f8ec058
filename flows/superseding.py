"""Runs that wait while another begins that will see all they would have seen."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import deployment, flow_run
from prefect.states import Cancelled

AUTOMATIC = ("AUTOMATION", "SCHEDULE")


def call_off_those_waiting() -> int:
    """Cancel the runs of this deployment that are due, wait, were started by no person, and are asked for the same.

    This run begins after what started them, and so finds every change that they were started for. Gives back how many
    they were; none outside of a deployment.
    """
    if deployment.id is None:
        return 0
    waiting = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=FlowRunFilterExpectedStartTime.model_validate({"before_": datetime.now(UTC)}),
    )
    of_this = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
    superseded: State[Any] = Cancelled(message=f"its changes are in {flow_run.name}")
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_run_filter=waiting, deployment_filter=of_this, sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=200
        )
        # As they are written down: a run that has begun has the defaults of the flow beside them.
        asked = _asked(client.read_flow_run(UUID(flow_run.id)))
        same = [run for run in found if _is_automatic(run) and _asked(run) == asked]
        for run in same:
            client.set_flow_run_state(run.id, superseded)
    return len(same)


def _is_automatic(run: FlowRun) -> bool:
    return run.created_by is not None and run.created_by.type in AUTOMATIC


def _asked(run: FlowRun) -> dict[str, Any]:
    return {name: value for name, value in run.parameters.items() if name != "note"}
