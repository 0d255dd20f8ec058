"""A workspace may come from anybody: a run on one that was tampered with executes nothing of it.

Every trap is first shown to go off where Prefect is let near it, so that a test that passes means something.
"""

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.results import ResultRecord, ResultRecordMetadata
from prefect.serializers import JSONSerializer
from prefect.settings import PREFECT_API_URL

from rag_eval.cli.prefect_home import prefect_home
from rag_eval.pipeline.workspace import Workspace
from tests.cli.commands import CLEAN, TWO, rag_eval
from tests.doubles.canary import Canary, called

ONE = TWO.replace("[60, 300]", "300") + "retrieval: bm25\n"


def prefect_records(canary: Path) -> dict[str, bytes]:
    """Records as Prefect reads them, whose reading makes the canary, by kind."""
    made = ResultRecord(result=1, metadata=ResultRecordMetadata(storage_key="x", serializer=JSONSerializer()))
    record = json.loads(made.serialize())
    pickled = base64.encodebytes(pickle.dumps(Canary(canary))).decode()
    by_pickle = record | {"metadata": record["metadata"] | {"serializer": {"type": "pickle"}}, "result": pickled}
    return {
        "json": json.dumps(record | {"result": json.dumps(called(canary))}).encode(),
        "pickle": json.dumps(by_pickle).encode(),
    }


def plant_home(home: Path, canary: Path) -> None:
    """A Prefect home that makes the canary in whoever uses it."""
    home.mkdir(parents=True)
    handler = {"()": "subprocess.getoutput", "cmd": f"touch '{canary}'"}
    logging = {"version": 1, "disable_existing_loggers": False, "handlers": {"canary": handler}}
    (home / "logging.yml").write_text(json.dumps(logging))
    profile = f'PREFECT_LOGGING_SETTINGS_PATH = "{home / "logging.yml"}"\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n'
    (home / "profiles.toml").write_text(f'active = "planted"\n[profiles.planted]\n{profile}')
    (home / "prefect.db").write_bytes(b"SQLite format 3\0 with deployments")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that is there when a trap has gone off."""
    file = tmp_path / "canary"
    yield file
    assert not file.exists()


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_prefect_runs_what_a_record_tells_it_to(canary: Path, kind: str) -> None:
    ResultRecord.deserialize(prefect_records(canary)[kind])
    assert canary.exists()
    canary.unlink()


def test_prefect_runs_what_its_home_tells_it_to(canary: Path, tmp_path: Path) -> None:
    plant_home(tmp_path / "home", canary)
    code = "from prefect.logging.configuration import setup_logging; setup_logging()"
    environment = CLEAN | {"PREFECT_HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert canary.exists()
    canary.unlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("prefect_server")
def test_a_run_obeys_nothing_in_its_workspace(canary: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    workspace = Workspace(root=tmp_path / ".rag-eval")
    plant_home(workspace.root / "prefect", canary)
    for name in ("logging.yml", "profiles.toml", "prefect.toml"):
        (workspace.root / name).write_bytes((workspace.root / "prefect" / "profiles.toml").read_bytes())
    planted = contents(workspace.root / "prefect")
    first = rag_eval("run", "one.yaml", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert contents(workspace.root / "prefect") == planted  # not even looked at, as a database would show
    assert not prefect_home(workspace).is_relative_to(workspace.root)

    results = sorted((workspace.root / "results").iterdir())
    traps = list(prefect_records(canary).values())
    for number, file in enumerate(results):
        file.write_bytes(traps[number % 2])
        file.with_suffix("").write_bytes(traps[number % 2])  # where Prefect would keep its own
    for run in workspace.runs.iterdir():
        (run / "summary.json").write_bytes(traps[0])  # else nothing would be looked at
    again = rag_eval("run", "one.yaml", "--json", cwd=tmp_path, PREFECT_API_URL=str(PREFECT_API_URL.value()))
    assert again.returncode == 0, again.stderr
    for file in results:
        assert f"note: the stored result {file.stem} is damaged: the task runs again" in again.stderr.splitlines()
    outcomes = [json.loads(run.stdout) for run in (first, again)]
    assert outcomes[0]["configurations"][0]["metrics"] == outcomes[1]["configurations"][0]["metrics"]
    work = {
        stage["state"] for one in (outcomes[1], outcomes[1]["configurations"][0]) for stage in one["steps"].values()
    }
    assert work == {"computed"}
