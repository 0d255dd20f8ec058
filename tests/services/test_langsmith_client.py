"""Clients of LangSmith, and the double they are tested against."""

import gzip
import json
import logging
from typing import Any

import pytest
import requests
from langsmith import Client, evaluate
from langsmith.schemas import Example, Run
from langsmith.utils import LangSmithAuthError, LangSmithConflictError, LangSmithError, LangSmithNotFoundError
from urllib3.util import Retry

from rag_eval.errors import ConfigurationError
from rag_eval.services.langsmith_client import langsmith_client
from rag_eval.services.langsmith_metrics import ChunkLevelRecall, get_langsmith_evaluators
from tests.doubles.langsmith_fixtures import closed, offline_client
from tests.doubles.langsmith_sample import retrieve, uploaded_dataset
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.doubles.loopback import refused_url


def test_a_client_asks_for_a_key_and_a_web_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY"):
        langsmith_client()
    with pytest.raises(ConfigurationError, match=r"'smith\.example'"):
        langsmith_client("secret-key", "smith.example")
    for url in ("ftp://user:hunter2@smith.example/x?key=hunter2", "user:hunter2@smith.example"):
        with pytest.raises(ConfigurationError, match=r"at 'smith\.example' is no web address") as caught:
            langsmith_client("secret-key", url)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="time-out"):
        langsmith_client("secret-key", timeout_seconds=0)


def test_key_and_endpoint_come_from_the_environment_and_the_key_is_not_shown(
    server: LangSmithServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url + "/")
    with caplog.at_level(logging.DEBUG):
        client = langsmith_client()
        assert not client.has_dataset(dataset_name="none")
    closed(client)
    assert KEY not in caplog.text + repr(client)


def test_another_key_is_refused(server: LangSmithServer) -> None:
    client = langsmith_client("another", server.url)
    with pytest.raises(LangSmithAuthError):
        client.create_dataset("questions")
    closed(client)


def test_the_double_keeps_datasets_as_the_service_does(server: LangSmithServer, client: Client) -> None:
    dataset = client.create_dataset("many", description="d", metadata={"level": "chunk-level"})
    rows = [{"inputs": {"query": f"é{n}"}, "reference_outputs": {"n": n}, "metadata": {"n": n}} for n in range(250)]
    client.create_examples(dataset_id=dataset.id, examples=rows)
    back = list(client.list_examples(dataset_name="many"))
    assert sorted((one.inputs["query"], (one.outputs or {})["n"]) for one in back) == sorted(
        (f"é{n}", n) for n in range(250)
    )
    assert server.calls().count("GET /examples") == 3
    assert client.read_dataset(dataset_name="many").example_count == 250
    client.update_example(back[0].id, outputs={"n": -1}, dataset_id=dataset.id)
    changed = client.read_example(back[0].id)
    assert (changed.outputs, changed.inputs) == ({"n": -1}, back[0].inputs)
    client.delete_example(back[0].id)
    with pytest.raises(LangSmithNotFoundError):
        client.read_example(back[0].id)
    with pytest.raises(LangSmithConflictError):
        client.create_dataset("many")
    with pytest.raises(LangSmithError, match="501"):
        list(client.list_examples(dataset_name="many", filter='has(metadata, "x")'))
    client.delete_dataset(dataset_name="many")
    assert not client.has_dataset(dataset_name="many")
    assert server.api.examples == {}


@pytest.mark.filterwarnings("ignore:The following arguments are no longer used in the create_feedback endpoint")
def test_summary_scores_arrive_as_feedback_on_the_experiment(server: LangSmithServer, client: Client) -> None:
    def runs_seen(runs: list[Run], examples: list[Example]) -> dict[str, Any]:
        return {"key": "runs", "score": len(runs)}

    evaluate(retrieve, data=uploaded_dataset(client), summary_evaluators=[runs_seen], client=client)
    client.flush()
    assert server.scores("runs") == [3]
    experiment = next(one for one in client.list_projects() if one.reference_dataset_id)
    assert experiment.session_feedback_stats == {"runs": {"n": 1, "avg": 3}}


def test_faults_happen_as_scripted(server: LangSmithServer) -> None:
    server.fail("POST", "/datasets", status=429, retry_after=0)
    server.fail("POST", "/datasets", status=500)
    server.fail("POST", "/datasets")
    at_once = Retry(3, status_forcelist=[429, 500], allowed_methods=None, backoff_factor=0)
    client = Client(server.url, api_key=KEY, auto_batch_tracing=False, retry_config=at_once)
    assert client.create_dataset("in the end").name == "in the end"
    assert server.calls().count("POST /datasets") == 4
    client.close()


def test_a_hang_ends_at_the_time_out_and_a_closed_port_is_named(server: LangSmithServer) -> None:
    server.fail("GET", "/datasets", hang=True, times=9)
    impatient = langsmith_client(KEY, server.url, timeout_seconds=0.05)
    with pytest.raises(LangSmithError, match="GET /datasets"):
        impatient.read_dataset(dataset_name="questions")
    closed_port = offline_client()
    closed_port.api_url = refused_url()
    with pytest.raises(LangSmithError, match="Connection error"):
        closed_port.read_dataset(dataset_name="questions")
    closed_port.close()
    closed(impatient)


def test_uploads_that_fail_in_the_background_are_told(server: LangSmithServer) -> None:
    told: list[Exception] = []
    client = langsmith_client(KEY, server.url, tracing_error_callback=told.append)
    name = uploaded_dataset(client)
    server.fail("POST", "/runs/multipart", status=422, times=99)
    evaluate(retrieve, data=name, evaluators=get_langsmith_evaluators([ChunkLevelRecall()], 2), client=client)
    closed(client)
    assert told
    assert server.api.feedback == {}


def test_the_double_reads_bodies_in_pieces_and_compressed(server: LangSmithServer) -> None:
    body = gzip.compress(json.dumps({"name": "in pieces"}).encode())
    answer = requests.post(
        f"{server.url}/datasets",
        data=iter([body[:7], body[7:]]),
        headers={"x-api-key": KEY, "Content-Encoding": "gzip"},
        timeout=10,
    )
    assert answer.json()["name"] == "in pieces"
    assert (
        requests.post(f"{server.url}/datasets", data="no JSON", headers={"x-api-key": KEY}, timeout=10).status_code
        == 422
    )
    assert requests.get(f"{server.url}/elsewhere", headers={"x-api-key": KEY}, timeout=10).status_code == 404
