"""``rag-eval generate``: have a model write ground truth for a folder of documents, after saying what it will cost."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.cli import options
from flows.cli.console import print_json, say, visible
from flows.cli.processes import Stopped, watched
from rag_eval.disk.files import sweep_scratch, write_atomically
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, cost_in_words, counted

if TYPE_CHECKING:
    from rag_eval.generation.generator import GenerationEstimate, SyntheticDatasetGenerator
    from rag_eval.generation.levels import GenerationConfig
    from rag_eval.generation.report import GenerationReport


class Bar:
    """How many requests are answered, and what was paid so far; nothing where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[paid]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("asking", total=None, paid="")
        self._generator: SyntheticDatasetGenerator[Any] | None = None

    def told(self, done: int, total: int) -> None:
        """Take note of progress."""
        paid = "" if self._generator is None else cost_in_words(self._generator.report.total.fresh.cost)
        self._progress.update(self._task, completed=done, total=total, paid="" if paid == "unknown" else paid)

    @contextmanager
    def shown(self, generator: "SyntheticDatasetGenerator[Any]") -> Iterator[None]:
        """The bar while a generator is at work."""
        self._generator = generator
        with self._progress:
            yield


def print_estimate(console: Console, estimate: "GenerationEstimate", model: str) -> None:
    """Print what a generation will take."""
    before = f", {estimate.cached:,} of them answered before" if estimate.cached else ""
    cost = "at a price that is not known here" if estimate.cost is None else f"about {cost_in_words(estimate.cost)}"
    say(
        console,
        f"{counted(estimate.documents, 'documents')}, {counted(estimate.questions, 'questions')} in "
        f"{counted(estimate.calls, 'requests')} to {model}{before}: about {estimate.input_tokens:,} tokens to read and "
        f"{estimate.output_tokens:,} to write, {cost}",
    )


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
    console.print(_ledger(report))
    if report.total.unsettled:
        say(console, f"Of the failed calls {report.total.unsettled:,} may have been charged all the same.")
    if output is not None:
        say(console, f"Written to {output}")
    if report.upload is not None:
        detail = f": {report.upload.detail}" if report.upload.detail else ""
        where = "sent to" if report.upload.state == "sent" else "waits in the outbox for"
        say(console, f"The ground truth {where} the LangSmith dataset {report.upload.dataset_name}{detail}")


def _ledger(report: "GenerationReport") -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("calls for")
    for heading in ("paid", "tokens read", "written", "cost", "from the cache", "failed"):
        table.add_column(heading, justify="right")
    for entry in report.ledger:
        usage = entry.fresh
        numbers = (usage.calls, usage.input_tokens, usage.output_tokens)
        cells = [f"{number:,}" for number in numbers] + [cost_in_words(usage.cost)]
        table.add_row(entry.purpose, *cells, f"{entry.cached.calls:,}", f"{entry.failed:,}")
    return table


FINISH_SECONDS = 30.0
"""How long a stopped command waits for answers that are under way, and will be paid."""

OPTION_NAMES = {
    "personas": "--persona",
    "difficulties": "--difficulty",
    "query_types": "--query-type",
    "cross_document": "--cross-document",
    "unanswerable": "--unanswerable",
    "seed": "--seed",
    "prices.input": "--input-price",
    "prices.output": "--output-price",
}
"""The options of settings that are not called as the setting is, or are part of another."""


