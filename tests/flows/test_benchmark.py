"""The benchmark flow on a real Prefect server, real LanceDB and the local embedder."""

import json
import logging
import re
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL
from rag_eval.benchmark.running import StageEvent, listening, reuse_outcome

from flows.benchmark import benchmark
from rag_eval import (
    ChunkLevelGroundTruth,
    Corpus,
    LocalEmbedder,
    Query,
    RecursiveTokenChunker,
    TokenLevelEvaluation,
    generate_chunk_id,
    write_chunk_level,
)
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.runs import read_run
from rag_eval.benchmark.scores import read_scores
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.errors import BenchmarkFailedError, GroundTruthError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.verdict import judged
from rag_eval.retrieval import RETRIEVER
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tasks.artifacts import artifact_key
from tests.benchmark.made_runs import sweep_benchmark, write_sentences
from tests.doubles.broken_chunker import BrokenChunker
from tests.flows.benchmarks import LARGE, SMALL, STAGES, TWO, every_stage, folder_of

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_a_run_scores_every_configuration_and_a_second_one_computes_nothing(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first = benchmark(TWO, workspace)
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
    assert first.work() == (13, 0)

    again = benchmark(TWO, workspace)
    assert again.work() == (0, 13)
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

    refreshed = benchmark(TWO, workspace.model_copy(update={"refresh": True}))
    assert refreshed.work() == (13, 0)
    assert [one.metrics for one in refreshed.configurations] == [one.metrics for one in first.configurations]


def test_the_pipeline_gives_what_the_library_gives(tmp_path: Path) -> None:
    outcome = benchmark(TWO, Workspace(root=tmp_path))
    evaluation = TokenLevelEvaluation(Corpus.from_folder(CORPUS), GROUND_TRUTH)
    for one, size in zip(outcome.configurations, (60, 300), strict=True):
        result = evaluation.run(RecursiveTokenChunker(chunk_size=size), LocalEmbedder(), k=5)
        assert {name: one.metrics[f"{name}@5"] for name in result.metrics} == dict(result.metrics)


def test_every_stage_runs_and_configurations_share_work(tmp_path: Path) -> None:
    config = every_stage(tmp_path).model_copy(
        update={"retrieval": [RETRIEVER.make(name) for name in ("vector", "bm25", "hybrid")]}
    )
    outcome = benchmark(config, Workspace(root=tmp_path))
    by_stage = {stage: (computed, reused) for stage, (computed, reused, _) in outcome.work_by_stage().items()}
    assert set(by_stage) == set(STAGES)
    assert by_stage["chunk"] == (1, 2)
    assert by_stage["embed"] == by_stage["index"] == by_stage["retrieve-by-vector"] == (1, 1)
    assert by_stage["score"] == (3, 0)

    # A refresh makes everything again, and what configurations share once.
    begun = time.time()
    again = benchmark(config, Workspace(root=tmp_path, refresh=True))
    assert {stage: (computed, reused) for stage, (computed, reused, _) in again.work_by_stage().items()} == by_stage
    efforts = {stage: efforts for stage, (_, _, efforts) in again.work_by_stage().items()}
    assert all(effort.fresh == effort.total for stage in ("chunk", "embed") for effort in efforts[stage])
    segments = list((tmp_path / "cache" / "embeddings").rglob("*.arrow"))
    assert segments
    assert all(path.stat().st_mtime > begun - 1 for path in segments)
    assert benchmark(config, Workspace(root=tmp_path)).work()[0] == 0


def test_one_edited_document_of_a_hundred_is_cut_and_embedded_alone(tmp_path: Path) -> None:
    folder, truth = folder_of(tmp_path, 100)
    config = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=[SMALL])
    workspace = Workspace(root=tmp_path / "work")
    first = benchmark(config, workspace)
    (folder / "050.md").write_text("# Ship 50\n\nShip number 50 was sold and leaves no more.\n")
    second = benchmark(config, workspace)
    efforts = [{stage: done.effort for stage, done in run.configurations[0].stages.items()} for run in (first, second)]
    assert [(efforts[run]["chunk"].fresh, efforts[run]["chunk"].total) for run in (0, 1)] == [(100, 100), (1, 100)]
    assert [efforts[run]["embed"].fresh for run in (0, 1)] == [100, 1]
    other = BenchmarkConfig(corpus=folder, ground_truth=truth, chunkers=[MarkdownChunker(), LARGE])
    headings, whole = benchmark(other, workspace).configurations
    made = headings.stages["embed"].effort
    assert made is not None
    read = efforts[1]["embed"].tokens
    assert (made.fresh, made.total, made.tokens, made.cost) == (0, 100, read, 0.0)  # cut otherwise, the same texts
    assert whole.stages["embed"].work == "reused"  # the very same chunks


