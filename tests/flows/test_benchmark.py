"""The benchmark flow on a real Prefect server, real LanceDB and the local embedder."""

import json
import logging
import shutil
import time
from pathlib import Path

import pytest

from rag_eval import (
    ChunkLevelGroundTruth,
    Corpus,
    Query,
    generate_chunk_id,
    write_chunk_level,
)
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import BenchmarkFailedError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.runs import read_run
from rag_eval.retrieval import RETRIEVER
from rag_eval.sample import CORPUS
from tests.doubles.broken_chunker import BrokenChunker
from tests.flows.benchmarks import LARGE, SMALL, TWO, every_step, folder_of
from tests.flows.server_runs import asked, run, run_and_read, step_of

pytestmark = pytest.mark.usefixtures("prefect_server")

STEPS = [
    "load corpus",
    "load ground truth",
    "chunk",
    "embed",
    "index vectors",
    "index words",
    "sum words",
    "sum vectors",
    "prepare queries",
    "search vector",
    "search bm25",
    "retrieve",
    "score",
]


def test_a_run_scores_every_configuration_and_a_second_one_computes_nothing(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first = run(TWO, workspace)
    assert [one.name for one in first.configurations] == [one.name for one in TWO.configurations()]
    assert (first.answerable, first.unanswerable) == (70, 2)
    small, large = first.configurations
    assert small.chunks.count > 2 * large.chunks.count
    for one in first.configurations:
        assert {"span_recall@5", "span_precision@5", "span_iou@5", "recall_within_tokens@2000"} <= set(one.metrics)
        assert one.queries == 70
        assert one.scores.rows == 70 * len(one.metrics)
    assert large.metrics["span_recall@5"] > small.metrics["span_recall@5"] + 0.05
    assert small.metrics["span_precision@5"] > large.metrics["span_precision@5"] + 0.05
    within = [one.metrics[first.ranking_metric] for one in first.ranked()]
    assert within == sorted(within, reverse=True)
    assert first.work() == (15, 1)  # the queries are prepared for both chunkings at once
    artifacts = {one["key"]: one["data"] for one in reversed(asked("artifacts", {"sort": "CREATED_DESC"}))}
    assert json.loads(artifacts["comparison"])[0]["configuration"] == first.ranked()[0].name

    again = run(TWO, workspace)
    assert again.work() == (0, 16)
    assert [one.metrics for one in again.configurations] == [one.metrics for one in first.configurations]
    assert [one.scores for one in again.configurations] == [one.scores for one in first.configurations]
    for one, same in zip(first.configurations, again.configurations, strict=True):
        assert (one.latency_ms, one.tokens, one.cost) == (same.latency_ms, same.tokens, same.cost)
        assert one.latency_ms is not None
        assert one.latency_ms > 0
        assert one.tokens is not None
        assert one.tokens > 1_000
        assert one.cost == 0.0
        assert workspace.read_tables(one.chunk_tables).num_rows == one.chunks.count == one.indexes[0].rows
    assert first.started < again.started
    assert first.seconds > 0
    assert {"rag-eval", "python", "lancedb", "wordllama"} <= first.versions.keys()

    kept = [json.loads((workspace.runs / run / "summary.json").read_text()) for run in (first.run, again.run)]
    assert [BenchmarkOutcome.model_validate(one) for one in kept] == [first, again]
    assert read_run(workspace) == again
    assert read_run(workspace, first.run) == first

    refreshed = run(TWO, workspace.model_copy(update={"refresh": True}))
    assert refreshed.work() == (16, 0)
    assert [one.metrics for one in refreshed.configurations] == [one.metrics for one in first.configurations]


def test_every_step_runs_and_configurations_share_work(tmp_path: Path) -> None:
    config = every_step(tmp_path).model_copy(
        update={"retrieval": [RETRIEVER.make(name) for name in ("vector", "bm25", "hybrid")]}
    )
    outcome = run(config, Workspace(root=tmp_path))
    by_stage = {stage: (computed, reused) for stage, (computed, reused, _) in outcome.work_by_step().items()}
    assert [*by_stage] == STEPS
    assert by_stage["chunk"] == by_stage["prepare queries"] == (1, 2)
    assert by_stage["embed"] == by_stage["index vectors"] == by_stage["search vector"] == (1, 1)
    assert by_stage["retrieve"] == by_stage["score"] == (3, 0)

    # A refresh makes everything again, and what configurations share once.
    begun = time.time()
    again = run(config, Workspace(root=tmp_path, refresh=True))
    assert {stage: (computed, reused) for stage, (computed, reused, _) in again.work_by_step().items()} == by_stage
    efforts = {stage: efforts for stage, (_, _, efforts) in again.work_by_step().items()}
    assert all(effort.fresh == effort.total for stage in ("chunk", "embed") for effort in efforts[stage])
    segments = list((tmp_path / "cache" / "embeddings").rglob("*.arrow"))
    assert segments
    assert all(path.stat().st_mtime > begun - 1 for path in segments)
    assert run(config, Workspace(root=tmp_path)).work()[0] == 0


def test_one_edited_document_of_a_hundred_is_cut_and_embedded_alone(tmp_path: Path) -> None:
    folder, truth = folder_of(tmp_path, 100)
    config = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=[SMALL])
    workspace = Workspace(root=tmp_path / "work")
    first = run(config, workspace)
    (folder / "050.md").write_text("# Ship 50\n\nShip number 50 was sold and leaves no more.\n")
    second = run(config, workspace)
    efforts = [{stage: done.effort for stage, done in run.configurations[0].steps.items()} for run in (first, second)]
    assert [(efforts[run]["chunk"].fresh, efforts[run]["chunk"].total) for run in (0, 1)] == [(100, 100), (1, 100)]
    assert [efforts[run]["embed"].fresh for run in (0, 1)] == [100, 1]
    other = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=[MarkdownChunker(), LARGE])
    headings, whole = run(other, workspace).configurations
    made = headings.steps["embed"].effort
    assert made is not None
    read = efforts[1]["embed"].tokens
    assert (made.fresh, made.total, made.tokens, made.cost) == (0, 100, read, 0.0)  # cut otherwise, the same texts
    assert whole.steps["embed"].state == "cached"  # the very same chunks


