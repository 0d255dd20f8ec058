"""``rag-eval up``, ``deploy`` and ``watch``: runs every night, on demand and when documents change.

``up`` runs a Prefect server, a worker, the deployments and watchers on this machine, and stops them together;
``deploy`` and ``watch`` are for a server that is already running.
"""

import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from rag_eval.cli import options
from rag_eval.cli.console import print_notes, say
from rag_eval.cli.prefect_home import (
    RUNS_PATH,
    RUNS_TOKEN,
    SIGN_IN_PATH,
    home_of,
    kept_key,
    key_file,
    known_server,
    known_server_at,
    prefect_home,
    running_temporary_servers,
    runs_token,
    use_own_server,
)
from rag_eval.cli.processes import HEARTBEAT_SECONDS, ChildProcess, leaving, watched
from rag_eval.documents.watch import CorpusWatch
from rag_eval.errors import ConfigurationError, CorpusError, GroundTruthError, RagEvalError, ServiceError
from rag_eval.storage.locks import try_lock

if TYPE_CHECKING:
    from flows.deployments import Deployed, Project
    from rag_eval.config.models import BenchmarkConfig
    from rag_eval.pipeline.workspace import Workspace

RETRY_SECONDS, BUSY_SECONDS, DAY_SECONDS = 5.0, 600.0, 86_400.0
OWN_DEAD_SECONDS = 90.0
"""Seconds without a heartbeat after which a run counts as crashed, on a server that always stops with its worker."""
WORKER_SETTINGS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "PREFECT_WORKER_QUERY_SECONDS": "2",  # so that a run starts soon after it is requested
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
    "PREFECT_LOGGING_LEVEL": "INFO",  # the UI shows the log of a run
    "PREFECT_LOGGING_EXTRA_LOGGERS": "rag_eval",
}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark to deploy, with the workspace of its runs as it was given."""

    name: str
    file: Path | None
    config: "BenchmarkConfig"
    place: str

    @classmethod
    def of(cls, file: Path | None, place: str) -> "Benchmark":
        """Read a benchmark file; without one it is the sample."""
        from rag_eval.config.loading import chosen_benchmark, project_name

        config = chosen_benchmark(file)
        return cls(project_name(config, file), file, config, place)

    @property
    def workspace(self) -> "Workspace":
        from rag_eval.pipeline.workspace import Workspace

        return Workspace.at(self.place)

    def project(
        self,
        parameters: Mapping[str, str | float | None],
        *,
        cron: str | None,
        time_limit: float,
        secrets: Sequence[str] | None,
    ) -> "Project":
        """Return the record of the benchmark that a Prefect server stores; ``time_limit`` is in hours."""
        from flows.deployments import Project

        given = {"benchmark_file": None if self.file is None else str(self.file), "workspace": self.place, **parameters}
        return Project(
            self.name,
            Path.cwd(),
            self.config.corpus,
            {name: value for name, value in given.items() if value is not None},
            cron=cron,
            secrets=secrets or (),
            notify=self.config.notify,
            time_limit=time_limit * 3600,
        )


def chosen_benchmarks(files: Sequence[Path | None], place: str) -> list[Benchmark]:
    """Return the benchmarks of files, each with its own workspace.

    A single benchmark uses the workspace ``place``. Several benchmarks use folders in it with their names; without
    ``--workspace``, each uses the default workspace beside its file. Raises ``ConfigurationError`` if two would share a
    name or a workspace.
    """
    benchmarks: list[Benchmark] = []
    for file in files:
        benchmark = Benchmark.of(file, place)
        if file is not None and len(files) > 1:
            is_default = place == options.DEFAULT_WORKSPACE
            own_place = str(file.parent / place) if is_default else f"{place.rstrip('/')}/{benchmark.name}"
            benchmark = replace(benchmark, place=own_place)
        for other in benchmarks:
            both = f"{str(other.file)!r} and {str(file)!r}"
            if other.name == benchmark.name:
                raise ConfigurationError(f"{both} are both named {other.name!r}: set name: in one of them")
            if other.workspace.root.resolve() == benchmark.workspace.root.resolve():
                raise ConfigurationError(f"{both} share a workspace: give --workspace to separate them")
        benchmarks.append(benchmark)
    return benchmarks


def up(
    config: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Benchmark files (YAML).",
            show_default="the sample",
            callback=lambda paths: [options.benchmark_file(path) for path in paths or []],
        ),
    ] = None,
    workspace: options.WorkspacePlaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    cron: options.CronOption = None,
    gate_metric: options.GateMetricOption = None,
    max_drop: options.MaxDropOption = None,
    fail_on_warn: options.FailOnWarnOption = False,
    time_limit: options.TimeLimitOption = 12.0,
    secret: options.SecretOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server and its UI.")] = 4200,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Run when documents change.")] = True,
    keep: Annotated[
        float, typer.Option(min=0, help="Delete runs and cached results unused for this many days (0: keep all).")
    ] = 90,
) -> None:
    """Run benchmarks every night, on demand and when documents change, until stopped."""
    from rag_eval.config.models import check_runner
    from rag_eval.pipeline.workspace import Workspace

    check_runner(runner)
    console = Console(stderr=True)
    print_notes(console)
    benchmarks = chosen_benchmarks(config or [None], workspace)
    for benchmark in benchmarks:
        check_as_its_runs_do(benchmark, console)
    parameters = {
        "runner": runner,
        "gate_metric": gate_metric,
        "max_drop": max_drop,
        "fail_on_warn": fail_on_warn or None,
    }
    own = Workspace.at(workspace)
    home = prefect_home(own)
    children: list[ChildProcess] = []
    ended = "server, worker and watcher have ended; finished work is saved"
    with try_lock(home / "up.lock") as is_free, leaving(ended), ExitStack() as stack:
        if not is_free:  # two services would stop each other's runs
            raise ConfigurationError(
                f"rag-eval up already runs in {own.address!r}: stop it, or use another --workspace"
            )
        try:
            with console.status("Starting …"):
                api, runs_url = start_server(children, stack, home, benchmarks, port)
                from flows.deployments import deploy  # Prefect reads its settings on import

                if runs_url is not None and not running_temporary_servers(home):  # its runs are not abandoned
                    crash_abandoned_runs()
                deployed = []
                for benchmark in benchmarks:
                    project = benchmark.project(parameters, cron=cron, time_limit=time_limit, secrets=secret)
                    if runs_url is not None:
                        address = {"RAG_EVAL_RUNS_URL": f"{runs_url}/{benchmark.name}"}
                        project = replace(project, environment=address, dead_after=OWN_DEAD_SECONDS)
                    deployed.append(deploy(project))
                start_worker(children, home)
            _print_addresses(console, api, benchmarks, deployed, is_watching=watch)
            for benchmark in benchmarks:
                threading.Thread(target=tidy_daily, args=(benchmark.workspace, keep, console), daemon=True).start()
            attend(children, benchmarks if watch else [], console)
        finally:
            with console.status("Stopping …"):
                for child in reversed(children):
                    child.stop()


def start_server(
    children: list[ChildProcess], stack: ExitStack, home: Path, benchmarks: Sequence[Benchmark], port: int
) -> tuple[str, str | None]:
    """Use the configured Prefect server or a running one on the port, else start one that also serves the reports.

    Returns its address, and the address of the reports if it was started here. Its key stays in a file until ``stack``
    closes. Raises ``ServiceError`` if the server does not start, and ``ConfigurationError`` if the port is in use.
    """
    from rag_eval.cli.prefect_api import LastingServer, answers, configured_api

    api = f"http://127.0.0.1:{port}/api"
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
                f"port {port} is in use: give another --port, or set PREFECT_API_URL to the Prefect server there"
            ) from None
    key, token = token_urlsafe(32), runs_token(home)
    settings = use_own_server(home, api, key) | {RUNS_TOKEN: token, "PREFECT_UI_URL": api.removesuffix("/api")}
    folders = [f"{benchmark.name}={benchmark.workspace.runs}" for benchmark in benchmarks]
    child = ChildProcess("server", ["127.0.0.1", str(port), *folders], home / "server.log", settings)
    children.append(child)
    child.wait_until(lambda: answers(api))
    homes = [home, *(home_of(benchmark.workspace) for benchmark in benchmarks)]
    stack.enter_context(kept_key(port, f"http://127.0.0.1:{port}{SIGN_IN_PATH}#{key}", homes))
    return api, f"http://127.0.0.1:{port}{RUNS_PATH}/{token}"


def crash_abandoned_runs() -> None:
    """Mark runs as crashed that the server still counts as running although their workers have ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    from flows.automations import find_runs

    unfinished = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
    with get_client(sync_client=True) as client:
        while runs := find_runs(client, *unfinished, sort="EXPECTED_START_TIME_ASC"):
            for run in runs:
                client.set_flow_run_state(run.id, Crashed(message="its worker ended"), force=True)


