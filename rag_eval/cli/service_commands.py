"""``rag-eval up``, ``deploy`` and ``watch``: runs every night, on demand and when documents change.

``up`` has a Prefect server, a worker, the deployments and a watcher on this machine, and stops them together;
``deploy`` and ``watch`` are for a lasting server.
"""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.filesize import decimal

from rag_eval.cli import options
from rag_eval.cli.console import print_notes, say
from rag_eval.cli.prefect_home import (
    RETENTION,
    RUNS_PATH,
    RUNS_TOKEN,
    SIGN_IN_PATH,
    home_of,
    kept_key,
    key_file,
    known_server,
    known_server_at,
    new_key,
    prefect_home,
    running_temporary_servers,
    runs_token,
    use_own_server,
)
from rag_eval.cli.processes import (
    HEARTBEAT_SECONDS,
    descendants,
    describe_end,
    end_all,
    leaving,
    start_attended,
    watched,
)
from rag_eval.documents.watch import CorpusWatch
from rag_eval.errors import ConfigurationError, CorpusError, GroundTruthError, RagEvalError, ServiceError
from rag_eval.storage.locks import try_lock

if TYPE_CHECKING:
    from flows.deployments import Deployed
    from rag_eval.config.models import BenchmarkConfig
    from rag_eval.pipeline.workspace import Workspace

