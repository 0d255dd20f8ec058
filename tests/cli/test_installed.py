"""The wheel, installed outside the clone: the command runs, beside folders called like our packages too."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from flows.deployments import ProjectFolder
from rag_eval.distribution import DISTRIBUTION, VERSION, install_command
from tests.cli.commands import CLEAN

ROOT = Path(__file__).parents[2]
SOURCES = ("rag_eval", "tasks", "flows", "deployments", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
chunkers: [my_parts:whole]
retrieval: bm25
"""
PARTS = """
import tasks_of_mine

def whole(text):
    return tasks_of_mine.cut(text)

def nothing(text):
    return [text[-2:]]
"""
TRUTH = (
    '{"query": "When does the ferry leave?", '
    '"relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 25, "text": "The ferry leaves at noon."}]}\n'
)


def done(*words: str | Path, cwd: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """A program that ran to its end."""
    return subprocess.run(
        words, cwd=cwd, env=CLEAN | settings, capture_output=True, text=True, timeout=300, check=False
    )


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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user, with parts of his own and packages that are called as ours."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("The ferry leaves at noon.\n")
    (folder / "truth.jsonl").write_text(TRUTH)
    (folder / "benchmark.yaml").write_text(BENCHMARK)
    (folder / "my_parts.py").write_text(PARTS)
    (folder / "tasks_of_mine.py").write_text("def cut(text):\n    return [text.strip()]\n")
    for name in ("flows", "rag_eval", "deployments"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    (folder / "tasks.py").write_text("raise RuntimeError('the wrong one')\n")
    return folder


def test_a_run_beside_folders_called_flows_and_tasks(bin_folder: Path, project: Path) -> None:
    run = done(bin_folder / "rag-eval", "run", "benchmark.yaml", "--runner", "dask", cwd=project)
    assert run.returncode == 0, run.stderr
    assert "my_parts:whole, bm25" in run.stdout
    assert "1.000" in run.stdout


LOADED = """
import asyncio, os
from prefect.deployments.steps.core import run_steps
from prefect.flows import load_flow_from_entrypoint
asyncio.run(run_steps([STEP]))
flow = load_flow_from_entrypoint("flows.benchmark_from_file.benchmark_from_file")
print(flow.name, os.environ["RAG_EVAL_PROJECT_FOLDER"])
"""


def test_a_worker_in_such_a_folder_loads_our_flow(bin_folder: Path, tmp_path: Path) -> None:
    for name in ("flows", "tasks"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    code = LOADED.replace("STEP", repr(ProjectFolder(str(tmp_path)).to_pull_step()))
    # As a worker's child: it is in the folder of the user before the step is run.
    # It has a server, which is not asked: without one Prefect would start its own.
    given = {"PYTHONSAFEPATH": "1", "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    loaded = done(bin_folder / "python", "-c", code, cwd=tmp_path, **given)
    assert f"rag-eval-benchmark-from-file {tmp_path}" in loaded.stdout, loaded.stderr


def action_steps(given: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The commands of the action's steps that run, each with its environment, for the inputs given."""
    action = yaml.safe_load((ROOT / "deployments" / "github-action" / "action.yml").read_text("utf-8"))
    inputs = {name: str(one["default"]) for name, one in action["inputs"].items()} | given
    assert given.keys() <= action["inputs"].keys()
    for step in action["runs"]["steps"]:
        assert ("uses" in step) != (step.get("shell") == "bash")
        text = step.get("run", "")
        assert "${{" not in text, "an input would be part of a command"
        holds = step.get("if", "always()")
        assert holds in ("always()", "inputs.set-baseline == 'true'")
        if text and (holds == "always()" or inputs["set-baseline"] == "true"):
            named = {name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value) for name, value in step["env"].items()}
            yield text, {name: inputs[found[1]] for name, found in named.items() if found}


def test_the_steps_of_the_action_run_and_its_gate_fails_a_drop(bin_folder: Path, project: Path) -> None:
    source = bin_folder.parents[1] / "source"
    summary = project / "summary.md"
    environment = {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_ACTION_PATH": str(source / "deployments" / "github-action"),
        "GITHUB_STEP_SUMMARY": str(summary),
        # What is installed is what is there: no index is asked.
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
    }

    def ran(begin: int = 0, **given: str) -> list[tuple[int, str]]:
        found = []
        steps = action_steps({name.replace("_", "-"): value for name, value in given.items()})
        for text, values in [*steps][begin:]:
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
            step = done(*shell, cwd=project, **environment, **values)
            found.append((step.returncode, step.stdout + step.stderr))
        return found

    first = ran(set_baseline="true", junit="gate.xml", configurations="my_parts:whole, bm25\n")
    assert [code for code, _ in first] == [0] * 5, first
    assert "::notice title=rag-eval gate::PASS." in first[2][1]
    assert "my_parts:whole, bm25" in (project / "gate.xml").read_text("utf-8")
    (project / "benchmark.yaml").write_text(BENCHMARK.replace("my_parts:whole", "my_parts:nothing"))
    (run, _), (code, told), _ = ran(1, metric="span_recall@5")  # installed it is
    assert (run, code) == (0, 3), told
    assert "::error title=my_parts%3Awhole%2C bm25::FAIL: no score in this run: " in told
    assert summary.read_text("utf-8").count("## Retrieval") == 2


def test_the_sample_is_in_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    validated = done(bin_folder / "rag-eval", "validate", str(ROOT / "rag_eval/sample/benchmark.yaml"), cwd=tmp_path)
    code = "from rag_eval.sample import BENCHMARK; print(BENCHMARK)"
    sample = done(bin_folder / "python", "-P", "-c", code, cwd=tmp_path).stdout.strip()
    assert str(bin_folder.parent) in sample
    installed = done(bin_folder / "rag-eval", "validate", sample, cwd=tmp_path)
    assert (installed.returncode, installed.stdout) == (0, validated.stdout)
