"""The same benchmark on threads, processes and clusters, and in a bucket: the same tables, on a real Prefect server."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL
from rag_eval.benchmark.running import StageEvent, listening

from flows.benchmark import benchmark
from rag_eval.benchmark.config import check_runner
from rag_eval.benchmark.config_files import load_config
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.runs import read_run
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.errors import BenchmarkFailedError, ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.cli.commands import wait_for
from tests.doubles.s3_server import S3Double, s3_double
from tests.flows.benchmarks import STAGES, TWO, every_stage

pytestmark = pytest.mark.usefixtures("prefect_server")
ADDRESS = "s3://bench/nightly"


def digests(outcome: BenchmarkOutcome) -> list[tuple[str, str]]:
    return [(one.hits.digest, one.scores.digest) for one in outcome.configurations]


def copied(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def on_threads(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> BenchmarkOutcome:
    return benchmark(TWO, Workspace(root=tmp_path_factory.mktemp("threads")))


def task_runs(asked: dict[str, Any]) -> list[Any]:
    return list(httpx.post(f"{PREFECT_API_URL.value()}/task_runs/filter", json=asked, timeout=30).json())


MORTAL = """
import os, signal
from pathlib import Path

from rag_eval.types.documents import Document

class Lines:
    name = "lines"

    def __init__(self, log: str) -> None:
        self.log = log

    def chunk_with_positions(self, document: Document) -> list:
        with open(self.log, "a") as log:
            log.write(f"{os.getpid()} {document.id}\\n")
        dead = Path(self.log + ".dead")
        if document.id == "fares-and-ticketing.md" and not dead.exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        ends = range(0, len(document.content), 300)
        return [document.chunk_at(at, min(at + 300, len(document.content))) for at in ends]
"""


@pytest.mark.parametrize(
    "runner",
    ["processes", "dask", pytest.param("ray", marks=pytest.mark.filterwarnings("ignore:lancedb fork support"))],
)
def test_a_runner_gives_the_tables_of_threads_and_a_killed_worker_costs_what_was_under_way(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if runner == "ray" and find_spec("ray") is None:
        pytest.skip("the extra ray is not installed")
    (tmp_path / "mortal_chunks.py").write_text(MORTAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "benchmark.yaml"
    file.write_text(
        f"corpus: {CORPUS}\nground_truth: {GROUND_TRUTH}\nshards: 16\nchunkers:\n"
        f"- {{type: mortal_chunks:Lines, log: {tmp_path / 'log'}}}\n- {{type: recursive-token, chunk_size: 60}}\n"
    )
    config = load_config(file)
    told: list[StageEvent] = []
    since = datetime.now(UTC).isoformat()
    with listening(told.append):
        outcome = benchmark(config, Workspace(root=tmp_path / runner), runner=runner)
    cut = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    processes, counts = {process for process, _ in cut}, Counter(name for _, name in cut)
    assert len(processes) >= 2  # and perhaps one in the place of the killed
    assert len(counts) == 14
    shards = [Workspace(root=tmp_path / runner).read_table(one) for one in outcome.inputs.documents]
    again = {name for name, times in counts.items() if times > 1}
    # Dask's other worker goes on; a pool of processes ends with the first of them.
    assert sum(bool(again & {*one.column("doc_id").to_pylist()}) for one in shards) <= (1 if runner == "dask" else 2)
    assert counts["fares-and-ticketing.md"] == 2
    done = {(event.configuration, event.stage) for event in told if event.status == "computed"}
    assert done >= {(one.name, stage) for one in outcome.configurations for stage in one.stages}
    if runner != "processes":  # each shard is a task of its configuration's flow run
        asked = {"task_runs": {"name": {"like_": "chunk on a worker"}, "start_time": {"after_": since}}}
        tasks = wait_for(lambda: len(found := task_runs(asked)) >= 2 * len(shards) and found) or []
        assert set(Counter(one["flow_run_id"] for one in tasks).values()) == {len(shards)}
    alone = benchmark(config.model_copy(update={"shards": 1}), Workspace(root=tmp_path / "threads"))
    assert digests(outcome) == digests(alone)
    assert (len(alone.inputs.documents), len(shards)) == (1, 8)
    assert alone.work() == (13, 0)
    assert outcome.work() == (18, 0)  # with the depth and the joined hits of each configuration, and joined copies


ODD = """
class Odd(Exception):
    def __init__(self, *, why: str) -> None:
        super().__init__(why)

