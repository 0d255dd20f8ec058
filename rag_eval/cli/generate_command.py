"""``rag-eval generate``: estimate the cost, then have a model write ground truth for a folder of documents."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    from rag_eval.generation.candidates import GenerationReport
    from rag_eval.generation.generator import GenerationEstimate
    from rag_eval.generation.growing import GeneratedTruth, Growing
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.retrieval.retriever import AnyChunker

FINISH_SECONDS = 30.0
"""How long a stopped command waits for answers that are under way and will be paid."""
SPELLED = {
    "personas": "persona",
    "difficulties": "difficulty",
    "query_types": "query-type",
    "prices.input": "input-price",
    "prices.output": "output-price",
}
"""The options with another name than their setting."""


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
    from rag_eval.chunking import CHUNKER
    from rag_eval.llm.chat import ANSWERS_FOLDER
    from rag_eval.parts.part_settings import Place

    if extend and overwrite:
        raise ConfigurationError("--extend and --overwrite exclude each other: give one of them")
    if output.exists() and not extend and not overwrite and not dry_run:
        raise ConfigurationError(
            f"{str(output)!r} already exists: give --extend or --overwrite, or another file with --output"
        )
    if (input_price is None) != (output_price is None):
        raise ConfigurationError("--input-price and --output-price belong together: give both")
    if queries and (cross_document or unanswerable or persona or difficulty or query_type or chunker):
        raise ConfigurationError(
            "--queries uses the questions as they are: remove --cross-document, --unanswerable, --persona, "
            "--difficulty, --query-type and --chunker"
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
            "concurrency": concurrency,
        },
        {
            "personas": persona,
            "difficulties": difficulty,
            "query_types": query_type,
            "cross_document": cross_document,
            "unanswerable": unanswerable,
        },
        options or [],
    )
    try:
        cutter = CHUNKER.make(yaml.safe_load(chunker), Place("--chunker")) if chunker else None
    except yaml.YAMLError:
        raise ConfigurationError(f"--chunker {chunker!r} is not YAML: write for example --chunker markdown") from None
    console = Console(stderr=True)
    with console.status("Reading the documents …"):
        documents = shared.read_documents(corpus, glob)
    others = unmatched(corpus, documents) if corpus.is_dir() and glob == shared.DOCUMENT_GLOB else 0
    if others:
        say(
            console,
            f"rag-eval: {counted(others, 'files')} of other formats in {str(corpus)!r} are not read: add their "
            "patterns with --glob, or give the benchmark file of rag-eval init instead of the folder",
        )
    workspace.fetch_missing(workspace.root / ANSWERS_FOLDER)
    run = Generation(source, documents, workspace, cutter, console, upload, is_new=not extend, as_json=as_json)
    run.perform(asks=not yes, is_dry=dry_run)


def unmatched(folder: Path, documents: Corpus) -> int:
    """Count the files in a folder that could be documents and do not match the pattern."""
    from rag_eval.cli.init_command import PROSE

    names = [path.relative_to(folder) for path in folder.glob("**/*") if path.suffix in PROSE and path.is_file()]
    known = documents.by_id().keys() | documents.left_out.keys()
    visible_names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return sum(name.as_posix() not in known for name in visible_names)


def chosen_source(settings: dict[str, Any], kinds: dict[str, Any], others: list[str]) -> "GeneratedTruth":
    """Return the source with these settings; raise ``ConfigurationError`` naming the option of the first mistake."""
    from rag_eval.generation.growing import GeneratedTruth
    from rag_eval.generation.settings import FilterOptions, GenerationOptions

    chosen: dict[str, Any] = {name: value for name, value in kinds.items() if value not in (None, [])}
    filters: dict[str, Any] = {}
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
        option = SPELLED.get(path, name.replace("_", "-")) if name in {**settings, **kinds} else f"option {name}"
        raise ConfigurationError(f"--{option}: {reason}") from None


@dataclass(frozen=True)
class Generation:
    """One call of the command: estimates, asks for confirmation on a terminal, generates, writes and prints."""

    source: "GeneratedTruth"
    corpus: Corpus
    workspace: "Workspace"
    chunker: "AnyChunker | None"
    console: Console
    dataset: str | None
    is_new: bool
    as_json: bool

    def perform(self, *, asks: bool, is_dry: bool) -> None:
        """Generate the ground truth; exit with code 1 if ``max_cost`` stopped it."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from rag_eval.generation.growing import Growing

        paid = TextColumn("{task.fields[paid]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), paid, TimeElapsedColumn())
        bar = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        requests = bar.add_task("requests", total=None, paid="")

        def show(done: int, total: int) -> None:
            cost = growing.generator.report.total.fresh.cost
            bar.update(requests, completed=done, total=total, paid="" if cost is None else cost_in_words(cost))

        growing = Growing(self.source, self.corpus, self.workspace.storage, show, self.chunker, anew=self.is_new)
        with self.console.status("Reading the documents …"):
            estimate = growing.estimate()
        if is_dry and self.as_json:
            print_json(Console(), {"estimate": estimate.model_dump()})
        else:
            say(Console() if is_dry else self.console, in_words(estimate, self.source.model))
        if is_dry:
            return
        if estimate.calls > estimate.cached:
            self.source.client.connect()  # fails on a missing key before anybody is asked to pay
            if asks and sys.stdin.isatty() and self.console.is_terminal:
                typer.confirm("Continue?", abort=True, err=True)
        write_atomically(self.workspace.root / ".gitignore", b"*\n")
        sweep_scratch(self.workspace.root)
        truth: list[Any] = []
        try:
            with self._waiting_for_answers(growing), bar:
                truth = self._generate(growing)
        finally:
            report = growing.generator.report
            if self.as_json:
                data = {"estimate": estimate.model_dump(), "report": report.model_dump()}
                print_json(Console(), {"output": str(self.source.file)} | data)
            else:
                print_report(Console(), report, self.source.file if truth else None)
        if report.stopped:
            again = "a higher --max-cost and --extend" if truth else "a higher --max-cost"
            say(
                self.console,
                f"rag-eval: stopped: {report.stopped}; {counted(report.unasked, 'questions')} not asked: "
                f"run the same command with {again} to continue",
            )
            raise typer.Exit(1)

    def _generate(self, growing: "Growing") -> list[Any]:
        """Return the ground truth, written and uploaded; empty if ``max_cost`` allowed no request."""
        added = watched(growing.ask)
        truth: list[Any] = []
        if added or growing.known or not growing.generator.report.stopped:
            truth = growing.write(added)
        if self.dataset is not None:
            growing.generator.upload(truth, self.dataset)
        return truth

    @contextmanager
    def _waiting_for_answers(self, growing: "Growing") -> Iterator[None]:
        """Wait, when the block is stopped, for the answers that are under way."""
        try:
            yield
        except Stopped as stop:
            with self.console.status("Waiting for the answers that are under way …"):
                growing.generator.asker.stop(FINISH_SECONDS)
            stop.consequence = "answers are saved, and the same command continues from there"
            raise


def in_words(estimate: "GenerationEstimate", model: str) -> str:
    """Return an estimate as a sentence."""
    cached = f", {estimate.cached:,} of them answered before" if estimate.cached else ""
    cost = "at an unknown price" if estimate.cost is None else f"about {cost_in_words(estimate.cost)}"
    return (
        f"{counted(estimate.documents, 'documents')}, {counted(estimate.questions, 'questions')} in "
        f"{counted(estimate.calls, 'requests')} to {model}{cached}: about {estimate.input_tokens:,} tokens to "
        f"read and {estimate.output_tokens:,} to write, {cost}"
    )


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
