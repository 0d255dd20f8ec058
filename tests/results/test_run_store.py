"""Runs by name, the baseline, and summaries of any version."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY
from rag_eval.results.runs import (
    baseline_runs,
    choose_baseline,
    find_run,
    read_baseline,
    read_both,
    read_run,
    read_summary,
    run_names,
)
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run

ROOT = Path(__file__).parent.parent.parent


def test_a_run_is_found_by_name_by_its_start_and_by_role(own_store: Store) -> None:
    workspace = own_store.workspace
    names = [run.run for run in own_store.runs]
    assert run_names(workspace) == names
    assert find_run(workspace) == find_run(workspace, "latest") == names[-1]
    assert find_run(workspace, names[1]) == names[1]
    assert find_run(workspace, names[1][:-2]) == names[1]
    assert read_run(workspace, names[2]) == own_store.much_worse
    with pytest.raises(ConfigurationError, match="4 runs start with '2'"):
        find_run(workspace, "2")
    with pytest.raises(ConfigurationError, match=r"there is no run 'lastest' \(did you mean latest\?\)"):
        find_run(workspace, "lastest")
    with pytest.raises(ConfigurationError, match=r"there is no run '\.\./x'.*the latest are"):
        find_run(workspace, "../x")
    with pytest.raises(ConfigurationError, match="has no baseline: choose one"):
        find_run(workspace, "baseline")
    chosen = choose_baseline(workspace, names[0][:-1])
    assert (chosen.run, find_run(workspace, "baseline")) == (names[0], names[0])
    assert read_baseline(workspace, None) == chosen
    choose_baseline(workspace)
    assert read_baseline(workspace, None).run == names[-1]


def test_every_benchmark_of_a_folder_has_a_baseline_of_its_own(own_store: Store) -> None:
    workspace = own_store.workspace
    ships, trains = (
        make_run(workspace, own_store.config.model_copy(update={"name": one})) for one in ("ships", "trains")
    )
    choose_baseline(workspace, ships.run)
    assert read_run(workspace, "baseline", ships).run == ships.run
    with pytest.raises(ConfigurationError, match="no baseline for the benchmark 'trains', only for ships: choose one"):
        read_run(workspace, "baseline")  # of the latest run, of trains
    choose_baseline(workspace, trains.run)
    assert [one.run for one in read_both(workspace, "baseline", ships.run)] == [ships.run, ships.run]
    assert [one.run for one in read_both(workspace, ships.run, "baseline")] == [ships.run, ships.run]
    assert [one.run for one in read_both(workspace, "baseline", "latest")] == [trains.run, trains.run]
    assert baseline_runs(workspace) == {ships.run, trains.run}
    choose_baseline(workspace, own_store.good.run)  # of a benchmark without a name
    assert read_run(workspace, "baseline", own_store.good).run == own_store.good.run


def test_a_workspace_without_runs_says_so(tmp_path: Path) -> None:
    for run in ("latest", "baseline", "2024"):
        with pytest.raises(ConfigurationError, match="there is no run yet"):
            find_run(Workspace(root=tmp_path), run)


def test_a_run_without_scores_is_no_baseline(own_store: Store) -> None:
    failed = make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME, LARGE_NAME])
    with pytest.raises(ConfigurationError, match=f"every configuration of {failed.run} failed"):
        choose_baseline(own_store.workspace, failed.run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not a baseline"),
        ('["x"]', "is not a baseline"),
        ('{"run": "gone", "chosen": ""}', "'gone' is missing"),
    ],
)
def test_a_broken_baseline_is_one_sentence(own_store: Store, content: str, sentence: str) -> None:
    (own_store.workspace.root / "baseline.json").write_text(content)
    with pytest.raises(ArtifactError, match=sentence):
        read_run(own_store.workspace, "baseline")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema_version": None, "inputs": None}, r"another version of rag-eval \(schema_version None;"),
        ({"schema_version": 99}, r"another version of rag-eval \(schema_version 99; this version reads"),
        ({"schema_version": 3}, r"an older version of rag-eval \(schema_version 3; this version reads"),
        ({"schema_version": "\u001b[31m"}, r"\(schema_version '\\x1b\[31m';"),
        ({"documents": "many"}, "is damaged at documents"),
        ({"surprise": 1}, "is damaged at surprise"),
    ],
)
def test_a_summary_of_another_kind_is_one_sentence(own_store: Store, changes: dict[str, object], sentence: str) -> None:
    path = own_store.workspace.runs / own_store.good.run / SUMMARY
    content = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    with pytest.raises(ArtifactError, match=sentence):
        read_summary(path)


def test_a_cut_or_missing_summary_is_one_sentence(own_store: Store) -> None:
    path = own_store.workspace.runs / own_store.good.run / SUMMARY
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"is damaged \(not JSON\)"):
        read_summary(path)
    path.write_text("[]")
    with pytest.raises(ArtifactError, match=r"another version of rag-eval \(schema_version None;"):
        read_summary(path)
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_summary(path.with_name("none.json"))


WRITER = """
import sys
from pathlib import Path
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import choose_baseline
from tests.results.made_runs import make_run, write_data
root, own = map(Path, sys.argv[1:])
workspace, config = Workspace(root=root), write_data(own, documents=2, queries=1)
for _ in range(3):
    choose_baseline(workspace, make_run(workspace, config).run)
"""


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / ".rag-eval")]
    writers = [subprocess.Popen([*command, str(tmp_path / own)], cwd=ROOT) for own in ("a", "b")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    workspace = Workspace(root=tmp_path / ".rag-eval")
    names = run_names(workspace)
    assert len(names) == 6
    for name in names:
        assert read_run(workspace, name).run == name
    assert read_baseline(workspace, None).run in names


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["run"], "../elsewhere"),
        (["run"], "/elsewhere"),
        (["run"], ".hidden"),
        (["run"], "another-run"),
        (["configurations", 0, "hits_table"], {"__class__": "os.system"}),
        (["configurations", 0, "scores", "uri"], "../scores.arrow"),
        (["configurations", 0, "scores", "uri"], "/scores.arrow"),
        (["inputs", "truth", "queries", "uri"], "tables/../../queries.arrow"),
        (["documents"], "12"),
    ],
)
def test_a_summary_is_read_strictly_and_names_nothing_outside_its_workspace(
    own_store: Store, path: list[str | int], value: object
) -> None:
    run = own_store.good.run
    file = own_store.workspace.runs / run / SUMMARY
    content = inner = json.loads(file.read_text())
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"remove the (run's )?folder"):
        read_run(own_store.workspace, run)


def test_a_baseline_is_read_strictly(own_store: Store) -> None:
    chosen = choose_baseline(own_store.workspace)
    for planted in ({"run": chosen.run, "chosen": 1}, {"run": [chosen.run], "chosen": "now"}):
        (own_store.workspace.root / "baseline.json").write_text(json.dumps(planted))
        with pytest.raises(ArtifactError, match="is not a baseline"):
            read_baseline(own_store.workspace, None)
