"""``rag-eval run`` and ``rag-eval validate``: check a benchmark, run it, show progress and print the ranking."""

import sys
import threading
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, print_notes, print_table, say
from rag_eval.cli.processes import HEARTBEAT_SECONDS, Stopped, leaving, watched
from rag_eval.cli.truth_commands import summary
from rag_eval.errors import BenchmarkFailedError, ConfigurationError, Faults
from rag_eval.formatting import asked, cost_in_words, counted, time_in_short
from rag_eval.storage.files import scratch_path, sweep_scratch
from rag_eval.types.documents import Corpus, LeftOutWarning
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefect.client.schemas.objects import FlowRun

    from rag_eval.cli.prefect_api import LastingServer, TemporaryServer
    from rag_eval.config.models import BenchmarkConfig
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.outcome import BenchmarkOutcome
    from rag_eval.sweep.estimate import SearchEstimate
    from rag_eval.types.evidence import TokenLevelGroundTruth

CANCEL_SECONDS = 5.0


@options.spread
def run(
    given: options.BenchmarkOptions,
    config: options.ConfigArgument = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Recompute everything.")] = False,
    reanchor: Annotated[
        bool, typer.Option("--reanchor", help="Move spans to where their text is in changed documents, for this run.")
    ] = False,
    publish_to: Annotated[
        str | None,
        typer.Option("--publish", metavar="DATASET", help="LangSmith dataset for an experiment per configuration."),
    ] = None,
    search: options.SearchOption = None,
    holdout: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Share of the documents whose questions the search does not see."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run a benchmark and rank its configurations."""
    from rag_eval.pipeline.workspace import Workspace

    chosen = given.benchmark(config, langsmith_dataset=publish_to, search=search, holdout=holdout)
    if config is None and given.corpus is None:
        own = "; yours: rag-eval run benchmark.yaml" if Path("benchmark.yaml").is_file() else ""
        say(Console(stderr=True), f"rag-eval: no benchmark file is given, so this is the sample's{own}")
    workspace = Workspace.at(given.workspace, refresh=refresh)
    failure: BenchmarkFailedError | None = None
    outcome = _unchanged_run(chosen, workspace, reanchor=reanchor)
    if outcome is None:
        try:
            outcome = _run_benchmark(chosen, workspace, reanchor, given.runner)
        except BenchmarkFailedError as error:
            from rag_eval.results.outcome import BenchmarkOutcome

            failure, outcome = error, BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
    from rag_eval.cli.ranking_table import print_result  # which takes as long to import as all before the first line

    print_result(outcome, workspace, as_json=as_json)
    if failure is not None:
        raise failure


def _unchanged_run(config: "BenchmarkConfig", workspace: "Workspace", *, reanchor: bool) -> "BenchmarkOutcome | None":
    """Return the last run if nothing has changed since, and say so."""
    if not any(workspace.storage.names("runs")):
        return None
    from rag_eval.results.unchanged import unchanged_run

    found = unchanged_run(workspace, config, reanchor=reanchor)
    if found is not None:
        say(Console(stderr=True), f"rag-eval: nothing has changed since run {found.run}: --refresh computes it again")
    return found


def _run_benchmark(
    chosen: "BenchmarkConfig", workspace: "Workspace", reanchor: bool, runner: str
) -> "BenchmarkOutcome":
    """Run the flow of a benchmark; the benchmark is checked while the server starts."""
    from rag_eval.cli.prefect_api import prefect_api

    console = Console(stderr=True)
    with scratch_path(workspace.root):
        sweep_scratch(workspace.root)
    workspace.write_file(workspace.root / ".gitignore", b"*\n")  # also says early when a bucket cannot be written to
    with prefect_api(workspace) as server:
        if not console.is_terminal:
            told = "a temporary Prefect server" if server.is_temporary else "on the Prefect server"
            say(console, f"rag-eval: starting {told}")
        check_config(chosen, workspace, reanchor=reanchor)
        notices = chosen.notices()
        for notice in notices:
            say(console, f"rag-eval: {notice}")
        print_notes(console, notices)
        chosen = _within_limit(console, chosen, workspace)
        return _run_flow(console, chosen, workspace, reanchor, runner, server)


def _run_flow(
    console: Console,
    config: "BenchmarkConfig",
    workspace: "Workspace",
    reanchor: bool,
    runner: str,
    server: "LastingServer | TemporaryServer",
) -> "BenchmarkOutcome":
    with console.status("Starting the Prefect server …"):
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_TASKS_REFRESH_CACHE, temporary_settings

        from flows.benchmark import benchmark, evaluate_chunking, evaluate_system
        from rag_eval.cli.live_table import RunFollower
        from tasks.caching import result_storage

        server.wait()
    started, follower = StartedRun(console, server), RunFollower(console, len(config.configurations()))
    for subflow in (evaluate_chunking, evaluate_system):
        for hook in (subflow.on_running, subflow.on_completion, subflow.on_failure):
            hook(follower.notice)
    # By heartbeats a server that stays learns that this process was killed. A flow waits a second for the end of them.
    heartbeats = None if server.is_temporary else HEARTBEAT_SECONDS
    settings: dict[Any, Any] = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: heartbeats}
    if workspace.refresh:
        settings[PREFECT_TASKS_REFRESH_CACHE] = True

    def work() -> "BenchmarkOutcome":
        with temporary_settings(settings):
            storage = result_storage(workspace)
            flow = benchmark.with_options(on_running=[started.notice, follower.notice], result_storage=storage)
            return flow(config, workspace, reanchor, runner)

    kept = "what was finished is cached, and the next run continues there"
    try:
        with follower.shown(), leaving(kept):
            return watched(work, server.trouble)
    except Stopped:
        started.cancel()
        raise