def generate(
    corpus: Annotated[Path, typer.Argument(help="Folder of documents.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Ground-truth file to write.")] = Path("truth.jsonl"),
    glob: options.DocumentGlobOption = "**/*.md",
    model: Annotated[str, typer.Option(help="Model that writes the questions.")] = "gpt-4.1-mini",
    base_url: Annotated[
        str | None, typer.Option(help="URL of an OpenAI-compatible server, overriding OPENAI_BASE_URL.")
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
        list[str] | None,
        typer.Option("--set", help="Setting of the built-in chunker, such as chunk_size=200; may be repeated."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="Any other setting, such as max_leakage=0.5 or window_tokens=4000; may be repeated."
        ),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Folder of prompts, overriding the built-in ones.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Stop before spending more than this many US dollars; finished questions are kept."),
    ] = None,
    input_price: Annotated[
        float | None, typer.Option(help="US dollars per million input tokens, for a model of unknown price.")
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(help="US dollars per million output tokens, for a model of unknown price.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Number of concurrent requests.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the service.")] = 120.0,
    upload: Annotated[bool, typer.Option("--upload", help="Also upload the ground truth to LangSmith.")] = False,
    dataset_name: Annotated[
        str | None, typer.Option(help="LangSmith dataset to upload to, overriding the default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the cost without calling the model.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Generate ground truth for your documents with a language model; exit code 1 if it stopped early."""
    from flows.cli.certify import find_chunker
    from rag_eval.benchmark.workspace import Workspace

    if output.exists() and not overwrite and not dry_run:
        raise ConfigurationError(f"{str(output)!r} is there already: give another --output, or --overwrite")
    config = chosen_config(
        {
            "corpus": corpus,
            "output": output,
            "glob": glob,
            "model": model,
            "base_url": base_url,
            "queries_per_doc": queries_per_doc,
            "prices": _prices(input_price, output_price),
            "max_cost": max_cost,
            "prompts": prompts,
            "concurrency": concurrency,
            "timeout": timeout,
            "upload": upload,
            "dataset_name": dataset_name,
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
        raise ConfigurationError("--set goes with a built-in chunker: name it with --chunker")
    own = find_chunker(chunker, settings or []) if chunker else None
    kept = Workspace.at(workspace).root
    run_generation(config, kept, own, Console(stderr=True), ask=not yes, dry=dry_run, as_json=as_json)


def chosen_config(given: dict[str, Any], kinds: dict[str, Any], others: list[str]) -> "GenerationConfig":
    """The settings of the command line; raises ``ConfigurationError`` naming the first that cannot be used."""
    from pydantic import ValidationError

    from rag_eval.generation.levels import MOST_OUTPUT_TOKENS, GenerationConfig
    from rag_eval.generation.options import FilterOptions, GenerationOptions
    from rag_eval.parts.settings import reason_of

    chosen: dict[str, Any] = {"max_output_tokens": MOST_OUTPUT_TOKENS}
    filters: dict[str, Any] = {}
    known = [name for name in (*GenerationOptions.model_fields, *FilterOptions.model_fields) if name != "filters"]
    for text in others:
        name, value = options.assigned("--option", text, "max_leakage=0.5")
        if name not in known:
            raise ConfigurationError(f"--option {name}: there is no such setting, {choices(known, name)}")
        (filters if name in FilterOptions.model_fields else chosen)[name] = None if value == "off" else value
    chosen |= {name: value for name, value in kinds.items() if value not in (None, [])}
    try:
        return GenerationConfig.model_validate({**given, "options": {**chosen, "filters": filters}})
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(part) for part in first["loc"] if part not in ("options", "filters")]
        named = [f"--{name.replace('_', '-')}" for name in given if name == keys[0]]
        # Settings that the command line calls otherwise, then its own, then those that --option sets.
        place = OPTION_NAMES.get(keys[0]) or OPTION_NAMES.get(".".join(keys)) or "".join(named)
        raise ConfigurationError(f"{place or f'--option {keys[0]}'}: {reason_of(first)}") from None


def run_generation(
    config: "GenerationConfig",
    workspace: Path,
    chunker: Any,
    console: Console,
    *,
    ask: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Estimate, confirm on a terminal, generate, write and print."""
    from rag_eval.llm.chat import ChatService

    bar = Bar(console)
    generator = config.generator(workspace, bar.told, chunker)
    with console.status("Reading the documents …"):
        estimate = generator.estimate(config.queries_per_doc)
    if dry and as_json:
        print_json(Console(), {"estimate": estimate.model_dump()})
        return
    print_estimate(Console() if dry else console, estimate, config.model)
    if dry:
        return
    if estimate.calls > estimate.cached:
        # What is wrong with the key is said before anybody is asked to pay.
        ChatService(config.base_url, config.timeout).connect()
    if ask and estimate.calls > estimate.cached and sys.stdin.isatty() and console.is_terminal:
        typer.confirm("Ask now?", abort=True, err=True)
    # Out of version control, and without what killed writers left.
    write_atomically(workspace / ".gitignore", b"*\n")
    sweep_scratch(workspace)
    truth: list[Any] = []
    try:
        with bar.shown(generator):
            truth = watched(lambda: generator.generate(config.queries_per_doc, upload_to_langsmith=False))
        if truth or not generator.report.stopped:
            config.write(truth)
        if config.upload:
            generator.upload(truth, config.dataset_name)
    except Stopped as stop:
        with console.status("Waiting for the answers that are under way …"):
            generator.asker.stop(FINISH_SECONDS)
        stop.consequence = "what was answered is kept, and the same command goes on from there"
        raise
    finally:
        report = generator.report
        if as_json:
            made = {"estimate": estimate.model_dump(), "report": report.model_dump()}
            print_json(Console(), {"output": str(config.output)} | made)
        else:
            print_report(Console(), report, config.output if truth else None)
    if report.stopped:
        again = "a higher --max-cost and --overwrite" if truth else "a higher --max-cost"
        say(
            console,
            f"rag-eval: stopped: {report.stopped}; {counted(report.unasked, 'questions')} not asked: "
            f"the same command with {again} goes on from there",
        )
        raise typer.Exit(1)


def _prices(read: float | None, written: float | None) -> dict[str, float] | None:
    if read is None and written is None:
        return None
    if read is None or written is None:
        raise ConfigurationError("--input-price and --output-price go together: give both")
    return {"input": read, "output": written}
