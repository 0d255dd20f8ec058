"""A benchmark to LangSmith: from the flow to what ``publish`` and ``show`` say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.cli.main import app
from rag_eval.config.models import BenchmarkConfig
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ArtifactError, BenchmarkFailedError
from rag_eval.ground_truth.truth_files import write_chunk_level
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.housekeeping import clear
from rag_eval.results.outcome import PUBLISHED, BenchmarkOutcome
from rag_eval.results.publishing import read_publications
from rag_eval.results.runs import read_run
from rag_eval.services.langsmith_client import langsmith_client
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import generate_chunk_id
from tests.doubles.langsmith_server import LangSmithServer
from tests.flows.benchmarks import folder_of
from tests.flows.server_runs import run as run_flow

DONE, FAILED = "markdown 1000, bm25", "markdown 1000, vector, openai text-embedding-3-small"


@pytest.fixture(scope="module")
def finished(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of a run without a key, in which one of two configurations fails."""
    folder = tmp_path_factory.mktemp("finished")
    docs, truth = folder_of(folder, 3)
    with truth.open("a") as file:
        file.write('{"query": "Who is the captain?", "unanswerable": true}\n')
    config = BenchmarkConfig(
        corpus=docs,
        ground_truth=truth,
        chunkers=[MarkdownChunker()],
        embedders=[OpenAIEmbedder()],
        retrieval=["bm25", "vector"],
        k=[1, 2],
        langsmith_dataset="ships",
    )
    with pytest.MonkeyPatch.context() as environment:
        for name in ("LANGSMITH_API_KEY", "OPENAI_API_KEY"):
            environment.delenv(name, raising=False)
        with pytest.raises(BenchmarkFailedError, match="1 of 2 configurations failed"):
            run_flow(config, Workspace(root=folder / "workspace"))
    return folder / "workspace"


@pytest.fixture
def workspace(finished: Path, tmp_path: Path) -> Workspace:
    """A copy of it."""
    return Workspace(root=shutil.copytree(finished, tmp_path / "workspace"))


def outcome_of(workspace: Workspace) -> BenchmarkOutcome:
    return read_run(workspace)


def rag_eval(*arguments: str, workspace: Workspace) -> Result:
    return CliRunner().invoke(app, [*arguments, "--workspace", str(workspace.root)])


def experiments(server: LangSmithServer) -> dict[str, dict[str, Any]]:
    return {one["name"][:-9]: one for one in server.api.sessions.values() if one["reference_dataset_id"]}


def test_without_a_key_the_run_is_complete_and_says_what_was_not_sent(workspace: Workspace) -> None:
    outcome = outcome_of(workspace)
    assert [one.name for one in outcome.configurations] == [DONE]
    assert [(one.configuration, one.dataset, one.url) for one in read_publications(workspace, outcome.run)] == [
        (DONE, "ships", None),
        (FAILED, "ships", None),
    ]
    for command in ("show", "publish"):
        shown = rag_eval(command, workspace=workspace)
        assert shown.exit_code == (command == "publish")
        assert "Not sent: 2 experiments (LangSmith needs a key" in shown.output
        assert shown.output.count("set LANGSMITH_API_KEY") == 1


def test_publishing_later_sends_each_configuration_once_and_failed_ones_as_failed(
    server: LangSmithServer, settings: None, workspace: Workspace
) -> None:
    outcome = outcome_of(workspace)
    sent = rag_eval("publish", workspace=workspace)
    assert sent.exit_code == 0, sent.output
    found = experiments(server)
    assert found.keys() == {DONE, FAILED}
    compared = f"compare?selectedSessions={found[DONE]['id']}%2C{found[FAILED]['id']}"
    assert compared in sent.output.replace("\n", "")
    requests = len(server.requests)
    assert compared in rag_eval("publish", outcome.run, workspace=workspace).output.replace("\n", "")
    assert len(server.requests) == requests, "what was sent is not sent again"
    assert found[DONE]["extra"]["metadata"]["state"] == "completed"
    assert found[DONE]["extra"]["metadata"]["run"] == outcome.run
    assert found[FAILED]["extra"]["metadata"]["state"] == "failed"
    runs = list(server.api.runs.values())
    done = {run["inputs"]["query"]: run for run in runs if run["session_id"] == found[DONE]["id"]}
    assert len(done) == 2
    spans = done["When does ship number 0 leave?"]["outputs"]["retrieved_spans"]
    assert len(spans) == 2
    assert spans[0]["text"].startswith("# Ship ")
    failed = [run for run in runs if run["session_id"] == found[FAILED]["id"]]
    assert all("OPENAI_API_KEY" in run["error"] for run in failed)
    assert len(failed) == 2
    answered = done["When does ship number 0 leave?"]["id"]
    assert {one["run_id"] for one in server.api.feedback.values()} == {answered}
    for name in outcome.measured:
        assert server.scores(name) == [round(outcome.configurations[0].metrics[name], 4)]


