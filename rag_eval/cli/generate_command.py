"""``rag-eval generate``: estimate the cost, then have a model write ground truth for a folder of documents."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

from rag_eval.cli import options as shared
from rag_eval.cli.console import print_json, print_table, say, visible
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

FINISH_SECONDS = 30.0
"""How long a stopped command waits for answers that are under way, because they are charged anyway."""
SPELLED = {
    "personas": "persona",
    "difficulties": "difficulty",
    "query_types": "query-type",
    "prices.input": "input-price",
    "prices.output": "output-price",
}
"""Options whose name differs from that of their setting."""


def generate(
    corpus: Annotated[Path, typer.Argument(help=shared.DOCUMENTS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Ground-truth file to write.")] = Path("truth.jsonl"),
    glob: shared.DocumentGlobOption = shared.DOCUMENT_GLOB,
    model: Annotated[str, typer.Option(help="Model that writes the questions.")] = "gpt-4.1-mini",
    base_url: shared.BaseUrlOption = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="File of real questions (text with one per line, CSV or JSON lines): find what answers each, instead "
            "of inventing questions."
        ),
    ] = None,
    queries_per_doc: Annotated[int, typer.Option(min=0, help="Number of questions per document.")] = 5,
    persona: Annotated[list[str] | None, typer.Option(help="Persona who asks; repeatable.")] = None,
    difficulty: Annotated[
        list[str] | None, typer.Option(help="Difficulty: easy, medium or hard; repeatable.", show_default="all")
    ] = None,
    query_type: Annotated[
        list[str] | None,
        typer.Option(help="Type of question, such as procedural or comparison; repeatable.", show_default="factual"),
    ] = None,
    cross_document: Annotated[
        int, typer.Option(min=0, help="Total number of questions that need several documents.")
    ] = 0,
    unanswerable: Annotated[int, typer.Option(min=0, help="Total number of questions that no document answers.")] = 0,
    chunker: Annotated[
        str | None,
        typer.Option(
            help="Write chunk-level ground truth for this chunker, given as in a benchmark file: a name, or "
            "'{type: recursive-token, chunk_size: 200}'."
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", help="Other setting, such as max_leakage=0.5 or seed=7; repeatable."),
    ] = None,
    max_cost: shared.MaxCostOption = None,
    input_price: shared.InputPriceOption = None,
    output_price: shared.OutputPriceOption = None,
    concurrency: shared.RequestsOption = 4,
    upload: Annotated[
        str | None, typer.Option(metavar="DATASET", help="Also upload the ground truth to this LangSmith dataset.")
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Add questions about documents that the output file does not cover yet.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the cost without calling the model.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    workspace: shared.WorkspaceOption = shared.DEFAULT_WORKSPACE,
    as_json: shared.JsonOption = False,
) -> None:
    """Generate ground truth with a language model; exit code 1 if it stopped early."""
    from rag_eval.generation.growing import Growing
    from rag_eval.llm.chat import ANSWERS_FOLDER

    _check_output(output, extend=extend, overwrite=overwrite, dry_run=dry_run)
    if (input_price is None) != (output_price is None):
        raise ConfigurationError("--input-price and --output-price belong together: give both")
    invented = {
        "personas": persona,
        "difficulties": difficulty,
        "query_types": query_type,
        "cross_document": cross_document,
        "unanswerable": unanswerable,
    }
    if queries and (chunker or any(invented.values())):
        raise ConfigurationError(
            "--queries uses the questions as they are: remove --cross-document, --unanswerable, --persona, "
            "--difficulty, --query-type and --chunker"
        )
    settings = {
        "file": output,
        "model": model,
        "base_url": base_url,
        "queries": queries,
        "queries_per_doc": queries_per_doc,
        "chunker": _read_part(chunker) if chunker else None,
        "prices": None if input_price is None else {"input": input_price, "output": output_price},
        "max_cost": max_cost,
        "concurrency": concurrency,
    }
    source = chosen_source(settings, invented, options or [])
    console = Console(stderr=True)
    bar = _progress_bar(console)
    requests = bar.add_task("requests", total=None)
    with console.status("Reading the documents …"):
        documents = shared.read_documents(corpus, glob)
        if corpus.is_dir() and glob == shared.DOCUMENT_GLOB:
            note_unread_files(console, corpus, documents)
        workspace.fetch_missing(workspace.root / ANSWERS_FOLDER)
        growing = Growing(
            source,
            documents,
            workspace.storage,
            lambda done, total: bar.update(requests, completed=done, total=total),
            anew=not extend,
        )
        estimate = growing.estimate()
    if dry_run:
        _print_estimate(Console(), estimate, model, as_json=as_json)
        return
    _print_estimate(console, estimate, model)
    if estimate.calls > estimate.cached:
        source.client.connect()  # fails on a missing key before the user is asked to confirm the cost
        if not yes and sys.stdin.isatty() and console.is_terminal:
            typer.confirm("Continue?", abort=True, err=True)
    write_atomically(workspace.root / ".gitignore", b"*\n")
    sweep_scratch(workspace.root)
    truth: Sequence[object] = []
    try:
        with bar:
            truth = _ask_and_write(growing, console, upload)
    finally:
        report = growing.generator.report
        if as_json:
            data = {"estimate": estimate.model_dump(), "report": report.model_dump()}
            print_json(Console(), {"output": str(output)} | data)
        else:
            print_report(Console(), report, output if truth else None)
    if report.stopped:
        again = f"a higher --max-cost{' and --extend' if truth else ''}"
        left = f"{counted(report.unasked, 'questions')} not asked: run the same command with {again} to continue"
        say(console, f"rag-eval: stopped: {report.stopped}; {left}")
        raise typer.Exit(1)


def _check_output(output: Path, *, extend: bool, overwrite: bool, dry_run: bool) -> None:
    """Raise ``ConfigurationError`` if the output file exists and neither ``--extend`` nor ``--overwrite`` is given."""
    if extend and overwrite:
        raise ConfigurationError("--extend and --overwrite exclude each other: give one of them")
    if output.exists() and not (extend or overwrite or dry_run):
        raise ConfigurationError(
            f"{str(output)!r} already exists: give --extend or --overwrite, or another file with --output"
        )


def _read_part(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigurationError(f"--chunker {text!r} is not YAML: write for example --chunker markdown") from None


def _progress_bar(console: Console) -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def note_unread_files(console: Console, folder: Path, documents: Corpus) -> None:
    """Print how many files in a folder could be documents but do not match the default pattern."""
    from rag_eval.cli.init_command import PROSE

    names = [path.relative_to(folder) for path in folder.glob("**/*") if path.suffix in PROSE and path.is_file()]
    known = documents.by_id().keys() | documents.left_out.keys()
    shown = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    others = sum(name.as_posix() not in known for name in shown)
    if others:
        say(
            console,
            f"rag-eval: {counted(others, 'files')} of other formats in {str(folder)!r} are not read: add their "
            "patterns with --glob, or give the benchmark file of rag-eval init instead of the folder",
        )


def chosen_source(settings: Mapping[str, Any], invented: Mapping[str, Any], others: Sequence[str]) -> "GeneratedTruth":
    """Return the source with these settings; raise ``ConfigurationError`` naming the first invalid option."""
    from rag_eval.generation.growing import GeneratedTruth
    from rag_eval.generation.settings import FilterOptions, GenerationOptions

    chosen: dict[str, object] = {name: value for name, value in invented.items() if value not in (None, [])}
    filters: dict[str, object] = {}
    known = [name for name in (*GenerationOptions.model_fields, *FilterOptions.model_fields) if name != "filters"]
    for text in others:
        name, value = shared.assigned("--option", text, "max_leakage=0.5")
        if name not in known:
            raise ConfigurationError(f"--option {name}: there is no such setting, {choices(known, name)}")
        (filters if name in FilterOptions.model_fields else chosen)[name] = None if value == "off" else value
    try:
        return GeneratedTruth(**{**settings, "options": {**chosen, "filters": filters}})
    except ConfigurationError as error:
        where, _, reason = str(error).removeprefix(f"{GeneratedTruth.__name__}, ").partition(": ")
        path = where.removeprefix("options.").removeprefix("filters.").partition("[")[0]
        name = path.partition(".")[0]
        option = SPELLED.get(path, name.replace("_", "-")) if name in {*settings, *invented} else f"option {name}"
        raise ConfigurationError(f"--{option}: {reason}") from None


def _ask_and_write(growing: "Growing", console: Console, dataset: str | None) -> Sequence[object]:
    """Return the ground truth, written and uploaded; empty if ``max_cost`` allowed no request.

    If the command is stopped, wait for the answers that are under way.
    """
    try:
        added = watched(growing.ask)
        truth: list[Any] = []
        if added or growing.known or not growing.generator.report.stopped:
            truth = growing.write(added)
        if dataset is not None:
            growing.generator.upload(truth, dataset)
        return truth
    except Stopped as stop:
        with console.status("Waiting for the answers that are under way …"):
            growing.generator.asker.stop(FINISH_SECONDS)
        stop.consequence = "answers are saved, and the same command continues from there"
        raise


def _print_estimate(console: Console, estimate: "GenerationEstimate", model: str, *, as_json: bool = False) -> None:
    if as_json:
        print_json(console, {"estimate": estimate.model_dump()})
        return
    cached = f", {estimate.cached:,} of them already answered" if estimate.cached else ""
    cost = "at an unknown price" if estimate.cost is None else f"about {cost_in_words(estimate.cost)}"
    questions = f"{counted(estimate.documents, 'documents')}, {counted(estimate.questions, 'questions')}"
    tokens = f"about {estimate.input_tokens:,} tokens to read and {estimate.output_tokens:,} to write"
    say(console, f"{questions} in {counted(estimate.calls, 'requests')} to {model}{cached}: {tokens}, {cost}")


def print_report(console: Console, report: "GenerationReport", output: Path | None) -> None:
    """Print what was kept and dropped, the requests and their cost, and where the ground truth is."""
    if report.asked:
        say(console, f"{report.kept:,} of {counted(report.asked, 'questions')} kept")
    for reason, dropped in report.dropped.items():
        line = f"{dropped.count:>6,} dropped: {reason:<22} {visible(dropped.examples[0])}"
        console.print(Text(line), no_wrap=True, overflow="ellipsis")
    if report.bad_answers:
        faults = ", ".join(f"{fault} {bad.count:,}" for fault, bad in report.bad_answers.items())
        say(console, f"Unusable answers: {faults}")
    headings, rows = ("paid", "tokens read", "written", "cost", "from the cache", "failed"), []
    for entry in report.ledger:
        paid = entry.fresh
        counts = [f"{count:,}" for count in (paid.calls, paid.input_tokens, paid.output_tokens)]
        rows.append((entry.purpose, *counts, cost_in_words(paid.cost), f"{entry.cached.calls:,}", f"{entry.failed:,}"))
    print_table(console, {"calls for": False} | dict.fromkeys(headings, True), rows)
    if report.total.unsettled:
        say(console, f"Of the failed calls {report.total.unsettled:,} may have been charged.")
    if output is not None:
        say(console, f"Written to {output}")
    if report.upload is not None:
        dataset, detail = report.upload.dataset_name, report.upload.detail
        if report.upload.state == "sent":
            say(console, f"Uploaded to the LangSmith dataset {dataset}: {detail}")
        else:
            again = f"rag-eval truth push {output or 'FILE'} --dataset {dataset}"
            say(console, f"Not uploaded to the LangSmith dataset {dataset}: {detail}\nTry again: {again}", "yellow")
