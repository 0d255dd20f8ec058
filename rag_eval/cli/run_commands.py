"""``rag-eval run`` and ``rag-eval validate``: check a benchmark, run it, show its progress and print the ranking."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, print_notes, print_table, say
from rag_eval.cli.processes import HEARTBEAT_SECONDS, Stopped, leaving, watched
from rag_eval.cli.truth_commands import summary
from rag_eval.errors import BenchmarkFailedError, ConfigurationError, Faults
from rag_eval.formatting import asked, cost_in_words, counted
from rag_eval.storage.files import scratch_path, sweep_scratch
from rag_eval.types.documents import Corpus, LeftOutWarning
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    from rag_eval.cli.prefect_api import LastingServer, TemporaryServer
    from rag_eval.config.models import BenchmarkConfig
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.outcome import BenchmarkOutcome
    from rag_eval.sweep.estimate import SearchEstimate
    from rag_eval.types.evidence import TokenLevelGroundTruth


def run(
    config: options.ConfigArgument = None,
    corpus: options.CorpusOption = None,
    truth: options.TruthOption = None,
    glob: options.GlobOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    refresh: Annotated[
        bool, typer.Option("--refresh", envvar="PREFECT_TASKS_REFRESH_CACHE", help="Recompute everything.")
    ] = False,
    reanchor: Annotated[
        bool, typer.Option("--reanchor", help="Move spans to where their text is now in changed documents.")
    ] = False,
    publish_to: Annotated[
        str | None, typer.Option("--publish", metavar="DATASET", help="Publish the run to this LangSmith dataset.")
    ] = None,
    search: options.SearchOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run a benchmark and rank its configurations."""
    from rag_eval.config.loading import chosen_benchmark
    from rag_eval.config.models import check_runner
    from rag_eval.results.runs import note_end, note_start

    has_runs = any(workspace.storage.names("runs"))
    noted = note_start(workspace) if has_runs else None  # a gate must not take the run before for this one
    check_runner(runner)
    chosen = chosen_benchmark(config, corpus, truth, glob, publish_to, search)
    console = Console(stderr=True)
    if config is None and corpus is None:
        hint = "; yours: rag-eval run benchmark.yaml" if Path("benchmark.yaml").is_file() else ""
        say(console, f"rag-eval: no benchmark file given, running the sample{hint}")
    workspace = workspace.model_copy(update={"refresh": refresh})
    failure: BenchmarkFailedError | None = None
    outcome = None
    if has_runs:
        from rag_eval.results.unchanged import unchanged_run

        outcome = unchanged_run(workspace, chosen, reanchor=reanchor)
    if outcome is not None:
        say(console, f"rag-eval: nothing has changed since run {outcome.run}: --refresh recomputes it")
    else:
        try:
            outcome = _run_benchmark(console, chosen, workspace, reanchor, runner)
        except BenchmarkFailedError as error:
            from rag_eval.results.outcome import BenchmarkOutcome

            failure, outcome = error, BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
    if noted is not None:
        note_end(workspace, noted, outcome.run)
    from rag_eval.cli.ranking_table import print_result  # slow to import

    print_result(outcome, workspace, as_json=as_json)
    if failure is not None:
        raise failure


def _run_benchmark(
    console: Console, config: "BenchmarkConfig", workspace: "Workspace", reanchor: bool, runner: str
) -> "BenchmarkOutcome":
    """Choose or start a Prefect server, check the benchmark while it starts, and run the flow."""
    from rag_eval.cli.prefect_api import prefect_api

    with scratch_path(workspace.root):
        sweep_scratch(workspace.root)
    workspace.write_file(workspace.root / ".gitignore", b"*\n")  # fails early if a bucket is not writable
    with prefect_api(workspace) as server:
        if not console.is_terminal:
            where = "a temporary Prefect server" if server.is_temporary else "on the Prefect server"
            say(console, f"rag-eval: starting {where}")
        check_config(config, workspace, reanchor=reanchor)
        notices = config.notices()
        for notice in notices:
            say(console, f"rag-eval: {notice}")
        print_notes(console, notices)
        with console.status("Starting the Prefect server …"):
            import flows.benchmark  # noqa: F401  # slow to import, and the server is starting

            server.wait()
        return _run_flow(console, config, workspace, reanchor, runner, server)


