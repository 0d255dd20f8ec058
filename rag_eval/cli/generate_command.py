"""``rag-eval generate``: have a model write ground truth for a folder of documents, after saying what it will cost."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import print_json, print_table, say, visible
from rag_eval.cli.options import DOCUMENT_GLOB, read_documents
from rag_eval.cli.processes import Stopped, watched
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, cost_in_words, counted
from rag_eval.storage.files import sweep_scratch, write_atomically
from rag_eval.types.documents import Corpus

if TYPE_CHECKING:
    from rich.progress import Progress

    from rag_eval.generation.candidates import GenerationReport
    from rag_eval.generation.generator import GenerationEstimate
    from rag_eval.generation.growing import GeneratedTruth, Growing
    from rag_eval.pipeline.workspace import Workspace


def print_report(console: Console, report: "GenerationReport", output: Path | None) -> None:
    """Print what was kept, what was dropped and why, what it took, and where it is."""
    if report.asked:
        say(console, f"{report.kept:,} of {counted(report.asked, 'questions')} kept")
    for reason, dropped in report.dropped.items():
        told = f"{dropped.count:>6,} dropped: {reason:<22} {visible(dropped.examples[0])}"
        console.print(Text(told), no_wrap=True, overflow="ellipsis")
    if report.bad_answers:
        faults = ", ".join(f"{fault} {bad.count:,}" for fault, bad in report.bad_answers.items())
        say(console, f"Answers that could not be used: {faults}")
    headings, rows = ("paid", "tokens read", "written", "cost", "from the cache", "failed"), []
    for entry in report.ledger:
        paid = entry.fresh
        counts = [f"{count:,}" for count in (paid.calls, paid.input_tokens, paid.output_tokens)]
        cached = f"{entry.cached.calls:,}"
        rows.append((entry.purpose, *counts, cost_in_words(paid.cost), cached, f"{entry.failed:,}"))
    print_table(console, {"calls for": False} | dict.fromkeys(headings, True), rows)
    if report.total.unsettled:
        say(console, f"Of the failed calls {report.total.unsettled:,} may have been charged all the same.")
    if output is not None:
        say(console, f"Written to {output}")
    if report.upload is not None:
        dataset, detail = report.upload.dataset_name, report.upload.detail
        if report.upload.state == "sent":
            say(console, f"The ground truth is in the LangSmith dataset {dataset}: {detail}")
        else:
            again = f"rag-eval truth push {output or 'FILE'} --dataset {dataset}"
            say(console, f"Not sent to the LangSmith dataset {dataset}: {detail}\n{again} sends it.", "yellow")


FINISH_SECONDS = 30.0
"""How long a stopped command waits for answers that are under way, and will be paid."""

OPTION_NAMES = {
    "personas": "--persona",
    "difficulties": "--difficulty",
    "query_types": "--query-type",
    "prices.input": "--input-price",
    "prices.output": "--output-price",
}
"""The options of settings that are not called as the setting is."""


def generate(
    corpus: Annotated[Path, typer.Argument(help=options.DOCUMENTS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Ground-truth file to write.")] = Path("truth.jsonl"),
    glob: options.DocumentGlobOption = options.DOCUMENT_GLOB,
    model: Annotated[str, typer.Option(help="Model that writes the questions.")] = "gpt-4.1-mini",
    base_url: options.BaseUrlOption = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="File of real questions (text with one a line, CSV or JSON lines): quote what answers each "
            "instead of inventing any, and declare unanswerable what nothing answers."
        ),
    ] = None,
    queries_per_doc: Annotated[int, typer.Option(min=0, help="Number of questions per document.")] = 5,
    persona: Annotated[list[str] | None, typer.Option(help="Persona who asks; may be repeated.")] = None,
    difficulty: Annotated[
        list[str] | None, typer.Option(help="Difficulty: easy, medium or hard; may be repeated.")
    ] = None,
    query_type: Annotated[
        list[str] | None, typer.Option(help="Type of question: factual, procedural, comparison, …; may be repeated.")
    ] = None,
    cross_document: Annotated[
        int, typer.Option(min=0, help="Total number of questions that need several documents.")
    ] = 0,
    unanswerable: Annotated[int, typer.Option(min=0, help="Total number of questions that no document answers.")] = 0,
    chunker: Annotated[
        str | None,
        typer.Option(help="Generate chunk-level ground truth for this chunker: a built-in name or module:name."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Setting of the chunker, such as chunk_size=200; may be repeated.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="Any other setting, such as max_leakage=0.5 or window_tokens=4000; may be repeated."
        ),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Folder of prompts, overriding the built-in ones.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    max_cost: options.MaxCostOption = None,
    input_price: options.InputPriceOption = None,
    output_price: options.OutputPriceOption = None,
    concurrency: options.RequestsOption = 4,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the service.")] = 120.0,
    upload: Annotated[bool, typer.Option("--upload", help="Also upload the ground truth to LangSmith.")] = False,
    dataset_name: Annotated[
        str | None, typer.Option(help="LangSmith dataset to upload to, overriding the default.")
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Ask about documents that the output file has not seen, and add to it.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the cost without calling the model.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Generate ground truth for your documents with a language model; exit code 1 if it stopped early."""
    from rag_eval.llm.chat import ANSWERS_FOLDER
    from rag_eval.services.langsmith_datasets import DEFAULT_DATASETS

    if extend and overwrite:
        raise ConfigurationError("--extend keeps the output file and --overwrite replaces it: give one of them")
    if output.exists() and not extend and not overwrite and not dry_run:
        raise ConfigurationError(f"{str(output)!r} is there already: give another --output, --extend or --overwrite")
    if (input_price is None) != (output_price is None):
        raise ConfigurationError("--input-price and --output-price go together: give both")
    if queries and (cross_document or unanswerable or persona or difficulty or query_type or chunker):
        raise ConfigurationError(
            "--queries takes the questions as they are and quotes what answers them: leave out --cross-document, "
            "--unanswerable, --persona, --difficulty, --query-type and --chunker"
        )
    source = chosen_source(
        {
            "file": output,
            "model": model,
            "base_url": base_url,
            "queries": queries,
            "queries_per_doc": queries_per_doc,
            "prices": None if input_price is None else {"input": input_price, "output": output_price},
            "max_cost": max_cost,
            "prompts": prompts,
            "concurrency": concurrency,
            "timeout": timeout,
        },
        {
            "personas": persona,
            "difficulties": difficulty,
            "query_types": query_type,
            "cross_document": cross_document,
            "unanswerable": unanswerable,
            "seed": seed,
        },
        options or [],
    )
    if settings and chunker is None:
        raise ConfigurationError("--set goes with a chunker: name it with --chunker")
    cutter = _chunker(chunker, settings or []) if chunker else None
    console = Console(stderr=True)
    with console.status("Reading the documents …"):
        documents = read_documents(corpus, glob)
    others = untaken(corpus, documents) if corpus.is_dir() and glob == DOCUMENT_GLOB else 0
    if others:
        say(
            console,
            f"rag-eval: {counted(others, 'files')} of other formats in {str(corpus)!r} are not taken: add their "
            "patterns with --glob, or give the benchmark file of rag-eval init in place of the folder",
        )
    dataset = (dataset_name or DEFAULT_DATASETS["chunk-level" if cutter else "token-level"]) if upload else None
    workspace.fetch_missing(workspace.root / ANSWERS_FOLDER)
    run_generation(
        source, documents, workspace, cutter, console, dataset, anew=not extend, ask=not yes, dry=dry_run, json=as_json
    )


