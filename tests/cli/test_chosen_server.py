"""Which server a command uses, and what is said when one cannot be had."""

import os
import socket
import threading
import warnings
from pathlib import Path

import pytest
from prefect.settings.models.api import APISettings

from rag_eval.cli.prefect_api import answers, configured_api, without_credentials
from rag_eval.cli.processes import last_words
from tests.cli.commands import TWO, rag_eval

PROFILES = 'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n[profiles.none]\n'
ONE = TWO.replace("[60, 300]", "300") + "retrieval: bm25\n"


@pytest.mark.parametrize(
    ("settings", "address", "source"),
    [
        ({"PREFECT_HOME": "."}, "http://127.0.0.1:9/api", "profiles.toml"),
        ({"PREFECT_API_URL": "http://me:secret@127.0.0.1/api"}, "http://127.0.0.1/api", "PREFECT_API_URL"),
    ],
)
def test_a_server_that_does_not_answer_is_named(
    tmp_path: Path, settings: dict[str, str], address: str, source: str
) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "profiles.toml").write_text(PROFILES)
    done = rag_eval("run", "one.yaml", cwd=tmp_path, **settings)
    assert done.returncode == 2
    start, problem = done.stderr.splitlines()
    assert start == "rag-eval: starting on the Prefect server"
    assert f"the Prefect server at {address} does not answer" in problem
    assert problem.endswith(source)


ADDRESS = "http://127.0.0.1:{}/api"
TWO_PROFILES = f"""
active = "first"
[profiles.first]
PREFECT_API_URL = "{ADDRESS.format(1)}"
[profiles.second]
PREFECT_API_URL = "{ADDRESS.format(2)}"
[profiles.empty]
"""


@pytest.mark.parametrize(
    ("environment", "port"),
    [
        ({}, 1),
        ({"PREFECT_PROFILE": "second"}, 2),
        ({"PREFECT_PROFILE": "empty"}, None),
        ({"PREFECT_PROFILE": "unknown"}, None),
        ({"PREFECT_PROFILES_PATH": "other.toml"}, 3),
        ({"PREFECT_PROFILES_PATH": "none.toml"}, None),
        ({"PREFECT_API_URL": ADDRESS.format(4), "PREFECT_PROFILE": "second"}, 4),
        ({"PREFECT_HOME": "", "HOME": "none"}, None),
        ({"PREFECT_HOME": "", "HOME": "none", "PREFECT_PROFILE": "local"}, 4200),
    ],
)
def test_the_api_is_found_where_prefect_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], port: int | None
) -> None:
    (tmp_path / "profiles.toml").write_text(TWO_PROFILES)
    (tmp_path / "other.toml").write_text(TWO_PROFILES.replace(":1/", ":3/"))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    for name, value in ({"PREFECT_HOME": str(tmp_path)} | environment).items():
        is_path = value and name in ("HOME", "PREFECT_PROFILES_PATH")
        monkeypatch.setenv(name, str(tmp_path / value) if is_path else value)
    # Prefect looks for the user's home when it is imported.
    monkeypatch.setattr("prefect.settings.sources.DEFAULT_PREFECT_HOME", Path.home() / ".prefect")
    found = configured_api()
    address = None if port is None else ADDRESS.format(port)
    assert (found and found.address) == address
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a port that is not the UI's
        assert APISettings().url == address


@pytest.mark.parametrize("profiles", [b"\xff", b"active = ", b"active = 1", b"profiles = 1", b"[profiles]\nfirst = 1"])
def test_profiles_that_cannot_be_read_name_no_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profiles: bytes
) -> None:
    (tmp_path / "profiles.toml").write_bytes(profiles)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_PROFILE", "first")
    assert configured_api() is None


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


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("one\n\ntwo\n", "two"),
        ("Traceback\n  File x\nsqlite3.Error: no table\nApplication startup failed.\n", "sqlite3.Error: no table"),
        ("\x1b[31mred\n", r"\x1b[31mred"),
        ("x" * 1000, "x" * 199 + "…"),
    ],
)
def test_last_words_are_the_error_else_the_last_line(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "log").write_text(log)
    assert last_words(tmp_path / "log") == words
    assert last_words(tmp_path / "none") == ""
