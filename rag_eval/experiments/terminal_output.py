"""Show an experiment on a terminal: progress, then a table of samples and a summary."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rag_eval.experiments.json_lines import json_text
from rag_eval.experiments.results import Average, ExperimentResult, ItemError, ItemResult
from rag_eval.formatting import counted

SHOWN_SAMPLES = 20
WIDEST_TEXT = 32


def sample_table(result: ExperimentResult, samples: int, width: int) -> Table:
    """Return a table of the first samples, with a line for each task.

    Scores that would take more than half of the width share one column, and expected outputs are left out. Texts are
    shortened to fit.
    """
    items = list(islice(result.results, samples))
    titles = ["Sample", "Task", "Input", "Output", "Result"]
    if len(result.tasks) == 1:
        titles.remove("Task")
    is_stacked = sum(len(f"│ {name} ") for name in result.evaluators) > width / 2
    if is_stacked or all(item.output is None for item in items):
        titles.remove("Output")
    table = Table()
    for title in titles:
        table.add_column(title, no_wrap=title == "Sample")  # rich narrows columns that may wrap
    for title in ["Scores"] if is_stacked else result.evaluators:
        table.add_column(Text(title), justify="left" if is_stacked else "right", no_wrap=True, overflow="ellipsis")
    for item in items:
        for cells, scores in _lines_of(item, result):
            texts = [Text(cells[title], no_wrap=True, overflow="ellipsis") for title in titles]
            table.add_row(*texts, *map(Text, _stacked(scores) if is_stacked else scores.values()))
    return table


def _stacked(scores: Mapping[str, str]) -> list[str]:
    return ["\n".join(f"{score:<6} {name}" for name, score in scores.items())]


def _lines_of(item: ItemResult, result: ExperimentResult) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield the texts by title and the scores by evaluator for each task."""
    for place, task in enumerate(result.tasks):
        failed, scores = result.outcome(item, task)
        cells = {"Sample": "", "Input": "", "Output": "", "Task": one_line(task)}
        if place == 0:
            output = "" if item.output is None else one_line(item.output)
            cells |= {"Sample": str(item.index + 1), "Input": one_line(item.input), "Output": output}
        cells["Result"] = one_line(f"✗ {failed[None]}" if None in failed else item.task_results[place])
        shown = {name: f"{scores[name].value:.2f}" if name in scores else "failed" for name in result.evaluators}
        yield cells, shown


def one_line(value: object) -> str:
    """Return a value on one line, shortened, without control characters."""
    text = json_text(value)
    line = _printable(text[: 4 * WIDEST_TEXT])
    return line if len(text) <= WIDEST_TEXT else line[: WIDEST_TEXT - 1] + "…"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


class TerminalOutput:
    """Shows progress on a terminal, and at the end the first samples and the averages."""

    name = "terminal"

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._failed = 0
        self._first: dict[str, tuple[int, ItemError]] = {}
        """The first failure of each task or evaluator, with the number of its sample."""
        self._progress: Progress | None = None

    def started(self, name: str, total: int | None) -> None:
        """Start a progress bar for ``total`` samples, if that is known."""
        self._failed, self._first = 0, {}
        if not self._console.is_terminal:
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[failed]}"), console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(name.replace("[", "\\["), total=total, failed="")

    def sample(self, item: ItemResult) -> None:
        """Count a finished sample."""
        self._failed += len(item.errors)
        for error in item.errors:
            known = self._first.get(error.place)
            if known is None or item.index < known[0]:
                self._first[error.place] = item.index, error
        if self._progress is not None:
            self._progress.update(self._task, advance=1, failed=f"{self._failed} failed" if self._failed else "")

    def stopped(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def handle(self, results: ExperimentResult) -> None:
        """Print the results."""
        self.stopped()
        with suppress(SystemExit):  # rich exits when the other end of a pipe is closed
            head, *lines = self._lines(results)
            self._print(head)
            self._console.print(sample_table(results, SHOWN_SAMPLES, self._console.width))
            for line in lines:
                self._print(line)

    def _lines(self, result: ExperimentResult) -> Iterator[str]:
        """Yield the line above the table and those below it."""
        mark, failed = ("✗", f" with {counted(result.failed, 'failures')}") if result.failed else ("✓", "")
        yield f"{mark} {result.name} completed{failed} in {result.seconds:.1f}s\n"
        if result.total > SHOWN_SAMPLES:
            yield f"… and {result.total - SHOWN_SAMPLES:,} more"
        yield "\nSummary:"
        yield f"• Total Samples: {result.total:,}"
        for key, average in result.averages.items():
            yield f"• Average {key}: {shown_average(average)}"
        for place, count in result.errors.items():
            index, error = self._first[place]
            times = "once" if count == 1 else counted(count, "times")
            yield f"• {place} failed {times}, first in sample {index + 1}: {error.message}"
        if result.resumed:
            yield f"• Continued: {counted(result.resumed, 'samples')} finished before"
        yield f"• Execution Time: {result.seconds:.1f}s"
        for name, place in result.saved.items():
            yield f"\nResults saved to: {place}" if name == "json" else f"{name}: {place}"

    def _print(self, line: str) -> None:
        # Names and addresses come from services and files, and must not control the terminal.
        self._console.print(Text("\n".join(map(_printable, line.split("\n")))), soft_wrap=True)


def shown_average(average: Average) -> str:
    """Return a mean with its interval, n, and how many passed."""
    interval = f" [{average.low:.3f}, {average.high:.3f}]" if average.low is not None else ""
    passed = f", {average.passed} of {average.judged} passed" if average.judged else ""
    return f"{average.mean:.3f}{interval} (n = {average.n}{passed})"