def untaken(folder: Path, documents: Corpus) -> int:
    """Count the files in the folder that could be documents and do not match the pattern."""
    from rag_eval.cli.init_command import PROSE

    names = [path.relative_to(folder) for path in folder.glob("**/*") if path.suffix in PROSE and path.is_file()]
    known = documents.by_id().keys() | documents.left_out.keys()
    return sum(one.as_posix() not in known and not any(part.startswith(".") for part in one.parts) for one in names)


def chosen_source(given: dict[str, Any], kinds: dict[str, Any], others: list[str]) -> "GeneratedTruth":
    """Return the source of these settings; raises ``ConfigurationError`` naming the first that cannot be used."""
    from rag_eval.config.truth_sources import TRUTH_SOURCE
    from rag_eval.generation.growing import GeneratedTruth
    from rag_eval.generation.settings import FilterOptions, GenerationOptions

    chosen: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    known = [name for name in (*GenerationOptions.model_fields, *FilterOptions.model_fields) if name != "filters"]
    for text in others:
        name, value = options.assigned("--option", text, "max_leakage=0.5")
        if name not in known:
            raise ConfigurationError(f"--option {name}: there is no such setting, {choices(known, name)}")
        (filters if name in FilterOptions.model_fields else chosen)[name] = None if value == "off" else value
    chosen |= {name: value for name, value in kinds.items() if value not in (None, [])}
    try:
        made: GeneratedTruth = TRUTH_SOURCE.load("generate")(**given, options={**chosen, "filters": filters})
        return made
    except ConfigurationError as error:
        where, _, reason = str(error).removeprefix(f"{GeneratedTruth.__name__}, ").partition(": ")
        path = where.removeprefix("options.").removeprefix("filters.")
        first = path.partition(".")[0].partition("[")[0]
        named = [f"--{name.replace('_', '-')}" for name in (*given, *kinds) if name == first]
        # Settings that the command line calls otherwise, then its own, then those that --option sets.
        place = OPTION_NAMES.get(first) or OPTION_NAMES.get(path) or "".join(named)
        raise ConfigurationError(f"{place or f'--option {first}'}: {reason}") from None


