"""The current folder is data: commands given there execute nothing of it, and take no settings from it.

The traps are first shown to go off. Those of a temporary server and of ``rag-eval up`` are in their own files.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from tests.cli.commands import CLEAN, TWO, started
from tests.doubles.planted_folder import NOWHERE, obeyed, plant

ONE = TWO.replace("[60, 300]", "300") + "retrieval: bm25\n"
SETTLE = """
from prefect.logging.configuration import setup_logging
from prefect.settings import get_current_settings
setup_logging()
print(get_current_settings().api.url)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one.yaml").write_text(ONE)
    plant(folder, tmp_path / "canaries")
    return folder


def python(code: str, folder: Path, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=CLEAN | settings, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_python_and_prefect_obey_the_current_folder(folder: Path) -> None:
    python("import prefect, tiktoken", folder)
    assert obeyed(folder.parent / "canaries") == {"prefect", "tiktoken"}
    home = str(folder.parent / "home")
    # The first of the files that name a setting wins.
    for file, source in ((".env", "env"), ("prefect.toml", "prefect"), ("pyproject.toml", "pyproject")):
        assert python(SETTLE, folder, PYTHONSAFEPATH="1", PREFECT_HOME=home) == NOWHERE
        assert source in obeyed(folder.parent / "canaries")
        (folder / file).unlink()
    assert python(SETTLE, folder, PYTHONSAFEPATH="1", PREFECT_HOME=home) == "None"


@pytest.mark.parametrize("words", ["--help", "validate one.yaml", "run one.yaml", "watch .", "deploy one.yaml"])
def test_a_command_obeys_nothing(folder: Path, words: str) -> None:
    told = started(*words.split(), cwd=folder, PREFECT_HOME=str(folder.parent / "home"))
    _, said = told.communicate(timeout=600)
    assert NOWHERE not in said
    if words.split()[0] in ("watch", "deploy"):
        assert "no Prefect server is running" in said
    else:
        assert told.returncode == 0, said
    assert obeyed(folder.parent / "canaries") == set()


def sign(repository: Path) -> None:
    """Have Git run a program that the repository names when it shows the last commit, which is signed."""
    program = repository / "program"
    said = "echo '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----'"
    # Reads what Git writes to it first: a pipe that is closed before is an error of Git's.
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ntouch '{repository.parent / 'canaries' / 'git'}'\n{said}\n")
    program.chmod(0o755)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.test"]
    for words in (
        ["init", "-q"],
        ["remote", "add", "origin", "https://user:token@example.test/x.git"],
        ["config", "gpg.program", str(program)],
        ["config", "log.showSignature", "true"],
        ["commit", "-q", "--allow-empty", "-S", "-m", "one"],
    ):
        subprocess.run([*git, *words], cwd=repository, check=True, capture_output=True)


@pytest.mark.usefixtures("prefect_server")
def test_deploying_obeys_nothing(folder: Path) -> None:
    canaries = folder.parent / "canaries"
    git = shutil.which("git")
    if git is not None:
        sign(folder)
        (canaries / "git").unlink()
        subprocess.run([git, "log", "-1"], cwd=folder, check=True, capture_output=True)
        (canaries / "git").unlink()  # the trap went off
    named = {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "PREFECT_HOME": str(folder.parent / "home")}
    deployed = started("deploy", "one.yaml", cwd=folder, **named)
    _, said = deployed.communicate(timeout=600)
    assert deployed.returncode == 0, said
    removed = started("deploy", "--remove", "one", cwd=folder, **named)
    _, said = removed.communicate(timeout=600)
    assert removed.returncode == 0, said
    assert obeyed(canaries) == set()
