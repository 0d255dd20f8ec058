"""The benchmark flow on a real Prefect server, real LanceDB and the local embedder."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from flows.benchmark import benchmark
from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.config.chunkers import RecursiveTokenConfig
from rag_eval.errors import BenchmarkFailedError, GroundTruthError
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sample import CORPUS, GROUND_TRUTH

pytestmark = pytest.mark.usefixtures("prefect_server")
CONFIG = BenchmarkConfig(
    corpus=CORPUS,
    ground_truth=GROUND_TRUTH,
    chunkers=[RecursiveTokenConfig(chunk_size=60), RecursiveTokenConfig(chunk_size=300)],
)


def test_a_run_scores_every_configuration_and_a_second_one_computes_nothing(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first = benchmark(CONFIG, workspace)
    assert [one.name for one in first.configurations] == [one.name for one in CONFIG.configurations()]
    assert (first.answerable, first.unanswerable) == (70, 2)
    small, large = first.configurations
    assert small.chunks > 2 * large.chunks
    for one in first.configurations:
        assert set(one.metrics) == {"span_recall@5", "span_precision@5", "span_iou@5"}
        assert one.queries == 70
        assert one.scores.rows == 70 * 3
    assert large.metrics["span_recall@5"] > small.metrics["span_recall@5"] + 0.05
    assert small.metrics["span_precision@5"] > large.metrics["span_precision@5"] + 0.05
    assert first.work() == (12, 0)

    again = benchmark(CONFIG, workspace)
    assert again.work() == (0, 12)
    assert [one.metrics for one in again.configurations] == [one.metrics for one in first.configurations]
    assert [one.scores for one in again.configurations] == [one.scores for one in first.configurations]

    kept = [json.loads((workspace.runs / run / "summary.json").read_text()) for run in (first.run, again.run)]
    assert [BenchmarkOutcome.model_validate(one) for one in kept] == [first, again]


def test_lost_or_altered_work_is_done_again_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = Workspace(root=tmp_path)
    config = CONFIG.model_copy(update={"chunkers": CONFIG.chunkers[:1]})
    first = benchmark(config, workspace)
    (chunks,) = (tmp_path / "tables" / "chunks").iterdir()
    chunks.write_bytes(chunks.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "indexes")
    with caplog.at_level(logging.WARNING):
        again = benchmark(config, workspace)
    assert again.configurations[0].stages == {
        "chunk": "computed",
        "embed": "reused",
        "index": "computed",
        "retrieve": "reused",
        "score": "reused",
    }
    assert again.configurations[0].metrics == first.configurations[0].metrics
    assert "was altered" in caplog.text
    assert "chunk is computed again" in caplog.text
    assert "is gone from the workspace" in caplog.text
    assert benchmark(config, workspace).work() == (0, 7)


def test_a_failing_configuration_leaves_the_others_complete(tmp_path: Path) -> None:
    broken = RecursiveTokenConfig.model_construct(type="recursive-token", chunk_size=60, chunk_overlap=90)
    config = CONFIG.model_copy(update={"chunkers": [CONFIG.chunkers[1], broken]})
    with pytest.raises(BenchmarkFailedError, match="1 of 2 configurations failed") as caught:
        benchmark(config, Workspace(root=tmp_path))
    outcome = BenchmarkOutcome.model_validate_json(caught.value.summary.read_bytes())
    assert [one.name for one in outcome.configurations] == [CONFIG.configurations()[1].name]


def test_truth_that_does_not_fit_the_corpus_stops_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(CORPUS, folder)
    document = next(folder.glob("fares*.md"))
    document.write_text("An added line.\n" + document.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(GroundTruthError, match="the document has changed or the offsets are not code points"):
        benchmark(CONFIG.model_copy(update={"corpus": folder}), Workspace(root=tmp_path / "work"))