def _run_flow(
    console: Console,
    config: "BenchmarkConfig",
    workspace: "Workspace",
    reanchor: bool,
    runner: str,
    server: "LastingServer | TemporaryServer",
) -> "BenchmarkOutcome":
    """Run the flow in a thread and show its progress; cancel it on the server if the command is stopped."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_TASKS_REFRESH_CACHE, temporary_settings

    from flows.benchmark import benchmark, evaluate_chunking, evaluate_system
    from rag_eval.cli.live_table import RunFollower
    from tasks.caching import result_storage

    follower = RunFollower(console, len(config.configurations()), has_page=not server.is_temporary)
    for subflow in (evaluate_chunking, evaluate_system):
        for hook in (subflow.on_running, subflow.on_completion, subflow.on_failure):
            hook(follower.notice)
    # Heartbeats tell a lasting server that this process lives; without them a flow ends a second sooner.
    heartbeats = None if server.is_temporary else HEARTBEAT_SECONDS
    settings: dict[Any, Any] = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: heartbeats}
    if workspace.refresh:
        settings[PREFECT_TASKS_REFRESH_CACHE] = True

    def work() -> "BenchmarkOutcome":
        with temporary_settings(settings):
            flow = benchmark.with_options(on_running=[follower.notice], result_storage=result_storage(workspace))
            return flow(config, workspace, reanchor, runner)

    try:
        with follower.shown(), leaving("finished steps are cached, and the next run continues from there"):
            return watched(work, server.trouble)
    except Stopped:
        follower.cancel()
        raise


def validate(
    config: options.ConfigArgument = None,
    corpus: options.CorpusOption = None,
    truth: options.TruthOption = None,
    glob: options.GlobOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    estimate: Annotated[bool, typer.Option("--estimate", help="Estimate the tokens and cost of each search.")] = False,
    search: options.SearchOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check a benchmark file, its documents and ground truth, and list its configurations."""
    from rag_eval.config.loading import chosen_benchmark

    chosen = chosen_benchmark(config, corpus, truth, glob, search=search)
    # Without a workspace, the notes name every document that is left out.
    checked = check_files(chosen, workspace if estimate else None, file=config)
    names = [configuration.name for configuration in chosen.configurations()]
    notes = [*checked.notes, *chosen.notices()]
    estimates: list[SearchEstimate] = []
    if estimate:
        from rag_eval.sweep.estimate import Estimates

        estimator = Estimates(workspace, chosen)
        estimates = estimator.of(*([(chosen.search,)] if search else []))
        notes = [*estimator.notes, *notes]
    console = Console()
    if as_json:
        data: dict[str, object] = {"configurations": names, "documents": checked.documents}
        data |= {"questions": checked.questions, "notes": notes}
        data |= {"estimates": [asdict(row) for row in estimates]} if estimate else {}
        print_json(console, data)
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
    columns = ("configurations", "texts", "tokens", "cost", "left")
    rows = [
        (
            row.search,
            f"{row.configurations:,}",
            f"{row.all.texts:,}",
            f"{row.all.tokens:,}",
            cost_in_words(row.all.cost),
            f"{row.left.tokens:,}",
        )
        for row in estimates
    ]
    print_table(console, {"search": False} | dict.fromkeys(columns, True), rows)


def _truth_files(config: "BenchmarkConfig") -> list[Path]:
    from rag_eval.ground_truth.sources import FileTruth

    return [source.path for source in config.ground_truth if isinstance(source, FileTruth)]


