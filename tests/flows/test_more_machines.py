"""The same benchmark in a folder and in a bucket that several machines share, on a real Prefect server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.runs import read_run
from tests.doubles.s3_server import S3Double, s3_double
from tests.flows.benchmarks import TWO, every_step
from tests.flows.server_runs import run, run_and_read

pytestmark = pytest.mark.usefixtures("prefect_server")
ADDRESS = "s3://bench/nightly"


def digests(outcome: BenchmarkOutcome) -> list[tuple[str, str]]:
    return [(one.hits.digest, one.scores.digest) for one in outcome.configurations]


def copied(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


def test_a_bucket_serves_machines_that_share_nothing_else(s3: S3Double, tmp_path: Path) -> None:
    on_threads = run(TWO, Workspace(root=tmp_path / "folder"))
    first = run(TWO, Workspace.at(ADDRESS))
    assert digests(first) == digests(on_threads)
    assert first.work() == (15, 1)
    assert run_and_read(TWO, Workspace.at(ADDRESS)).computed() == set()

    s3.on_machine("two")
    elsewhere = Workspace.at(ADDRESS)
    assert run_and_read(TWO, elsewhere).computed() == set()
    # What the report shows was fetched, and the stored results; no vectors, no indexes, no caches.
    fetched = {"/".join(name.split("/")[:2]) for name in copied(elsewhere.root) if name.startswith("tables")}
    assert fetched == {f"tables/{kind}" for kind in ("chunks", "documents", "hits", "queries", "scores", "truth")}
    assert not any(name.startswith(("indexes", "cache/embeddings", "cache/chunks")) for name in copied(elsewhere.root))
    assert read_run(elsewhere, first.run) == first
    assert (elsewhere.runs / first.run / "summary.json").is_file()
    larger = TWO.model_copy(update={"chunkers": [*TWO.chunkers, RecursiveTokenChunker(chunk_size=400)]})
    s3.on_machine("three")
    efforts = run(larger, Workspace.at(ADDRESS)).work_by_step()
    assert efforts["embed"][:2] == (1, 2)


def test_what_is_lost_or_altered_in_a_bucket_is_made_again(
    s3: S3Double, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address, config = "s3://bench/damaged", every_step(tmp_path)
    s3.on_machine("one")
    first = run(config, Workspace.at(address))
    one = first.configurations[0]
    before = set(s3.keys("damaged/tables"))
    s3.write(f"damaged/{one.hits.uri}", b"something else")
    s3.remove(f"damaged/{one.chunk_tables[0].uri}", *s3.keys(f"damaged/{one.indexes[0].uri}")[:1])
    for segment in s3.keys("damaged/cache/embeddings"):
        s3.write(segment, s3.read(segment)[:200])
    s3.on_machine("two")
    second = run_and_read(config, Workspace.at(address))
    assert second.computed() == {"chunk", "index_vectors", "search"}
    assert digests(second.outcome) == digests(first)
    # That the hits are others shows when they are fetched for the report; then they are made again.
    assert "was altered" in caplog.text
    assert run_and_read(config, Workspace.at(address)).computed() == {"retrieve"}
    assert set(s3.keys("damaged/tables")) == before
    s3.on_machine("three")
    assert run_and_read(config, Workspace.at(address)).computed() == set()
