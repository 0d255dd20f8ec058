"""Which server a command uses, and what is said when one cannot be had."""

import hashlib
import os
import socket
import threading
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import pytest

from flows.cli.prefect_home import keep_template, prefect_home, use_template
from flows.cli.server import answers, last_words, temporary_server, without_credentials
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ArtifactError
from tests.flows.cli.commands import TWO, rag_eval

PROFILES = 'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n[profiles.none]\n'
ONE = TWO.replace("[60, 300]", "300") + "retrieval: bm25\n"


def test_a_damaged_template_is_made_anew_and_said(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "profiles.toml").write_text(PROFILES)  # the profile in use names no server
    cache = tmp_path / "cache" / "rag-eval"
    cache.mkdir(parents=True)
    damaged = cache / f"prefect-{version('prefect')}-{'0' * 24}.db"
    damaged.write_bytes(b"SQLite format 3\0 and nothing after it")
    settings = {
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_PROFILE": "none",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{tmp_path / 'mine.db'}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = rag_eval("run", "one.yaml", "--runner", "processes", cwd=tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"note: the database template {damaged} was damaged: it is made anew, which takes a while",
        "rag-eval: starting on a temporary Prefect server, whose database is made first",
        "rag-eval: 1 of 1: recursive-token 300/0, bm25: done",
    ]
    assert not (tmp_path / "mine.db").exists()  # the database of a server of the user's own
    (kept,) = cache.iterdir()
    assert hashlib.sha256(kept.read_bytes()).hexdigest()[:24] in kept.name


def test_logs_are_not_for_a_server_that_ends_with_the_command(tmp_path: Path) -> None:
    """What is still to be sent when it has ended, Prefect would try to send for a minute."""
    with patch.dict(os.environ), temporary_server(tmp_path):
        assert os.environ["PREFECT_LOGGING_TO_API_ENABLED"] == "false"


def test_what_a_killed_command_leaves_of_its_server_is_known_by_its_process(tmp_path: Path) -> None:
    with patch.dict(os.environ), temporary_server(tmp_path) as server:
        assert server.folder.stat().st_mode & 0o777 == 0o700
        assert f"-{os.getpid()}-" in server.folder.name  # by which the next run finds that nobody needs it
    assert [path.name for path in tmp_path.iterdir()] == ["authority.pem"]


def test_a_disk_that_is_full_under_the_server_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.cli.server.FULL_BYTES", 2**62)
    with (
        patch.dict(os.environ),
        pytest.raises(ArtifactError, match=r"the disk is full where Prefect's files are, .+: make room"),
        temporary_server(tmp_path),
    ):
        raise RuntimeError("Server error '500 Internal Server Error'")


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "uvicorn.py").write_text("raise ImportError('half installed')")
    done = rag_eval(
        "run",
        "one.yaml",
        "--runner",
        "processes",
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(broken), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    )
    assert done.returncode == 2
    log = prefect_home(Workspace(root=tmp_path / ".rag-eval")) / "server.log"
    assert done.stderr.splitlines()[1:] == [
        f"rag-eval: the temporary Prefect server ended with code 1 (ImportError: half installed; the whole of it is in "
        f"'{log}'): run again to continue, or start a server yourself and set PREFECT_API_URL"
    ]
    assert "Traceback" in log.read_text()


def test_a_server_named_in_a_profile_that_does_not_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "profiles.toml").write_text(PROFILES)
    done = rag_eval("run", "one.yaml", cwd=tmp_path, PREFECT_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == (
        "rag-eval: the Prefect server at http://127.0.0.1:9/api does not answer: start it, or take its address out of "
        f"{tmp_path / 'profiles.toml'}\n"
    )


def test_something_else_that_listens_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            caller, _ = other.accept()
            with caller:
                caller.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                caller.recv(1000)

        threading.Thread(target=greet).start()
        assert not answers(f"http://127.0.0.1:{other.getsockname()[1]}/api", 10.0)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://127.0.0.1:4200/api", "http://127.0.0.1:4200/api"),
        ("https://me:secret@prefect.example/api", "https://prefect.example/api"),
        ("http://me:se@cr@et@[::1]:4200/api?mail=a@b", "http://[::1]:4200/api?mail=a@b"),
        ("no address", "no address"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert without_credentials(address) == shown


def test_a_password_in_the_address_of_a_server_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    done = rag_eval("run", "one.yaml", cwd=tmp_path, PREFECT_API_URL="http://me:secret@127.0.0.1/api")
    assert done.returncode == 2
    assert done.stderr.startswith("rag-eval: the Prefect server at http://127.0.0.1/api does not answer: start it, or")


def test_templates_that_cannot_be_read_or_kept_are_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache" / "rag-eval" / f"prefect-{version('prefect')}-{'0' * 24}.db").mkdir(parents=True)
    assert not use_template(tmp_path / "prefect.db")
    assert not (tmp_path / "prefect.db").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_template(tmp_path / "prefect.db")
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("one\n\ntwo\n", "two"),
        (
            "Traceback\n  File x\nsqlite3.OperationalError: no table\nApplication startup failed.\n",
            "sqlite3.O",
        ),
        ("\x1b[31mred\n", r"\x1b[31mred"),
        ("x" * 1000, "x" * 199 + "…"),
    ],
)
def test_last_words_are_the_error_else_the_last_line(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "log").write_text(log)
    assert last_words(tmp_path / "log").startswith(words)
    assert last_words(tmp_path / "log") if words else last_words(tmp_path / "log") == ""
    assert last_words(tmp_path / "none") == ""
