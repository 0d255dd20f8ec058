"""``rag-eval run`` and ``rag-eval validate``: check a benchmark, run it, show progress and print the ranking."""

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, print_notes, print_table, say
from rag_eval.cli.processes import HEARTBEAT_SECONDS, Stopped, leaving, watched
from rag_eval.cli.truth import summary
from rag_eval.disk.files import scratch_path, sweep_scratch, write_atomically
from rag_eval.errors import ArtifactError, BenchmarkFailedError, ConfigurationError, Faults
from rag_eval.formatting import asked, cost_in_words, counted, in_short, time_in_short
from rag_eval.types.documents import Corpus, LeftOutWarning
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from rag_eval.benchmark.config import BenchmarkConfig
    from rag_eval.benchmark.outcome import BenchmarkOutcome
    from rag_eval.benchmark.workspace import Workspace
    from rag_eval.reports.report import Report

    Evaluated = tuple[BenchmarkOutcome, Report | None]  # what a run came to, and its report where it was made here

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
    from rag_eval.benchmark.outcome import BenchmarkOutcome
    from rag_eval.benchmark.workspace import Workspace

    chosen = given.benchmark(config, langsmith_dataset=publish_to, search=search, holdout=holdout)
    if config is None and given.corpus is None:
        own = "; yours: rag-eval run benchmark.yaml" if Path("benchmark.yaml").is_file() else ""
        say(Console(stderr=True), f"rag-eval: no benchmark file is given, so this is the sample's{own}")
    kept = Workspace.at(given.workspace, refresh=refresh)
    failure: BenchmarkFailedError | None = None
    report: Report | None = None
    try:
        outcome, report = _evaluated(chosen, kept, reanchor, given.runner, config)
    except BenchmarkFailedError as error:
        failure, outcome = error, BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
    from rag_eval.cli.ranking import print_result

    print_result(outcome, kept, as_json=as_json, report=report)
    if failure is not None:
        raise failure


def _evaluated(
    chosen: "BenchmarkConfig", kept: "Workspace", reanchor: bool, runner: str, file: Path | None
) -> "Evaluated":
    """What a benchmark comes to, computed or kept; what is wrong with its files is said before it begins."""
    from rag_eval.cli.prefect_api import lasting_server

    checked = check_files(chosen, kept, reanchor=reanchor, file=file)
    notices = [*checked.notes, *chosen.notices()]
    for notice in notices:
        say(Console(stderr=True), f"rag-eval: {notice}")
    with scratch_path(kept.root):
        sweep_scratch(kept.root)
    kept.keep(kept.root / ".gitignore", b"*\n")  # also says early when a bucket cannot be written to
    console = Console(stderr=True)
    print_notes(console, notices)
    chosen = _within_limit(console, chosen, kept)
    server = lasting_server(kept)
    api = None if server is None else server.wait()
    if api is None and (found := _reused(chosen, kept, reanchor)) is not None:
        return found
    if api is None:  # the same as the flow, which nobody would see
        found = _followed(console, chosen, lambda: _run_here(chosen, kept, reanchor, runner))
    else:
        found = _run_on_server(console, chosen, kept, reanchor, runner, api)
    _remember_report(kept, found[0])
    return found


