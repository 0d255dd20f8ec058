"""``rag-eval up``: a Prefect server, a worker, the deployments and a watcher on this machine, stopped together."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.console import Console
from rich.text import Text

from flows.cli import options
from flows.cli.console import print_notes, visible
from flows.cli.deploy import emit_changes, tell
from flows.cli.prefect_home import QUIET, prefect_home, use_own_server, use_template
from flows.cli.processes import Stopped, descendants, end_all
from rag_eval.disk.locks import try_lock
from rag_eval.documents.watch import CorpusWatch
from rag_eval.errors import ConfigurationError, RagEvalError, ServiceError

if TYPE_CHECKING:
    from uuid import UUID

    from rag_eval.benchmark.config import BenchmarkConfig
    from rag_eval.benchmark.workspace import Workspace

STOP_SECONDS = 15.0


class ProcessGroup:
    """The server and the worker, by role; each writes to its own log file in one folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._children: set[psutil.Process] = set()
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, role: str, *arguments: str, settings: Mapping[str, str]) -> None:
        """Start the process of this role."""
        from flows.cli.server import start_attended

        self._processes[role] = start_attended([role, *arguments], self._log(role), settings)

    def trouble(self) -> ServiceError | None:
        """Tell which process has ended by itself, with its last words; None while all are running."""
        from flows.cli.server import ending, last_words

        for role, process in self._processes.items():
            # Remembered while it lives: what a dead process leaves behind has no parent to be found by.
            self._children.update(descendants(process.pid))
            code = process.poll()
            if code is not None:
                said = last_words(self._log(role)) if code > 0 else ""
                return ServiceError(
                    f"the {role} {ending(code)}{f' ({said})' if said else ''}, and everything else was stopped: "
                    f"see {str(self._log(role))!r}"
                )
        return None

    def stop(self) -> None:
        """Stop all, the last started first, with their children; kill those that do not stop in time."""
        for process in reversed(self._processes.values()):
            # Its children first, so that it can still report what becomes of them.
            end_all(descendants(process.pid))
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            end_all([each for each in self._children if each.is_running()])
            self._children.clear()

    def _log(self, role: str) -> Path:
        return self._logs / f"{role}.log"


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


def start_server(group: ProcessGroup, home: Path, runs: Path, port: int) -> tuple[str, bool]:
    """Find or start the server; gives back its address, and whether it was started here and serves ``runs`` too.

    It was not where the user named one, or one answers there already. Raises ``ServiceError`` when it does not
    start, ``ConfigurationError`` when the port is not free.
    """
    from flows.cli.server import RUNS_PATH, answers, named_server

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
    group.start(
        "server",
        "127.0.0.1",
        str(port),
        str(runs),
        settings={"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}"},
    )
    os.environ["RAG_EVAL_RUNS_URL"] = api.removesuffix("/api") + RUNS_PATH
    while not answers(api, 2.0):
        problem = group.trouble()
        if problem is not None:
            raise problem
        time.sleep(LOOK_SECONDS)
    return api, True


