"""Two machines, one bucket, one service that charges: each text is paid for once, also when one of them is killed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.benchmark import stages
from rag_eval.disk.locks import LEASE_SECONDS
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunks_to_table
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id
from tests.doubles.openai_server import OpenAIServer
from tests.doubles.s3_server import S3Double, s3_double

ADDRESS = "s3://bench/team"
TEXTS = [f"text number {number}" for number in range(24)]

# A machine that embeds the chunks; ``apart`` means as a stage of its own, so that only the cache is shared.
EMBED = """
import json, sys
from rag_eval.benchmark import stages
from rag_eval.benchmark.records import alone, made_once
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.embedding.openai import OpenAIEmbedder
address, url, tables, apart = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
workspace = Workspace.at(address)
chunks = [TableRef(**table) for table in tables]
embedder = OpenAIEmbedder(model="tiny", base_url=url, max_texts=3, concurrency=1)
print("ready", flush=True)
sys.stdin.readline()
with alone(workspace, stages.embed.key(chunks, embedder) + apart):
    made = stages.embed(workspace, chunks, embedder) if apart else made_once(workspace, stages.embed, chunks, embedder)
print(json.dumps([made[0].digest, made[0].effort.fresh]), flush=True)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer(seconds=0.1) as running:
        yield running


@pytest.fixture
def tables(s3: S3Double, tmp_path: Path) -> str:
    """The chunks, in the bucket."""
    s3.folder = tmp_path
    s3.on_machine("first")
    s3.remove(*s3.keys(""))
    chunks = [
        PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(f"{n}.md"), 0, len(text))
        for n, text in enumerate(TEXTS)
    ]
    return json.dumps([Workspace.at(ADDRESS).write_table("chunks", chunks_to_table(chunks)).model_dump(mode="json")])


def machine(name: str, server: OpenAIServer, tables: str, folder: Path, apart: str = "") -> "subprocess.Popen[str]":
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / name)}
    command = [sys.executable, "-c", EMBED, ADDRESS, server.base_url, tables, apart]
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def result(started: "subprocess.Popen[str]", told: str = "go\n") -> tuple[str, int]:
    said, _ = started.communicate(told, timeout=60)
    assert started.returncode == 0
    digest, fresh = json.loads(said.splitlines()[-1])
    return digest, fresh


@pytest.mark.parametrize("apart", [False, True])
def test_machines_that_start_at_once_pay_for_each_text_once(
    apart: bool, server: OpenAIServer, tables: str, tmp_path: Path
) -> None:
    names = ("one", "two")
    both = [machine(name, server, tables, tmp_path, f"-{name}" if apart else "") for name in names]
    for one in both:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    (first, fresh), (second, more) = (result(one, "") for one in both)
    assert first == second
    assert sorted(server.texts) == sorted(TEXTS)
    # As one stage both find the same record; apart, each has its own, and one has paid for nothing.
    assert sorted([fresh, more]) == ([0, len(TEXTS)] if apart else [len(TEXTS)] * 2)


def test_what_a_killed_machine_has_paid_is_not_paid_again(
    server: OpenAIServer, tables: str, tmp_path: Path, s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE_SECONDS, "1")  # what is waited for the one that was killed
    killed = machine("one", server, tables, tmp_path)
    assert killed.stdin is not None
    killed.stdin.write("go\n")
    killed.stdin.flush()
    deadline = time.monotonic() + 30
    while len(server.requests) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    # What was asked last, and what is being kept in the bucket beside it.
    under_way = {text for request in server.requests[-2:] for text in request.body["input"]}
    assert len(server.texts) < len(TEXTS), "it was killed in the middle"
    digest, _ = result(machine("two", server, tables, tmp_path))
    paid = Counter(server.texts)
    assert set(paid) == set(TEXTS)
    assert {text for text, times in paid.items() if times > 1} <= under_way
    # The same table as on a machine that nobody disturbed, with vectors of its own.
    s3.on_machine("three")
    alone = Workspace(root=tmp_path / "alone")
    chunks = TableRef(**json.loads(tables)[0])
    ref = alone.write_table("chunks", Workspace.at(ADDRESS).read_table(chunks))
    embedder = OpenAIEmbedder(model="tiny", base_url=server.base_url)
    assert stages.embed(alone, [ref], embedder)[0].digest == digest