def run_generation(
    source: "GeneratedTruth",
    corpus: Corpus,
    workspace: "Workspace",
    chunker: Any,
    console: Console,
    dataset: str | None,
    *,
    anew: bool,
    ask: bool,
    dry: bool,
    json: bool,
) -> None:
    """Estimate, confirm on a terminal, generate, write and print."""
    from rag_eval.generation.growing import Growing

    bar = _request_bar(console)
    asking = bar.add_task("asking", total=None, paid="")

    def show(done: int, total: int) -> None:
        cost = growing.generator.report.total.fresh.cost
        bar.update(asking, completed=done, total=total, paid="" if cost is None else cost_in_words(cost))

    growing = Growing(source, corpus, workspace.storage, show, chunker, anew=anew)
    with console.status("Reading the documents …"):
        estimate = growing.estimate()
    if dry and json:
        print_json(Console(), {"estimate": estimate.model_dump()})
    else:
        say(Console() if dry else console, in_words(estimate, source.model))
    if dry:
        return
    if estimate.calls > estimate.cached:
        # What is wrong with the key is said before anybody is asked to pay.
        source.client.connect()
        if ask and sys.stdin.isatty() and console.is_terminal:
            typer.confirm("Ask now?", abort=True, err=True)
    # Out of version control, and without what killed writers left.
    write_atomically(workspace.root / ".gitignore", b"*\n")
    sweep_scratch(workspace.root)
    truth: list[Any] = []
    try:
        with _waiting_for_answers(growing, console), bar:
            truth = _ask_and_write(growing, dataset)
    finally:
        report = growing.generator.report
        if json:
            result = {"output": str(source.file), "estimate": estimate.model_dump(), "report": report.model_dump()}
            print_json(Console(), result)
        else:
            print_report(Console(), report, source.file if truth else None)
    if report.stopped:
        again = "a higher --max-cost and --extend" if truth else "a higher --max-cost"
        say(
            console,
            f"rag-eval: stopped: {report.stopped}; {counted(report.unasked, 'questions')} not asked: "
            f"the same command with {again} goes on from there",
        )
        raise typer.Exit(1)


def _request_bar(console: Console) -> "Progress":
    """Return a bar of the requests that are answered, with what was paid."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    paid = TextColumn("{task.fields[paid]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), paid, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def in_words(estimate: "GenerationEstimate", model: str) -> str:
    """Return an estimate as a sentence."""
    before = f", {estimate.cached:,} of them answered before" if estimate.cached else ""
    cost = "at a price that is not known here" if estimate.cost is None else f"about {cost_in_words(estimate.cost)}"
    return (
        f"{counted(estimate.documents, 'documents')}, {counted(estimate.questions, 'questions')} in "
        f"{counted(estimate.calls, 'requests')} to {model}{before}: about {estimate.input_tokens:,} tokens to "
        f"read and {estimate.output_tokens:,} to write, {cost}"
    )


def _ask_and_write(growing: "Growing", dataset: str | None) -> list[Any]:
    """Return the ground truth, written and uploaded; none where the limit of the cost stopped it at the first."""
    added = watched(growing.ask)
    truth: list[Any] = []
    if added or growing.known or not growing.generator.report.stopped:
        truth = growing.write(added)
    if dataset is not None:
        growing.generator.upload(truth, dataset)
    return truth


@contextmanager
def _waiting_for_answers(growing: "Growing", console: Console) -> Iterator[None]:
    """Wait, when the block is stopped, for the answers that are under way."""
    try:
        yield
    except Stopped as stop:
        with console.status("Waiting for the answers that are under way …"):
            growing.generator.asker.stop(FINISH_SECONDS)
        stop.consequence = "what was answered is kept, and the same command goes on from there"
        raise


def _chunker(name: str, settings: list[str]) -> object:
    """Return a built-in chunker by name and settings, or a user's as ``module:Name``; raises ``ConfigurationError``."""
    from rag_eval.chunking import CHUNKER
    from rag_eval.parts.part_settings import Place

    values = dict(options.assigned("--set", text, "chunk_size=200") for text in settings)
    return CHUNKER.make({**values, "type": name}, Place(name))
