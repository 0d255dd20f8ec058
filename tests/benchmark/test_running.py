"""Work of stages in this process: what is done again, who is told, and what is begun again."""

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rag_eval.benchmark.records import Done
from rag_eval.benchmark.running import (
    NamedWork,
    StageEvent,
    StageRunner,
    at_once,
    compare,
    listening,
    reuse_outcome,
)
from rag_eval.benchmark.stage import stage
from rag_eval.benchmark.workers import current_workers, ending_work, working_by

from rag_eval.benchmark import stages
from rag_eval.errors import DamagedError, RagEvalError, RequestRefusedError, ServiceError
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from tests.benchmark.made_runs import SMALL, write_data


def failing(*errors: Exception) -> Callable[[], Done]:
    left = list(errors)

    def work() -> Done:
        if left:
            raise left.pop(0)
        return Done("made", "key", was_kept=False)

    return work


def test_work_is_done_again_after_each_delay_where_a_service_did_not_answer() -> None:
    told: list[tuple[str, str]] = []
    away = [ServiceError("away"), ServiceError("still away")]
    named = NamedWork("work", failing(*away), lambda *event: told.append(event), [0.0, 0.0])
    assert at_once(named).result == "made"
    assert told == [("retrying", "away"), ("retrying", "still away")]
    with pytest.raises(ServiceError, match="for good"):
        at_once(NamedWork("work", failing(*away, ServiceError("for good")), lambda *_: None, [0.0, 0.0]))


@pytest.mark.parametrize("error", [RequestRefusedError("no such model"), RagEvalError("wrong"), ValueError("odd")])
def test_what_no_other_attempt_would_change_is_raised_at_once(error: Exception) -> None:
    told: list[object] = []
    work = failing(error)
    with pytest.raises(type(error), match=str(error)):
        at_once(NamedWork("work", work, lambda *event: told.append(event), [0.0, 0.0]))
    assert told == []
    assert work().result == "made"  # it was asked for once


@stage("numbers", version=1)
def count(upto: int, *, context: Context) -> tuple[pa.Table, Effort]:
    return pa.table({"n": list(range(upto))}), Effort(fresh=1, total=1, unit="texts")


def test_who_listens_is_told_within_the_block_and_not_after_it(tmp_path: Path) -> None:
    inner: list[StageEvent] = []
    outer: list[StageEvent] = []
    run = StageRunner(Workspace(root=tmp_path))
    with listening(outer.append):
        with listening(inner.append):
            run(count, 3)
        run(count, 4)
    run(count, 5)
    assert [(event.stage, event.status) for event in inner] == [("count", "started"), ("count", "computed")]
    assert [(event.stage, event.status) for event in outer[2:]] == [("count 2", "started"), ("count 2", "computed")]


def test_work_that_is_begun_again_is_accounted_for_once(tmp_path: Path) -> None:
    run, damages = StageRunner(Workspace(root=tmp_path)), [DamagedError("altered")]

    def work() -> str:
        run(count, 3)
        if damages:
            raise damages.pop()
        run(count, 4)
        return "done"

    assert run.mending(work) == "done"
    # What was computed before it began again was computed by this work.
    assert {name: done.work for name, done in run.work.items()} == {"count": "computed", "count 2": "computed"}


def test_what_is_kept_takes_no_longer_than_looking_it_up(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path, documents=2, queries=1)
    assert reuse_outcome(workspace, config) is None
    first = compare(workspace, config, False, "threads")
    started = time.perf_counter()
    again = reuse_outcome(workspace, config)
    took = time.perf_counter() - started
    assert again is not None
    assert [one.metrics for one in again.configurations] == [one.metrics for one in first.configurations]
    done = [work for one in again.configurations for work in one.stages.values()]
    assert {work.work for work in done} == {"reused"}
    assert 0 <= sum(work.seconds for work in done) <= took + 0.001 * len(done)  # each is rounded


def test_files_without_a_text_are_said_as_they_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "docs").mkdir()
    for name, data in {"a.md": b"Bread.", "b.md": b"\x7fELF\0\xff" * 9}.items():
        (tmp_path / "docs" / name).write_bytes(data)
    workspace = Workspace(root=tmp_path / ".rag-eval")
    for pattern, is_said in (("a.md", False), ("*.md", True)):
        caplog.clear()
        (documents,) = stages.load_corpus(workspace, CorpusSource.of(tmp_path / "docs", pattern), 1)
        assert documents.rows == 1
        assert ("1 file left out: " in caplog.text) == is_said


def test_processes_make_what_this_one_makes_until_what_they_work_for_ends_early(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path, documents=2, queries=1)
    documents = stages.load_corpus(workspace, CorpusSource.of(config.corpus, config.glob), 1)
    (here,) = stages.chunk(workspace, documents, SMALL, None)
    with working_by("processes"):
        workers = current_workers()
        assert workers is not None
        with ending_work():
            (there,) = workers.compute(stages.chunk, workspace, (documents, SMALL, None))
        assert (there.digest, there.rows) == (here.digest, here.rows)
        with pytest.raises(KeyboardInterrupt), ending_work():
            raise KeyboardInterrupt
        with pytest.raises(RagEvalError, match="ended before it was done"):
            workers.compute(stages.chunk, workspace, (documents, SMALL, None))
