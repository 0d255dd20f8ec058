"""The live table fits the terminal, whatever its size, and shows what matters; elsewhere there are lines."""

import io
import itertools
from importlib import import_module
from pathlib import Path
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st
from prefect import Task
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Failed, Running
from rich.cells import cell_len
from rich.console import Console

import tasks
from flows.benchmark import benchmark, evaluate_chunking
from rag_eval.cli.live_table import LiveTable, RunFollower, StepRun

STEPS = ["chunk", "embed", "index", "retrieve", "score"]
ROWS = ["all", *(f"recursive-token {size}/0, with neighbours of 200 tokens" for size in range(40))]


def table(*runs: tuple[str, str, str]) -> LiveTable:
    live = LiveTable(40, itertools.chain([0.0], itertools.repeat(65.0)).__next__)
    live.runs = [StepRun(*run) for run in runs]
    return live


def shown(live: LiveTable, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    return [line.rstrip() for line in "".join(segment.text for segment in console.render(live)).splitlines()]


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    st.integers(50, 130),
    st.integers(1, 60),
    st.lists(
        st.tuples(
            st.sampled_from(ROWS),
            st.sampled_from(STEPS),
            st.sampled_from(["Pending", "Running", "AwaitingRetry", "Completed", "Cached", "Failed"]),
        ),
        max_size=60,
    ),
)
def test_it_is_never_wider_or_higher_than_the_terminal(
    width: int, height: int, runs: list[tuple[str, str, str]]
) -> None:
    lines = shown(table(*runs), width, height)
    assert len(lines) <= max(height - 1, 2)
    assert max(map(cell_len, lines)) <= width


def test_a_row_counts_the_task_runs_of_each_step_by_their_state() -> None:
    first, second = ROWS[1:3]
    embeds = [(first, "embed", "Completed")] * 3 + [(first, "embed", "Running")] * 2
    found = table(("all", "corpus", "Cached"), (first, "chunk", "Cached"), *embeds, (second, "chunk", "AwaitingRetry"))
    head, shared, one, other, below, legend = shown(found, 120, 60)
    assert head.split() == ["corpus", "chunk", "embed"]
    assert shared.split() == ["all", "="]
    assert one.split()[-3:] == ["=", "✓3", "…2"]
    assert other.split()[-1] == "·"
    assert below == "40 configurations, 1:05"
    assert all(mark in legend for mark in "=✓…·✗")


def test_what_is_at_work_or_failed_is_shown_where_there_is_no_room_for_all() -> None:
    done = [(row, "score", "Completed") for row in ROWS[:30]]
    lines = shown(table(*done, (ROWS[35], "embed", "Running"), (ROWS[36], "embed", "Failed")), 100, 9)
    assert len(lines) == 8
    assert any(line.startswith("recursive-token 34/0") and line.endswith("…") for line in lines)
    assert any(line.startswith("recursive-token 35/0") and line.endswith("✗") for line in lines)


def flow_run(name: str, *, is_subflow: bool) -> FlowRun:
    return FlowRun(flow_id=uuid4(), name=name, parent_task_run_id=uuid4() if is_subflow else None)


def test_where_nobody_looks_each_finished_chunking_is_a_line() -> None:
    out = io.StringIO()
    follower = RunFollower(Console(file=out, force_terminal=False, width=20), 3)
    ugly = "evil \x1b[2J of a name that is longer than the line"
    events: list[tuple[str, bool, State]] = [
        ("benchmark", False, Running()),
        ("sentence", True, Running()),
        (ugly, True, Failed()),
        ("sentence", True, Completed()),
        ("benchmark", False, Completed()),
    ]
    with follower.shown():
        for name, is_subflow, state in events:
            run = flow_run(name, is_subflow=is_subflow)
            follower.notice(evaluate_chunking if is_subflow else benchmark, run, state)
    assert out.getvalue().splitlines() == [
        "rag-eval: 1: evil \\x1b[2J of a name that is longer than the line: failed",
        "rag-eval: 2: sentence: completed",
    ]


def test_on_a_terminal_nothing_of_it_is_left() -> None:
    out = io.StringIO()
    follower = RunFollower(Console(file=out, force_terminal=True, width=80, height=12, legacy_windows=False), 3)
    with follower.shown():
        follower.notice(evaluate_chunking, flow_run("sentence", is_subflow=True), Completed())
    assert "sentence" not in out.getvalue()  # which the table shows as soon as the server tells of its tasks
    cursor = 0
    for part in out.getvalue().replace("\x1b[1A", "\0").replace("\n", "\1"):
        cursor += {"\0": -1, "\1": 1}.get(part, 0)
    assert cursor == 0  # back where it began, and every line below was erased on the way


def test_every_task_of_a_step_has_one_tag_of_a_step() -> None:
    modules = [import_module(f"tasks.{path.stem}") for path in Path(tasks.__file__).parent.glob("*.py")]
    ours = {task.name: task.tags for module in modules for task in vars(module).values() if isinstance(task, Task)}
    steps = {name: {step for step in tasks.STEPS if step in tags} for name, tags in ours.items()}
    outside = {"conclude", "report", "publish_run", "upload_truth"}
    assert {name for name, found in steps.items() if len(found) != 1} == outside
    assert set().union(*steps.values()) == set(tasks.STEPS)
    assert (steps["add_context"], steps["prepare_queries"]) == ({"chunk"}, {"retrieve"})