def start_worker(children: list[ChildProcess], home: Path) -> None:
    """Start a worker and wait until it is registered at the server."""
    from prefect.client.orchestration import get_client

    from flows.deployments import work_pool

    pool = work_pool()
    child = ChildProcess("worker", [pool], home / "worker.log", WORKER_SETTINGS)
    children.append(child)
    with get_client(sync_client=True) as client:
        child.wait_until(lambda: client.read_work_pool(pool).status == "READY")


def _print_addresses(
    console: Console,
    api: str,
    benchmarks: Sequence[Benchmark],
    deployed: "Iterable[dict[str, Deployed]]",
    *,
    is_watching: bool,
) -> None:
    ui, server = api.removesuffix("/api"), known_server_at(api)
    say(console, "rag-eval is up; Ctrl-C stops all of it", "bold")
    if server is not None:  # the key belongs on a terminal, not in a log
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
    """Once a day, while no run is active, delete what has not been used for this many days (0: nothing)."""
    from rag_eval.results.housekeeping import prune

    while days:
        try:
            if removed := prune(workspace, days):
                sizes = ", ".join(f"{holding.kind} {decimal(holding.size)}" for holding in removed)
                _say_with_time(console, f"removed files unused for {days:g} days: {sizes}")
            time.sleep(DAY_SECONDS)
        except ConfigurationError:
            time.sleep(BUSY_SECONDS)  # a run is active
        except RagEvalError as error:
            _say_with_time(console, f"nothing was removed: {error}")
            time.sleep(DAY_SECONDS)


