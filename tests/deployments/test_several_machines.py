"""The files for several machines, used: PostgreSQL, a server, a bucket, deployments and a worker as processes here."""

import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from prefect.events import Event
from prefect.events.schemas.events import Resource

from flows.deployments import CORPUS_CHANGED, corpus_resource
from rag_eval.cli.processes import end_all
from tests.cli.commands import free_port, rag_eval, wait_for
from tests.deployments.compose import command, environment
from tests.deployments.postgresql import PASSWORD, missing, postgresql
from tests.doubles.s3_server import KEY, SECRET
from tests.flows.benchmarks import folder_of

BENCHMARK = "corpus: docs\nground_truth: truth.jsonl\nchunkers: {type: recursive-token, chunk_size: 60}\n"


@contextmanager
def service(words: list[str], settings: dict[str, str], folder: Path) -> Iterator[None]:
    """A service that goes on until the block ends."""
    with (folder / f"{Path(words[0]).name}-{words[1]}.log").open("w") as log:
        process = subprocess.Popen(words, env=settings, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        end_all([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
        process.wait()


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_benchmark_runs_on_postgresql_a_bucket_and_a_worker(tmp_path: Path, bucket_server: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    folder_of(work, 5)
    (work / "benchmark.yaml").write_text(BENCHMARK)
    database = tmp_path / "database"
    database.mkdir()
    port = free_port()
    api = f"http://127.0.0.1:{port}/api"
    here = {"PREFECT_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    there = here | {
        "PREFECT_API_URL": api,
        "AWS_ENDPOINT_URL": bucket_server,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    with postgresql(database) as postgres:
        server = environment(
            "server",
            PREFECT_SERVER_DATABASE_HOST="127.0.0.1",
            PREFECT_SERVER_DATABASE_PORT=str(postgres.port),
            PREFECT_SERVER_DATABASE_PASSWORD=PASSWORD,
            PREFECT_SERVER_API_HOST="127.0.0.1",
            PREFECT_SERVER_API_PORT=str(port),
            **here,
        )
        with service(command("server"), server, tmp_path):
            wait_for(lambda: answers(api), 240, every=0.5)
            deployed = subprocess.run(
                command("deploy", work=str(work)),
                env=environment("deploy", **there),
                cwd=work,
                capture_output=True,
                text=True,
                check=False,
            )
            assert deployed.returncode == 0, deployed.stderr
            (adhoc,) = re.findall(r"^adhoc-\S+ .*/([0-9a-f-]{36})$", deployed.stderr, re.MULTILINE)
            with service(command("worker"), environment("worker", **there), tmp_path):
                answer = httpx.post(f"{api}/deployments/{adhoc}/create_flow_run", json={}, timeout=60).json()
                state = wait_for(lambda: ended(api, answer["id"]), 240, every=0.5)
                assert state["type"] == "COMPLETED", state["message"]
                other = work / "other"
                other.mkdir()
                folder_of(other, 3)
                (other / "benchmark.yaml").write_text(BENCHMARK)
                second = rag_eval("deploy", "other/benchmark.yaml", cwd=work, **environment("deploy", **there))
                assert second.returncode == 0, second.stderr
                ours, theirs = (corpus_resource(folder / "docs") for folder in (work, other))
                assert theirs["prefect.resource.id"] in second.stderr
                emit(api, ours)
                started = wait_for(lambda: started_by_change(api), 120, every=0.5)
                assert {run["work_queue_name"] for run in started} == {"work"}
                emit(api, theirs)
                wait_for(lambda: len({run["work_queue_name"] for run in started_by_change(api)}) == 2, 120, every=0.5)
                queues = sorted(run["work_queue_name"] for run in started_by_change(api))
                assert queues == ["other", "work"]
        assert int(postgres.ask("select count(*) from flow_run where state_type = 'COMPLETED'")) >= 3
    import boto3

    client = boto3.client(
        "s3", endpoint_url=bucket_server, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    keys = [found["Key"] for found in client.list_objects_v2(Bucket="rag-eval", Prefix="work/runs/")["Contents"]]
    assert any(key.endswith("/summary.json") for key in keys)


def emit(api: str, resource: dict[str, str]) -> None:
    event = Event(event=CORPUS_CHANGED, resource=Resource(resource), payload={"corpus": "docs", "summary": "a change"})
    httpx.post(f"{api}/events", json=[event.model_dump(mode="json")], timeout=60).raise_for_status()


def started_by_change(api: str) -> list[dict[str, str]]:
    asked = {"deployments": {"name": {"like_": "on-corpus-change"}}}
    found: list[dict[str, str]] = httpx.post(f"{api}/flow_runs/filter", json=asked, timeout=60).json()
    return found


def answers(api: str) -> bool:
    try:
        return httpx.get(f"{api}/health", timeout=5).is_success
    except httpx.HTTPError:
        return False


def ended(api: str, run: str) -> dict[str, str] | None:
    answer = httpx.get(f"{api}/flow_runs/{run}", timeout=60)
    if not answer.is_success:  # a server that is busy refuses
        return None
    state: dict[str, str] = answer.json()["state"]
    return state if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None


@pytest.fixture
def bucket_server() -> Iterator[str]:
    """S3 on loopback with the bucket that the files name."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    settings = {"region_name": "us-east-1", "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    boto3.client("s3", endpoint_url=url, **settings).create_bucket(Bucket="rag-eval")
    yield url
    server.stop()
