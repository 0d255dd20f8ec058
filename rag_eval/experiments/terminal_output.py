"""Show an experiment on a terminal: progress, then a table of samples and a summary."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from rich.console import Console, OverflowMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rag_eval.experiments.json_lines import json_text
from rag_eval.experiments.results import Average, ExperimentResult, ItemError, ItemResult
from rag_eval.formatting import counted

SHOWN_SAMPLES = 20
WIDEST_TEXT = 32
NARROWEST_TEXT = 10
WIDEST_TASK = 14
WIDEST_SCORE = 24
FRAME = 3
"""The width of a column's padding and border."""


def sample_table(result: ExperimentResult, samples: int, width: int) -> Table:
    """Return a table of the first samples, with a line for each task.

    If the evaluators do not fit beside each other, their scores share a column and outputs are left out.
    """
    items = list(islice(result.results, samples))
    texts = ["Input", "Output", "Result"] if any(item.output is not None for item in items) else ["Input", "Result"]
    heads = {"Sample": len("Sample")}
    heads |= {"Task": min(WIDEST_TASK, max(map(len, result.tasks)))} if len(result.tasks) > 1 else {}
    scores = {name: max(len("failed"), min(len(name), WIDEST_SCORE)) for name in result.evaluators}

    def room(scores: Mapping[str, int]) -> int:
        """Return the width that is left for each text."""
        frame = FRAME * (len(heads) + len(texts) + len(scores)) + 1
        return (width - sum(heads.values()) - sum(scores.values()) - frame) // len(texts)

    if is_stacked := room(scores) < NARROWEST_TEXT:
        texts, scores = ["Input", "Result"], {"Scores": WIDEST_SCORE}
    widths = heads | dict.fromkeys(texts, max(NARROWEST_TEXT, min(WIDEST_TEXT, room(scores))))
    table = Table()
    for title, size in widths.items():
        table.add_column(title, width=size, no_wrap=True, overflow="ellipsis")
    for title, size in scores.items():
        wraps: OverflowMethod = "ellipsis" if is_stacked else "fold"
        table.add_column(Text(title), width=size, justify="left" if is_stacked else "right", overflow=wraps)
    for item in items:
        for cells in _cells(item, result):
            values = [cells.pop(f"score {name}") for name in result.evaluators]
            if is_stacked:
                pairs = zip(values, result.evaluators, strict=True)
                values = ["\n".join(f"{value:<6} {name}"[:WIDEST_SCORE] for value, name in pairs)]
            table.add_row(*(Text(cell) for cell in [*(cells[title] for title in widths), *values]))
    return table


def _cells(item: ItemResult, result: ExperimentResult) -> Iterator[dict[str, str]]:
    for place, task in enumerate(result.tasks):
        failed, scores = result.outcome(item, task)
        cells = {"Sample": "", "Input": "", "Output": ""}
        if place == 0:
            output = "" if item.output is None else one_line(item.output)
            cells = {"Sample": str(item.index + 1), "Input": one_line(item.input), "Output": output}
        cells["Task"] = one_line(task)
        cells["Result"] = one_line(f"✗ {failed[None]}" if None in failed else item.task_results[place])
        for name in result.evaluators:
            cells[f"score {name}"] = f"{scores[name].value:.2f}" if name in scores else "failed"
        yield cells


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
        """The first failure of each place, with the number of its sample."""
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
        # Names and addresses come from services and files; they must not steer the terminal.
        self._console.print(Text("\n".join(map(_printable, line.split("\n")))), soft_wrap=True)


def shown_average(average: Average) -> str:
    """Return a mean with its interval, n, and how many passed."""
    interval = f" [{average.low:.3f}, {average.high:.3f}]" if average.low is not None else ""
    passed = f", {average.passed} of {average.judged} passed" if average.judged else ""
    return f"{average.mean:.3f}{interval} (n = {average.n}{passed})"