def check_as_its_runs_do(benchmark: Benchmark, console: Console) -> None:
    """Check the files of a benchmark as its runs do, with re-anchored ground truth.

    After the first run, mistakes in documents or ground truth are printed and not raised: somebody may be editing them,
    and the other benchmarks can still run.
    """
    from rag_eval.cli.run_commands import check_files
    from rag_eval.results.runs import run_names

    config, workspace = benchmark.config, benchmark.workspace
    try:
        check_files(config, workspace, reanchor=config.evaluation_type != "chunk-level")
    except (CorpusError, GroundTruthError) as error:
        if not run_names(workspace):
            raise
        say(console, f"rag-eval: {benchmark.name}: {error}; its runs fail until this is corrected", "yellow")


def attend(children: Sequence[ChildProcess], benchmarks: Sequence[Benchmark], console: Console) -> None:
    """Emit changes of the benchmarks' documents until a child process or a watcher ends, and raise the reason."""
    from rag_eval.results.runs import documents_of_newest

    ended: list[ServiceError] = []

    def follow(corpus: CorpusWatch) -> None:
        try:
            emit_changes(corpus, console)
        except RagEvalError as error:
            ended.append(ServiceError(f"the watcher ended: {error}"))

    by_documents = {(benchmark.config.corpus, str(benchmark.config.glob)): benchmark for benchmark in benchmarks}
    for benchmark in by_documents.values():
        config = benchmark.config
        corpus = CorpusWatch(
            config.corpus, config.glob, documents_of_newest(benchmark.workspace, config.corpus, config.glob)
        )
        threading.Thread(target=follow, args=(corpus,), daemon=True).start()

    def trouble() -> ServiceError | None:
        return next(filter(None, [*(child.failure() for child in children), *ended]), None)

    watched(threading.Event().wait, trouble)


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of documents.")],
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Report changed documents to the Prefect server, starting with changes since the last run."""
    from rag_eval.cli.prefect_api import use_lasting_server
    from rag_eval.results.runs import documents_of_newest

    console = Console(stderr=True)
    print_notes(console)
    corpus = CorpusWatch(folder, glob, documents_of_newest(workspace, folder, glob))
    api = use_lasting_server(workspace)
    _say_with_time(console, f"watching {folder} for {', '.join(glob)}; changes go to {api}")
    # In a thread, because watchfiles handles signals itself.
    watched(lambda: emit_changes(corpus, console))


def emit_changes(corpus: CorpusWatch, console: Console) -> None:
    """Emit ``corpus.changed`` for every change; try again later if the server does not accept it.

    Raises ``CorpusFolderError`` if the folder disappears.
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


def deploy(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="Benchmark file; workers need it at the same path below --folder.",
            show_default="the sample",
            callback=options.benchmark_file,
        ),
    ] = None,
    workspace: options.WorkspacePlaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    cron: options.CronOption = None,
    gate_metric: options.GateMetricOption = None,
    max_drop: options.MaxDropOption = None,
    fail_on_warn: options.FailOnWarnOption = False,
    time_limit: options.TimeLimitOption = 12.0,
    secret: options.SecretOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="Working directory on the workers.", show_default="the current one")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Work pool.", show_default="rag-eval")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Base job template for running as Kubernetes jobs.")
    ] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove the benchmark of this name from the server instead.")
    ] = None,
) -> None:
    """Create or update the deployments, work queue and automations of a benchmark on the Prefect server."""
    from rag_eval.cli.prefect_api import use_lasting_server
    from rag_eval.config.models import check_runner
    from rag_eval.pipeline.workspace import Workspace

    check_runner(runner)
    console = Console(stderr=True)
    print_notes(console)
    benchmark = None if remove else Benchmark.of(config, workspace)
    api = use_lasting_server(Workspace.at(workspace))
    import flows.deployments as service

    if benchmark is None:
        for what in service.remove(str(remove)):
            say(console, f"removed {what}")
        return
    there, corpus = folder or Path.cwd(), Path(benchmark.config.corpus)
    if corpus.is_relative_to(Path.cwd()):
        corpus = there / corpus.relative_to(Path.cwd())
    parameters = {
        "runner": runner,
        "gate_metric": gate_metric,
        "max_drop": max_drop,
        "fail_on_warn": fail_on_warn or None,
    }
    project = benchmark.project(parameters, cron=cron, time_limit=time_limit, secrets=secret)
    project = replace(project, folder=there, corpus=corpus, pool=pool, job_template=kubernetes)
    for deployed in service.deploy(project).values():
        page = f"{api.removesuffix('/api')}/deployments/deployment/{deployed.id}"
        say(console, f"{deployed.name:32}{page}")
    event, resource = service.CORPUS_CHANGED, service.corpus_resource(corpus)["prefect.resource.id"]
    say(console, f"A run starts on the event {event} of {resource}, which rag-eval watch {corpus} emits.")
