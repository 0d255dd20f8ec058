"""Where rows come from, and what is said when they do not."""

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import ExperimentError
from rag_eval.experiments import data as reading
from rag_eval.experiments.evaluators import ExactMatch
from rag_eval.experiments.running import experiment
from tests.experiments.conftest import HELLO, quietly


async def rows_later() -> AsyncIterator[dict[str, str]]:
    for row in HELLO:
        await asyncio.sleep(0)
        yield row


async def rows_awaited() -> list[dict[str, str]]:
    return HELLO


def rows_one_by_one() -> Iterator[dict[str, str]]:
    yield from HELLO


@pytest.mark.parametrize("data", [HELLO, iter(HELLO), rows_later(), rows_later, rows_awaited, rows_one_by_one])
def test_rows_come_from_anything_that_gives_them(data: Any) -> None:
    result = quietly("rows", data=data, tasks=[lambda row: row["output"]], evaluators=[ExactMatch])
    assert [item.output for item in result.results] == ["I'm good, thank you!"]
    assert result.averages["ExactMatch"].n == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", b'{"input": "a\\u2028", "output": "b"}\n\n'),
        ("rows.csv", '\ufeffinput,output\r\n"a\u2028",b\r\n'.encode()),
    ],
)
def test_rows_come_from_files(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    result = quietly("file", data=name, tasks=[lambda row: row["input"]], evaluators=[])
    assert result.results[0].task_results == ["a\u2028"]


def test_rows_come_from_parquet() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"input": ["a", "b"], "output": ["a", "x"]}), "rows.parquet")
    result = quietly("file", data=Path("rows.parquet"), tasks=[lambda row: row["input"]], evaluators=[ExactMatch])
    assert result.averages["ExactMatch"].mean == 0.5


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"input": 1}\n{"inp', "line 2 of 'a.jsonl' is not JSON"),
        ("a.jsonl", b"[1]\n", "line 1 of 'a.jsonl' is not an object"),
        (
            "a.jsonl",
            b"[" * 100_000 + b"]" * 100_000,
            "line 1 of 'a.jsonl' is not JSON: recursion limit",
        ),
        ("a.csv", b"input,output\na\n", "line 2 of 'a.csv' does not have the header's 2 cells"),
        ("a.csv", b"input,output\na,b,c\n", "line 2 of 'a.csv' does not have the header's 2 cells"),
        ("a.parquet", b"none", "'a.parquet' is not Parquet"),
        ("a.xml", b"", "'a.xml' is not a data file"),
    ],
)
def test_a_broken_file_is_named_with_its_line(name: str, content: bytes, sentence: str) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(ExperimentError, match=re.escape(sentence)):
        quietly("file", data=name, tasks=[str], evaluators=[])


@pytest.mark.parametrize("data", [[], iter(()), "rows.csv"])
def test_data_without_rows_is_no_success(data: Any) -> None:
    Path("rows.csv").write_text("input,output\n")
    with pytest.raises(ExperimentError, match="the data has no rows"):
        quietly("none", data=data, tasks=[str], evaluators=[ExactMatch])
    assert list(Path().rglob("*.json*")) == []


def test_data_that_breaks_off_is_told_with_what_it_said() -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"input": 1}
        raise OSError("the tap is dry")

    with pytest.raises(ExperimentError, match="reading the data failed after 1 rows: OSError: the tap is dry"):
        quietly("dry", data=rows, tasks=[lambda row: 1], evaluators=[])


def test_a_row_that_is_no_mapping_is_named() -> None:
    with pytest.raises(ExperimentError, match="row 1 is a str"):
        quietly("wrong", data=[{"input": 1}, "row"], tasks=[str], evaluators=[])


def test_a_source_that_is_slow_holds_up_no_call() -> None:
    worked = threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        yield {"input": 1}
        # The first row can be worked on only while the second is waited for.
        yield {"input": 2 if worked.wait(10) else 0}

    async def work(row: Any) -> int:
        await asyncio.sleep(0)
        worked.set()
        return int(row["input"])

    result = quietly("slow", data=rows(), tasks=[work])
    assert [item.task_results for item in result.results] == [[1], [2]]


def test_a_source_is_opened_and_read_on_one_thread() -> None:
    def opened() -> Iterator[dict[str, Any]]:
        # SQLite refuses to be used on another thread than its own.
        found = sqlite3.connect(":memory:").execute("WITH n(x) AS (VALUES (1), (2), (3)) SELECT x FROM n")
        return ({"input": number} for (number,) in found)

    assert quietly("sql", data=opened, tasks=[lambda row: row["input"]]).total == 3


def test_a_source_that_hangs_does_not_keep_a_cancelled_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CLOSE_SECONDS", 0.01)
    asked, let_go, closed = threading.Event(), threading.Event(), threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        try:
            asked.set()
            let_go.wait(60)
            yield {"input": 1}
        finally:
            closed.set()

    async def notebook() -> None:
        running = asyncio.ensure_future(experiment("hung", data=rows(), tasks=[str], outputs=[]))
        await asyncio.to_thread(asked.wait, 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(notebook())
    assert not closed.is_set()
    let_go.set()
    assert closed.wait(60)


def test_generators_are_closed_when_the_run_ends_early() -> None:
    closed: list[str] = []

    async def later() -> AsyncIterator[dict[str, int]]:
        try:
            while True:
                yield {"input": 1}
        finally:
            await asyncio.sleep(0)
            closed.append("async")

    def plain(row: Any) -> Iterator[Any]:
        try:
            while True:
                yield row
        finally:
            closed.append("sync")

    async def work(row: Any) -> int:
        await asyncio.sleep(0.001)
        return 1

    async def notebook() -> None:
        for data in (later(), plain({"input": 1})):
            running = asyncio.ensure_future(experiment("early", data=data, tasks=[work], outputs=[]))
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        with pytest.raises(ExperimentError, match="row 0 is a str"):
            await experiment("early", data=plain("no row"), tasks=[work], outputs=[])
        # Looked at before the loop ends, which would close them as well.
        assert closed == ["async", "sync", "sync"]

    asyncio.run(notebook())
