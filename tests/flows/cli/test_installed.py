"""The wheel, installed outside the clone: the command runs, beside folders called like our packages too."""

import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from rag_eval.distribution import DISTRIBUTION, VERSION, install_command
from tests.flows.cli.commands import CLEAN

ROOT = Path(__file__).parents[3]
SOURCES = ("rag_eval", "tasks", "flows", "deployments", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
chunkers: [my_parts:whole]
retrieval: bm25
"""
TRUTH = (
    '{"query": "When does the ferry leave?", '
    '"relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 25, "text": "The ferry leaves at noon."}]}\n'
)


def done(*words: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """A program that ran to its end."""
    return subprocess.run(words, cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and the packages of this one in place of new ones."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    built = done(sys.executable, "-c", BUILD, str(folder), cwd=source)
    assert built.returncode == 0, built.stderr
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    installed = done(*pip(programs), "install", "--no-deps", "--no-compile", str(wheel), cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return programs


def pip(programs: Path) -> list[str]:
    """The words that begin a command of pip for an environment; it asks no index."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(programs / "python")]


def test_the_name_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    paths = [path for top in ("rag_eval", "tasks", "flows") for path in (ROOT / top).rglob("*.py")]
    texts = {path.name: path.read_text("utf-8") for path in paths}
    assert [name for name, text in texts.items() if DISTRIBUTION in text or "pip install" in text] == [
        "distribution.py"
    ]


def test_an_extra_is_added_to_what_is_installed(bin_folder: Path, tmp_path: Path) -> None:
    words = shlex.split(install_command("stemming"))
    added = done(*pip(bin_folder), *words[1:], "--no-index", "--no-deps", cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    assert f"already satisfied: {words[-1]}" in added.stdout


def test_a_run_beside_folders_called_flows_and_tasks(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The ferry leaves at noon.\n")
    (tmp_path / "truth.jsonl").write_text(TRUTH)
    (tmp_path / "benchmark.yaml").write_text(BENCHMARK)
    (tmp_path / "my_parts.py").write_text(
        "import tasks_of_mine\n\n\ndef whole(text):\n    return tasks_of_mine.cut(text)\n"
    )
    (tmp_path / "tasks_of_mine.py").write_text("def cut(text):\n    return [text.strip()]\n")
    for name in ("flows", "rag_eval", "deployments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "tasks.py").write_text("raise RuntimeError('the wrong one')\n")
    run = done(bin_folder / "rag-eval", "run", "benchmark.yaml", "--runner", "processes", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "my_parts:whole, bm25" in run.stdout
    assert "1.000" in run.stdout


def test_the_sample_is_in_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    validated = done(bin_folder / "rag-eval", "validate", str(ROOT / "rag_eval/sample/benchmark.yaml"), cwd=tmp_path)
    code = "from rag_eval.sample import BENCHMARK; print(BENCHMARK)"
    sample = done(bin_folder / "python", "-P", "-c", code, cwd=tmp_path).stdout.strip()
    assert str(bin_folder.parent) in sample
    installed = done(bin_folder / "rag-eval", "validate", sample, cwd=tmp_path)
    assert (installed.returncode, installed.stdout) == (0, validated.stdout)
