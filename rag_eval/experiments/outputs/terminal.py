"""The results on a terminal: how far it is, then a table of samples and a summary."""

from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from rag_eval.experiments.outputs.base import Plan, QuietOutput
from rag_eval.experiments.outputs.sample_table import sample_table
from rag_eval.experiments.types import Average, ExperimentResult, ItemError, ItemResult
from rag_eval.wording import counted

SHOWN_SAMPLES = 20


class TerminalOutput(QuietOutput):
    """Shows progress on a terminal, and at the end the first samples and the averages."""

    name = "terminal"

    def __init__(self, console: Console | None = None, samples: int = SHOWN_SAMPLES) -> None:
        self._console = console or Console()
        self._samples = samples
        self._failed = 0
        self._first: dict[str, tuple[int, ItemError]] = {}
        """The first failure of each place, with the number of its sample."""
        self._progress: Progress | None = None

    def started(self, plan: Plan) -> None:
        """Begin to show progress, where somebody looks."""
        self._failed, self._first = 0, {}
        if not self._console.is_terminal:
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[failed]}"), console=self._console, transient=True)
        self._progress.start()
        self._task = self._progress.add_task(plan.name.replace("[", "\\["), total=plan.total, failed="")

    def sample(self, item: ItemResult) -> None:
        """One further."""
        self._failed += len(item.errors)
        for error in item.errors:
            known = self._first.get(error.place)
            if known is None or item.index < known[0]:
                self._first[error.place] = item.index, error
        if self._progress is not None:
            self._progress.update(self._task, advance=1, failed=f"{self._failed} failed" if self._failed else "")

    def finished(self, result: ExperimentResult) -> None:
        """Print the table and the summary, as far as somebody reads them."""
        self.stopped()
        with suppress(SystemExit):  # how rich leaves when the other end of a pipe is closed
            self._show(result)

    def _show(self, result: ExperimentResult) -> None:
        mark, failed = ("✗", f" with {counted(result.failed, 'failures')}") if result.failed else ("✓", "")
        self._print(f"{mark} {result.name} completed{failed} in {result.seconds:.1f}s\n")
        self._console.print(sample_table(result, self._samples, self._console.width))
        hidden = result.total - self._samples
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
        """End the progress display."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _failure(self, place: str, count: int) -> str:
        """What failed how often, and why it did the first time, in full."""
        index, error = self._first[place]
        what = f"task {error.task}" if error.evaluator is None else f"evaluator {error.evaluator} of {error.task}"
        reason = "".join(sign if sign.isprintable() else " " for sign in error.message)
        times = "once" if count == 1 else counted(count, "times")
        return f"{what} failed {times}, first in sample {index + 1}: {reason}"

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def shown_average(average: Average) -> str:
    """An average for people: the mean, its interval, over how many, and how many passed."""
    interval = f" [{average.low:.3f}, {average.high:.3f}]" if average.low is not None else ""
    passed = f", {average.passed} of {average.judged} passed" if average.judged else ""
    return f"{average.mean:.3f}{interval} (n = {average.n}{passed})"
