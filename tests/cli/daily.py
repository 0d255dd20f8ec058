"""A real ``rag-eval up`` and what its server tells of it."""

import pty
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import httpx

from rag_eval.benchmark.workspace import Workspace
from rag_eval.cli.prefect_home import USER, known_server, prefect_home
from tests.cli.commands import free_port, migrated_database, started, wait_for
from tests.flows.benchmarks import folder_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
chunkers: {type: recursive-token, chunk_size: 60}
stores: memory  # which needs no time to be imported
"""
T = TypeVar("T")
ENDED = ("COMPLETED", "FAILED", "CRASHED")
DEPLOYMENTS = ("adhoc", "experiment", "generate", "nightly", "on-corpus-change")
PROJECT = "b"
"""What a benchmark in b.yaml is called."""


@dataclass(frozen=True)
class Daily:
    """``rag-eval up`` in a folder of ten documents."""

    process: "subprocess.Popen[str]"
    folder: Path
    port: int

    @property
    def ui(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sign_in(self) -> str:
        """The address that opens the dashboard."""
        found = known_server(self.port)
        return found.sign_in if found else ""

    @property
    def auth(self) -> tuple[str, str]:
        """What the server asks for."""
        return USER, self.sign_in.rpartition("#")[2]

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def ask(self, path: str, **body: Any) -> Any:
        """What the server answers to a POST."""
        answer = httpx.post(f"{self.ui}/api{path}", json=body, auth=self.auth, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def deployment(self, name: str, project: str = PROJECT) -> dict[str, Any]:
        """A deployment of a project by name."""
        (found,) = self.ask("/deployments/filter", deployments={"name": {"any_": [f"{name}-{project}"]}})
        return dict(found)

    def runs(self, deployment: str, *states: str, project: str = PROJECT) -> list[dict[str, Any]]:
        """The runs of a deployment that are in one of the states, oldest first."""
        found = self.ask(
            "/flow_runs/filter",
            deployments={"name": {"any_": [f"{deployment}-{project}"]}},
            flow_runs={"state": {"type": {"any_": list(states)}}},
            sort="EXPECTED_START_TIME_ASC",
        )
        return list(found)

    def finished(self, deployment: str, count: int, project: str = PROJECT) -> list[dict[str, Any]]:
        """The runs of a deployment once so many have ended."""
        return self.until(lambda: len(found := self.runs(deployment, *ENDED, project=project)) >= count and found) or []

    def until(self, condition: Callable[[], T]) -> T:
        """What the condition, which asks the server, gives once it is true."""
        return wait_for(condition, 240, every=0.5)


def enter(page: "Page", address: str) -> None:
    """Open a dashboard by its address, and wait until it is there.

    A page that is left while the dashboard asks who this is would ask for the password again.
    """
    from playwright.sync_api import expect

    page.set_default_timeout(60_000)
    page.goto(address)
    page.wait_for_url("**/dashboard**")
    expect(
        page.get_by_text("Run a task or flow to get started").or_(page.get_by_text("Flow Runs").first)
    ).to_be_visible(timeout=60_000)


def terminal(said: Path) -> IO[str]:
    """A terminal; what is written to it is added to a file, until nobody has it any more."""
    ours, theirs = pty.openpty()

    def drain() -> None:
        with suppress(OSError), open(ours, "rb", buffering=0) as screen, said.open("ab", buffering=0) as file:
            while read := screen.read(4096):
                file.write(read)

    threading.Thread(target=drain, daemon=True).start()
    return open(theirs, "w")


def come_up(
    folder: Path,
    port: int | None = None,
    *options: str,
    files: Sequence[str] = ("b.yaml",),
    settings: Mapping[str, str] | None = None,
    in_terminal: bool = False,
) -> Daily:
    """Start it in a folder, which is filled if it has none of the files, and wait until it says that it is up."""
    if not (folder / files[0]).exists():
        folder_of(folder, 10)
        (folder / files[0]).write_text(BENCHMARK)
    port = port or free_port()
    migrated_database(prefect_home(Workspace(root=folder / ".rag-eval")) / "prefect.db")
    # What it says goes to a file: nobody empties a pipe meanwhile.
    file = folder / "said"
    file.write_text("")
    with terminal(file) if in_terminal else file.open("w") as said:
        process = started("up", *files, "--port", str(port), *options, cwd=folder, stderr=said, **(settings or {}))
    daily = Daily(process, folder, port)
    wait_for(lambda: "is up" in daily.said or daily.process.poll() is not None, 240)
    assert daily.process.poll() is None, daily.said
    return daily