def test_addresses_are_kept_beside_the_run_and_shown(
    server: LangSmithServer, settings: None, workspace: Workspace
) -> None:
    run = outcome_of(workspace).run
    noted = json.loads(rag_eval("publish", "--json", workspace=workspace).output)
    found = experiments(server)
    path = workspace.runs / run / PUBLISHED
    assert noted == json.loads(path.read_text())
    assert [one["url"].rpartition("=")[2] for one in noted] == [found[DONE]["id"], found[FAILED]["id"]]
    assert json.loads(rag_eval("show", "--json", workspace=workspace).output)["published"] == noted
    # A kill before the note loses nothing and doubles nothing.
    path.unlink()
    assert json.loads(rag_eval("publish", "--json", workspace=workspace).output) == noted
    assert (len(experiments(server)), len(server.api.runs)) == (2, 4)
    path.write_text("{")
    with pytest.raises(ArtifactError, match="remove it, and publish the run again"):
        read_publications(workspace, run)


def test_one_configuration_that_is_refused_holds_up_no_other(
    server: LangSmithServer, settings: None, workspace: Workspace
) -> None:
    server.fail("POST", "/sessions", status=422)
    refused = rag_eval("publish", "--json", workspace=workspace)
    assert refused.exit_code == 1
    reasons = {one["configuration"]: one["reason"] for one in json.loads(refused.output)}
    assert "it answered 422" in reasons[DONE]
    assert reasons[FAILED] is None
    assert rag_eval("publish", workspace=workspace).exit_code == 0
    assert experiments(server).keys() == {DONE, FAILED}


def test_a_run_can_go_to_another_dataset_and_queries_it_does_not_have_are_counted(
    server: LangSmithServer, settings: None, workspace: Workspace
) -> None:
    client = langsmith_client()
    boats = client.create_dataset("boats")
    query = {"query": "When does ship number 0 leave?"}
    client.create_example(query, dataset_id=boats.id, reference_outputs={"relevant_spans": []})
    client.close()
    run = outcome_of(workspace).run
    sent = rag_eval("publish", run[:13], "--dataset", "boats", workspace=workspace)
    assert sent.exit_code == 0, sent.output
    assert "The dataset 'boats' lacks 1 query of the run" in sent.output
    assert {one.dataset for one in read_publications(workspace, run)} == {"ships", "boats"}


def test_a_run_without_a_dataset_asks_for_one_and_missing_tables_are_named(
    server: LangSmithServer, settings: None, workspace: Workspace
) -> None:
    outcome = outcome_of(workspace)
    (workspace.runs / outcome.run / PUBLISHED).unlink()
    summary = workspace.runs / outcome.run / "summary.json"
    summary.write_text(summary.read_text().replace('"ships"', "null"))
    asked = rag_eval("publish", outcome.run, workspace=workspace)
    assert "has no LangSmith dataset: give --dataset" in str(asked.exception)
    clear(workspace)
    gone = rag_eval("publish", "--dataset", "boats", workspace=workspace)
    assert "is missing from the workspace" in str(gone.exception)


@pytest.mark.usefixtures("prefect_server", "settings")
def test_a_run_with_a_key_is_published_by_the_flow_in_chunks_too(server: LangSmithServer, tmp_path: Path) -> None:
    docs, _ = folder_of(tmp_path, 3)
    chunker, truth = MarkdownChunker(), tmp_path / "chunks.jsonl"
    chunk_id = generate_chunk_id(chunker.chunk((docs / "000.md").read_text())[0])
    query = Query.from_text("When does ship number 0 leave?", {"chunker": chunker.name})
    write_chunk_level(truth, [ChunkLevelGroundTruth(query, [chunk_id])])
    config = BenchmarkConfig(
        corpus=docs,
        ground_truth=truth,
        evaluation_type="chunk-level",
        chunkers=[MarkdownChunker()],
        retrieval=["bm25"],
        langsmith_dataset="chunks",
    )
    workspace = Workspace(root=tmp_path / "workspace")
    outcome = run_flow(config, workspace)
    (publication,) = read_publications(workspace, outcome.run)
    (found,) = experiments(server).values()
    assert str(publication.url).endswith(found["id"])
    (run,) = server.api.runs.values()
    assert chunk_id in run["outputs"]["retrieved_chunk_ids"]
    (example,) = server.api.examples.values()
    assert example["outputs"] == {"relevant_chunk_ids": [chunk_id]}
    assert example["metadata"]["chunker"] == chunker.name
    assert server.scores("chunk_recall@5") == [1.0]