class Fails:
    name = "fails"

    def chunk(self, text: str) -> list[str]:
        raise Odd(why="it does not like this text")
"""


def test_an_error_of_another_process_is_told_whatever_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_chunks.py").write_text(ODD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "benchmark.yaml"
    file.write_text(
        f"corpus: {CORPUS}\nground_truth: {GROUND_TRUTH}\nretrieval: bm25\n"
        "chunkers: [odd_chunks:Fails, {type: recursive-token, chunk_size: 300}]\n"
    )
    workspace = Workspace(root=tmp_path / "work")
    with pytest.raises(BenchmarkFailedError, match=r"1 of 2 configurations failed: .*it does not like this text"):
        benchmark(load_config(file), workspace, runner="processes")


def test_an_unknown_runner_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no runner 'dusk' \(did you mean dask\?\): use one of threads"
    ):
        check_runner("dusk")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


def test_a_bucket_serves_machines_that_share_nothing_else(
    s3: S3Double, on_threads: BenchmarkOutcome, tmp_path: Path
) -> None:
    first = benchmark(TWO, Workspace.at(ADDRESS))
    assert digests(first) == digests(on_threads)
    assert first.work() == (13, 0)
    again = benchmark(TWO, Workspace.at(ADDRESS))
    assert again.work() == (0, 13)

    s3.on_machine("two")
    elsewhere = Workspace.at(ADDRESS)
    assert benchmark(TWO, elsewhere).work() == (0, 13)
    # What the report shows was fetched, and the records; no vectors, no indexes, no texts of chunks.
    fetched = {"/".join(name.split("/")[:2]) for name in copied(elsewhere.root) if name.startswith("tables")}
    assert fetched == {f"tables/{kind}" for kind in ("documents", "hits", "places", "queries", "scores", "truth")}
    assert not any(name.startswith(("indexes", "cache/embeddings", "cache/chunks")) for name in copied(elsewhere.root))
    assert read_run(elsewhere, first.run) == first
    assert (elsewhere.runs / first.run / "summary.json").is_file()
    larger = TWO.model_copy(update={"chunkers": [*TWO.chunkers, RecursiveTokenChunker(chunk_size=400)]})
    s3.on_machine("three")
    efforts = benchmark(larger, Workspace.at(ADDRESS)).work_by_stage()
    assert efforts["embed"][:2] == (1, 2)


def test_what_is_lost_or_altered_in_a_bucket_is_made_again(
    s3: S3Double, prefect_server: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address, config = "s3://bench/damaged", every_stage(tmp_path)
    s3.on_machine("one")
    first = benchmark(config, Workspace.at(address))
    assert [*first.work_by_stage()] == STAGES
    one = first.configurations[0]
    before = set(s3.keys("damaged/tables"))
    s3.write(f"damaged/{one.hits.uri}", b"something else")
    s3.remove(f"damaged/{one.chunk_tables[0].uri}", *s3.keys(f"damaged/{one.indexes[0].uri}")[:1])
    for segment in s3.keys("damaged/cache/embeddings"):
        s3.write(segment, s3.read(segment)[:200])
    s3.on_machine("two")
    second = benchmark(config, Workspace.at(address))
    computed = {stage for stage, (count, _, _) in second.work_by_stage().items() if count}
    assert computed == {"chunk", "index", "rerank"}
    assert digests(second) == digests(first)
    assert set(s3.keys("damaged/tables")) == before
    assert "was altered" in caplog.text
    s3.on_machine("three")
    assert benchmark(config, Workspace.at(address)).work() == (0, len(STAGES))
