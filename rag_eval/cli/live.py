"""The progress of a benchmark on a terminal: configurations × stages, within its height and width."""

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import get_args

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from rag_eval.benchmark.grid_search import Settled
from rag_eval.benchmark.running import SEARCH, StageEvent, Status
from rag_eval.cli.console import cut_in_the_middle, say, told_apart, visible
from rag_eval.formatting import MINUTE, counted, percent, time_in_short

SETTLED: tuple[Settled, ...] = get_args(Settled)
MARKS: dict[Status, tuple[str, str]] = {
    "started": ("…", "yellow"),
    "waiting": ("·", "yellow"),
    "retrying": ("↻", "magenta"),
    "computed": ("✓", "green"),
    "reused": ("=", "cyan"),
    "failed": ("✗", "red"),
    "told": ("", ""),
    **dict.fromkeys(SETTLED, ("", "")),
}
LEGEND = "… running   · waiting   ✓ computed   = reused   ↻ retrying   ✗ failed"
WORDS: dict[Status, str] = {"waiting": "waits", "retrying": "is retried"}
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
STAGE_CELLS = max(map(len, HEADINGS.values())) + 6
TROUBLES = 3
"""How many waits, retries and failures are shown with their reasons at a time."""

FINISHED = ("computed", "reused", "failed")
TIMED_FROM = 3.0
"""Seconds after which a running stage shows its time."""

Times = dict[tuple[str | None, str], tuple[float, float | None]]
"""When each stage of each configuration began, and when it ended."""

Events = dict[tuple[str | None, str], StageEvent]
"""The latest event of each stage of each configuration, in the order they came."""


