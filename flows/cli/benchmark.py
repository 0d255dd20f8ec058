"""``rag-eval run``: start the benchmark flow, show how it goes, and print what it found."""

from pathlib import Path

import typer
from rich.console import Console

from flows.cli.quiet import quiet_prefect
from flows.cli.ranking import print_outcome
from flows.cli.server import prefect_server
from rag_eval import sample
from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.config.load import load_config
from rag_eval.errors import BenchmarkFailedError, ConfigurationError
from rag_eval.files import scratch_path
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.native import read_chunk_level, read_token_level
from rag_eval.pipeline.housekeeping import sweep
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.types.document import Corpus


def chosen_benchmark(config: Path | None, corpus: Path | None, truth: Path | None, glob: str | None) -> BenchmarkConfig:
    """The benchmark of a file, or the sample's, with what the command line puts in its place.

    Raises ``ConfigurationError`` when the sample's documents are to be scored against other truth, or the reverse.
    """
    if config is None and (corpus is None) != (truth is None):
        raise ConfigurationError("--corpus and --truth go together unless a benchmark file has the other: give both")
    chosen = load_config(config or sample.BENCHMARK)
    given = {"corpus": corpus and corpus.absolute(), "ground_truth": truth and truth.absolute(), "glob": glob}
    return chosen.model_copy(update={key: value for key, value in given.items() if value is not None})


def check_files(config: BenchmarkConfig) -> None:
    """Read the documents and the truth, and raise what is wrong with them."""
    corpus = Corpus.from_folder(config.corpus, config.glob)
    if config.evaluation_type == "token-level":
        check_against_corpus(read_token_level(config.ground_truth), corpus)
    else:
        read_chunk_level(config.ground_truth)


def run_benchmark(config: BenchmarkConfig, workspace: Workspace, *, as_json: bool) -> None:
    """Run the benchmark and print the ranking, or the whole outcome as JSON; raises ``BenchmarkFailedError``."""
    # What is wrong with the files is said before a server is started.
    check_files(config)
    with scratch_path(workspace.root):
        sweep(workspace)
    (workspace.root / ".gitignore").write_text("*\n")
    failure: BenchmarkFailedError | None = None
    try:
        outcome = _run(config, workspace, Console(stderr=True))
    except BenchmarkFailedError as error:
        failure, outcome = error, BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
    except KeyboardInterrupt:
        Console(stderr=True).print("rag-eval: stopped; what was finished is kept")
        raise typer.Exit(130) from None
    print_result(outcome, workspace, as_json=as_json)
    if failure is not None:
        raise failure


def print_result(outcome: BenchmarkOutcome, workspace: Workspace, *, as_json: bool) -> None:
    """Print the ranking and where it is kept, or the whole outcome as JSON."""
    console = Console()
    if as_json:
        console.file.write(outcome.model_dump_json(indent=2) + "\n")
        return
    print_outcome(console, outcome)
    console.print(f"Kept in {workspace.runs / outcome.run}", highlight=False, soft_wrap=True, markup=False)


def _run(config: BenchmarkConfig, workspace: Workspace, console: Console) -> BenchmarkOutcome:
    with prefect_server(workspace.root / "prefect") as server:
        kind = "a temporary Prefect server" if server.is_temporary else f"the Prefect server at {server.api}"
        with console.status(f"Starting on {kind} …"):
            from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

            from flows.benchmark import benchmark
            from flows.cli.live import LiveTable
            from tasks.progress import listening

            quiet_prefect()
            server.wait()
        table = LiveTable([configuration.name for configuration in config.configurations()])
        # Nobody watches this process from afar, and every subflow would wait a second for its last heartbeat.
        no_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
        with no_heartbeat, table.shown(console), listening(table.told):
            return benchmark(config, workspace)
