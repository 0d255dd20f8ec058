"""Stages × configurations while a benchmark runs."""

import threading

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks.progress import StageEvent, Status

MARKS: dict[Status, Text] = {
    "started": Text("…", style="yellow"),
    "computed": Text("✓", style="green"),
    "reused": Text("=", style="cyan"),
    "failed": Text("✗", style="red"),
}
STAGES = (
    "chunk",
    "embed",
    "index",
    "retrieve-by-vector",
    "retrieve-by-words",
    "fuse",
    "rerank",
    "score",
)


class LiveTable:
    """A row a configuration, a column a stage; told by the threads that work."""

    def __init__(self, configurations: list[str]) -> None:
        self._marks: dict[tuple[str | None, str], Status] = {}
        self._configurations = configurations
        self._lock = threading.Lock()

    def told(self, event: StageEvent) -> None:
        """Take note of an event."""
        with self._lock:
            self._marks[event.configuration, event.stage] = event.status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            marks = dict(self._marks)
        used = [stage for stage in STAGES if any(name is not None and stage == of for name, of in marks)]
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_row("", *(Text(stage.removeprefix("retrieve-"), style="dim") for stage in used))
        for name in self._configurations:
            cells = [MARKS[marks[name, stage]] if (name, stage) in marks else Text("") for stage in used]
            table.add_row(Text(name), *cells)
        yield table
        yield Text("… at work   ✓ computed   = reused   ✗ failed", style="dim")

    def shown(self, console: Console) -> Live:
        """The table on a terminal, kept up to date; nothing where the output is not one."""
        return Live(self, console=console, refresh_per_second=4, transient=True)
