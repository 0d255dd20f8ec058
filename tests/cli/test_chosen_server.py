"""Which server a command uses, and what is said when one cannot be had."""

import socket
import threading
from pathlib import Path

import pytest

from rag_eval.cli.deploy import last_words
from rag_eval.cli.server import answers, without_credentials
from tests.cli.commands import TWO, rag_eval

PROFILES = 'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n[profiles.none]\n'
ONE = TWO.replace("[60, 300]", "300") + "retrieval: bm25\n"


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
