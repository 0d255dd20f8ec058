"""The live table fits the terminal, whatever its size, and shows what matters."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rag_eval.benchmark.running import StageEvent, Status
from rich.cells import cell_len
from rich.console import Console

from rag_eval.cli.live import LiveTable

STAGES = ["chunk", "embed", "index", "retrieve-by-vector", "retrieve-by-words", "fuse", "rerank", "score"]
NAMES = [f"recursive-token {size}/0, hybrid, openai text-embedding-3-small" for size in range(40)]


def table(*events: tuple[str | None, str, Status]) -> LiveTable:
    found = LiveTable(NAMES)
    for name, stage, status in events:
        found.update(StageEvent(name, stage, status, "the service is away" if status == "retrying" else None))
    return found


def shown(found: LiveTable, width: int, height: int) -> list[str]:
    return [line.plain.rstrip() for line in found.lines(width, height)]


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    st.integers(1, 130),
    st.integers(1, 60),
    st.lists(
        st.tuples(
            st.sampled_from([None, *NAMES]),
            st.sampled_from(STAGES),
            st.sampled_from(["started", "retrying", "computed", "reused", "failed"]),
        ),
        max_size=60,
    ),
)
def test_it_is_never_wider_or_higher_than_the_terminal(
    width: int, height: int, events: list[tuple[str | None, str, Status]]
) -> None:
    lines = shown(table(*events), width, height)
    assert 1 <= len(lines) <= height
    assert max(map(cell_len, lines)) <= width


def test_what_is_at_work_or_failed_is_shown_before_what_waits_or_is_done() -> None:
    done = [(NAMES[number], "score", "computed") for number in range(15)]
    lines = shown(table(*done, (NAMES[20], "embed", "started"), (NAMES[30], "embed", "failed")), 80, 10)
    assert len(lines) == 10
    assert any(line.startswith("recursive-token 20/0") and "…" in line[-20:] for line in lines)
    assert any(line.startswith("recursive-token 30/0") and "✗" in line for line in lines)
    assert any(line.startswith("40 configurations: 15 done, 1 running, 23 waiting, 1 failed; 0:00") for line in lines)


def test_a_long_name_is_cut_and_a_row_is_one_line() -> None:
    lines = shown(table(*((NAMES[0], stage, "computed") for stage in STAGES)), 80, 60)
    (row,) = [line for line in lines if "✓" in line and line != lines[-1]]
    assert row.startswith("recursive-token 0/0, …-3-small")  # no word is cut
    assert "…" in row
    assert "3-small" in row
    assert row.count("✓") == len(STAGES)
    assert lines[0].split() == ["chunk", "embed", "index", "vector", "words", "fuse", "rerank", "score"]


def test_cut_names_can_be_told_apart() -> None:
    at_work: list[tuple[str | None, str, Status]] = [(name, stage, "started") for name in NAMES for stage in STAGES]
    rows = [line for line in shown(table(*at_work), 80, 60) if line.startswith("recursive")]
    assert len({row[:30] for row in rows}) == len(rows) == len(NAMES)
    assert all("…" in row[:30] and row.count("…") == 1 + len(STAGES) for row in rows)


def test_names_that_differ_only_in_what_columns_leave_out_have_their_stage_beside_them() -> None:
    names = [f"{here} {'a' * 28} {middle} {'b' * 28} {there}" for here in "12" for middle in "34" for there in "56"]
    found = LiveTable(names)
    for name in names:
        for stage in STAGES:
            found.update(StageEvent(name, stage, "computed"))
    lines = shown(found, 80, 60)
    assert [line for line in lines if "aaa" in line] == [f"{name} score ✓" for name in names]


def test_a_narrow_terminal_shows_the_stage_instead_of_columns() -> None:
    lines = shown(table((NAMES[0], "chunk", "computed"), (NAMES[0], "embed", "started")), 24, 60)
    assert lines[0].endswith("embed …")
    assert "chunk" not in lines[0]


def test_how_far_a_stage_has_come_is_shown() -> None:
    found = table((NAMES[0], "chunk", "computed"), (NAMES[0], "embed", "started"))
    found.update(StageEvent(NAMES[0], "embed", "started", done=(421, 1_000)))
    assert any(line.endswith(" ✓     42 %") for line in shown(found, 100, 60))
    assert shown(found, 24, 60)[0].endswith("embed 42 %")
    found = LiveTable(NAMES)
    found.update(StageEvent(None, "load-ground-truth", "started", done=(3, 1_200)))
    assert "40 configurations; load ground truth 3 of 1,200 …; 0:00" in shown(found, 100, 60)


def test_retries_are_told_with_their_reason() -> None:
    found = table((NAMES[3], "embed", "retrying"))
    assert "↻ embed (recursive-token 3/0…): the service is away" in shown(found, 120, 60)
    found.update(StageEvent(NAMES[4], "embed", "retrying", "the service is away"))
    assert "↻ embed (2 configurations): the service is away" in shown(found, 120, 60)
    found.update(StageEvent(NAMES[4], "embed", "computed"))
    found.update(StageEvent(NAMES[3], "embed", "computed"))
    assert not any("the service is away" in line for line in shown(found, 120, 60))


def test_what_is_done_before_the_configurations_is_said() -> None:
    lines = shown(table((None, "load-corpus", "started")), 80, 60)
    assert any(line.startswith("40 configurations; load corpus …; 0:00") for line in lines)


def test_elapsed_time_the_rest_and_how_long_a_stage_has_run_are_told() -> None:
    clock = [0.0]
    found = LiveTable(NAMES[:3], lambda: clock[0])

    def at(seconds: float, *events: tuple[str | None, str, Status]) -> str:
        clock[0] = seconds
        for event in events:
            found.update(StageEvent(*event))
        return "\n".join(shown(found, 120, 20))

    assert "3 configurations; load corpus …; 0:00" in at(0, (None, "load-corpus", "started"))
    at(5, (None, "load-corpus", "computed"), (NAMES[0], "chunk", "started"), (NAMES[1], "chunk", "started"))
    assert "left" not in at(15, (NAMES[0], "chunk", "computed"), (NAMES[0], "score", "started"))
    # Chunking took 10 s and 20 s, scoring 10 s; two at once: 10 s of scoring and 25 s of the third remain.
    told = at(25, (NAMES[1], "chunk", "computed"), (NAMES[0], "score", "computed"), (NAMES[1], "score", "started"))
    assert "3 configurations: 1 done, 1 running, 1 waiting; 0:25, about 18s left" in told
    searching = at(25, (None, "narrow sentence 100/0: best 0.900, others at most 0.950", "started"))
    assert "1 waiting; narrow sentence 100/0: best 0.900, others at most 0.950; 0:25" in searching
    at(25, (None, "narrow sentence 100/0: best 0.900, others at most 0.950", "computed"))
    assert " 5s" in at(30)
    at(35, (NAMES[1], "score", "computed"), (NAMES[2], "chunk", "started"), (NAMES[2], "chunk", "computed"))
    at(36, (NAMES[2], "score", "started"), (NAMES[2], "score", "computed"))
    assert "3 configurations: 3 done; 2:05" in at(125)


def test_a_search_tells_what_is_spent_and_what_need_not_be_evaluated() -> None:
    found = LiveTable(NAMES[:5])
    events: list[tuple[str | None, str, Status, str | None]] = [
        (None, "search", "told", "12,000 tokens spent, 8,000 left"),
        (NAMES[0], "score", "computed", None),
        (NAMES[1], "search", "excluded", None),
        (NAMES[2], "search", "estimated", None),
        (NAMES[3], "search", "excluded", None),
        (NAMES[3], "chunk", "started", None),
        (NAMES[4], "search", "open", None),
    ]
    for event in events:
        found.update(StageEvent(*event))
    told = "5 configurations: 1 done, 1 running, 1 excluded, 1 estimated, 1 open; 12,000 tokens spent, 8,000 left; 0:00"
    assert told in shown(found, 120, 20)
    out = io.StringIO()
    with found.shown(Console(file=out, width=120)):
        found.update(StageEvent(*events[2]))
    assert out.getvalue() == f"rag-eval: 1 of 5: {NAMES[1]}: excluded\n"


def test_a_name_cannot_steer_the_terminal() -> None:
    found = LiveTable(["evil \x1b[2J, vector"])
    found.update(StageEvent("evil \x1b[2J, vector", "chunk", "failed", "\x1b]0;title\x07"))
    assert "\x1b" not in "".join(shown(found, 80, 20))


@pytest.mark.parametrize("width", [80, 40])
def test_on_a_terminal_nothing_of_it_is_left(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=12, legacy_windows=False)
    with table((NAMES[0], "embed", "started")).shown(console) as live:
        live.refresh()
    cursor = lowest = 0
    for part in out.getvalue().replace("\x1b[1A", "\0").replace("\n", "\1"):
        cursor += {"\0": -1, "\1": 1}.get(part, 0)
        lowest = max(lowest, cursor)
    assert cursor == 0  # back where it began, and every line below was erased on the way
    assert 5 < lowest < 12


def test_where_nobody_looks_what_is_finished_or_held_up_is_a_line() -> None:
    out = io.StringIO()
    found = LiveTable(NAMES[:3])
    with found.shown(Console(file=out, force_terminal=False, width=20)):
        for event in (
            StageEvent(None, "corpus", "computed"),
            StageEvent(NAMES[0], "chunk", "computed"),
            StageEvent(NAMES[0], "score", "started"),
            StageEvent(NAMES[0], "score", "computed"),
            StageEvent(NAMES[2], "embed", "retrying", "the service is away"),
            StageEvent(NAMES[2], "embed", "failed"),
            StageEvent(NAMES[2], "retrieve-by-words", "failed"),
            StageEvent(NAMES[1], "score", "waiting", "another run makes it"),
            StageEvent(NAMES[1], "score", "reused"),
        ):
            found.update(event)
    assert out.getvalue().splitlines() == [
        f"rag-eval: 1 of 3: {NAMES[0]}: done",
        f"rag-eval: {NAMES[2]}: embed is retried: the service is away",
        f"rag-eval: 2 of 3: {NAMES[2]}: failed",
        f"rag-eval: {NAMES[1]}: score waits: another run makes it",
        f"rag-eval: 3 of 3: {NAMES[1]}: done",
    ]
