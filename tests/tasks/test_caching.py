"""What Prefect finds in a workspace that somebody tampered with: nothing of it is executed, and the steps run again."""

import base64
import itertools
import json
import logging
import os
import pickle
from pathlib import Path

import pytest
from prefect import Flow, flow
from prefect.results import ResultRecord, ResultRecordMetadata
from prefect.serializers import JSONSerializer
from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.unchanged import STEPS, unchanged_run
from tasks.caching import result_storage
from tasks.corpus import find_documents, load_corpus
from tests.doubles.canary import Canary, called
from tests.flows.benchmarks import SMALL, folder_of
from tests.flows.server_runs import ServerRun, run_and_read

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caching")


@pytest.fixture(scope="module")
def config(folder: Path) -> BenchmarkConfig:
    corpus, truth = folder_of(folder, 3)
    return BenchmarkConfig(corpus=corpus, ground_truth=truth, chunkers=[SMALL], retrieval=["bm25"], k=[1])


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Workspace:
    return Workspace(root=folder / "work")


@pytest.fixture(scope="module")
def first(prefect_server: None, config: BenchmarkConfig, workspace: Workspace, folder: Path) -> ServerRun:
    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: folder / "storage"}):
        return run_and_read(config, workspace)


def test_results_are_in_the_workspace_one_for_each_task(first: ServerRun, workspace: Workspace, folder: Path) -> None:
    assert first.computed() == {step for step, _ in first.states()}
    assert len(list((workspace.root / "results").iterdir())) == len(first.steps)
    assert not (folder / "storage").exists(), "Prefect stored a result of its own"
    assert {path.name for path in workspace.root.iterdir()} <= {
        *("cache", "locks", "results", "runs", "tables", ".gitignore")
    }
    assert [path.name for path in (workspace.root / "locks").iterdir() if path.is_file()] == []


def record_of_prefect(key: str, serializer: str, result: str) -> bytes:
    made = ResultRecord(result=1, metadata=ResultRecordMetadata(storage_key=key, serializer=JSONSerializer()))
    record = json.loads(made.serialize())
    metadata = record["metadata"] | {"serializer": {"type": serializer}}
    return json.dumps(record | {"metadata": metadata, "result": result}).encode()


def pickled(key: str, stored: bytes, canary: Path) -> bytes:
    return record_of_prefect(key, "pickle", base64.encodebytes(pickle.dumps(Canary(canary))).decode())


def compressed(key: str, stored: bytes, canary: Path) -> bytes:
    return record_of_prefect(key, "compressed/pickle", base64.encodebytes(pickle.dumps(Canary(canary))).decode())


def with_class(key: str, stored: bytes, canary: Path) -> bytes:
    return record_of_prefect(key, "json", json.dumps(called(canary)))


def class_inside(key: str, stored: bytes, canary: Path) -> bytes:
    return json.dumps(json.loads(stored) | {"result": called(canary)}).encode()


def other_serializer(key: str, stored: bytes, canary: Path) -> bytes:
    return json.dumps(json.loads(stored) | {"serializer": {"type": "pickle"}}).encode()


def truncated(key: str, stored: bytes, canary: Path) -> bytes:
    return stored[: len(stored) // 2]


def of_another_key(key: str, stored: bytes, canary: Path) -> bytes:
    return json.dumps(json.loads(stored) | {"key": "score-v1-0"}).encode()


PLANTED = (pickled, compressed, with_class, class_inside, other_serializer, truncated, of_another_key)


def test_nothing_that_was_planted_is_executed_and_the_steps_run_again(
    first: ServerRun, config: BenchmarkConfig, workspace: Workspace, tmp_path: Path
) -> None:
    canary, results = tmp_path / "canary", sorted((workspace.root / "results").iterdir())
    assert len(results) >= len(PLANTED)
    before = {path.name: json.loads(path.read_bytes())["result"] for path in results}
    for path, planted in zip(results, itertools.cycle(PLANTED), strict=False):
        path.write_bytes(planted(path.stem, path.read_bytes(), canary))
    again = run_and_read(config, workspace)
    assert not canary.exists()
    assert {state for _, state in again.states()} == {"Completed"}
    assert [one.scores for one in again.outcome.configurations] == [one.scores for one in first.outcome.configurations]
    after = {path.name: json.loads(path.read_bytes())["result"] for path in (workspace.root / "results").iterdir()}
    assert after.keys() == before.keys()


def test_links_out_of_the_workspace_are_not_followed(
    first: ServerRun, config: BenchmarkConfig, workspace: Workspace, tmp_path: Path
) -> None:
    results = sorted((workspace.root / "results").iterdir())
    for path in results:
        outside = tmp_path / path.name
        os.replace(path, outside)
        path.symlink_to(outside)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = run_and_read(config, workspace)
    assert {state for _, state in again.states()} == {"Completed"}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert not any(path.is_symlink() for path in (workspace.root / "results").iterdir())
    assert run_and_read(config, workspace).computed() == set()


@pytest.fixture
def load(config: BenchmarkConfig) -> Flow[[Workspace], TableRef]:
    """A flow that loads the documents, whose results nobody stores."""

    @flow
    def load(workspace: Workspace) -> TableRef:
        return load_corpus(find_documents(config.corpus)[0], workspace=workspace)

    return load


def test_without_a_workspace_as_storage_nothing_is_cached_and_other_workspaces_have_their_tables(
    load: Flow[[Workspace], TableRef],
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("prefect.task_runs"), "propagate", True)
    caplog.set_level(logging.INFO)
    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: folder / "of-prefect"}):
        for name in ("one", "other"):
            workspace = Workspace(root=folder / name)
            assert workspace.read_table(load(workspace)).num_rows == 3
    logged = [line for line in caplog.messages if line.startswith("not cached")]
    assert len(logged) == 2
    assert "with_options(result_storage=result_storage(workspace))" in logged[0]


def test_what_one_workspace_stores_is_not_found_for_another(load: Flow[[Workspace], TableRef], folder: Path) -> None:
    one, other = (Workspace(root=folder / name) for name in ("stores", "does-not"))
    stored = load.with_options(result_storage=result_storage(one))
    for workspace in (one, other):
        assert workspace.read_table(stored(workspace)).num_rows == 3
    assert stored(one).made == stored(one).made
    assert stored(other).made != stored(other).made


def test_a_run_names_the_ground_truth_file_as_it_is_though_the_questions_are_the_same(
    first: ServerRun, config: BenchmarkConfig, workspace: Workspace, tmp_path: Path
) -> None:
    truth = tmp_path / "truth.jsonl"
    truth.write_text(f"{config.ground_truth[0].path.read_text()}\n")
    edited = config.model_copy(update={"ground_truth": [FileTruth(truth)]})
    again = run_and_read(edited, workspace)
    assert again.computed() == {"load_ground_truth", "join_copies"}
    assert again.outcome.ground_truth.digest != first.outcome.ground_truth.digest
    assert again.outcome.inputs.truth.source == edited.ground_truth[0].observe("token-level").digest
    assert unchanged_run(workspace, edited, reanchor=False) == again.outcome


def test_no_two_steps_can_share_a_key() -> None:
    """A key starts with the step's name and version, and no name is the start of another one's key."""
    prefixes = [f"{one.name}-v" for one in STEPS]
    assert len(prefixes) >= 10
    for place, one in enumerate(prefixes):
        assert not any(other.startswith(one) for other in prefixes[:place] + prefixes[place + 1 :])
