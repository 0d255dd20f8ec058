"""The same benchmark on threads and on Dask: equal tables and edges, cached the second time; workers may be killed."""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig, check_runner
from rag_eval.errors import BenchmarkFailedError, ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from tasks.runners import DASK_ADDRESS
from tests.flows.benchmarks import folder_of
from tests.flows.server_runs import ServerRun, edges, run_and_read

pytestmark = pytest.mark.usefixtures("prefect_server")

PARTS = """
import os
import signal
from pathlib import Path

HERE = Path(__file__).parent


def lines(text):
    name = text.split("\\n")[0]
    with open(HERE / "log", "a") as log:
        log.write(f"{os.getpid()} {name}\\n")
    if (HERE / "mortal").exists() and name == "# Ship 5" and not (HERE / "dead").exists():
        (HERE / "dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [line for line in text.split("\\n") if line]


class Odd(Exception):
    def __init__(self, *, why):
        super().__init__(why)


def fails(text):
    raise Odd(why="it does not like this text")
"""
BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
shards: 2
chunkers: [worker_parts:lines, {type: recursive-token, chunk_size: 20}]
retrieval: vector
k: [1]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A benchmark in a folder from which workers can import its parts."""
    folder = tmp_path_factory.mktemp("runners")
    folder_of(folder, 8)
    (folder / "worker_parts.py").write_text(PARTS)
    (folder / "benchmark.yaml").write_text(BENCHMARK)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(folder))
        environment.syspath_prepend(str(folder))
        yield folder


@pytest.fixture(scope="module")
def config(folder: Path) -> BenchmarkConfig:
    return load_config(folder / "benchmark.yaml")


@pytest.fixture(scope="module")
def on_threads(prefect_server: None, config: BenchmarkConfig, folder: Path) -> ServerRun:
    return run_and_read(config, Workspace(root=folder / "threads"))


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[str]:
    """A cluster that is there already, of two processes."""
    from distributed import LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # it complains of workers that were killed
    settings = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, host="127.0.0.1", **settings) as running:
        yield running.scheduler_address


def tables(outcome: BenchmarkOutcome) -> list[tuple[str, str, str]]:
    return [(one.name, one.hits.digest, one.scores.digest) for one in outcome.configurations]


def inside(found: ServerRun) -> list[dict[str, Any]]:
    """The task runs of the chunkings."""
    return [one for one in found.tasks if one["flow_run_id"] != found.flow["id"]]


def calls(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "log").read_text().splitlines()
    return [(process, name) for process, _, name in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("place", ["of our own", "by address"])
def test_dask_gives_what_threads_give_though_a_worker_is_killed_and_is_cached_the_second_time(
    place: str,
    request: pytest.FixtureRequest,
    config: BenchmarkConfig,
    on_threads: ServerRun,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DASK_ADDRESS, raising=False)
    if place == "by address":
        monkeypatch.setenv(DASK_ADDRESS, request.getfixturevalue("cluster"))
    workspace = Workspace(root=folder / place)
    (folder / "log").unlink()
    (folder / "mortal").touch()
    first = run_and_read(config, workspace, "dask")
    (folder / "dead").unlink()  # which is there because a worker was killed
    (folder / "mortal").unlink()
    assert tables(first.outcome) == tables(on_threads.outcome)
    assert edges(inside(first)) == edges(inside(on_threads))
    assert len(first.steps) == len(on_threads.steps)
    assert len(first.outcome.inputs.documents) == 2
    counts = Counter(name for _, name in calls(folder))
    assert len(counts) == 8
    assert counts["# Ship 5"] == max(counts.values()) == 2  # what the killed worker had under way is done again
    assert str(os.getpid()) not in {process for process, _ in calls(folder)}
    again = run_and_read(config, workspace, "dask")
    assert {state for _, state in again.states()} == {"Cached"}
    assert tables(again.outcome) == tables(first.outcome)


def test_an_error_of_another_process_is_told_whatever_its_class(
    folder: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DASK_ADDRESS, cluster)
    file = folder / "odd.yaml"
    file.write_text(
        "corpus: docs\nground_truth: truth.jsonl\nretrieval: bm25\n"
        "chunkers: [worker_parts:fails, {type: recursive-token, chunk_size: 20}]\n"
    )
    done = run_and_read(load_config(file), Workspace(root=folder / "odd"), "dask")
    with pytest.raises(BenchmarkFailedError, match=r"1 of 2 configurations failed: .*it does not like this text"):
        done.outcome  # noqa: B018  # it raises


@pytest.mark.skipif(find_spec("prefect_ray") is None, reason="the extra ray is not installed")
@pytest.mark.filterwarnings("ignore:lancedb fork support")
def test_ray_gives_the_tables_of_threads(config: BenchmarkConfig, on_threads: ServerRun, folder: Path) -> None:
    done = run_and_read(config, Workspace(root=folder / "ray"), "ray")
    assert tables(done.outcome) == tables(on_threads.outcome)


def test_an_unknown_runner_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no runner 'dusk' \(did you mean dask\?\): use one of threads"
    ):
        check_runner("dusk")
