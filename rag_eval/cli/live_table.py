"""The progress of a benchmark on a terminal: a row per chunking and a column per step, read from the Prefect server."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rag_eval.cli.console import say, visible
from rag_eval.formatting import MINUTE, counted
from tasks import STEPS

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

LOOK_SECONDS, CANCEL_SECONDS = 1.0, 5.0
PAGE = 200
MARKS = {"Cached": ("=", "cyan"), "Completed": ("✓", "green"), "Running": ("…", "yellow"), "Failed": ("✗", "red")}
OTHERS = ("·", "yellow")
LEGEND = "… running   ✓ computed   = cached   · waiting or retrying   ✗ failed"
WHOLE_RUN = "all"
"""Name of the row of tasks that all chunkings share."""


class StepRun(NamedTuple):
    """A task run: the row of its subflow, its step, and its state."""

    row: str
    step: str
    state: str


class LiveTable:
    """The number of task runs in each state, per chunking and step, fitted to the terminal."""

    def __init__(self, configurations: int, clock: Callable[[], float] = monotonic) -> None:
        self._count, self._clock, self._began = configurations, clock, clock()
        self.runs: Sequence[StepRun] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        runs, elapsed = self.runs, self._clock() - self._began
        steps, rows = (list(dict.fromkeys(run[field] for run in runs)) for field in (1, 0))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column()
        for step in steps:
            table.add_column(step.replace("-", " "), no_wrap=True, overflow="ellipsis", min_width=len(step))
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

    On a terminal it shows their task runs; elsewhere it prints a line for each finished chunking. If the server keeps
    running, it also prints the address of the run's page.
    """

    def __init__(self, console: Console, configurations: int, *, has_page: bool = False) -> None:
        self._console, self._table, self._has_page = console, LiveTable(configurations), has_page
        self._rows: dict[UUID, str] = {}
        self._run: UUID | None = None
        self._finished = 0
        self._stopped = threading.Event()

    def __reduce__(self) -> "tuple[Callable[[], RunFollower], tuple[()]]":
        """Pickle as a follower that shows nothing: Dask and Ray send flows with their hooks to other processes."""
        return _unseen, ()

    def notice(self, flow: object, flow_run: "FlowRun", state: "State[object]") -> None:
        """Record the start or end of a flow run."""
        is_subflow = flow_run.parent_task_run_id is not None
        name = visible(flow_run.name)
        self._rows[flow_run.id] = name if is_subflow else WHOLE_RUN
        if not is_subflow and self._run is None:
            self._run = flow_run.id
            if self._has_page:
                self._print_page(flow_run.id)
        if is_subflow and state.is_final() and not self._console.is_terminal:
            self._finished += 1
            say(self._console, f"rag-eval: {self._finished:,}: {name}: {str(state.name).lower()}")

    def _print_page(self, flow_run: UUID) -> None:
        from prefect.utilities.urls import url_for

        from rag_eval.cli.prefect_api import without_credentials

        if page := url_for("flow-run", flow_run):
            say(self._console, f"rag-eval: its page in Prefect: {without_credentials(page)}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table while the block runs, if the output is a terminal."""
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
                self._table.runs = self._read()

    def _read(self) -> list[StepRun]:
        """Return the task runs of the steps, in the order of the pipeline and of the chunkings."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterFlowRunId

        rows, found, offset = dict(self._rows), list[StepRun](), 0
        ours = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=list(rows)))
        with get_client(sync_client=True) as client:
            while page := client.read_task_runs(task_run_filter=ours, limit=PAGE, offset=offset):
                offset += len(page)
                for run in page:
                    step = next((step for step in STEPS if step in run.tags), None)
                    if step is not None and run.flow_run_id is not None:
                        found.append(StepRun(rows[run.flow_run_id], step, run.state_name or "Pending"))
        order = list(rows.values())
        return sorted(found, key=lambda run: (STEPS.index(run.step), order.index(run.row)))

    def cancel(self) -> None:
        """Cancel the run on the server, waiting at most ``CANCEL_SECONDS`` in case the server is gone."""
        from prefect.client.orchestration import get_client
        from prefect.states import Cancelled

        def ask(run: UUID) -> None:
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(run, Cancelled(message="stopped from the command line"), force=True)

        if self._run is not None:
            thread = threading.Thread(target=ask, args=(self._run,), daemon=True)
            thread.start()
            thread.join(CANCEL_SECONDS)


def _unseen() -> RunFollower:
    return RunFollower(Console(quiet=True), 0)
