"""Run benchmarks on the Prefect server of the tests, and read from its API what became of flow runs and task runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_URL, PREFECT_TASKS_REFRESH_CACHE, temporary_settings

from flows.benchmark import benchmark
from rag_eval.config.models import THREADS, BenchmarkConfig
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from tasks.caching import result_storage

ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
STEPS = {
    "load_corpus",
    "load_ground_truth",
    "join_ground_truth",
    "find_copies",
    "join_copies",
    "chunk",
    "add_context",
    "embed",
    "count_texts",
    "index_vectors",
    "index_words",
    "sum_words",
    "sum_vectors",
    "prepare_queries",
    "search",
    "retrieve",
    "ask_system",
    "score",
}
"""The tasks that are cached."""
READINGS = 5
"""How often in a row the server must give the same task runs: on a busy machine it learns of some late."""


def run(
    config: BenchmarkConfig, workspace: Workspace, *, reanchor: bool = False, runner: str = THREADS
) -> BenchmarkOutcome:
    """Run a benchmark that caches in its workspace, or computes all again where the workspace says so."""
    with temporary_settings({PREFECT_TASKS_REFRESH_CACHE: True} if workspace.refresh else {}):
        return benchmark.with_options(result_storage=result_storage(workspace))(config, workspace, reanchor, runner)


@dataclass(frozen=True)
class ServerRun:
    """A run of a benchmark, as the server knows it: its flow run, those of its chunkings, and all their task runs."""

    state: State[Any]
    flow: dict[str, Any]
    subflows: list[dict[str, Any]]
    tasks: list[dict[str, Any]]

    @property
    def outcome(self) -> BenchmarkOutcome:
        """What the flow returned; raises what it raised."""
        found: BenchmarkOutcome = self.state.result()
        return found

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The task runs that are steps of the pipeline."""
        return [one for one in self.tasks if step_of(one) in STEPS]

    def states(self) -> set[tuple[str, str]]:
        """The steps with the names of their states."""
        return {(step_of(one), one["state"]["name"]) for one in self.steps}

    def computed(self) -> set[str]:
        """The steps of which a task run was not cached."""
        return {step for step, state in self.states() if state != "Cached"}


def run_and_read(config: BenchmarkConfig, workspace: Workspace, runner: str = THREADS) -> ServerRun:
    """Run a benchmark, and read from the server what became of it; a failed one too."""
    stored = benchmark.with_options(result_storage=result_storage(workspace))
    state: State[Any] = stored(config, workspace, False, runner, return_state=True)
    return read(state)


def read(state: State[Any]) -> ServerRun:
    """Read from the server what became of a flow run that ended in this state."""
    whole = str(state.state_details.flow_run_id)
    flow = httpx.get(f"{PREFECT_API_URL.value()}/flow_runs/{whole}", timeout=60).json()
    subflows = asked("flow_runs", {"flow_runs": {"parent_flow_run_id": {"any_": [whole]}}})
    ids = [whole, *(one["id"] for one in subflows)]
    return ServerRun(state, flow, subflows, settled(lambda: task_runs(ids)))


def task_runs(flow_runs: list[str]) -> list[dict[str, Any]]:
    """The task runs of flow runs."""
    return asked("task_runs", {"flow_runs": {"id": {"any_": flow_runs}}})


def settled(read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Read task runs until all have ended and no more come: the server learns of them a little later.

    One that needs what failed stays NotReady.
    """
    counts: list[int] = []
    until = time.monotonic() + 120
    while True:
        found = read()
        is_over = bool(found) and all(one["state_type"] in ENDED or one["state_name"] == "NotReady" for one in found)
        counts = [*counts, len(found)][-READINGS:] if is_over else []
        if (len(counts) == READINGS and len(set(counts)) == 1) or time.monotonic() > until:
            return found
        time.sleep(0.5)


def asked(kind: str, what: dict[str, Any]) -> list[dict[str, Any]]:
    """All that the server finds of a kind."""
    found: list[dict[str, Any]] = []
    with httpx.Client(timeout=60) as client:
        while True:
            body = what | {"limit": 200, "offset": len(found)}
            answer = client.post(f"{PREFECT_API_URL.value()}/{kind}/filter", json=body)
            answer.raise_for_status()
            found += answer.json()
            if len(answer.json()) < 200:
                return found


def step_of(task_run: dict[str, Any]) -> str:
    """The name of the task of a task run."""
    return str(task_run["task_key"]).rpartition("-")[0].rpartition(".")[2]


def edges(task_runs: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """The edges between the tasks, by their names, that the server draws between task runs."""
    names = {one["id"]: step_of(one) for one in task_runs}
    return {
        (names.get(given["id"], "elsewhere"), step_of(one))
        for one in task_runs
        for inputs in one["task_inputs"].values()
        for given in inputs
        if given["input_type"] == "task_run"
    }