def test_lost_or_altered_work_is_done_again_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(root=tmp_path)
    config = TWO.model_copy(update={"chunkers": [SMALL]})
    first = benchmark(config, workspace)
    (chunks,) = (tmp_path / "tables" / "chunks").iterdir()
    chunks.write_bytes(chunks.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "indexes")
    for segment in (tmp_path / "cache" / "embeddings").rglob("*.arrow"):
        segment.write_bytes(segment.read_bytes()[:200])
    with caplog.at_level(logging.WARNING):
        again = benchmark(config, workspace)
    assert {stage: done.work for stage, done in again.configurations[0].stages.items()} == {
        "chunk": "computed",
        "embed": "reused",
        "index": "computed",
        "retrieve-by-vector": "reused",
        "score": "reused",
    }
    assert again.configurations[0].metrics == first.configurations[0].metrics
    assert "was altered" in caplog.text
    assert "chunk is computed again" in caplog.text
    assert "is gone from the workspace" in caplog.text
    assert benchmark(config, workspace).work() == (0, 8)


def test_a_failing_configuration_leaves_the_others_complete(tmp_path: Path) -> None:
    config = TWO.model_copy(update={"chunkers": [LARGE, BrokenChunker()]})
    with pytest.raises(
        BenchmarkFailedError, match=r"1 of 2 configurations failed: .*overlap must be smaller"
    ) as caught:
        benchmark(config, Workspace(root=tmp_path))
    outcome = json.loads(caught.value.summary.read_text())
    assert [one["name"] for one in outcome["configurations"]] == ["recursive-token 300/0, vector"]
    (failure,) = outcome["failures"].values()
    assert list(outcome["failures"]) == ["recursive-token 60/90, vector"]
    assert {stage: done["work"] for stage, done in failure["stages"].items()} == {"chunk": "failed"}
    assert BenchmarkOutcome.model_validate(outcome).work_by_stage()["chunk"][:2] == (2, 0)


