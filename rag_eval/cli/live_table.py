"""The progress of a benchmark on a terminal: chunkings × steps, as the task runs on the Prefect server have it."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from rag_eval.cli.console import cut_in_the_middle, say, visible
from rag_eval.formatting import MINUTE, counted

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

LOOK_SECONDS = 1.0
PAGE = 200
MARKS = {"Cached": ("=", "cyan"), "Completed": ("✓", "green"), "Running": ("…", "yellow"), "Failed": ("✗", "red")}
OTHERS = ("·", "yellow")
LEGEND = "… running   ✓ computed   = cached   · waiting or retrying   ✗ failed"
WHOLE_RUN = "all"
"""The row of what all chunkings share."""


class StepRun(NamedTuple):
    """A task run: the subflow it is in, the step, and its state."""

    row: str
    step: str
    state: str


class LiveTable:
    """A table with a line for each chunking and a column for each step, with the number of task runs in each state."""

    def __init__(self, configurations: int, clock: Callable[[], float] = monotonic) -> None:
        self._count, self._clock, self._began = configurations, clock, clock()
        self._runs: Mapping[UUID, StepRun] = {}

    def update(self, runs: Mapping[UUID, StepRun]) -> None:
        """Show these task runs."""
        self._runs = runs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One line less than there are, because the cursor ends up below the last.
        yield from self.lines(options.max_width, options.size.height - 1)

    def lines(self, width: int, height: int) -> list[Text]:
        """Return the lines to show, no wider and together no higher than this size."""
        runs = list(self._runs.values())
        steps = list(dict.fromkeys(run.step for run in runs))
        rows = list(dict.fromkeys(run.row for run in runs))
        elapsed = self._clock() - self._began
        below = [
            Text(f"{counted(self._count, 'configurations')}, {int(elapsed // MINUTE)}:{int(elapsed % MINUTE):02}"),
            Text(LEGEND, style="dim"),
        ]
        cells = {step: max(len(step), 9) + 1 for step in steps}
        names = min(max(map(len, rows), default=0), max(12, width - sum(cells.values()) - 1))
        lines = [Text.assemble(" " * names, *((f" {step}".ljust(cells[step]), "dim") for step in steps))]
        # The active rows, where there is no room for all.
        active = [row for row in rows if any(run.row == row and run.state in ("Running", "Failed") for run in runs)]
        room = max(1, height - len(below) - 1)
        shown = rows if len(rows) <= room else (active + rows)[:room]
        for row in dict.fromkeys(shown):
            line = Text(cut_in_the_middle(row, names).ljust(names))
            for step in steps:
                states = Counter(run.state for run in runs if run.row == row and run.step == step)
                line.append_text(_cell(states, cells[step]))
            lines.append(line)
        lines += below
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
        return lines[: max(height, 1)]


def _cell(states: Counter[str], cells: int) -> Text:
    text = Text(" ")
    for state, count in states.items():
        mark, style = MARKS.get(state, OTHERS)
        text.append(f"{mark}{count if count > 1 else ''} ", style)
    text.pad_right(cells - text.cell_len)
    return text


class RunFollower:
    """Follows a run of the benchmark: ``notice`` is a state hook of its flows.

    On a terminal it reads their task runs from the Prefect server; elsewhere it says which chunkings have finished.
    """

    def __init__(self, console: Console, configurations: int) -> None:
        self._console, self._table = console, LiveTable(configurations)
        self._rows: dict[UUID, str] = {}
        self._runs: dict[UUID, StepRun] = {}
        self._finished = 0
        self._stopped = threading.Event()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as one that shows nothing: Dask and Ray send flows with their hooks to processes of theirs."""
        return _unseen, ()

    def notice(self, flow: object, flow_run: "FlowRun", state: "State[Any]") -> None:
        """Take note that a flow run is running or has ended."""
        is_subflow = flow_run.parent_task_run_id is not None
        self._rows[flow_run.id] = visible(flow_run.name) if is_subflow else WHOLE_RUN
        if is_subflow and state.is_final() and not self._console.is_terminal:
            self._finished += 1
            say(self._console, f"rag-eval: {self._finished:,}: {visible(flow_run.name)}: {str(state.name).lower()}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table during the block, on a terminal."""
        if not self._console.is_terminal:
            yield
            return
        reading = threading.Thread(target=self._follow, daemon=True)
        with Live(self._table, console=self._console, refresh_per_second=4, transient=True):
            reading.start()
            try:
                yield
            finally:
                self._stopped.set()
                reading.join()

    def _follow(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            with suppress(Exception):  # the run itself reports a server that does not answer
                self._read(_steps_by_key())

    def _read(self, steps: Mapping[str, str]) -> None:
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterFlowRunId

        wanted, offset = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=list(self._rows))), 0
        with get_client(sync_client=True) as client:
            while page := client.read_task_runs(task_run_filter=wanted, limit=PAGE, offset=offset):
                offset += len(page)
                for run in page:
                    step, row = steps.get(run.task_key), self._rows.get(run.flow_run_id or run.id)
                    if step is not None and row is not None:
                        self._runs[run.id] = StepRun(row, step, run.state_name or "Pending")
        order = {name: number for number, name in enumerate([*dict.fromkeys(steps.values()), *self._rows.values()])}
        ordered = sorted(self._runs.items(), key=lambda item: (order[item[1].step], order[item[1].row]))
        self._table.update(dict(ordered))


def _unseen() -> RunFollower:
    return RunFollower(Console(quiet=True), 0)


@functools.cache
def _steps_by_key() -> dict[str, str]:
    """Return the step of each task by its key: a step is a module of ``tasks``."""
    import tasks

    steps: dict[str, str] = {}
    for name in tasks.STEPS:
        module = import_module(f"tasks.{name}")
        objects = (value for value in vars(module).values() if isinstance(getattr(value, "task_key", None), str))
        steps |= {task.task_key: name.replace("_", " ") for task in objects if task.fn.__module__ == module.__name__}
    return steps
