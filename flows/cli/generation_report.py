"""A generation on a terminal: what it will take, how far it is, and what became of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.cli.text import say, visible
from rag_eval.generation.estimate import Estimate
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.report import GenerationReport
from rag_eval.reports.generation_markdown import cost_in_words
from rag_eval.wording import counted


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
    def shown(self, generator: SyntheticDatasetGenerator[Any]) -> Iterator[None]:
        """The bar while a generator is at work."""
        self._generator = generator
        with self._progress:
            yield


def print_estimate(console: Console, estimate: Estimate, model: str) -> None:
    """Print what a generation will take."""
    before = f", {estimate.cached:,} of them answered before" if estimate.cached else ""
    cost = "at a price that is not known here" if estimate.cost is None else f"about {cost_in_words(estimate.cost)}"
    say(
        console,
        f"{counted(estimate.documents, 'documents')}, {counted(estimate.questions, 'questions')} in "
        f"{counted(estimate.calls, 'requests')} to {model}{before}: about {estimate.input_tokens:,} tokens to read and "
        f"{estimate.output_tokens:,} to write, {cost}",
    )


def print_report(console: Console, report: GenerationReport, output: Path | None) -> None:
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


def _ledger(report: GenerationReport) -> Table:
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
