"""The temporary server of a command: it records everything, lets nobody else in, and ends with the command.

All commands are given in a folder that is full of traps.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_eval.cli.prefect_home import prefect_home, running_temporary_servers
from rag_eval.pipeline.workspace import Workspace
from tests.cli.commands import CLEAN, children, is_running, wait_for
from tests.doubles.planted_folder import NOWHERE, obeyed, plant
from tests.doubles.recording_command import NUMBERS

SCRIPT = str(Path(__file__).parents[1] / "doubles" / "recording_command.py")


@dataclass(frozen=True)
class Place:
    """A folder full of traps, what they would make, and a workspace."""

    folder: Path
    canaries: Path
    workspace: Path

    @property
    def home(self) -> Path:
        return prefect_home(Workspace(root=self.workspace))

    def command(self, mode: str = "", **settings: str) -> "subprocess.Popen[str]":
        """Start a command there."""
        pipe = subprocess.PIPE
        root = str(Path(__file__).parents[2])  # where a test's double finds our packages
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-P", SCRIPT, str(self.workspace), mode],
            cwd=self.folder,
            env=CLEAN | {"PYTHONPATH": path} | settings,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("place")
    (base / "folder").mkdir()
    plant(base / "folder", base / "canaries")
    place = Place(base / "folder", base / "canaries", base / "work")
    yield place
    assert obeyed(place.canaries) == set()


@pytest.fixture(scope="module")
def recorded(place: Place) -> list[dict[str, str]]:
    """Two commands at once, on a database that neither finds; behind a proxy that does not answer."""
    proxy = {"http_proxy": "http://127.0.0.1:9"}
    both = [place.command(**proxy) for _ in range(2)]
    ended = [command.communicate() for command in both]
    assert [command.returncode for command in both] == [0, 0], ended
    # The flow's failed task is all that is told.
    assert all("as it should" in told and "database is locked" not in told for _, told in ended)
    return [json.loads(said) for said, _ in ended]


@dataclass(frozen=True)
class Held:
    """A command that holds its server."""

    process: "subprocess.Popen[str]"
    api: str
    auth: tuple[str, str]

    def ask(self, path: str, **body: Any) -> Any:
        answer = httpx.post(f"{self.api}/{path}", json=body, auth=self.auth, timeout=60)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="module")
def held(place: Place, recorded: list[dict[str, str]]) -> Iterator[Held]:
    """A later command, whose server shows what the others left."""
    process = place.command("hold")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline() or "{}")
    assert said, process.communicate()
    user, _, key = said["auth"].partition(":")
    yield Held(process, said["api"], (user, key))
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_runs_of_ended_commands_are_recorded_whole(held: Held) -> None:
    flow_runs = held.ask("flow_runs/filter")
    assert sorted(run["state"]["type"] for run in flow_runs) == ["COMPLETED"] * 4
    for run in flow_runs:
        asked = {"flow_runs": {"id": {"any_": [run["id"]]}}}
        states = sorted(task["state"]["type"] for task in held.ask("task_runs/filter", **asked))
        is_outer = run["parent_task_run_id"] is None
        # The subflow is a task of the flow above it.
        assert states == (["COMPLETED", "COMPLETED", "FAILED"] if is_outer else ["COMPLETED"] * NUMBERS)
    assert len(held.ask("artifacts/filter")) == 2
    seen = {"event": {"name": ["prefect.task-run.Completed"]}}
    assert held.ask("events/filter", filter=seen)["total"] == 2 * (NUMBERS + 1)


def test_each_server_has_a_port_and_a_key_of_its_own(held: Held, recorded: list[dict[str, str]]) -> None:
    everyone = [*recorded, {"api": held.api, "auth": ":".join(held.auth)}]
    assert all(len({one[what] for one in everyone}) == 3 for what in ("api", "auth"))
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/api", one["api"]) for one in everyone)


@pytest.mark.parametrize(
    ("headers", "has_key", "status"),
    [
        ({}, True, 200),
        ({}, False, 401),
        ({"Host": "evil.test"}, True, 403),
    ],
)
def test_only_programs_with_the_key_get_in(held: Held, headers: dict[str, str], has_key: bool, status: int) -> None:
    auth = held.auth if has_key else None
    assert httpx.get(f"{held.api}/admin/version", headers=headers, auth=auth, timeout=60).status_code == status
    answer = httpx.post(f"{held.api}/flows/", headers=headers, auth=auth, json={"name": "planted"}, timeout=60)
    assert answer.status_code == (201 if status == 200 else status)


def test_the_key_is_in_no_file(held: Held, place: Place) -> None:
    files = [path for path in place.home.rglob("*") if path.is_file()]
    assert {"prefect.db", "start.lock", f"temporary-server-{held.process.pid}.log"} <= {path.name for path in files}
    assert [path for path in files if held.auth[1].encode() in path.read_bytes()] == []


@pytest.mark.usefixtures("held")
def test_prefect_does_not_note_down_that_blocks_are_registered(place: Place) -> None:
    # The next `rag-eval up` would then not register them.
    assert not (place.home / "memo_store.toml").exists()


def test_a_server_ends_with_its_command_even_if_that_is_killed(place: Place, held: Held) -> None:
    assert running_temporary_servers(place.home) == [held.process.pid]
    (server,) = children(held.process.pid)
    held.process.kill()
    held.process.wait()
    wait_for(lambda: not is_running(server))
    assert running_temporary_servers(place.home) == []
    assert list(place.home.glob("*.log")) == []  # what the others had, they removed themselves


def test_a_server_that_cannot_start_is_one_sentence_with_its_last_words(place: Place, tmp_path: Path) -> None:
    other = Place(place.folder, place.canaries, tmp_path / "other")
    (other.home / "prefect.db").write_bytes(b"no database" * 1000)
    command = other.command()
    _, told = command.communicate()
    assert re.fullmatch(
        r"rag-eval: the temporary Prefect server exited with code 3 \(.*file is not a database.*\): see '.*\.log'\n",
        told,
    ), told


def test_settings_in_the_current_folder_count_for_who_asks_for_them(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"PREFECT_API_URL={NOWHERE}\n")
    place = Place(tmp_path, tmp_path, tmp_path / "work")
    _, told = place.command(RAG_EVAL_PREFECT_SETTINGS_HERE="1").communicate()
    assert f"the Prefect server at {NOWHERE} does not answer" in told
    assert "the Prefect settings in this folder" in told
