"""Benchmark files to load, and runs to look at."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_eval.pipeline.workspace import Workspace
from tests.benchmark.made_runs import LARGE_NAME, Store, make_run, write_data


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four runs on the same data, the last with a failure; not to be altered."""
    folder = tmp_path_factory.mktemp("store")
    config = write_data(folder)
    workspace = Workspace(root=folder / ".rag-eval")
    runs = [make_run(workspace, config, lost=lost) for lost in (0, 0.05, 0.3)]
    runs.append(make_run(workspace, config, failing=[LARGE_NAME]))
    return Store(workspace, config, *runs)


@pytest.fixture
def own_store(store: Store, tmp_path: Path) -> Store:
    """The same, to be altered."""
    shutil.copytree(store.workspace.root, tmp_path / ".rag-eval")
    return Store(Workspace(root=tmp_path / ".rag-eval"), store.config, *store.runs)


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a benchmark file, with a corpus and a truth unless they are left out."""

    def write_file(text: str, name: str = "bench.yaml", *, bare: bool = False) -> Path:
        sign = " =" if name.endswith(".toml") else ":"
        head = "" if bare else f'corpus{sign} "docs"\nground_truth{sign} "truth.jsonl"\n'
        path = tmp_path / name
        path.write_text(head + text, encoding="utf-8")
        return path

    return write_file
