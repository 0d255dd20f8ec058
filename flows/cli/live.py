"""Stages × configurations while a benchmark runs, within the height and the width of the terminal."""

import threading
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from flows.cli.text import counted, cut_in_the_middle, say, visible
from tasks.progress import StageEvent, Status

MARKS: dict[Status, tuple[str, str]] = {
    "started": ("…", "yellow"),
    "retrying": ("↻", "magenta"),
    "computed": ("✓", "green"),
    "reused": ("=", "cyan"),
    "failed": ("✗", "red"),
}
LEGEND = "… at work   ✓ computed   = reused   ↻ trying again   ✗ failed"
HEADINGS = {
    "chunk": "chunk",
    "embed": "embed",
    "index": "index",
    "retrieve-by-vector": "vector",
    "retrieve-by-words": "words",
    "fuse": "fuse",
    "rerank": "rerank",
    "score": "score",
}
LAST_STAGE = "score"
NARROWEST_NAME = 20
TROUBLES = 3
"""How many retries and failures are told with their reasons at a time."""


class LiveTable:
    """A line a configuration, a column a stage; told by the threads that work.

    Where there are more configurations than lines, those that are at work or failed come first and the rest is counted.
    """

    def __init__(self, configurations: list[str]) -> None:
        self._configurations = [visible(name) for name in configurations]
        self._events: dict[tuple[str | None, str], StageEvent] = {}
        self._lock = threading.Lock()
        self._shown: list[int] = []
        self._log: Console | None = None
        self._finished: set[str] = set()

    def told(self, event: StageEvent) -> None:
        """Take note of an event."""
        name = None if event.configuration is None else visible(event.configuration)
        with self._lock:
            self._events.pop((name, event.stage), None)
            self._events[name, event.stage] = event
            if self._log is not None and name is not None and name not in self._finished:
                self._log_if_finished(self._log, name, event)

    def _log_if_finished(self, console: Console, name: str, event: StageEvent) -> None:
        if event.status != "failed" and (event.stage != LAST_STAGE or event.status not in ("computed", "reused")):
            return
        self._finished.add(name)
        word = "failed" if event.status == "failed" else "done"
        say(console, f"rag-eval: {len(self._finished)} of {len(self._configurations)} {word}: {name}")

    def shown(self, console: Console) -> Live:
        """The table on a terminal, kept up to date; where the output is none, a line for each one that is finished."""
        self._log = None if console.is_terminal else console
        return Live(self, console=console, refresh_per_second=4, transient=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield self._erasing_what_was_wrapped(width)
        # One line less than there are, because the cursor ends up below the last.
        lines = self.lines(width, options.size.height - 1)
        self._shown = [cell_len(line.plain) for line in lines]
        yield from lines

    def _erasing_what_was_wrapped(self, width: int) -> Control:
        """A terminal that was made narrower has wrapped the lines shown before; Rich would leave the rest of them."""
        wrapped = sum((cells - 1) // width for cells in self._shown if cells > width)
        return Control(*((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * wrapped)

    def lines(self, width: int, height: int) -> list[Text]:
        """What is shown at a size, each line no wider and all together no higher than that."""
        with self._lock:
            events = dict(self._events)
        states = {name: _state(events, name) for name in self._configurations}
        below = [*_troubles(events, width), Text(_tally(states, events)), Text(LEGEND, style="dim")]
        room = max(height - 1 - len(below), 1)
        names = _chosen(states, room)
        stages = [stage for stage in HEADINGS if any(of == stage and name is not None for name, of in events)]
        rows = list(_rows(names, stages, events, width))
        lines = [*rows, *below][: max(height, 1)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
        return lines


def _state(events: dict[tuple[str | None, str], StageEvent], name: str) -> str:
    found = {stage: event.status for (of, stage), event in events.items() if of == name}
    if "failed" in found.values():
        return "failed"
    if found.get(LAST_STAGE) in ("computed", "reused"):
        return "done"
    return "at work" if found else "waiting"


def _chosen(states: dict[str, str], room: int) -> list[str]:
    """The names to show, in the order given: what is at work, what failed, what comes next, what was done last."""
    if len(states) <= room:
        return list(states)
    by_state = {state: [name for name, of in states.items() if of == state] for state in set(states.values())}
    wanted = [
        *by_state.get("at work", []),
        *by_state.get("failed", []),
        *by_state.get("waiting", [])[: max(room // 4, 1)],
        *reversed(by_state.get("done", [])),
        *by_state.get("waiting", []),
    ]
    kept = set(list(dict.fromkeys(wanted))[:room])
    return [name for name in states if name in kept]


def _rows(
    names: list[str], stages: list[str], events: dict[tuple[str | None, str], StageEvent], width: int
) -> Iterator[Text]:
    """A heading and a line for each name; where there is no room for columns, its latest stage instead."""
    columns = [len(HEADINGS[stage]) + 1 for stage in stages]
    longest = max((cell_len(name) for name in names), default=0)
    room = width - sum(columns) - 1
    if stages and room < min(longest, NARROWEST_NAME):
        for name in names:
            latest = next((event for (of, _), event in reversed(events.items()) if of == name), None)
            mark, style = MARKS[latest.status] if latest else ("", "")
            stage = HEADINGS.get(latest.stage, latest.stage) if latest else ""
            yield Text.assemble(cut_in_the_middle(name, width - len(stage) - 3), f" {stage} ", (mark, style))
        return
    label = min(longest, room)
    yield Text.assemble(" " * label, *((f" {HEADINGS[stage]}", "dim") for stage in stages))
    for name in names:
        line = Text(cut_in_the_middle(name, label))
        line.pad_right(label - cell_len(line.plain))
        for stage, cells in zip(stages, columns, strict=True):
            event = events.get((name, stage))
            mark, style = MARKS[event.status] if event else ("", "")
            line.append(f" {mark}".ljust(cells), style)
        yield line


def _troubles(events: dict[tuple[str | None, str], StageEvent], width: int) -> list[Text]:
    """Why stages are tried again or have failed, the same reason once, the latest last."""
    found: dict[tuple[Status, str, str], list[str]] = {}
    for (name, stage), event in events.items():
        if event.reason:
            found.setdefault((event.status, stage, visible(event.reason)), []).append(name or "all")
    lines = []
    for (status, stage, reason), names in found.items():
        mark, style = MARKS[status]
        whose = counted(len(names), "configurations") if len(names) > 1 else cut_in_the_middle(names[0], NARROWEST_NAME)
        where = f"{mark} {stage} ({whose}): "
        lines.append(Text(where + cut_in_the_middle(reason, width - cell_len(where)), style=style))
    return lines[-TROUBLES:]


def _tally(states: dict[str, str], events: dict[tuple[str | None, str], StageEvent]) -> str:
    reached = list(states.values())
    if set(reached) == {"waiting"}:
        latest = next((event.stage for (name, _), event in reversed(events.items()) if name is None), None)
        return f"{counted(len(reached), 'configurations')}; {latest.replace('-', ' ') if latest else 'starting'} …"
    parts = [
        f"{reached.count(state)} {state}" for state in ("done", "at work", "waiting", "failed") if state in reached
    ]
    return f"{counted(len(reached), 'configurations')}: {', '.join(parts)}"