RETRY_SECONDS = 5.0
START_SECONDS, STOP_SECONDS = 180.0, 15.0
CHILDREN_SECONDS = 0.5
"""How often what the server and the worker have started is looked for."""
DAY_SECONDS, BUSY_SECONDS = 86_400.0, 600.0
OWN_DEAD_SECONDS = 90.0
"""After that long without a sign of life a run counts as crashed, on a server that is not away without its worker."""
WORKER_SETTINGS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
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
        self._looked = -CHILDREN_SECONDS

    def start(self, role: str, arguments: list[str], settings: Mapping[str, str], is_ready: Callable[[], bool]) -> None:
        """Start the process of this role and wait until it is ready; raise ``ServiceError`` when it is not in time."""
        self._processes[role] = start_attended([role, *arguments], self._log(role), settings)
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if (problem := self.trouble()) is not None:
                raise problem
            if time.monotonic() > deadline:
                log = str(self._log(role))
                raise ServiceError(f"the {role} did not answer within {START_SECONDS:.0f} seconds: see {log!r}")
            time.sleep(0.05)

    def trouble(self) -> ServiceError | None:
        """Tell which process has ended by itself, with its last words; None while all are running."""
        # Remembered while they live: what a dead process leaves behind has no parent to be found by.
        if time.monotonic() - self._looked >= CHILDREN_SECONDS:
            self._looked = time.monotonic()
            for process in self._processes.values():
                self._children.update(descendants(process.pid))
        for role, process in self._processes.items():
            ended = describe_end(process, self._log(role))
            if ended is not None:
                log = str(self._log(role))
                return ServiceError(f"the {role} {ended}, and everything else was stopped: see {log!r}")
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
            end_all([child for child in self._children if child.is_running()])
            self._children.clear()

    def _log(self, role: str) -> Path:
        return self._logs / f"{role}.log"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that is to be up: its name, its file, what it says, and its workspace."""

    name: str
    file: Path | None
    config: "BenchmarkConfig"
    workspace: "Workspace"


def chosen_benchmarks(given: options.DeploymentOptions, files: Sequence[Path | None]) -> list[Benchmark]:
    """Return the benchmarks of files, each with a workspace of its own.

    A single one has the workspace that is given. Several have folders in it, called by their names, and where none is
    given the one beside each file. Raises ``ConfigurationError`` when two would have one name or one workspace.
    """
    from rag_eval.config.loading import project_name
    from rag_eval.pipeline.workspace import Workspace

    if len(files) > 1 and (given.corpus or given.truth or given.glob):
        raise ConfigurationError("--corpus, --truth and --glob are for one benchmark file: write them into the files")
    benchmarks: list[Benchmark] = []
    for file in files:
        config = given.benchmark(file)
        name, place = project_name(config, file), given.workspace
        if file is not None and len(files) > 1:
            is_default = place == options.DEFAULT_WORKSPACE
            place = str(file.parent / place) if is_default else f"{place.rstrip('/')}/{name}"
        benchmark = Benchmark(name, file, config, Workspace.at(place))
        for other in benchmarks:
            both = f"{str(other.file)!r} and {str(file)!r} would"
            if other.name == name:
                raise ConfigurationError(f"{both} both be called {name!r}: give one of them another name:")
            if other.workspace.root.resolve() == benchmark.workspace.root.resolve():
                raise ConfigurationError(f"{both} have one workspace: give --workspace, in which each has its own")
        benchmarks.append(benchmark)
    return benchmarks


@options.spread
def up(
    given: options.DeploymentOptions,
    config: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Benchmark files (YAML or TOML); by default the sample.",
            callback=lambda paths: [options.benchmark_file(path) for path in paths or []],
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server and its UI.")] = 4200,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Run when documents change.")] = True,
    keep: Annotated[
        float, typer.Option(min=0, help="Delete runs and cached results unused for this many days; 0 keeps all.")
    ] = 90,
) -> None:
    """Run benchmarks every night, on demand from the Prefect UI and when documents change, until stopped."""
    from rag_eval.pipeline.workspace import Workspace

    console = Console(stderr=True)
    print_notes(console)
    benchmarks = chosen_benchmarks(given, config or [None])
    for benchmark in benchmarks:
        check_as_its_runs_do(benchmark, console)
    workspace = Workspace.at(given.workspace)
    home = prefect_home(workspace)
    ended = "server, worker and watcher have ended; what was finished is kept"
    with try_lock(home / "up.lock") as is_free, leaving(ended), ExitStack() as kept:
        if not is_free:  # two would stop each other's runs
            raise ConfigurationError(f"rag-eval up goes on already in {workspace.address!r}: stop it, or use another")
        group = ProcessGroup(home)
        try:
            with console.status("Starting …"):
                homes = [home, *(home_of(benchmark.workspace) for benchmark in benchmarks)]
                folders = {benchmark.name: benchmark.workspace.runs for benchmark in benchmarks}
                api, runs_url = start_server(group, kept, homes, folders, port)
                deployed = _deploy_all(given, benchmarks, home, runs_url)
                start_worker(group)
            _print_addresses(console, api, benchmarks, deployed, is_watching=watch)
            for benchmark in benchmarks:
                threading.Thread(target=tidy_daily, args=(benchmark.workspace, keep, console), daemon=True).start()
            attend(group, benchmarks if watch else [], console)
        finally:
            with console.status("Stopping …"):
                group.stop()


def _deploy_all(
    given: options.DeploymentOptions, benchmarks: Sequence[Benchmark], home: Path, runs_url: str | None
) -> "list[dict[str, Deployed]]":
    """Deploy benchmarks to the server, which was started here if it serves runs below ``runs_url``."""
    from flows.deployments import deploy

    if runs_url is not None and not running_temporary_servers(home):  # whose runs go on
        crash_abandoned_runs()
    deployed = []
    for benchmark in benchmarks:
        settings: dict[str, Any] = {"parameters": {"workspace": benchmark.workspace.address}}
        if runs_url is not None:
            settings["environment"] = {"RAG_EVAL_RUNS_URL": f"{runs_url}/{benchmark.name}"}
            settings["dead_after"] = OWN_DEAD_SECONDS
        deployed.append(deploy(given.project(benchmark.file, benchmark.config, **settings)))
    return deployed


def _print_addresses(
    console: Console,
    api: str,
    benchmarks: Sequence[Benchmark],
    deployed: "Sequence[dict[str, Deployed]]",
    *,
    is_watching: bool,
) -> None:
    ui, server = api.removesuffix("/api"), known_server_at(api)
    say(console, "rag-eval is up; Ctrl-C stops all of it", "bold")
    if server is not None:  # elsewhere than on a terminal it may go to a log
        sign_in = server.sign_in if console.is_terminal else f"with the address in {key_file(server.port)}"
        say(console, f"  {'sign in':13}{sign_in}")
    say(console, f"  {'UI':13}{ui}")
    for benchmark, deployments in zip(benchmarks, deployed, strict=True):
        on_change = f"watching {benchmark.config.corpus}" if is_watching else "when `rag-eval watch` reports one"
        say(console, f"  {benchmark.name}", "bold")
        say(console, f"    {'nightly':13}{deployments['nightly'].schedule or 'never'} UTC")
        say(console, f"    {'from the UI':13}{ui}/deployments/deployment/{deployments['adhoc'].id}/run")
        say(console, f"    {'on change':13}{on_change}")


def tidy_daily(workspace: "Workspace", days: float, console: Console) -> None:
    """Remove every day, while no run is under way, what was not used for so many days; nothing where they are 0."""
    from rag_eval.results.housekeeping import prune

    while days:
        try:
            if removed := prune(workspace, days):
                sizes = ", ".join(f"{holding.kind} {decimal(holding.size)}" for holding in removed)
                _say_with_time(console, f"removed what was not used for {days:g} days: {sizes}")
            time.sleep(DAY_SECONDS)
        except ConfigurationError:
            time.sleep(BUSY_SECONDS)  # a run is under way
        except RagEvalError as error:
            _say_with_time(console, f"nothing old was removed: {error}")
            time.sleep(DAY_SECONDS)


def check_as_its_runs_do(benchmark: Benchmark, console: Console) -> None:
    """Check the files of a benchmark, its ground truth carried over as its runs do.

    Where there was a run before, what is wrong now is an edit that may be corrected while the others go on: it is
    said, and its runs will say so too. Else it is raised.
    """
    from rag_eval.cli.run_commands import check_files
    from rag_eval.results.runs import run_names

    config, workspace = benchmark.config, benchmark.workspace
    try:
        check_files(config, workspace, reanchor=config.evaluation_type != "chunk-level")
    except (CorpusError, GroundTruthError) as error:
        if not run_names(workspace):
            raise
        say(console, f"rag-eval: {benchmark.name}: {error}; its runs fail until that is corrected", "yellow")


def watch_since_last_run(corpus: Path, glob: str | Sequence[str], workspace: "Workspace") -> CorpusWatch:
    """Watch a folder from where the newest run on it left it: what changed while nobody watched is reported at once."""
    from rag_eval.results.runs import documents_of_newest

    return CorpusWatch(corpus, glob, documents_of_newest(workspace, corpus, glob))


def attend(group: ProcessGroup, benchmarks: Sequence[Benchmark], console: Console) -> None:
    """Emit the changes of the documents of benchmarks, until something ends; raise what did."""
    ended: list[ServiceError] = []

    def follow(corpus: CorpusWatch) -> None:
        try:
            emit_changes(corpus, console)
        except RagEvalError as error:
            ended.append(ServiceError(f"the watcher ended ({error}), and everything else was stopped"))

    watched_by = {(benchmark.config.corpus, str(benchmark.config.glob)): benchmark for benchmark in benchmarks}
    for benchmark in watched_by.values():
        corpus = watch_since_last_run(benchmark.config.corpus, benchmark.config.glob, benchmark.workspace)
        threading.Thread(target=follow, args=(corpus,), daemon=True).start()
    watched(threading.Event().wait, lambda: group.trouble() or next(iter(ended), None))


def start_server(
    group: ProcessGroup, kept: ExitStack, homes: Sequence[Path], runs: Mapping[str, Path], port: int
) -> tuple[str, str | None]:
    """Use the server that the user named or runs on the port, or start one that serves the folders ``runs``.

    Its own home is the first; the others are those of further workspaces that it serves. Its key is in a file while
    ``kept`` is open. Returns its address, and the address of the folders if it was started here. Raises
    ``ServiceError`` when it does not start, ``ConfigurationError`` when the port is not free.
    """
    from rag_eval.cli.prefect_api import LastingServer, answers, configured_api

    home, api = homes[0], f"http://127.0.0.1:{port}/api"
    server = configured_api() or (LastingServer(api, "--port") if known_server(port) else None)
    if server is not None:
        server.use()
        server.wait()
        return server.address, None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigurationError(
                f"port {port} is in use: give another --port, or name the Prefect server there with PREFECT_API_URL"
            ) from None
    key, token = new_key(), runs_token(home)
    own = use_own_server(home, api, key)
    # The address is for links in messages.
    settings = own | RETENTION | {RUNS_TOKEN: token, "PREFECT_UI_URL": api.removesuffix("/api")}
    folders = [f"{name}={folder}" for name, folder in runs.items()]
    group.start("server", ["127.0.0.1", str(port), *folders], settings, lambda: answers(api))
    kept.enter_context(kept_key(port, f"http://127.0.0.1:{port}{SIGN_IN_PATH}#{key}", homes))
    return api, f"http://127.0.0.1:{port}{RUNS_PATH}/{token}"


def crash_abandoned_runs() -> None:
    """Mark the runs as crashed that a server, which only now starts again, still counts as running.

    Their workers have ended without reporting, and others would wait for them.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    from flows.automations import find_runs

    unfinished = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
    with get_client(sync_client=True) as client:
        while runs := find_runs(client, *unfinished, sort="EXPECTED_START_TIME_ASC"):
            for run in runs:
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
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Report added, changed and removed documents to the Prefect server, since the last run in the workspace too."""
    from rag_eval.cli.prefect_api import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    corpus = watch_since_last_run(folder, glob, workspace)
    api = use_lasting_server(workspace)
    _say_with_time(console, f"watching {folder} for {', '.join(glob)}; changes go to {api}")
    # In a thread, because what watches files takes signals for itself.
    watched(lambda: emit_changes(corpus, console))


def emit_changes(corpus: CorpusWatch, console: Console) -> None:
    """Emit ``corpus.changed`` for every change; what the server does not take is emitted again later.

    Raises ``CorpusFolderError`` when the folder goes away.
    """
    from flows.deployments import emit_corpus_change

    refused_until = 0.0
    for change in corpus.changes(threading.Event()):
        if time.monotonic() < refused_until:
            continue
        try:
            emit_corpus_change(corpus.folder, change)
        except ServiceError as error:
            _say_with_time(console, f"{error}; trying again")
            refused_until = time.monotonic() + RETRY_SECONDS
            continue
        corpus.accept()
        _say_with_time(console, f"{corpus.folder.name}: {change}")


def _say_with_time(console: Console, text: str) -> None:
    say(console, f"{time.strftime('%H:%M:%S')} {text}")


@options.spread
def deploy(
    given: options.DeploymentOptions,
    config: Annotated[
        Path | None,
        typer.Argument(
            help="Benchmark file, which workers find below --folder as here; by default the sample.",
            callback=options.benchmark_file,
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Working directory on the workers' machines; by default the current one.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Work pool; by default rag-eval.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run as Kubernetes jobs, from this base job template.")
    ] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove the benchmark of this name from the server instead.")
    ] = None,
) -> None:
    """Create or update what a benchmark has on the Prefect server: deployments, a work queue and automations."""
    from rag_eval.cli.prefect_api import use_lasting_server
    from rag_eval.pipeline.workspace import Workspace

    console = Console(stderr=True)
    print_notes(console)
    chosen = None if remove else given.benchmark(config)
    api = use_lasting_server(Workspace.at(given.workspace))
    import flows.deployments as service

    if chosen is None:
        for what in service.remove(str(remove)):
            say(console, f"removed {what}")
        return
    there, corpus = folder or Path.cwd(), Path(chosen.corpus)
    if corpus.is_relative_to(Path.cwd()):
        corpus = there / corpus.relative_to(Path.cwd())
    project = given.project(config, chosen, folder=there, corpus=corpus, pool=pool, job_template=kubernetes)
    for deployed in service.deploy(project).values():
        page = f"{api.removesuffix('/api')}/deployments/deployment/{deployed.id}"
        say(console, f"{deployed.name:32}{page}  ({deployed})")
    event, resource = service.CORPUS_CHANGED, service.corpus_resource(corpus)["prefect.resource.id"]
    say(console, f"A run starts on the event {event} of {resource}, as rag-eval watch {corpus} emits it.")