def crash_abandoned_runs() -> None:
    """Mark the runs as crashed that a server, which only now starts again, still counts as running.

    Their workers have ended without reporting, and others would wait for them.
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


def start_worker(group: ProcessGroup) -> None:
    """Start a worker and wait until the server knows of it."""
    from prefect.client.orchestration import get_client

    from flows.deploying import work_pool

    pool = work_pool()
    group.start("worker", pool, settings=WORKER_SETTINGS)
    deadline = time.monotonic() + WORKER_SECONDS
    with get_client(sync_client=True) as client:
        while client.read_work_pool(pool).status != "READY":
            problem = group.trouble()
            if problem is not None:
                raise problem
            if time.monotonic() > deadline:
                raise ServiceError(f"the worker did not come up within {WORKER_SECONDS:.0f} seconds: see its log")
            time.sleep(LOOK_SECONDS)


UP_LOOK_SECONDS = 0.5


def up(
    config: options.ConfigArgument = None,
    corpus: options.CorpusOption = None,
    truth: options.TruthOption = None,
    glob: options.GlobOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    cron: options.CronOption = None,
    gate_metric: options.GateMetricOption = None,
    max_drop: options.MaxDropOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server and its UI.")] = 4200,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Run when documents change.")] = True,
) -> None:
    """Run a benchmark every night, on demand from the Prefect UI and when documents change, until stopped."""
    from flows.cli.benchmark import check_files
    from flows.cli.deploy import deployment_parameters
    from rag_eval.benchmark.config import check_runner
    from rag_eval.benchmark.config_files import chosen_benchmark
    from rag_eval.benchmark.workspace import Workspace

    console = Console(stderr=True)
    print_notes(console)
    chosen = chosen_benchmark(config, corpus, truth, glob)
    check_files(chosen)
    check_runner(runner)
    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner, gate_metric, max_drop)
    place = Workspace.at(workspace)
    home = prefect_home(place)
    with _alone(home, place), _stopped_together(console, ProcessGroup(home)) as group:
        with console.status("Starting …"):
            api, is_ours = start_server(group, home, place.runs, port)
            from flows.deploying import deploy

            if is_ours:
                crash_abandoned_runs()
            ids = deploy(Path.cwd(), parameters, cron)
            start_worker(group)
        folder = CorpusWatch(Path(chosen.corpus), chosen.glob) if watch else None
        _announce(console, api, ids, chosen, watch=watch)
        with _watcher(console, folder) as watcher:
            while not (problem := group.trouble() or watcher.trouble):
                time.sleep(UP_LOOK_SECONDS)
            raise problem


@contextmanager
def _alone(home: Path, workspace: "Workspace") -> Iterator[None]:
    """Allow one at a time in a workspace: two would stop each other's runs."""
    with try_lock(home / "up.lock") as is_free:
        if not is_free:
            raise ConfigurationError(f"rag-eval up goes on already in {workspace.address!r}: stop it, or use another")
        yield


@contextmanager
def _stopped_together(console: Console, group: ProcessGroup) -> Iterator[ProcessGroup]:
    """Stop the processes, whatever happens."""
    try:
        yield group
    except Stopped as stop:
        stop.consequence = "server, worker and watcher have ended; what was finished is kept"
        raise
    finally:
        with console.status("Stopping …"):
            group.stop()


class _Watcher:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self.trouble: RagEvalError | None = None


@contextmanager
def _watcher(console: Console, folder: "CorpusWatch | None") -> Iterator[_Watcher]:
    """Watch the corpus in a thread; what goes wrong there is its ``trouble``."""
    watcher = _Watcher()

    def work(corpus: CorpusWatch) -> None:
        try:
            emit_changes(corpus, watcher.stop, lambda words: tell(console, words))
        except RagEvalError as error:
            watcher.trouble = ServiceError(f"the watcher ended ({error}), and everything else was stopped")

    thread = threading.Thread(target=work, args=[folder], daemon=True)
    if folder is not None:
        thread.start()
    try:
        yield watcher
    finally:
        watcher.stop.set()
        if folder is not None:
            thread.join()


def _announce(console: Console, api: str, ids: "dict[str, UUID]", config: "BenchmarkConfig", *, watch: bool) -> None:
    """Print what is running, and where."""
    from flows.deploying import next_runs

    ui = api.removesuffix("/api")
    rows = {
        "UI": ui,
        "nightly": f"{next_runs(ids['nightly'])} UTC",
        "from the UI": f"{ui}/deployments/deployment/{ids['adhoc']}/run",
        "on change": f"watching {config.corpus}" if watch else "when `rag-eval watch` tells of one",
    }
    console.print(Text("rag-eval is up; Ctrl-C stops all of it", style="bold"))
    for name, where in rows.items():
        console.print(Text(f"  {name:13}{visible(where)}"), soft_wrap=True)
