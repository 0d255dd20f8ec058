"""The progress of a benchmark on a terminal: a row per chunking and a column per step, read from the Prefect server."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rag_eval.cli.console import say, visible
from rag_eval.formatting import MINUTE, counted

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

LOOK_SECONDS = 1.0
PAGE = 200
MARKS = {"Cached": ("=", "cyan"), "Completed": ("✓", "green"), "Running": ("…", "yellow"), "Failed": ("✗", "red")}
OTHERS = ("·", "yellow")
LEGEND = "… running   ✓ computed   = cached   · waiting or retrying   ✗ failed"
WHOLE_RUN = "all"
"""The row of tasks that all chunkings share."""


class StepRun(NamedTuple):
    """A task run: the row of its subflow, its step, and its state."""

    row: str
    step: str
    state: str


class LiveTable:
    """The number of task runs in each state, per chunking and step, no larger than the terminal."""

    def __init__(self, configurations: int, clock: Callable[[], float] = monotonic) -> None:
        self._count, self._clock, self._began = configurations, clock, clock()
        self.runs: Sequence[StepRun] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        runs, elapsed = self.runs, self._clock() - self._began
        steps, rows = (list(dict.fromkeys(run[field] for run in runs)) for field in (1, 0))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column()
        for step in steps:
            table.add_column(step, no_wrap=True, overflow="ellipsis", min_width=len(step))
        active = {run.row for run in runs if run.state in ("Running", "Failed")}
        room = max(0, options.size.height - 4)  # the heading, two lines below, and one for the cursor
        shown = rows if len(rows) <= room else sorted(rows, key=lambda row: row not in active)[:room]
        for row in shown:
            states = [Counter(run.state for run in runs if (run.row, run.step) == (row, step)) for step in steps]
            table.add_row(Text(row, no_wrap=True, overflow="ellipsis"), *map(_cell, states))
        clock = f"{counted(self._count, 'configurations')}, {int(elapsed // MINUTE)}:{int(elapsed % MINUTE):02}"
        yield from [table] if shown else []
        for text in (Text(clock), Text(LEGEND, style="dim")):
            yield Text.assemble(text, no_wrap=True, overflow="ellipsis")


def _cell(states: Counter[str]) -> Text:
    text = Text()
    for state, count in states.items():
        mark, style = MARKS.get(state, OTHERS)
        text.append(f"{mark}{count if count > 1 else ''} ", style)
    return text


class RunFollower:
    """Follows a benchmark run; ``notice`` is a state hook of its flows.

    On a terminal it shows their task runs; elsewhere it prints a line for each finished chunking.
    """

    def __init__(self, console: Console, configurations: int) -> None:
        self._console, self._table = console, LiveTable(configurations)
        self._rows: dict[UUID, str] = {}
        self._runs: dict[UUID, StepRun] = {}
        self._finished = 0
        self._stopped = threading.Event()

    def __reduce__(self) -> "tuple[Callable[[], RunFollower], tuple[()]]":
        """Pickle as a follower that shows nothing: Dask and Ray send flows with their hooks to other processes."""
        return _unseen, ()

    def notice(self, flow: object, flow_run: "FlowRun", state: "State[Any]") -> None:
        """Record that a flow run has started or ended."""
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

        ours, offset = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=list(self._rows))), 0
        with get_client(sync_client=True) as client:
            while page := client.read_task_runs(task_run_filter=ours, limit=PAGE, offset=offset):
                offset += len(page)
                for run in page:
                    step, row = steps.get(run.task_key), self._rows.get(run.flow_run_id or run.id)
                    if step is not None and row is not None:
                        self._runs[run.id] = StepRun(row, step, run.state_name or "Pending")
        order = {name: number for number, name in enumerate([*dict.fromkeys(steps.values()), *self._rows.values()])}
        self._table.runs = sorted(self._runs.values(), key=lambda run: (order[run.step], order[run.row]))


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
