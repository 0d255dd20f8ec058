import shutil
from pathlib import Path

import pytest

from rag_eval.pipeline.workspace import Workspace
from tests.results.made_runs import LARGE_NAME, Store, make_run, write_data


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