class LiveTable:
    """A table with a line for each configuration and a column for each stage, updated by the threads that do the work.

    Where there are more configurations than lines, those that run or failed come first and the rest is counted.
    """

    def __init__(self, configurations: list[str], clock: Callable[[], float] = monotonic) -> None:
        self._configurations = [visible(name) for name in configurations]
        self._clock, self._began = clock, clock()
        self._times: Times = {}
        self._events: Events = {}
        self._lock = threading.Lock()
        self._shown: list[int] = []
        self._log: Console | None = None
        self._finished: set[str] = set()

    def update(self, event: StageEvent) -> None:
        """Record an event, and say on a console that is no terminal what it means."""
        name = None if event.configuration is None else visible(event.configuration)
        with self._lock:
            self._events.pop((name, event.stage), None)
            self._events[name, event.stage] = event
            begun = self._times.get((name, event.stage))
            # A stage that is tried again or waited for another is still the same work.
            if event.status in FINISHED and begun is not None:
                self._times[name, event.stage] = begun[0], self._clock()
            elif begun is None or begun[1] is not None:
                self._times[name, event.stage] = self._clock(), None
            if self._log is not None:
                self._print_event(self._log, name, event)

    def _print_event(self, console: Console, name: str | None, event: StageEvent) -> None:
        """Print that a configuration has finished, or why a stage has not."""
        is_done = event.stage == LAST_STAGE and event.status in ("computed", "reused")
        is_settled = event.status in ("failed", *SETTLED)
        if name is not None and name not in self._finished and (is_done or is_settled):
            self._finished.add(name)
            word = "done" if is_done else event.status
            say(console, f"rag-eval: {len(self._finished):,} of {len(self._configurations):,}: {name}: {word}")
        elif event.status in ("waiting", "retrying"):
            where = event.stage if name is None else f"{name}: {event.stage}"
            say(console, f"rag-eval: {where} {WORDS[event.status]}: {event.reason}")

    def shown(self, console: Console) -> Live:
        """The table on a terminal, kept up to date; elsewhere a line for each configuration that has finished."""
        self._log = None if console.is_terminal else console
        return Live(self, console=console, refresh_per_second=4, transient=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        # Lines that a terminal wrapped when it was made narrower, which Rich would leave, are erased.
        wrapped = sum((cells - 1) // width for cells in self._shown if cells > width)
        yield Control(*((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * wrapped)
        # One line less than there are, because the cursor ends up below the last.
        lines = self.lines(width, options.size.height - 1)
        self._shown = [cell_len(line.plain) for line in lines]
        yield from lines

    def lines(self, width: int, height: int) -> list[Text]:
        """The lines to show, no wider and together no higher than this size."""
        with self._lock:
            events, times, now = dict(self._events), dict(self._times), self._clock()
        states = {name: _state(events, name) for name in self._configurations}
        below = [
            *_troubles(self._configurations, events, width),
            Text(f"{_tally(states, events)}; {_elapsed(states, times, now - self._began, now)}"),
            Text(LEGEND, style="dim"),
        ]
        room = max(height - 1 - len(below), 1)
        names = _chosen(states, room)
        stages = [stage for stage in HEADINGS if any(of == stage and name is not None for name, of in events)]
        running = {key: now - begun for key, (begun, ended) in times.items() if ended is None}
        rows = list(_rows(names, self._configurations, stages, events, running, width))
        lines = [*rows, *below][: max(height, 1)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
        return lines


def _state(events: Events, name: str) -> str:
    found = {stage: event.status for (of, stage), event in events.items() if of == name}
    if "failed" in found.values():
        return "failed"
    if found.get(LAST_STAGE) in ("computed", "reused"):
        return "done"
    settled = found.pop(SEARCH, "waiting")
    return "running" if found else settled


def _chosen(states: dict[str, str], room: int) -> list[str]:
    """The names to show, in the order given: what runs, what failed, what comes next, what was done last."""
    if len(states) <= room:
        return list(states)
    by_state = {state: [name for name, of in states.items() if of == state] for state in set(states.values())}
    wanted = [
        *by_state.get("running", []),
        *by_state.get("failed", []),
        *by_state.get("waiting", [])[: max(room // 4, 1)],
        *reversed(by_state.get("done", [])),
        *by_state.get("waiting", []),
        *(name for state in SETTLED for name in by_state.get(state, [])),
    ]
    kept = set(list(dict.fromkeys(wanted))[:room])
    return [name for name in states if name in kept]


def _rows(
    names: list[str],
    all_names: list[str],
    stages: list[str],
    events: Events,
    running: dict[tuple[str | None, str], float],
    width: int,
) -> Iterator[Text]:
    """A heading and a line for each name; where there is no room for columns, its latest stage instead."""
    columns = [len(HEADINGS[stage]) + 1 for stage in stages]
    longest = max(map(cell_len, all_names), default=0)
    room = width - sum(columns) - 1
    beside_stage = width - STAGE_CELLS
    in_columns, alone = (told_apart(tuple(all_names), max(cells, 0)) for cells in (room, beside_stage))
    is_ambiguous = len(set(in_columns.values())) < len(set(alone.values()))
    if stages and (room < min(longest, NARROWEST_NAME) or is_ambiguous):
        for name in names:
            latest = next((event for (of, _), event in reversed(events.items()) if of == name), None)
            mark, style = _mark(latest, running.get((name, latest.stage))) if latest else ("", "")
            stage = HEADINGS.get(latest.stage, latest.stage) if latest else ""
            yield Text.assemble(alone[name], f" {stage} ", (mark, style))
        return
    label = min(longest, room)
    yield Text.assemble(" " * label, *((f" {HEADINGS[stage]}", "dim") for stage in stages))
    for name in names:
        line = Text(in_columns[name])
        line.pad_right(label - cell_len(line.plain))
        for stage, cells in zip(stages, columns, strict=True):
            event = events.get((name, stage))
            mark, style = _mark(event, running.get((name, stage))) if event else ("", "")
            line.append(f" {mark}".ljust(cells), style)
        yield line


def _mark(event: StageEvent, seconds: float | None) -> tuple[str, str]:
    """The mark of a stage and its style: how much of it is done where that is known, or its time after a while."""
    mark, style = MARKS[event.status]
    if event.done is not None:
        done, total = event.done
        return percent(min(0.99, done / total)), style
    is_long = event.status == "started" and seconds is not None and seconds >= TIMED_FROM
    return (time_in_short(seconds or 0) if is_long else mark), style


def _elapsed(states: dict[str, str], times: Times, elapsed: float, now: float) -> str:
    """How long it has taken, and about how long the rest takes by what the stages took so far.

    A configuration has the stages that any has had. What was done at the same time so far will be so again.
    """
    told = f"{int(elapsed // MINUTE)}:{int(elapsed % MINUTE):02}"
    took: dict[str, list[float]] = {}
    for (name, stage), (begun, ended) in times.items():
        if name is not None and ended is not None:
            took.setdefault(stage, []).append(ended - begun)
    if "done" not in states.values():
        return told
    usual = {stage: sum(seconds) / len(seconds) for stage, seconds in took.items()}
    rest = 0.0
    for name in (name for name, state in states.items() if state in ("running", "waiting")):
        for stage, seconds in usual.items():
            begun, ended = times.get((name, stage), (now, None))
            rest += 0.0 if ended is not None else max(0.0, seconds - (now - begun))
    first = min(begun for (name, _), (begun, _) in times.items() if name is not None)
    at_once = max(1.0, sum(map(sum, took.values())) / max(now - first, 1e-9))
    return f"{told}, about {time_in_short(rest / at_once)} left" if rest / at_once >= 1 else told


def _troubles(all_names: list[str], events: Events, width: int) -> list[Text]:
    """Why stages wait, are retried or have failed: each reason once, the latest last."""
    short = told_apart(tuple(all_names), NARROWEST_NAME)
    found: dict[tuple[Status, str, str], list[str]] = {}
    for (name, stage), event in events.items():
        if event.reason and event.status != "told":
            found.setdefault((event.status, stage, visible(event.reason)), []).append(name or "all")
    lines = []
    for (status, stage, reason), names in found.items():
        mark, style = MARKS[status]
        whose = counted(len(names), "configurations") if len(names) > 1 else short.get(names[0], names[0])
        where = f"{mark} {stage} ({whose}): "
        lines.append(Text(where + cut_in_the_middle(reason, width - cell_len(where)), style=style))
    return lines[-TROUBLES:]


def _tally(states: dict[str, str], events: Events) -> str:
    reached = list(states.values())
    if set(reached) == {"waiting"}:
        latest = next((event for (name, _), event in reversed(events.items()) if name is None), None)
        stage = latest.stage.replace("-", " ") if latest else "starting"
        far = f" {latest.done[0]:,} of {latest.done[1]:,}" if latest and latest.done else ""
        return f"{counted(len(reached), 'configurations')}; {stage}{far} …"
    order = ("done", "running", "waiting", "failed", *SETTLED)
    parts = [f"{reached.count(state):,} {state}" for state in order if state in reached]
    shared = [event for (name, _), event in events.items() if name is None and event.status == "started"]
    spent = events.get((None, SEARCH))
    told = [*(one.stage for one in shared[-1:]), *([spent.reason or ""] if spent else [])]
    return "; ".join([f"{counted(len(reached), 'configurations')}: {', '.join(parts)}", *told])
