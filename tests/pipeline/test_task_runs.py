"""How tasks run: again after an outage of a service, and on which cluster."""

import socket
import ssl
from typing import Any

import dask
import distributed
import pytest
from prefect import Task
from prefect.client.schemas.objects import TaskRun
from prefect.states import Failed

from rag_eval.errors import RagEvalError, RequestRefusedError, ServiceError
from rag_eval.retry import STAGE_DELAYS
from tasks.chunk import add_context, chunk
from tasks.corpus import load_corpus
from tasks.embed import count_texts, embed
from tasks.ground_truth import load_ground_truth, pull_ground_truth
from tasks.index import index_vectors, index_words
from tasks.retrieve import ask_system, prepare_queries, retrieve, search
from tasks.runners import task_runner
from tasks.score import score
from tests.cli.commands import free_port

ASKING: list[Task[..., Any]] = [
    pull_ground_truth,
    load_ground_truth,
    chunk,
    add_context,
    embed,
    prepare_queries,
    search,
    retrieve,
    ask_system,
]
ALONE: list[Task[..., Any]] = [load_corpus, count_texts, index_vectors, index_words, score]


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (ServiceError("away"), True),
        (RequestRefusedError("no such model"), False),
        (RagEvalError("wrong"), False),
        (ValueError("odd"), False),
    ],
)
def test_a_task_is_tried_again_where_a_service_did_not_answer_and_no_other_attempt(
    error: Exception, is_retried: bool
) -> None:
    state: Any = Failed(data=error)
    for one in ASKING:
        assert one.retry_condition_fn is not None
        assert one.retry_condition_fn(one, TaskRun.model_construct(), state) == is_retried
        assert (one.retries, one.retry_delay_seconds) == (len(STAGE_DELAYS), list(STAGE_DELAYS))
    assert {one.retries for one in ALONE} == {0}


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    said = f"^the cluster at {address} does not answer: start it, or unset DASK_SCHEDULER_ADDRESS$"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(ServiceError, match=said),
        task_runner("dask"),
    ):
        pass


def test_a_dask_cluster_of_this_machine_takes_work_from_its_run_alone() -> None:
    with task_runner("dask") as runner:
        own: Any = runner
        with distributed.Client(own.address, **own.client_kwargs) as client:
            assert client.submit(sum, [1, 2]).result(60) == 3
        assert own.address.startswith("tls://127.0.0.1:")
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE  # it trusts whomever, and is not trusted
        with (
            socket.create_connection(("127.0.0.1", int(own.address.rpartition(":")[2]))) as plain,
            pytest.raises(ssl.SSLError, match="certificate required"),
            stranger.wrap_socket(plain) as asking,
        ):
            asking.recv(1)
