"""Show an experiment on a terminal: progress, then a table of samples and a summary."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import Average, ExperimentResult, ItemError, ItemResult
from rag_eval.formatting import counted

WIDEST_TEXT = 32
NARROWEST_TEXT = 10
WIDEST_TASK = 14
WIDEST_NAME = 24
WIDEST_LINE = 22
"""The widest line of a name and its score."""
FRAME = 3
"""The cells of a column beside its text."""


def sample_table(result: ExperimentResult, samples: int, width: int) -> Table:
    """Return a table with a line for each task of each sample: input and output, the task's result and the scores.

    Scores share a column where the evaluators do not all fit beside each other; then outputs are left out.
    """
    items = list(islice(result.results, samples))
    names = [min(len(name), WIDEST_NAME) for name in result.evaluators]
    heads = [len("Sample"), *([min(WIDEST_TASK, max(map(len, result.tasks)))] if len(result.tasks) > 1 else [])]
    scores = [max(len("failed"), size) for size in names]
    texts = ["Input", "Output", "Result"] if any(item.output is not None for item in items) else ["Input", "Result"]
    is_apart = _text_width(width, heads, texts, scores) >= NARROWEST_TEXT
    if not is_apart:
        texts = ["Input", "Result"]
        scores = [min(WIDEST_LINE, max(map(len, result.evaluators)) + len(" failed"))]
    text_width = max(NARROWEST_TEXT, min(WIDEST_TEXT, _text_width(width, heads, texts, scores)))
    table = Table()
    table.add_column("Sample", min_width=len("Sample"))
    if len(result.tasks) > 1:
        table.add_column("Task", width=heads[1], no_wrap=True, overflow="ellipsis")
    for title in texts:
        table.add_column(title, width=text_width, no_wrap=True, overflow="ellipsis")
    for title, size in zip(result.evaluators if is_apart else ["Scores"], scores, strict=True):
        table.add_column(Text(title), justify="right", width=size, overflow="fold")
    for item in items:
        for cells in _lines(item, result, texts, is_apart=is_apart):
            table.add_row(*map(Text, cells))
    return table


def _text_width(width: int, heads: Sequence[int], texts: Sequence[str], scores: Sequence[int]) -> int:
    """Return the width that is left for each text."""
    columns = len(heads) + len(texts) + len(scores)
    return (width - sum(heads) - sum(scores) - FRAME * columns - 1) // len(texts)


def _lines(item: ItemResult, result: ExperimentResult, titles: list[str], *, is_apart: bool) -> Iterator[list[str]]:
    longest = WIDEST_LINE - len(" failed")
    for place, task in enumerate(result.tasks):
        failed, scores = result.outcome(item, task)
        texts = {"Result": one_line(f"✗ {failed[None]}" if None in failed else item.task_results[place])}
        if place == 0:
            texts |= {"Input": one_line(item.input), "Output": one_line("" if item.output is None else item.output)}
        head = [str(item.index + 1) if place == 0 else "", *([one_line(task)] if len(result.tasks) > 1 else [])]
        values = [f"{scores[name].value:.2f}" if name in scores else "failed" for name in result.evaluators]
        if not is_apart:
            names = (name if len(name) <= longest else name[: longest - 1] + "…" for name in result.evaluators)
            values = ["\n".join(f"{name} {value:>6}" for name, value in zip(names, values, strict=True))]
        yield [*head, *(texts.get(title, "") for title in titles), *values]


def one_line(value: object) -> str:
    """Return a value on one line, shortened, without control characters."""
    text = value if isinstance(value, str) else encode(value).decode()
    line = _printable(text[: 4 * WIDEST_TEXT])
    return line if len(line) <= WIDEST_TEXT and len(text) <= WIDEST_TEXT else line[: WIDEST_TEXT - 1] + "…"


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


SHOWN_SAMPLES = 20


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
        """Begin; ``total`` is the number of samples, if it is known."""
        self._failed, self._first = 0, {}
        if not self._console.is_terminal:
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[failed]}"), console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(name.replace("[", "\\["), total=total, failed="")

    def sample(self, item: ItemResult) -> None:
        """Show that a sample is finished."""
        self._failed += len(item.errors)
        for error in item.errors:
            known = self._first.get(error.place)
            if known is None or item.index < known[0]:
                self._first[error.place] = item.index, error
        if self._progress is not None:
            self._progress.update(self._task, advance=1, failed=f"{self._failed} failed" if self._failed else "")

    def handle(self, results: ExperimentResult) -> None:
        """Show the results."""
        self.stopped()
        with suppress(SystemExit):  # how rich leaves when the other end of a pipe is closed
            self._show(results)

    def _show(self, result: ExperimentResult) -> None:
        mark, failed = ("✗", f" with {counted(result.failed, 'failures')}") if result.failed else ("✓", "")
        self._print(f"{mark} {result.name} completed{failed} in {result.seconds:.1f}s\n")
        self._console.print(sample_table(result, SHOWN_SAMPLES, self._console.width))
        hidden = result.total - SHOWN_SAMPLES
        if hidden > 0:
            self._print(f"… and {hidden:,} more")
        self._print("\nSummary:")
        self._print(f"• Total Samples: {result.total:,}")
        for key, average in result.averages.items():
            self._print(f"• Average {key}: {shown_average(average)}")
        for place, count in result.errors.items():
            self._print(f"• {self._failure(place, count)}")
        if result.resumed:
            self._print(f"• Continued: {counted(result.resumed, 'samples')} finished before")
        self._print(f"• Execution Time: {result.seconds:.1f}s")
        for name, place in result.saved.items():
            self._print(f"\nResults saved to: {place}" if name == "json" else f"{name}: {place}")

    def stopped(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _failure(self, place: str, count: int) -> str:
        """Return the place, the number and the first message of failures."""
        index, error = self._first[place]
        what = f"task {error.task}" if error.evaluator is None else f"evaluator {error.evaluator} of {error.task}"
        times = "once" if count == 1 else counted(count, "times")
        return f"{what} failed {times}, first in sample {index + 1}: {error.message}"

    def _print(self, line: str) -> None:
        # Names and addresses come from services and files: nothing in them steers the terminal.
        self._console.print(Text("\n".join(map(_printable, line.split("\n")))), soft_wrap=True)


def shown_average(average: Average) -> str:
    """Return an average in words: the mean, its interval, n, and how many passed."""
    interval = f" [{average.low:.3f}, {average.high:.3f}]" if average.low is not None else ""
    passed = f", {average.passed} of {average.judged} passed" if average.judged else ""
    return f"{average.mean:.3f}{interval} (n = {average.n}{passed})"