def _within_limit(console: Console, chosen: "BenchmarkConfig", kept: "Workspace") -> "BenchmarkConfig":
    """Ask whether a full search may embed more than ``max_cost``; where nobody can be asked, the run refuses."""
    from rag_eval.sweep.estimate import Estimates
    from rag_eval.sweep.guided import over_limit

    if chosen.max_cost is None or chosen.search != "full" or not (console.is_terminal and sys.stdin.isatty()):
        return chosen
    left = Estimates(kept, chosen).of(("full",))[0].left
    if (told := over_limit(left, chosen)) is None:
        return chosen
    typer.confirm(f"{told}. Embed them?", abort=True, err=True)
    return chosen.model_copy(update={"allowed_cost": f"{left.tokens:,} tokens"})


@options.spread
def validate(
    given: options.FileOptions,
    config: options.ConfigArgument = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Estimate what each search embeds, its cost and time."),
    ] = False,
    search: options.SearchOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check a benchmark file, its documents and its ground truth, and list its configurations; nothing is spent."""
    from rag_eval.pipeline.workspace import Workspace

    chosen = given.benchmark(config, search=search)
    # Without a workspace every document that is left out is named.
    workspace = Workspace.at(given.workspace) if estimate else None
    checked = check_files(chosen, workspace, file=config)
    names = [one.name for one in chosen.configurations()]
    notes = [*checked.notes, *chosen.notices()]
    estimates: list[SearchEstimate] = []
    if workspace is not None:
        from rag_eval.sweep.estimate import Estimates

        estimator = Estimates(workspace, chosen)
        estimates = estimator.of(*([(chosen.search,)] if search else []))
        notes = [*estimator.notes, *notes]
    console = Console()
    if as_json:
        counts = {"documents": checked.documents, "questions": checked.questions}
        told = {"configurations": names, **counts, "notes": notes}
        print_json(console, told | {"estimates": [asdict(one) for one in estimates]} if estimate else told)
        return
    print_table(console, {"#": True, "configuration": False}, ((str(n), name) for n, name in enumerate(names, start=1)))
    ks = ", ".join(map(str, chosen.k))
    say(console, f"{counted(len(names), 'configurations')}, {chosen.evaluation_type}, k = {ks}")
    say(console, _objective_in_words(chosen))
    say(console, f"{counted(checked.documents, 'documents')}, {checked.questions}")
    if estimates:
        _print_estimates(console, estimates)
    for notice in notes:
        say(console, f"Note: {notice}.")


def _objective_in_words(config: "BenchmarkConfig") -> str:
    from rag_eval.metrics.formulas import BUDGET
    from rag_eval.metrics.metric import split_name

    cut, words = split_name(config.objective)[1], f"ranked by {config.objective}"
    if config.budget is None and cut.kind == "tokens" and cut.size != BUDGET:  # the objective has a budget of its own
        return words
    return f"{words}; a budget of {config.budget or BUDGET:,} tokens{', the default' * (config.budget is None)}"


def _print_estimates(console: Console, estimates: list["SearchEstimate"]) -> None:
    columns = ("configurations", "texts", "tokens", "cost", "left", "time")
    rows = [
        (
            one.search,
            f"{one.configurations:,}",
            f"{one.all.texts:,}",
            f"{one.all.tokens:,}",
            cost_in_words(one.all.cost),
            f"{one.left.tokens:,}",
            "" if one.seconds is None else time_in_short(one.seconds),
        )
        for one in estimates
    ]
    print_table(console, {"search": False} | dict.fromkeys(columns, True), rows)


class StartedRun:
    """The run of a flow that has ``notice`` as a hook: says where its page is, and can cancel it."""

    def __init__(self, console: Console, server: "LastingServer | TemporaryServer") -> None:
        self._console, self._server = console, server
        self._run: FlowRun | None = None

    def notice(self, flow: Any, flow_run: "FlowRun", state: Any) -> None:
        """Take note of the run, as a hook of its flow."""
        from prefect.utilities.urls import url_for

        from rag_eval.cli.prefect_api import without_credentials

        self._run = flow_run
        page = url_for("flow-run", flow_run.id)
        if page and not self._server.is_temporary:
            say(self._console, f"rag-eval: its page in Prefect: {without_credentials(page)}")

    def cancel(self) -> None:
        """Have the server call the run, and all below it, cancelled; soon or not at all, because we are leaving."""
        from prefect.client.orchestration import get_client
        from prefect.states import Cancelled

        def ask(run: "FlowRun") -> None:
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(run.id, Cancelled(message="stopped from the command line"), force=True)

        if self._run is not None:
            thread = threading.Thread(target=ask, args=(self._run,), daemon=True)
            thread.start()
            thread.join(CANCEL_SECONDS)


def check_config(config: "BenchmarkConfig", workspace: "Workspace | None" = None, *, reanchor: bool = False) -> None:
    """Check what can be known of a benchmark without looking into its documents and ground truth.

    Raises ``ConfigurationError``, ``CorpusError`` or ``GroundTruthError``, with all that is wrong.
    """
    from rag_eval.ground_truth.sources import FileTruth
    from rag_eval.ground_truth.truth_files import read_truth_text
    from rag_eval.parts import check_extras
    from rag_eval.storage.files import matching_files

    if config.evaluation_type == "chunk-level" and reanchor:
        raise ConfigurationError("--reanchor moves character spans, and this ground truth is chunk ids: remove it")
    faults = Faults()
    files = [source.path for source in config.ground_truth if isinstance(source, FileTruth)]
    for path in (config.corpus, *files, *([workspace.root] if workspace else [])):
        with faults.noted():
            # They are written down, in a run's summary and to Prefect.
            encode_utf8(str(path), f"the path {str(path)!r}", "rename the folder or the file, its name is not UTF-8")
    for part in config.parts():
        with faults.noted():
            check_extras(part)
    with faults.noted():
        matching_files(config.corpus, config.glob)
    for path in files:
        with faults.noted():
            read_truth_text(path)
    faults.raise_any()


class CheckedFiles(NamedTuple):
    """How many documents and questions there are, and what is to be known of questions that are elsewhere."""

    documents: int
    questions: str
    notes: list[str]


def check_files(
    config: "BenchmarkConfig", workspace: "Workspace | None" = None, *, reanchor: bool = False, file: Path | None = None
) -> CheckedFiles:
    """Count the documents and the queries; raise all that is wrong with them, or with the name of the workspace.

    For a run that carries spans over, say what becomes of them. No service is asked for anything. ``file`` is where the
    benchmark comes from, for messages.
    """
    from rag_eval.documents.reading import Loaders
    from rag_eval.ground_truth.check import check_against_corpus
    from rag_eval.ground_truth.sources import FileTruth, read_truth
    from rag_eval.pipeline.document_caches import file_loading
    from rag_eval.pipeline.ground_truth_steps import reanchor_for_run

    check_config(config, workspace, reanchor=reanchor)
    is_chunk_level = config.evaluation_type == "chunk-level"
    faults, notes = Faults(), []
    files = [source.path for source in config.ground_truth if isinstance(source, FileTruth)]
    documents = None
    with faults.noted(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        with file_loading(workspace) as load:  # what is parsed here is not parsed again by the run
            corpus = Corpus.from_folder(config.corpus, config.glob, config.loaders, load=load)
        documents = corpus.by_id
        notes += Loaders(config.loaders).idle([*(str(one.id) for one in corpus), *corpus.left_out])
        # Without a workspace nothing goes on from here, and all are named.
        left_out = [f"left out: {one}" for one in corpus.left_out.values()]
        notes += [str(one.message) for one in caught] if workspace else left_out
    truth: dict[Path, Any] = {}
    for path in files:
        with faults.noted():
            truth[path] = read_truth(path, config.evaluation_type, documents)
    faults.raise_any()
    for source in config.ground_truth:
        if not isinstance(source, FileTruth):
            with faults.noted():
                notes.append(source.check(corpus, config.evaluation_type))
    every = [item for items in truth.values() for item in items]
    answerable = [item for item in every if not item.unanswerable]
    notes += _check_selections(config, corpus, [] if is_chunk_level else answerable, file, faults)
    faults.raise_any()
    for path, items in {} if is_chunk_level else truth.items():
        if workspace is None or not reanchor:
            check_against_corpus(items, corpus, path)
            continue
        report = reanchor_for_run(workspace, items, corpus)
        if not report.is_unchanged:
            words = f"spans carried over for this run: {summary(report)}; rag-eval truth reanchor keeps them"
            say(Console(stderr=True), f"rag-eval: {words}")
    return CheckedFiles(len(corpus), asked(len(answerable), len(every) - len(answerable)), notes)


def _check_selections(
    config: "BenchmarkConfig",
    corpus: Corpus,
    answerable: "Sequence[TokenLevelGroundTruth]",
    file: Path | None,
    faults: Faults,
) -> list[str]:
    """Say what the filters of a benchmark leave of the documents; note what is wrong with them as faults."""
    from rag_eval.retrieval.selection import where_in_words

    notes = []
    for number, selection in enumerate(config.selection):
        if selection is None:
            continue
        place = f"selection[{number}]" if len(config.selection) > 1 else "selection"
        try:
            words = where_in_words(selection, corpus, answerable)
        except ConfigurationError as error:
            key = f"{place}.{'where' if selection.where else 'metadata'}"
            faults.add(ConfigurationError(f"{f'{file.name}, ' if file else ''}{key}: {error}"))
        else:
            notes += [f"{place}.where {words}"] * bool(words)
    return notes
