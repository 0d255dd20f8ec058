"""Running stage tasks on a real Prefect server: what is tried again, dropped, told and counted."""

import logging
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from prefect import flow
from rag_eval.benchmark.running import StageEvent, StageRunner, listening
from rag_eval.benchmark.stage import stage
from tasks.runner import as_task

from rag_eval.benchmark import stages
from rag_eval.benchmark.outcome import StageWork
from rag_eval.disk.locks import wait_for_lock
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ConfigurationFailedError, RagEvalError, ServiceError
from rag_eval.parts import part
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunks_to_table
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id
from tests.doubles.openai_server import OpenAIServer, Status

pytestmark = pytest.mark.usefixtures("prefect_server")
KEY = "sk-test-0123456789-abcdef"
TEXTS = ["one", "two", "three"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(api_key=KEY) as running:
        yield running


@flow
def embedding(workspace: Workspace, embedder: OpenAIEmbedder, texts: list[str]) -> StageRunner:
    chunks = [PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(text), 0, len(text)) for text in texts]
    table = workspace.write_table("chunks", chunks_to_table(sorted(chunks, key=lambda chunk: chunk.doc_id)))
    with StageRunner(workspace, "the configuration", do=as_task, retry_delays=[0.01, 0.01]).accounting() as run:
        run(stages.embed, [table], embedder)
    return run


def embedder_of(server: OpenAIServer, **settings: object) -> OpenAIEmbedder:
    return OpenAIEmbedder(model="tiny", base_url=server.base_url, max_retries=0, **settings)  # type: ignore[arg-type]


