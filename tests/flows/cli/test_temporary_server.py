"""Which server a command uses, and what is said when one cannot be had."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.cli.server_log import last_words
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
    settings = {"PREFECT_HOME": str(tmp_path), "PREFECT_PROFILE": "none", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = rag_eval("run", "one.yaml", cwd=tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"note: the database template {damaged} was damaged: it is made anew, which takes a while",
        "rag-eval: starting on a temporary Prefect server, whose database is made first",
    ]
    (kept,) = cache.iterdir()
    assert hashlib.sha256(kept.read_bytes()).hexdigest()[:24] in kept.name


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "uvicorn.py").write_text("raise ImportError('half installed')")
    done = rag_eval("run", "one.yaml", cwd=tmp_path, PYTHONPATH=str(broken))
    assert done.returncode == 2
    log = tmp_path / ".rag-eval" / "prefect" / "server.log"
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