def check_config(config: "BenchmarkConfig", workspace: "Workspace | None" = None, *, reanchor: bool = False) -> None:
    """Check everything about a benchmark except the content of its documents and ground truth.

    Raises ``ConfigurationError``, ``CorpusError`` or ``GroundTruthError`` with all mistakes.
    """
    from rag_eval.ground_truth.truth_files import read_truth_text
    from rag_eval.parts import check_extras
    from rag_eval.storage.files import matching_files

    if config.evaluation_type == "chunk-level" and reanchor:
        raise ConfigurationError("--reanchor is for character spans, and this ground truth has chunk ids: remove it")
    faults, files = Faults(), _truth_files(config)
    for path in (config.corpus, *files, *([workspace.root] if workspace else [])):
        with faults.noted():
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


@dataclass(frozen=True)
class CheckedFiles:
    """The number of documents, the questions in words, and notes about both."""

    documents: int
    questions: str
    notes: list[str]


def check_files(
    config: "BenchmarkConfig", workspace: "Workspace | None" = None, *, reanchor: bool = False, file: Path | None = None
) -> CheckedFiles:
    """Check the documents and ground truth of a benchmark without calling a service; raise all mistakes.

    With ``reanchor`` spans are re-anchored as in a run, and a summary is printed. ``file`` is the benchmark file, for
    messages.
    """
    from rag_eval.ground_truth.sources import FileTruth
    from rag_eval.ground_truth.truth_files import read_truth

    check_config(config, workspace, reanchor=reanchor)
    corpus, notes = _read_corpus(config, workspace)
    faults = Faults()
    truth: dict[Path, Any] = {}
    for path in _truth_files(config):
        with faults.noted():
            truth[path] = read_truth(path, config.evaluation_type, corpus.by_id)
    faults.raise_any()
    for source in config.ground_truth:
        if not isinstance(source, FileTruth):
            with faults.noted():
                notes.append(source.check(corpus, config.evaluation_type))
    every = [item for items in truth.values() for item in items]
    answerable = [item for item in every if not item.unanswerable]
    spans = truth if config.evaluation_type == "token-level" else {}
    notes += _check_selections(config, corpus, answerable if spans else [], file, faults)
    faults.raise_any()
    for path, items in spans.items():
        _check_spans(path, items, corpus, workspace if reanchor else None)
    return CheckedFiles(len(corpus), asked(len(answerable), len(every) - len(answerable)), notes)


def _check_spans(
    path: Path, items: "Sequence[TokenLevelGroundTruth]", corpus: Corpus, workspace: "Workspace | None"
) -> None:
    """Check spans against their documents or, with the workspace, re-anchor them and print a summary."""
    from rag_eval.ground_truth.check import check_against_corpus
    from rag_eval.pipeline.ground_truth_steps import reanchor_for_run

    if workspace is None:
        check_against_corpus(items, corpus, path)
        return
    report = reanchor_for_run(workspace, items, corpus)
    if not report.is_unchanged:
        words = f"spans re-anchored for this run: {summary(report)}; rag-eval truth reanchor saves them"
        say(Console(stderr=True), f"rag-eval: {words}")


def _read_corpus(config: "BenchmarkConfig", workspace: "Workspace | None") -> tuple[Corpus, list[str]]:
    """Return the documents, and notes about unused loaders and files that are left out."""
    from rag_eval.documents.reading import Loaders
    from rag_eval.pipeline.document_caches import file_loading

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        with file_loading(workspace) as load:  # caches parsed documents for the run
            corpus = Corpus.from_folder(config.corpus, config.glob, config.loaders, load=load)
    idle = Loaders(config.loaders).idle([*(str(document.id) for document in corpus), *corpus.left_out])
    if workspace is None:
        return corpus, [*idle, *(f"left out: {reason}" for reason in corpus.left_out.values())]
    return corpus, [*idle, *(str(warning.message) for warning in caught)]


def _check_selections(
    config: "BenchmarkConfig",
    corpus: Corpus,
    answerable: "Sequence[TokenLevelGroundTruth]",
    file: Path | None,
    faults: Faults,
) -> list[str]:
    """Describe which documents the filters of a benchmark select, and add invalid filters to the faults."""
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