def test_a_service_that_comes_back_is_asked_again_and_that_is_told(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults += [Status(500, "the model\nis on fire"), Status(503)]
    events: list[StageEvent] = []
    with listening(events.append):
        run = embedding(Workspace(root=tmp_path), embedder_of(server), TEXTS)
    assert [event.status for event in events] == ["started", "retrying", "retrying", "computed"]
    assert {(event.configuration, event.stage) for event in events} == {("the configuration", "embed")}
    assert "answered 500" in (events[1].reason or "")
    assert "\n" not in (events[1].reason or "")
    assert KEY not in str(events)
    effort = run.work["embed"].effort
    assert effort is not None
    assert (effort.fresh, effort.total, effort.cost) == (3, 3, None)
    assert effort.tokens


def test_what_a_priced_service_took_is_known_on_reuse_too(server: OpenAIServer, tmp_path: Path) -> None:
    workspace, priced = Workspace(root=tmp_path), embedder_of(server, price_per_million_tokens=1000.0)
    first = embedding(workspace, priced, TEXTS).work["embed"]
    again = embedding(workspace, priced, TEXTS).work["embed"]
    assert first.effort is not None
    assert first.effort.tokens is not None
    assert first.effort.cost == pytest.approx(first.effort.tokens / 1000)
    assert (again.work, again.effort) == ("reused", first.effort)
    grown = embedding(workspace, priced, [*TEXTS, "four"]).work["embed"].effort
    assert grown is not None
    assert (grown.fresh, grown.total) == (1, 4)
    # All four were read, and one was paid for.
    assert (grown.tokens or 0) > first.effort.tokens
    assert grown.cost is not None
    assert 0 < grown.cost < first.effort.cost


def test_a_service_that_stays_away_fails_with_the_work_counted(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults += [Status(500)] * 9
    events: list[StageEvent] = []
    with listening(events.append), pytest.raises(ConfigurationFailedError, match="answered 500") as caught:
        embedding(Workspace(root=tmp_path), embedder_of(server), TEXTS)
    assert [event.status for event in events] == ["started", "retrying", "retrying", "failed"]
    assert "answered 500" in (events[-1].reason or "")
    assert {name: work.work for name, work in caught.value.stages.items()} == {"embed": "failed"}
    assert len(server.requests) == 3


def test_a_refusal_is_told_at_once(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults += [Status(401)]
    events: list[StageEvent] = []
    with listening(events.append), pytest.raises(ConfigurationFailedError, match="refused the key"):
        embedding(Workspace(root=tmp_path), embedder_of(server), TEXTS)
    assert [event.status for event in events] == ["started", "failed"]
    assert len(server.requests) == 1


@part
class Numbers:
    """A part that decides what ``count`` makes."""

    upto: int


calls: list[str] = []


@stage("numbers", version=1)
def count(numbers: Numbers, *, context: Context) -> tuple[pa.Table, Effort]:
    calls.append("count")
    return pa.table({"n": list(range(numbers.upto))}), Effort(fresh=1, total=1, unit="texts")


@stage("numbers", version=1)
def fail_by_service(numbers: Numbers, *, context: Context) -> None:
    calls.append("fail")
    raise ServiceError("away")


@flow
def counting(workspace: Workspace) -> str:
    run = StageRunner(workspace, do=as_task)
    run(count, Numbers(upto=3))
    return run.work["count"].work


def cut(record: bytes) -> bytes:
    return record[: len(record) // 2]


@pytest.mark.parametrize(
    "damage",
    [cut, lambda record: b"", lambda record: b"\xff\0garbage", lambda record: b'{"a": 1}', lambda record: b"42"],
    ids=["cut", "empty", "garbage", "another object", "a number"],
)
def test_a_record_that_cannot_be_read_is_dropped_said_and_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    workspace = Workspace(root=tmp_path)
    assert [counting(workspace), counting(workspace)] == ["computed", "reused"]
    (record,) = (tmp_path / "records").iterdir()
    record.write_bytes(damage(record.read_bytes()))  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert counting(workspace) == "computed"
    assert f"the record {record.stem} was cut or altered: count is computed again" in caplog.text
    assert counting(workspace) == "reused"


def test_a_refresh_computes_once_a_run_and_two_runs_compute_twice(tmp_path: Path) -> None:
    @flow
    def twice(workspace: Workspace) -> list[str]:
        begun = workspace.model_copy(update={"begun": datetime.now(UTC)})
        runs = [StageRunner(begun, name) for name in ("one", "other")]
        for run in runs:
            run(count, Numbers(upto=3))
        return [run.work["count"].work for run in runs]

    workspace = Workspace(root=tmp_path)
    refreshing = workspace.model_copy(update={"refresh": True})
    assert twice(workspace) == ["computed", "reused"]
    assert twice(refreshing) == ["computed", "reused"]
    assert twice(refreshing) == ["computed", "reused"]
    assert twice(workspace) == ["reused", "reused"]


def test_a_stage_without_a_remote_part_is_not_tried_again(tmp_path: Path) -> None:
    @flow
    def failing(workspace: Workspace) -> None:
        StageRunner(workspace, retry_delays=[0.01])(fail_by_service, Numbers(upto=1))

    calls.clear()
    with pytest.raises(ServiceError, match="away"):
        failing(Workspace(root=tmp_path))
    assert calls == ["fail"]


def test_the_same_work_asked_for_at_once_is_done_once(tmp_path: Path) -> None:
    @flow
    def side_by_side(workspace: Workspace) -> None:
        ready = threading.Barrier(4)

        def work(number: int) -> str:
            ready.wait()
            run = StageRunner(workspace, f"configuration {number}")
            run(count, Numbers(upto=5))
            return run.work["count"].work

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(copy_context().run, work, number) for number in range(4)]
            assert sorted(one.result() for one in done) == ["computed", "reused", "reused", "reused"]

    calls.clear()
    side_by_side(Workspace(root=tmp_path))
    assert calls == ["count"]


def test_a_stage_tells_how_far_it_has_come(server: OpenAIServer, tmp_path: Path) -> None:
    events: list[StageEvent] = []
    with listening(events.append):
        embedding(Workspace(root=tmp_path), embedder_of(server, max_texts=1, concurrency=1), TEXTS)
    assert [event.status for event in events] == ["started", "started", "started", "computed"]
    assert [event.done for event in events] == [None, (1, 3), (2, 3), None]


def test_work_that_another_process_does_is_waited_for_and_that_is_told(tmp_path: Path) -> None:
    workspace, numbers = Workspace(root=tmp_path), Numbers(upto=5)
    held, told = threading.Event(), threading.Event()
    events: list[str] = []

    def hold() -> None:
        with wait_for_lock(tmp_path / "locks" / count.key(numbers)):
            held.set()
            told.wait(30)

    def listen(event: StageEvent) -> None:
        events.append(event.status)
        if event.status == "waiting":
            assert event.reason == "another process is at work on it"
            told.set()

    @flow
    def waiting() -> None:
        StageRunner(workspace, told_after=0.0)(count, numbers)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    with listening(listen):
        waiting()
    holder.join()
    assert events == ["started", "waiting", "started", "computed"]
    assert list((tmp_path / "locks").iterdir()) == []


def test_an_unforeseen_error_of_a_configuration_is_one_sentence_with_its_kind() -> None:
    run = StageRunner(Workspace(root=Path("/nowhere")))
    with pytest.raises(RagEvalError, match=r"^ValueError: two lines$"), run.accounting():
        raise ValueError("two\nlines")
    with pytest.raises(KeyboardInterrupt), run.accounting():
        raise KeyboardInterrupt


def test_a_failed_configuration_can_travel_from_another_process() -> None:
    work = {"chunk": StageWork(work="failed", effort=None, seconds=1.5)}
    sent = pickle.loads(pickle.dumps(ConfigurationFailedError("it broke", work)))  # noqa: S301  # our own
    assert (str(sent), sent.stages) == ("it broke", work)
