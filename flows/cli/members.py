"""The server and the worker of ``rag-eval up``: started, and waited for."""

import os
import socket
import time
from pathlib import Path

from flows.cli.crew import Crew
from flows.cli.database_template import use_template
from flows.cli.run_pages import RUNS_PATH
from flows.cli.server import answers, named_server
from flows.cli.temporary_server import QUIET, use_own_server
from rag_eval.errors import ConfigurationError, ServiceError

LOOK_SECONDS = 0.2
WORKER_SECONDS = 120.0
WORKER_SETTINGS = {
    # Often enough that a run starts soon after it was asked for.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
    # What a run has to say is read in the UI.
    "PREFECT_LOGGING_LEVEL": "INFO",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "rag_eval",
}


def start_server(crew: Crew, home: Path, port: int) -> tuple[str, bool]:
    """Where the server answers that is to be used, and whether it is ours.

    It is not where the user named one, or one answers there already. Raises ``ServiceError`` when it does not start,
    ``ConfigurationError`` when the port is not free.
    """
    api = named_server() or f"http://127.0.0.1:{port}/api"
    os.environ.update({**QUIET, **os.environ, "PREFECT_API_URL": api})
    if answers(api, 2.0):
        return api, False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigurationError(
                f"port {port} is in use, and not by a Prefect server: give another --port"
            ) from None
    use_own_server(home, api)
    database = home / "prefect.db"
    if not database.exists():
        use_template(database)
    crew.start(
        "server",
        "127.0.0.1",
        str(port),
        str(home.parent / "runs"),
        settings={"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}"},
    )
    os.environ["RAG_EVAL_RUNS_URL"] = api.removesuffix("/api") + RUNS_PATH
    while not answers(api, 2.0):
        problem = crew.trouble()
        if problem is not None:
            raise problem
        time.sleep(LOOK_SECONDS)
    return api, True


def call_off_left_behind() -> None:
    """Have no run going on: whoever worked for a server that only now starts has ended without saying so.

    The server would count such runs among those at work, and have others wait for them.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Crashed

    going_on = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    with get_client(sync_client=True) as client:
        while found := client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=going_on)),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=200,
        ):
            for run in found:
                client.set_flow_run_state(run.id, Crashed(message="it was left behind"), force=True)


def start_worker(crew: Crew) -> None:
    """Start a worker and wait until the server knows of it."""
    from prefect.client.orchestration import get_client

    from flows.deploying import work_pool

    pool = work_pool()
    crew.start("worker", pool, settings=WORKER_SETTINGS)
    deadline = time.monotonic() + WORKER_SECONDS
    with get_client(sync_client=True) as client:
        while client.read_work_pool(pool).status != "READY":
            problem = crew.trouble()
            if problem is not None:
                raise problem
            if time.monotonic() > deadline:
                raise ServiceError(f"the worker did not come up within {WORKER_SECONDS:.0f} seconds: see its log")
            time.sleep(LOOK_SECONDS)
