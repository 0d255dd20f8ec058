"""``rag-eval up``, ``deploy`` and ``watch``: runs every night, on demand and when documents change.

``up`` has a Prefect server, a worker, the deployments and a watcher on this machine, and stops them together;
``deploy`` and ``watch`` are for a lasting server.
"""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import psutil
import typer
from rich.console import Console
from rich.filesize import decimal

from flows.cli import options
from flows.cli.console import print_notes, say
from flows.cli.prefect_home import (
    RETENTION,
    kept_key,
    key_file,
    new_key,
    prefect_home,
    runs_token,
    server_settings,
    use_own_server,
    use_template,
)
from flows.cli.processes import descendants, end_all, leaving, watched
from rag_eval.disk.locks import try_lock
from rag_eval.documents.watch import CorpusWatch
from rag_eval.errors import ConfigurationError, RagEvalError, ServiceError

if TYPE_CHECKING:
    from rag_eval.benchmark.workspace import Workspace

AGAIN_SECONDS = 5.0
LOOK_SECONDS = 0.2
START_SECONDS = 180.0
STOP_SECONDS = 15.0
DAY_SECONDS, BUSY_SECONDS = 86_400.0, 600.0
WORKER_SETTINGS = {
    # Often enough that a run starts soon after it was asked for.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
    # What a run has to say is read in the UI.
    "PREFECT_LOGGING_LEVEL": "INFO",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "rag_eval",
}