def test_truth_that_does_not_fit_the_corpus_stops_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(CORPUS, folder)
    document = next(folder.glob("fares*.md"))
    document.write_text("An added line.\n" + document.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(GroundTruthError, match="the text is at"):
        benchmark(TWO.model_copy(update={"corpus": folder}), Workspace(root=tmp_path / "work"))


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
    outcome = benchmark(config, Workspace(root=tmp_path / "work"))
    for one in outcome.configurations:
        assert one.metrics["chunk_recall@1"] == 1.0
        assert one.metrics["chunk_precision@5"] == pytest.approx(0.2)
    with pytest.raises(BenchmarkFailedError, match=r"made with .*chunk_size=300.* this run uses .*chunk_size=60"):
        benchmark(config.model_copy(update={"chunkers": [SMALL]}), Workspace(root=tmp_path / "work"))


def asked(kind: str, sort: str) -> list[dict[str, Any]]:
    """What the server has, newest first; over HTTP, because Prefect's own client asks in a way that it refuses."""
    with httpx.Client(timeout=30) as client:
        answer: list[dict[str, Any]] = client.post(
            f"{PREFECT_API_URL.value()}/{kind}/filter", json={"sort": sort}
        ).json()
    return answer


def test_a_run_has_a_name_and_tags_and_its_tasks_have_none(tmp_path: Path) -> None:
    """A tag of a task run would make it ask the server for a concurrency slot."""
    outcome = benchmark(every_stage(tmp_path), Workspace(root=tmp_path))
    runs = asked("flow_runs", "START_TIME_DESC")
    whole = next(run for run in runs if run["name"].startswith("corpus "))
    assert re.fullmatch(r"corpus \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", whole["name"])
    assert set(whole["tags"]) == {"rag-eval", "token-level"}
    part = next(run for run in runs if run["name"] == outcome.configurations[0].name)
    assert set(part["tags"]) == {
        "chunker:recursive-token",
        "retrieval:hybrid",
        "embedder:local",
        "store:lancedb",
        "reranker:lexical",
    }
    assert all(run["tags"] == [] for run in asked("task_runs", "EXPECTED_START_TIME_DESC"))


def test_a_run_leaves_artifacts_to_look_at(tmp_path: Path) -> None:
    benchmark(TWO.model_copy(update={"chunkers": [SMALL]}), Workspace(root=tmp_path))
    found = {artifact["key"]: artifact["data"] for artifact in reversed(asked("artifacts", "CREATED_DESC"))}
    assert json.loads(found["comparison"])[0]["configuration"] == "recursive-token 60/0, vector"
    assert found["progress"] == 100.0
    assert "span\\_recall@5" in found[artifact_key("recursive-token 60/0, vector")]


def states_of(names: list[str], wanted: str) -> set[tuple[str, str]]:
    """The states of task runs of these names, once each has the one wanted: a server learns of them a little later."""
    until = time.monotonic() + 30
    while True:
        asking = {"task_runs": {"name": {"any_": names}}}
        runs = httpx.post(f"{PREFECT_API_URL.value()}/task_runs/filter", json=asking, timeout=30).json()
        found = {(one["name"], one["state_name"]) for one in runs}
        if {(name, wanted) for name in names} <= found or time.monotonic() > until:
            return found
        time.sleep(0.2)


def test_a_sure_search_shows_its_rounds_and_evaluates_whole_what_can_be_best(tmp_path: Path) -> None:
    write_sentences(tmp_path)
    config, workspace = sweep_benchmark(tmp_path, search="sure", tolerance=0.02), Workspace(root=tmp_path / "w")
    events: list[StageEvent] = []
    with listening(events.append):
        outcome = benchmark(config, workspace)
    record = outcome.search
    assert record is not None
    assert record.excluded
    assert record.excluded.keys() | {one.name for one in outcome.configurations} == {
        one.name for one in config.configurations()
    }
    shared = [event.stage for event in events if event.configuration is None and event.status == "started"]
    rounds = [one for one in shared if one.startswith("narrow ")]
    assert rounds
    assert "guide" in shared
    assert states_of(rounds, "Completed") == {(name, "Completed") for name in rounds}
    settled = {event.configuration for event in events if event.status == "excluded"}
    assert settled >= record.excluded.keys()
    assert [event.reason for event in events if event.status == "told"][-1].endswith(
        f" of {record.full_tokens:,} tokens"
    )  # type: ignore[union-attr]  # it has one
    # Begun again, every round is found kept, and shown so.
    begun = len(events)
    with listening(events.append):
        assert benchmark(config, workspace).search == record
    assert {event.stage for event in events[begun:] if event.status == "reused" and event.configuration is None} >= {
        "guide",
        *rounds,
    }
    assert states_of(rounds, "Cached") >= {(name, "Cached") for name in rounds}
    # The next night nothing is computed, and the same is known.
    again = reuse_outcome(workspace, config)
    assert again is not None
    assert again.search == record
    verdict = judged(read_scores(workspace, outcome), outcome)[1]
    assert verdict.search.startswith("Best of 18 on these questions: no other is better by more than 0.0")
    assert f"{len(record.excluded)} excluded by what they can find at most" in verdict.search
    assert judged(read_scores(workspace, outcome), outcome.by("span_iou@3"))[1].search == ""
