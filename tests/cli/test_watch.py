"""``rag-eval watch`` on a real server."""

import signal
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_URL

from tests.cli.commands import rag_eval, started, wait_for


@pytest.mark.usefixtures("prefect_server")
def test_a_change_becomes_an_event(tmp_path: Path) -> None:
    api = str(PREFECT_API_URL.value())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("one")
    with (tmp_path / "said").open("w") as said:
        watch = started("watch", "docs", "--glob", "*.txt", cwd=tmp_path, stderr=said, PREFECT_API_URL=api)
    wait_for(lambda: "watching docs for *.txt" in (tmp_path / "said").read_text())
    (tmp_path / "docs" / "a.txt").write_text("two")
    (tmp_path / "docs" / "b.txt").write_text("new")
    wait_for(lambda: "docs: 1 added, 1 changed" in (tmp_path / "said").read_text())
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=30)
    assert watch.returncode == 130
    asked = {"filter": {"event": {"name": ["corpus.changed"]}}, "limit": 10}

    def told() -> list[dict[str, dict[str, object]]]:
        found: list[dict[str, dict[str, object]]] = httpx.post(f"{api}/events/filter", json=asked, timeout=30).json()[
            "events"
        ]
        return found

    (event,) = wait_for(told, every=0.5)
    assert event["payload"]["corpus"] == str(tmp_path / "docs")
    assert (event["payload"]["added"], event["payload"]["changed"]) == (["b.txt"], ["a.txt"])


@pytest.mark.parametrize(
    ("folder", "api", "sentence"),
    [
        ("docs", "http://127.0.0.1:9/api", "the Prefect server at http://127.0.0.1:9/api does not answer"),
        ("none", None, "none' does not exist: check the path"),
    ],
)
@pytest.mark.usefixtures("prefect_server")
def test_a_mistake_is_one_sentence(tmp_path: Path, folder: str, api: str | None, sentence: str) -> None:
    (tmp_path / "docs").mkdir()
    done = rag_eval("watch", folder, cwd=tmp_path, PREFECT_API_URL=api or str(PREFECT_API_URL.value()))
    assert done.returncode == 2
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