class ProcessGroup:
    """The server and the worker, by role; each writes to its own log file in one folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._children: set[psutil.Process] = set()

    def start(self, role: str, arguments: list[str], settings: Mapping[str, str], is_ready: Callable[[], bool]) -> None:
        """Start the process of this role and wait until it is ready; raises ``ServiceError`` when it is not in time."""
        from flows.cli.server import start_attended

        self._processes[role] = start_attended([role, *arguments], self._log(role), settings)
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            problem = self.trouble()
            if problem is not None:
                raise problem
            if time.monotonic() > deadline:
                raise ServiceError(f"the {role} did not come up within {START_SECONDS:.0f} seconds: see its log")
            time.sleep(LOOK_SECONDS)

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
    keep: Annotated[float, typer.Option(min=0, help="Days after which unused work and runs go; 0 keeps all.")] = 90,
) -> None:
    """Run a benchmark every night, on demand from the Prefect UI and when documents change, until stopped."""
    from flows.cli.benchmark import check_files
    from rag_eval.benchmark.config import check_runner
    from rag_eval.benchmark.config_files import chosen_benchmark
    from rag_eval.benchmark.workspace import Workspace

    console = Console(stderr=True)
    print_notes(console)
    chosen = chosen_benchmark(config, corpus, truth, glob)
    place = Workspace.at(workspace)
    check_files(chosen, place)
    check_runner(runner)
    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner, gate_metric, max_drop)
    home = prefect_home(place)
    ended = "server, worker and watcher have ended; what was finished is kept"
    with try_lock(home / "up.lock") as is_free, leaving(ended), ExitStack() as kept:
        if not is_free:  # two would stop each other's runs
            raise ConfigurationError(f"rag-eval up goes on already in {place.address!r}: stop it, or use another")
        group = ProcessGroup(home)
        try:
            with console.status("Starting …"):
                api, is_ours = start_server(group, kept, home, place.runs, port)
                from flows.deployments import deploy, next_runs

                if is_ours:
                    crash_abandoned_runs()
                ids = deploy(Path.cwd(), parameters, cron)
                start_worker(group)
            documents = CorpusWatch(Path(chosen.corpus), chosen.glob) if watch else None
            ui = api.removesuffix("/api")
            rows = {
                "UI": ui,
                **sign_in_row(api, console),
                "nightly": f"{next_runs(ids['nightly'])} UTC",
                "from the UI": f"{ui}/deployments/deployment/{ids['adhoc']}/run",
                "on change": f"watching {chosen.corpus}" if watch else "when `rag-eval watch` tells of one",
            }
            say(console, "rag-eval is up; Ctrl-C stops all of it", "bold")
            for name, where in rows.items():
                say(console, f"  {name:13}{where}")
            threading.Thread(target=tidy_daily, args=(place, keep, console), daemon=True).start()
            attend(group, documents, console)
        finally:
            with console.status("Stopping …"):
                group.stop()


def tidy_daily(workspace: "Workspace", days: float, console: Console) -> None:
    """Remove every day, while no run is under way, what was not used for so many days; nothing where they are 0."""
    from rag_eval.benchmark.housekeeping import prune

    while days:
        try:
            gone = prune(workspace, days)
            if gone:
                told = ", ".join(f"{one.kind} {decimal(one.size)}" for one in gone)
                _tell(console, f"removed what was not used for {days:g} days: {told}")
            time.sleep(DAY_SECONDS)
        except ConfigurationError:
            time.sleep(BUSY_SECONDS)  # a run is under way
        except RagEvalError as error:
            _tell(console, f"nothing old was removed: {error}")
            time.sleep(DAY_SECONDS)


def attend(group: ProcessGroup, documents: CorpusWatch | None, console: Console) -> None:
    """Emit the changes of the documents, if they are watched, until something ends; raises what did."""
    stop = threading.Event()

    def work() -> None:
        if documents is None:
            stop.wait()
            return
        try:
            emit_changes(documents, stop, console)
        except RagEvalError as error:
            raise ServiceError(f"the watcher ended ({error}), and everything else was stopped") from None

    try:
        watched(work, group.trouble)
    finally:
        stop.set()


def sign_in_row(api: str, console: Console) -> dict[str, str]:
    """Where a person signs in to a server that ``rag-eval up`` started: the address, or, in a log, its file."""
    from flows.cli.server import running_key
    from flows.cli.server_gate import SIGN_IN_PATH

    key = running_key(api)
    if key is None:
        return {}
    if console.is_terminal:
        return {"sign in": f"{api.removesuffix('/api')}{SIGN_IN_PATH}#{key}"}
    return {"sign in": f"with the address in {key_file(urlsplit(api).port or 80)}"}


def start_server(group: ProcessGroup, kept: ExitStack, home: Path, runs: Path, port: int) -> tuple[str, bool]:
    """Find or start the server; gives back its address, and whether it was started here and serves ``runs`` too.

    It was not where the user named one, or one of his runs there already. Its key is in a file while ``kept`` is open.
    Raises ``ServiceError`` when it does not start, ``ConfigurationError`` when the port is not free.
    """
    from flows.cli.server import RUNS_PATH, RUNS_TOKEN, answers, is_open_to_us, named_server, use_lasting
    from flows.cli.server_gate import SIGN_IN_PATH

    named = named_server()
    api = named or f"http://127.0.0.1:{port}/api"
    if named or is_open_to_us(api):
        use_lasting(api)
        return api, False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigurationError(
                f"port {port} is in use, and not by a Prefect server of yours: give another --port"
            ) from None
    key, token = new_key(), runs_token(home)
    use_own_server(home, api, key)
    kept.enter_context(kept_key(port, f"http://127.0.0.1:{port}{SIGN_IN_PATH}#{key}"))
    database = home / "prefect.db"
    if not database.exists():
        use_template(database)
    settings = server_settings(key, database) | RETENTION | {RUNS_TOKEN: token}
    group.start("server", ["127.0.0.1", str(port), str(runs)], settings, lambda: answers(api, 2.0))
    os.environ["RAG_EVAL_RUNS_URL"] = f"http://127.0.0.1:{port}{RUNS_PATH}/{token}"
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

    from flows.deployments import work_pool

    pool = work_pool()
    with get_client(sync_client=True) as client:
        group.start("worker", [pool], WORKER_SETTINGS, lambda: client.read_work_pool(pool).status == "READY")


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of documents.")],
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
) -> None:
    """Report added, changed and removed documents to the Prefect server, until stopped."""
    from flows.cli.server import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    corpus = CorpusWatch(folder, glob)
    api = use_lasting_server()
    _tell(console, f"watching {folder} for {', '.join(glob)}; changes go to {api}")
    # In a thread, because what watches files takes signals for itself.
    watched(lambda: emit_changes(corpus, threading.Event(), console))


def emit_changes(corpus: CorpusWatch, stop: threading.Event, console: Console) -> None:
    """Emit ``corpus.changed`` for every change until ``stop`` is set; what the server does not take is kept for it.

    Raises ``CorpusFolderError`` when the folder goes away.
    """
    from flows.deployments import emit_corpus_change

    refused_until = 0.0
    for change in corpus.changes(stop):
        if time.monotonic() < refused_until:
            continue
        try:
            emit_corpus_change(corpus.folder, change)
        except ServiceError as error:
            _tell(console, f"{error}; trying again")
            refused_until = time.monotonic() + AGAIN_SECONDS
            continue
        corpus.accept()
        _tell(console, f"{corpus.folder.name}: {change}")


def _tell(console: Console, words: str) -> None:
    say(console, f"{time.strftime('%H:%M:%S')} {words}")


def deploy(
    config: Annotated[
        Path | None, typer.Argument(help="Benchmark file on the workers' machines; by default the sample.")
    ] = None,
    corpus: options.CorpusOption = None,
    truth: options.TruthOption = None,
    glob: options.GlobOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    cron: options.CronOption = None,
    gate_metric: options.GateMetricOption = None,
    max_drop: options.MaxDropOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="Working directory on the workers' machines; by default the current one.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Work pool; by default rag-eval.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run as Kubernetes jobs, from this base job template.")
    ] = None,
) -> None:
    """Create or update the nightly, ad-hoc, on-change and experiment deployments on the Prefect server."""
    from flows.cli.server import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    api = use_lasting_server()
    from flows.deployments import deploy as make_known

    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner, gate_metric, max_drop)
    for name, number in make_known(folder or Path.cwd(), parameters, cron, pool, kubernetes).items():
        say(console, f"{name:18}{api.removesuffix('/api')}/deployments/deployment/{number}")


def deployment_parameters(
    config: Path | None,
    corpus: Path | None,
    truth: Path | None,
    glob: list[str] | None,
    workspace: str,
    runner: str,
    gate_metric: str | None,
    max_drop: float | None,
) -> dict[str, str | float | list[str]]:
    """Turn the options that were given into parameters of the deployed flow."""
    named = {"benchmark_file": config, "corpus": corpus, "truth": truth, "gate_metric": gate_metric}
    given: dict[str, str | float | list[str]] = {key: str(value) for key, value in named.items() if value is not None}
    given |= {"glob": glob[0] if len(glob) == 1 else glob} if glob else {}
    return given | ({} if max_drop is None else {"max_drop": max_drop}) | {"workspace": workspace, "runner": runner}
