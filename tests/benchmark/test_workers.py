"""What computes stages: when it is stopped or not there, and for whom it works."""

import logging
import os
import signal
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from rag_eval.benchmark.workers import current_workers, working_by

from rag_eval.errors import RagEvalError, ServiceError
from tests.cli.commands import free_port, wait_for


def test_processes_that_were_stopped_begin_nothing(tmp_path: Path) -> None:
    with working_by("processes"):
        workers: Any = current_workers()
        workers.stop()  # before they were given anything
        with pytest.raises(RagEvalError, match="ended before it was done"):
            workers.compute(lambda _: (tmp_path / "begun").touch(), None, ())
    assert not (tmp_path / "begun").exists()


def test_work_that_is_done_again_ends_with_the_processes(tmp_path: Path) -> None:
    def mortal(workspace: object) -> None:
        if not (tmp_path / "dead").exists():
            (tmp_path / "dead").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / "again").touch()
        time.sleep(300)

    with working_by("processes"), ThreadPoolExecutor(1) as threads:
        workers: Any = current_workers()
        done = threads.submit(workers.compute, mortal, None, ())
        wait_for((tmp_path / "again").exists)
        workers.stop()
        assert "ended before it was done" in str(done.exception(60))


def test_what_processes_say_is_heard_and_one_that_is_killed_while_it_speaks_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def talkative(workspace: object) -> int:
        log = logging.getLogger("rag_eval.talkative")
        if not (tmp_path / "dead").exists():
            (tmp_path / "dead").touch()
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while True:
                log.warning("x" * 100_000)  # more than a pipe takes at once
        log.warning("it is %s", "done")
        return 3

    def work() -> None:
        with working_by("processes"):
            workers: Any = current_workers()
            made.append(workers.compute(talkative, None, ()))

    made: list[int] = []
    working = threading.Thread(target=work, daemon=True)
    working.start()
    working.join(60)
    assert not working.is_alive()
    assert made == [3]
    assert "it is done" in caplog.messages


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    said = f"^the cluster at {address} does not answer: start it, or take its address out of DASK_SCHEDULER_ADDRESS$"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(ServiceError, match=said),
        working_by("dask"),
    ):
        pass


def test_a_dask_cluster_of_this_machine_takes_work_from_its_run_alone() -> None:
    with working_by("dask"):
        workers: Any = current_workers()
        assert workers.compute(lambda _: 3, None, ()) == 3
        (address,) = {one.scheduler.address for one in distributed.Client._instances if one.scheduler}
        assert address.startswith("tls://127.0.0.1:")
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE  # it trusts whomever, and is not trusted
        with (
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as plain,
            pytest.raises(ssl.SSLError, match="certificate required"),
            stranger.wrap_socket(plain) as asking,
        ):
            asking.recv(1)