def reproduce(
    name: Annotated[str, typer.Argument(help="Whose figures: chroma or beir.")],
    data: Annotated[Path, typer.Argument(help="Folder of the public data.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder for the benchmark that is written; by default reproduce/NAME.")
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Compute published figures again from their public data; exit code 1 if one differs."""
    from rag_eval.benchmark import reproduction

    found = reproduction.publication(name)
    file = reproduction.write_benchmark(name, data, output or Path("reproduce") / name)
    others = reproduction.other_files(name, data)
    chosen = options.BenchmarkOptions().benchmark(file)
    outcome, _ = _evaluated(chosen, workspace, False, "threads", file)
    rows = reproduction.figures_of(name, workspace, outcome, [one.name for one in chosen.configurations()])
    console = Console()
    if as_json:
        told = {"title": found.title, "benchmark": str(file), "run": outcome.run, "other_data": others}
        print_json(console, told | {"figures": [asdict(row) for row in rows]})
    else:
        is_known = any(row.published for row in rows)
        headings = ["published", "reproduced"] if is_known else [found.measure]
        cells = [
            (row.name, *[str(row.published)] * is_known, row.reproduced + " ≠" * row.differs, *row.ours.values())
            for row in rows
        ]
        print_table(console, {"": False} | dict.fromkeys([*headings, *rows[0].ours], True), cells, found.title)
        if is_known:
            say(console, f"{sum(not row.differs for row in rows)} of {len(rows)} published figures come out.")
        say(console, found.note)
        if others:
            say(console, f"Not the data of the publication: {', '.join(others)}", "yellow")
        say(console, f"The benchmark is {file}; rag-eval report {outcome.run} shows the whole run.")
    if any(row.differs for row in rows):
        raise typer.Exit(1)


FileArgument = Annotated[Path, typer.Argument(help="Benchmark file (YAML or TOML).", callback=options.benchmark_file)]


@options.spread
def estimate(
    given: options.FileOptions,
    config: options.ConfigArgument = None,
    search: options.SearchOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Estimate what a benchmark would embed and how long it takes, by each search, before anything is spent."""
    from rag_eval.benchmark.estimate import estimated
    from rag_eval.benchmark.records import made_once
    from rag_eval.benchmark.workspace import Workspace

    chosen, kept = given.benchmark(config, search=search), Workspace.at(given.workspace)
    checked = check_files(chosen, kept, file=config)
    found, notes = estimated(partial(made_once, kept), kept, chosen, *([(chosen.search,)] if search else []))
    console = Console()
    if as_json:
        print_json(console, {"estimates": [asdict(one) for one in found], "notes": notes})
        return
    columns, rows = ("configurations", "texts", "tokens", "cost", "left", "time"), []
    for one in found:
        sizes = [_between(size or 0, one.shares) for size in (one.all.texts, one.all.tokens, one.left.tokens)]
        costs = dict.fromkeys(cost_in_words(one.all.cost and share * one.all.cost) for share in one.shares)
        times = dict.fromkeys(map(time_in_short, one.seconds or ()))
        told = *sizes[:2], "–".join(costs), sizes[2], "–".join(times)
        rows.append((one.search, f"{one.configurations:,}", *told))
    print_table(console, {"search": False} | dict.fromkeys(columns, True), rows)
    for notice in (*notes, *checked.notes):
        say(console, f"Note: {notice}.")


def _between(amount: int, shares: tuple[float, float]) -> str:
    least, most = (share * amount for share in shares)
    return f"{amount:,}" if least == most else f"{in_short(least)}–{in_short(most)}"


def _within_limit(console: Console, chosen: "BenchmarkConfig", kept: "Workspace") -> "BenchmarkConfig":
    """The benchmark, with what a full search may embed beyond its limit; where nobody can be asked, the run says so."""
    from rag_eval.benchmark.grid_search import over_limit
    from rag_eval.benchmark.pools import TextCosts
    from rag_eval.benchmark.records import made_once
    from rag_eval.benchmark.references import CorpusSource
    from rag_eval.benchmark.stages import load_corpus

    if chosen.max_cost is None or chosen.search != "full" or not (console.is_terminal and sys.stdin.isatty()):
        return chosen
    run = partial(made_once, kept)
    documents = run(load_corpus, CorpusSource.of(chosen.corpus, chosen.glob, chosen.loaders), chosen.shards)
    left = TextCosts(run, kept, documents).of(chosen.configurations())
    if (told := over_limit(left, chosen)) is None:
        return chosen
    typer.confirm(f"{told}. Embed them?", abort=True, err=True)
    return chosen.model_copy(update={"allowed_cost": f"{left.tokens:,} tokens"})


def validate(config: FileArgument) -> None:
    """Check a benchmark file, its documents and its ground truth, and list its configurations."""
    from rag_eval.benchmark.config_files import load_config
    from rag_eval.metrics.budget import BUDGET
    from rag_eval.metrics.metric import split_name

    chosen = load_config(config)
    checked = check_files(chosen, file=config)
    console, configurations = Console(), chosen.configurations()
    rows = ((str(number), one.name) for number, one in enumerate(configurations, start=1))
    print_table(console, {"#": True, "configuration": False}, rows)
    ks = ", ".join(map(str, chosen.k))
    say(console, f"{counted(len(configurations), 'configurations')}, {chosen.evaluation_type}, k = {ks}")
    cut, told = split_name(chosen.objective)[1], [f"ranked by {chosen.objective}"]
    if chosen.budget is not None or cut.kind != "tokens" or cut.size == BUDGET:  # else the objective has one of its own
        told.append(f"a budget of {chosen.budget or BUDGET:,} tokens{', the default' * (chosen.budget is None)}")
    say(console, "; ".join(told))
    say(console, f"{counted(checked.documents, 'documents')}, {checked.questions}")
    for notice in (*checked.notes, *chosen.notices()):
        say(console, f"Note: {notice}.")


class StartedRun:
    """The run of a flow that was given ``notice`` as its ``on_running`` hook: tells its page, and can cancel it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._run: FlowRun | None = None

    def notice(self, flow: Any, flow_run: "FlowRun", state: Any) -> None:
        """Take note of the run, as a hook of its flow."""
        from prefect.utilities.urls import url_for

        from rag_eval.cli.prefect_api import without_credentials

        self._run = flow_run
        page = url_for("flow-run", flow_run.id)
        if page:
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
    from rag_eval.benchmark.stage import Context
    from rag_eval.benchmark.truth_stages import reanchor_for_run
    from rag_eval.documents.reading import Loaders
    from rag_eval.ground_truth.check import check_against_corpus
    from rag_eval.ground_truth.sources import FileTruth, read_truth
    from rag_eval.parts import check_extras
    from rag_eval.retrieval.selection import where_in_words

    is_chunk_level = config.evaluation_type == "chunk-level"
    if is_chunk_level and reanchor:
        raise ConfigurationError("--reanchor carries character spans over, and this truth is chunk ids: leave it out")
    faults, notes = Faults(), []
    files = [source.path for source in config.ground_truth if isinstance(source, FileTruth)]
    for path in (config.corpus, *files, *([workspace.root] if workspace else [])):
        with faults.noted():
            # They are written down, in a run's summary and to Prefect.
            encode_utf8(str(path), f"the path {str(path)!r}", "rename the folder or the file, its name is not UTF-8")
    for part in config.parts():
        with faults.noted():
            check_extras(part)
    faults.raise_any()
    documents = None
    with faults.noted(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        with Context(workspace).loading() as load:  # what is parsed here is not parsed again by the run
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
    for number, selection in enumerate(config.selection):
        if selection is None:
            continue
        place = f"selection[{number}]" if len(config.selection) > 1 else "selection"
        try:
            told = where_in_words(selection, corpus, [] if is_chunk_level else answerable)
        except ConfigurationError as error:
            key = f"{place}.{'where' if selection.where else 'metadata'}"
            faults.add(ConfigurationError(f"{f'{file.name}, ' if file else ''}{key}: {error}"))
        else:
            notes += [f"{place}.where {told}"] * bool(told)
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


def _reused(config: "BenchmarkConfig", workspace: "Workspace", reanchor: bool) -> "Evaluated | None":
    """The outcome of a run that has nothing to compute; None where there is something, or it is asked for again."""
    from rag_eval.benchmark.housekeeping import in_use
    from rag_eval.benchmark.running import reuse_outcome
    from rag_eval.reports.write import ReportMemory, keep_report

    if workspace.refresh or config.langsmith_dataset or not workspace.runs.is_dir():
        return None
    with in_use(workspace):
        outcome = reuse_outcome(workspace, config, reanchor)
    if outcome is None:
        return None
    try:
        with suppress(OSError, ValueError):
            memory = ReportMemory.model_validate_json(_report_memory(workspace).read_bytes())
            if taken := memory.take_over(workspace, outcome):
                write_atomically(_report_memory(workspace), taken.model_dump_json().encode())
                return outcome, None
        report = keep_report(workspace, outcome)
        _remember_report(workspace, outcome)
    except ArtifactError as error:
        say(Console(stderr=True), f"rag-eval: the report of {outcome.run} could not be written: {error}")
        return outcome, None
    return outcome, report


def _report_memory(workspace: "Workspace") -> Path:
    from rag_eval.cli.prefect_home import prefect_home

    return prefect_home(workspace) / "report.json"


def _remember_report(workspace: "Workspace", outcome: "BenchmarkOutcome") -> None:
    """Take note of the report, which a run that finds the same has then too; without it one is made again."""
    from rag_eval.reports.write import ReportMemory

    with suppress(OSError, ArtifactError):
        memory = ReportMemory.of(workspace, outcome)
        write_atomically(_report_memory(workspace), memory.model_dump_json().encode())


def _run_on_server(
    console: Console, config: "BenchmarkConfig", workspace: "Workspace", reanchor: bool, runner: str, api: str
) -> "Evaluated":
    """Run the flow on the server there, which shows it."""
    where = f"on the Prefect server at {api}"
    if not console.is_terminal:
        say(console, f"rag-eval: starting {where}")
    with console.status(f"Starting {where} …"):
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        from flows.benchmark import benchmark
    started = StartedRun(console)

    def work() -> "Evaluated":
        # By heartbeats the server learns that this process was killed.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: HEARTBEAT_SECONDS}):
            return benchmark.with_options(on_running=[started.notice])(config, workspace, reanchor, runner), None

    try:
        return _followed(console, config, work)
    except Stopped:
        started.cancel()
        raise


def _followed(console: Console, config: "BenchmarkConfig", work: Callable[[], "Evaluated"]) -> "Evaluated":
    """What the work gives, with its progress shown; raises what ``watched`` raises."""
    from rag_eval.benchmark.running import listening
    from rag_eval.cli.live import LiveTable

    table = LiveTable([configuration.name for configuration in config.configurations()])
    kept = "what was finished is kept, and the next run continues there"
    with table.shown(console), listening(table.update), leaving(kept):
        return watched(work)


def _run_here(config: "BenchmarkConfig", workspace: "Workspace", reanchor: bool, runner: str) -> "Evaluated":
    """What the flow does, in this process; the results are kept without the report and what is published."""
    from rag_eval.benchmark.housekeeping import in_use
    from rag_eval.benchmark.outcome import conclude
    from rag_eval.benchmark.running import compare, going_on
    from rag_eval.reports.write import keep_report
    from rag_eval.services.posting import traces_address

    workspace = workspace.in_a_run_now()
    with in_use(workspace):
        outcome, report = compare(workspace, config, reanchor, runner), None
        with going_on(f"the report of {outcome.run} could not be written"):
            report = keep_report(workspace, outcome)
        if config.langsmith_dataset is not None or traces_address() is not None:
            from rag_eval.benchmark.publishing import publish_run

            with going_on(f"{outcome.run} could not be published"):
                publish_run(workspace, outcome, config.langsmith_dataset)
        return conclude(workspace, outcome), report
