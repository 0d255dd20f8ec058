"""Two machines, one bucket, one service that charges: what one of them has paid for, the other does not pay again."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.pipeline.document_steps import write_chunks
from rag_eval.pipeline.references import ChunksRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunks_to_table
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id
from tasks.embed import embed
from tests.cli.commands import wait_for
from tests.doubles.openai_server import Change, Hang, OpenAIServer
from tests.doubles.s3_server import S3Double, s3_double

ROOT = Path(__file__).parents[2]
ADDRESS = "s3://bench/team"
TEXTS = [f"text number {number}" for number in range(24)]
EMBED = """
import sys
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.pipeline.references import ChunksRef
from rag_eval.pipeline.workspace import Workspace
from tasks.embed import embed
address, url, chunks = sys.argv[1:]
embedder = OpenAIEmbedder(model="tiny", base_url=url, max_texts=3, concurrency=1)
made = embed.fn(ChunksRef.model_validate_json(chunks), embedder, workspace=Workspace.at(address))
print(made.digest, made.effort.fresh)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def chunks(s3: S3Double, tmp_path: Path) -> ChunksRef:
    """Chunks in the bucket."""
    s3.folder = tmp_path
    s3.on_machine("first")
    s3.remove(*s3.keys(""))
    every = [
        PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(f"{n:02}.md"), 0, len(text))
        for n, text in enumerate(TEXTS)
    ]
    return write_chunks(Workspace.at(ADDRESS), chunks_to_table(every))


def machine(name: str, server: OpenAIServer, chunks: ChunksRef, folder: Path) -> "subprocess.Popen[str]":
    """A machine with a copy of its own, which embeds the chunks."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / name)}
    command = [sys.executable, "-c", EMBED, ADDRESS, server.base_url, chunks.model_dump_json()]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)


def test_what_a_killed_machine_has_paid_is_not_paid_again(
    server: OpenAIServer, chunks: ChunksRef, tmp_path: Path, s3: S3Double
) -> None:
    server.faults += [*[Change(lambda answer: answer)] * 4, Hang(20)]
    killed = machine("one", server, chunks, tmp_path)
    wait_for(lambda: len(s3.keys("team/cache/embeddings")) == 4)
    killed.kill()
    killed.communicate()
    stored = TEXTS[: 3 * 4]
    second = machine("two", server, chunks, tmp_path)
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 0
    digest, fresh = said.split()
    paid = Counter(server.texts)
    assert set(paid) == set(TEXTS)
    assert all(paid[text] == 1 for text in stored)
    assert int(fresh) == len(TEXTS) - len(stored)
    # A third machine pays for nothing, and one without the bucket makes the same table.
    s3.on_machine("three")
    embedder = OpenAIEmbedder(model="tiny", base_url=server.base_url)
    third = embed.fn(chunks, embedder, workspace=Workspace.at(ADDRESS))
    assert third.effort is not None
    assert (third.effort.fresh, third.digest) == (0, digest)
    alone = Workspace(root=tmp_path / "alone")
    own = write_chunks(alone, Workspace.at(ADDRESS).read_table(chunks.table))
    assert embed.fn(own, embedder, workspace=alone).digest == digest