def test_lost_or_altered_work_is_done_again_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(root=tmp_path)
    config = TWO.model_copy(update={"chunkers": [SMALL]})
    first = run(config, workspace)
    (chunks,) = (tmp_path / "tables" / "chunks").iterdir()
    chunks.write_bytes(chunks.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "indexes")
    for segment in (tmp_path / "cache" / "embeddings").rglob("*.arrow"):
        segment.write_bytes(segment.read_bytes()[:200])
    with caplog.at_level(logging.WARNING):
        again = run(config, workspace)
    assert {stage: done.state for stage, done in again.configurations[0].steps.items()} == {
        "chunk": "computed",
        "embed": "cached",
        "index vectors": "computed",
        "prepare queries": "cached",
        "search vector": "computed",
        "retrieve": "cached",
        "score": "cached",
    }
    assert again.configurations[0].metrics == first.configurations[0].metrics
    assert "was altered" in caplog.text
    assert "the task runs again" in caplog.text
    assert "is missing from the workspace" in caplog.text
    assert run(config, workspace).work() == (0, 9)


FAILING = """
def words(text):
    return text.split("\\n\\n")


def broken(texts):
    raise RuntimeError("no vectors today")


def strict(chunks):
    def search(query, k):
        raise RuntimeError("no answer to " + query)

    return search
"""


def test_what_fails_fails_alone_and_the_others_are_concluded(tmp_path: Path) -> None:
    (tmp_path / "failing_parts.py").write_text(FAILING)
    folder_of(tmp_path, 4)
    (tmp_path / "benchmark.yaml").write_text(
        "corpus: docs\nground_truth: truth.jsonl\nk: [1]\n"
        "chunkers: [failing_parts:words, {type: recursive-token, chunk_size: 20}]\n"
        "embedders: [local, failing_parts:broken]\nstores: memory\n"
        "retrieval: [vector, bm25, hybrid, failing_parts:strict]\n"
    )
    config = load_config(tmp_path / "benchmark.yaml")
    config = config.model_copy(update={"chunkers": [*config.chunkers, BrokenChunker()]})
    names = [one.name for one in config.configurations()]
    found = run_and_read(config, Workspace(root=tmp_path / "work"))
    with pytest.raises(BenchmarkFailedError, match=r"12 of 18 configurations failed: ") as caught:
        found.outcome  # noqa: B018  # it raises
    outcome = BenchmarkOutcome.model_validate_json(caught.value.summary.read_bytes())
    reasons = {name: failure.reason for name, failure in outcome.failures.items()}
    assert len(names) == 18
    assert [*reasons, *(one.name for one in outcome.configurations)] == [
        *(name for name in names if "60/90" in name or "broken" in name or "strict" in name),
        *(name for name in names if not ("60/90" in name or "broken" in name or "strict" in name)),
    ]
    for name, reason in reasons.items():
        assert name in str(caught.value) or reason.split(":")[0] in str(caught.value)
        if "60/90" in name:
            assert "the overlap must be smaller" in reason
        elif "broken" in name:
            assert "the embedder failing_parts:broken failed (RuntimeError: no vectors today)" in reason
        else:
            assert "no answer to When does ship number 0 leave?" in reason
    # A chunker that fails ends its own chunking; in the others what needs no failed task is completed.
    ended = {(one["name"], one["state"]["type"]) for one in found.tasks if step_of(one) in ("score", "evaluate")}
    for name in names:
        assert ((f"score {name}", "COMPLETED") in ended) == (name not in reasons)
    assert ("recursive-token 60/90", "FAILED") in ended
    assert found.flow["state"]["type"] == "FAILED"
    # Once more, what was done is cached, and what failed is tried again.
    again = run_and_read(config, Workspace(root=tmp_path / "work"))
    assert {one["state"]["name"] for one in again.steps if one["state"]["type"] == "COMPLETED"} == {"Cached"}
    assert {(step_of(one), one["state"]["name"]) for one in again.steps if one["state"]["type"] == "FAILED"} == {
        ("chunk", "Failed"),
        ("embed", "Failed"),
        ("search", "Failed"),
    }


def test_chunk_level_runs_and_refuses_another_chunker(tmp_path: Path) -> None:
    texts = [text for document in Corpus.from_folder(CORPUS) for text in LARGE.chunk(document.content)]
    asked = Query.from_text(texts[3], {"chunker": LARGE.name})
    write_chunk_level(tmp_path / "t.jsonl", [ChunkLevelGroundTruth(asked, [generate_chunk_id(texts[3])])])
    config = BenchmarkConfig(
        corpus=CORPUS,
        ground_truth=tmp_path / "t.jsonl",
        evaluation_type="chunk-level",
        chunkers=[LARGE],
        retrieval=["vector", "bm25", "hybrid"],
        k=[1, 5],
    )
    outcome = run(config, Workspace(root=tmp_path / "work"))
    for one in outcome.configurations:
        assert one.metrics["chunk_recall@1"] == 1.0
        assert one.metrics["chunk_precision@5"] == pytest.approx(0.2)
    with pytest.raises(BenchmarkFailedError, match=r"made with .*chunk_size=300.* this run uses .*chunk_size=60"):
        run(config.model_copy(update={"chunkers": [SMALL]}), Workspace(root=tmp_path / "work"))
