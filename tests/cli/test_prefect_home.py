"""Where Prefect's own files are: with the user, never in a workspace."""

import os
import stat
import time
from pathlib import Path

import pytest

from rag_eval.cli.prefect_api import running_up
from rag_eval.cli.prefect_home import (
    home_of,
    kept_key,
    key_file,
    known_server,
    known_server_at,
    prefect_home,
    write_secret,
)
from rag_eval.errors import ArtifactError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import SCRATCH_PREFIX, user_folder


def test_a_workspace_has_a_home_of_its_own_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, other = Workspace(root=tmp_path / "one"), Workspace(root=tmp_path / "other")
    bucket = Workspace.at("s3://bench/team")
    homes = [prefect_home(workspace) for workspace in (one, other, bucket)]
    assert len(set(homes)) == 3
    for home in homes:
        assert home.parent == tmp_path / "state" / "rag-eval"
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    one.root.mkdir()
    (tmp_path / "link").symlink_to(one.root)
    assert prefect_home(Workspace(root=tmp_path / "link")) == homes[0]
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert prefect_home(one) == tmp_path / "me" / ".local" / "state" / "rag-eval" / homes[0].name


def test_what_killed_servers_left_is_removed_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = Workspace(root=tmp_path / "work")
    home = prefect_home(workspace)
    old, new = home / f"{SCRATCH_PREFIX}old", home / f"{SCRATCH_PREFIX}new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "prefect.db").write_bytes(b"database")
    long_ago = time.time() - 2 * 86_400
    for path in (old / "prefect.db", old):
        os.utime(path, (long_ago, long_ago))
    assert prefect_home(workspace) == home
    assert [path.name for path in home.iterdir()] == [new.name]


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(ArtifactError, match=r"Prefect's folder .* \(Not a directory\): set XDG_STATE_HOME"):
        prefect_home(Workspace(root=tmp_path / "work"))


def test_files_of_the_user_are_where_the_system_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    systems = ("linux", "darwin", "win32")
    both = [(user_folder("cache", system), user_folder("state", system)) for system in systems]
    assert [[one.relative_to(tmp_path).as_posix() for one in pair] for pair in both] == [
        [".cache/rag-eval", ".local/state/rag-eval"],
        ["Library/Caches/rag-eval", "Library/Application Support/rag-eval"],
        ["AppData/Local/Cache/rag-eval", "AppData/Local/rag-eval"],
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    assert user_folder("cache", "win32") == tmp_path / "named" / "rag-eval"


def test_the_key_of_a_server_is_known_while_its_up_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = key_file(4201)
    write_secret(file, "http://127.0.0.1:4201/rag-eval/sign-in#of-one-that-was-killed")
    assert known_server(4201) is None
    assert not file.exists()
    with kept_key(4201, "http://127.0.0.1:4201/rag-eval/sign-in#key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for api in ("http://127.0.0.1:4201/api", "http://me:x@localhost:4201/api"):
            server = known_server_at(api)
            assert server is not None
            assert server.key == "key"
        for api in ("http://example.test:4201/api", "http://127.0.0.1:4202/api", "http://127.0.0.1:none/api", "none"):
            assert known_server_at(api) is None
    assert not file.exists()


def test_a_running_up_is_found_on_any_port_and_rather_that_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    workspace, other = (Workspace(root=tmp_path / name) for name in ("own", "other"))
    write_secret(key_file(4200), f"#of-one-that-was-killed\n{home_of(workspace)}")
    assert running_up(workspace) is None
    with kept_key(4201, "#key", [home_of(other)]), kept_key(4202, "#key", [home_of(workspace)]):
        ports = {one.root.name: server.address for one in (workspace, other) if (server := running_up(one))}
        assert ports == {"own": "http://127.0.0.1:4202/api", "other": "http://127.0.0.1:4201/api"}
