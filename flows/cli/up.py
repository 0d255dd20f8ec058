"""``rag-eval up``: server, work pool, worker, deployments and watcher on this machine, stopped together."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import (
    DEFAULT_WORKSPACE,
    CorpusOption,
    CronOption,
    GateMetricOption,
    GlobOption,
    MaxDropOption,
    RunnerOption,
    TruthOption,
    WorkspaceOption,
)
from flows.cli.stopping import Stopped
from flows.cli.text import visible
from flows.cli.watch import emit_changes, tell
from rag_eval.errors import ConfigurationError, RagEvalError, ServiceError
from rag_eval.file_locks import try_lock

if TYPE_CHECKING:
    from uuid import UUID

    from flows.cli.crew import Crew
    from rag_eval.config.benchmark import BenchmarkConfig
    from rag_eval.corpus_watch import CorpusWatch

LOOK_SECONDS = 0.5


def up(
    config: Annotated[
        Path | None, typer.Argument(help="A benchmark as YAML or TOML; without it, the sample's.")
    ] = None,
    corpus: CorpusOption = None,
    truth: TruthOption = None,
    glob: GlobOption = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    runner: RunnerOption = "threads",
    cron: CronOption = None,
    gate_metric: GateMetricOption = None,
    max_drop: MaxDropOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the server answers, and its UI is.")] = 4200,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Run when documents change.")] = True,
) -> None:
    """Have a benchmark run every night, from the Prefect UI and when documents change, until it is stopped."""
    from flows.choosing import chosen_benchmark
    from flows.cli.benchmark import check_files
    from flows.cli.crew import Crew
    from flows.cli.deploy import deployment_parameters
    from flows.cli.members import call_off_left_behind, start_server, start_worker
    from flows.cli.quiet import print_notes
    from rag_eval.config.runners import check_runner
    from rag_eval.corpus_watch import CorpusWatch
    from rag_eval.pipeline.workspace import Workspace

    console = Console(stderr=True)
    print_notes(console)
    chosen = chosen_benchmark(config, corpus, truth, glob)
    check_files(chosen)
    check_runner(runner)
    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner, gate_metric, max_drop)
    home = Workspace.at(workspace).root / "prefect"
    with _alone(home), _stopped_together(console, Crew(home)) as crew:
        with console.status("Starting …"):
            api, is_ours = start_server(crew, home, port)
            from flows.deploying import deploy

            if is_ours:
                call_off_left_behind()
            ids = deploy(Path.cwd(), parameters, cron)
            start_worker(crew)
        folder = CorpusWatch(Path(chosen.corpus), chosen.glob) if watch else None
        _announce(console, api, ids, chosen, watch=watch)
        with _watcher(console, folder) as watcher:
            while not (problem := crew.trouble() or watcher.trouble):
                time.sleep(LOOK_SECONDS)
            raise problem


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One at a time in a workspace: two would stop each other's runs."""
    with try_lock(home / "up.lock") as is_free:
        if not is_free:
            raise ConfigurationError(f"rag-eval up goes on already in {str(home.parent)!r}: stop it, or use another")
        yield


@contextmanager
def _stopped_together(console: Console, crew: "Crew") -> Iterator["Crew"]:
    """The crew, stopped whatever happens."""
    try:
        yield crew
    except Stopped as stop:
        stop.consequence = "server, worker and watcher have ended; what was finished is kept"
        raise
    finally:
        with console.status("Stopping …"):
            crew.stop()


class _Watcher:
    def __init__(self) -> None:
        self.stop = threading.Event()
        self.trouble: RagEvalError | None = None


@contextmanager
def _watcher(console: Console, folder: "CorpusWatch | None") -> Iterator[_Watcher]:
    """A thread that watches the corpus; what goes wrong in it is its trouble."""
    watcher = _Watcher()

    def work(corpus: "CorpusWatch") -> None:
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
    """Say what is up, and where."""
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
