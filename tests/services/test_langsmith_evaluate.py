"""Our metrics and a user's own, through LangSmith's evaluate: offline, and uploading to a double on loopback."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langsmith import Client, aevaluate, evaluate
from langsmith.schemas import Example

from rag_eval.evaluation.metrics import (
    ChunkLevelPrecision,
    ChunkLevelRecall,
    Metrics,
    TokenLevelIoU,
    TokenLevelPrecision,
    TokenLevelRecall,
    get_langsmith_evaluators,
)
from rag_eval.services.langsmith_client import langsmith_client
from tests.doubles.langsmith_fixtures import closed, offline_client
from tests.doubles.langsmith_sample import (
    FOUND,
    PRECISION_AT_2,
    RECALL_AT_2,
    SeedPrecision,
    WrappedPrecision,
    an_example,
    examples,
    record,
    retrieve,
    uploaded_dataset,
)
from tests.doubles.langsmith_server import KEY, LangSmithServer

pytestmark = pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")

ROOT = Path(__file__).parents[2]

Target = Callable[[dict[str, Any]], Any]


class Broken(Metrics):
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        raise ZeroDivisionError("no luck")


def scores(results: Any, key: str) -> dict[str, float | None]:
    """The score of each query under a key."""
    return {
        row["example"].inputs["query"]: result.score
        for row in results
        for result in row["evaluation_results"]["results"]
        if result.key == key
    }


def offline(target: Target, metrics: Any, k: int | None = 2, data: list[Example] | None = None) -> Any:
    client = offline_client()
    evaluators = get_langsmith_evaluators(metrics, k)
    try:
        return evaluate(target, data=data or examples(), evaluators=evaluators, client=client, upload_results=False)
    finally:
        client.close()


def retrieve_but_q2(inputs: dict[str, Any]) -> list[str]:
    if inputs["query"] == "q2":
        raise TimeoutError("the store is away")
    return FOUND[inputs["query"]]


@pytest.mark.parametrize("metric", [SeedPrecision(), WrappedPrecision(), ChunkLevelPrecision()])
def test_ours_and_a_users_own_run_offline(metric: Metrics) -> None:
    results = list(offline(retrieve, {"recall": ChunkLevelRecall(), "precision": metric}))
    assert scores(results, "recall@2") == RECALL_AT_2
    assert scores(results, "precision@2") == PRECISION_AT_2


def test_a_failing_target_is_not_scored_offline(caplog: pytest.LogCaptureFixture) -> None:
    results = list(offline(retrieve_but_q2, {"recall": ChunkLevelRecall(), "own": SeedPrecision()}))
    for key, expected in (("recall@2", RECALL_AT_2), ("own@2", PRECISION_AT_2)):
        assert scores(results, key) == expected | {"q2": None}
    assert not [entry for entry in caplog.records if "running evaluator" in entry.message]


def test_a_metric_that_raises_is_recorded_under_its_own_name(caplog: pytest.LogCaptureFixture) -> None:
    results = list(offline(retrieve, {"broken": Broken(), "recall": ChunkLevelRecall()}))
    assert scores(results, "broken@2") == {"q1": None, "q2": None, "q3": None}
    assert scores(results, "recall@2") == RECALL_AT_2
    assert "no luck" in results[0]["evaluation_results"]["results"][0].comment
    assert "no luck" in caplog.text


def test_the_asynchronous_evaluate_runs_them_too() -> None:
    async def target(inputs: dict[str, Any]) -> list[str]:
        return FOUND[inputs["query"]]

    async def run(client: Client) -> list[Any]:
        evaluators = get_langsmith_evaluators({"recall": ChunkLevelRecall()}, 2)
        results = await aevaluate(target, data=examples(), evaluators=evaluators, client=client, upload_results=False)
        return [row async for row in results]

    client = offline_client()
    assert scores(asyncio.run(run(client)), "recall@2") == RECALL_AT_2
    client.close()


def test_token_level_metrics_run_offline() -> None:
    found = {"q1": [record(0, 10), record(5, 15)], "q2": [record(90, 95)]}
    truth = {"q1": [record(0, 20)], "q2": [record(0, 5)]}
    data = [an_example({"relevant_spans": spans}, query=query) for query, spans in truth.items()]
    metrics = {"recall": TokenLevelRecall(), "precision": TokenLevelPrecision(), "iou": TokenLevelIoU()}
    results = list(offline(lambda inputs: {"retrieved_spans": found[inputs["query"]]}, metrics, 5, data))
    assert scores(results, "recall@5") == {"q1": 0.75, "q2": 0.0}
    assert scores(results, "precision@5") == {"q1": 1.0, "q2": 0.0}
    assert scores(results, "iou@5") == {"q1": 0.75, "q2": 0.0}


@pytest.mark.parametrize("compressed", [True, False])
def test_feedback_arrives_with_its_key_and_value(server: LangSmithServer, compressed: bool) -> None:
    server.api.info["instance_flags"]["zstd_compression_enabled"] = compressed
    client = langsmith_client(KEY, server.url)
    evaluators = get_langsmith_evaluators({"recall": ChunkLevelRecall(), "own": SeedPrecision()}, k=2)
    results = evaluate(
        retrieve, data=uploaded_dataset(client), evaluators=evaluators, client=client, experiment_prefix="nightly"
    )
    closed(client)
    assert scores(results, "recall@2") == RECALL_AT_2
    queries = {one["id"]: one["inputs"]["query"] for one in server.api.examples.values()}
    for key, expected in (("recall@2", RECALL_AT_2), ("own@2", PRECISION_AT_2)):
        arrived = {
            queries[server.api.runs[one["run_id"]]["reference_example_id"]]: one["score"]
            for one in server.feedback(key)
        }
        assert arrived == expected
    experiment = next(one for one in server.api.sessions.values() if one["name"] == results.experiment_name)
    assert experiment["evaluator_keys"] == ["recall@2", "own@2"]
    assert {run["name"] for run in server.api.runs.values()} == {"Target", "recall@2", "own@2"}
    assert {one["key"] for one in server.api.feedback.values()} == {"recall@2", "own@2"}
    encodings = {one.headers.get("content-encoding") for one in server.requests if one.path == "/runs/multipart"}
    assert encodings == {"zstd" if compressed else None}


def test_a_failing_target_and_a_broken_metric_upload_no_score(server: LangSmithServer, client: Client) -> None:
    evaluators = get_langsmith_evaluators({"recall": ChunkLevelRecall(), "broken": Broken()}, k=2)
    evaluate(retrieve_but_q2, data=uploaded_dataset(client), evaluators=evaluators, client=client)
    client.flush()
    assert sorted(map(str, server.scores("recall@2"))) == ["0.5", "0.5", "None"]
    failed = next(one for one in server.feedback("recall@2") if one["score"] is None)
    assert failed["error"] is True
    assert "the store is away" in failed["comment"]
    assert server.scores("broken@2") == [None, None, None]
    assert sorted("no luck" in one["comment"] for one in server.feedback("broken@2")) == [False, True, True]


def test_a_users_metric_is_well_typed_and_a_mix_of_levels_is_not(tmp_path: Path) -> None:
    own, mixed = tmp_path / "own_metric.py", tmp_path / "mixed_levels.py"
    own.write_text(OWN_METRIC, encoding="utf-8")
    mixed.write_text(MIXED, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", str(own), str(mixed)]
    report = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    # Names only: what mypy has in its cache it reports with the folder of that time.
    errors = [Path(line).name.split(" error: ")[0] for line in report.splitlines() if " error: " in line]
    assert errors == ["mixed_levels.py:3:", "mixed_levels.py:4:"], report


OWN_METRIC = """
from typing import List, Optional

from langsmith import evaluate
from langsmith.schemas import Example, Run

from rag_eval.evaluation.metrics import ChunkLevelRecall, get_langsmith_evaluators
from rag_eval.evaluation.metrics.base import Metrics


class PrecisionMetric(Metrics):
    def calculate(self, retrieved_chunk_ids: List[str], ground_truth_chunk_ids: List[str]) -> float:
        if len(retrieved_chunk_ids) == 0:
            return 0.0
        return len(set(retrieved_chunk_ids) & set(ground_truth_chunk_ids)) / len(set(retrieved_chunk_ids))

    def extract_ground_truth_chunks_ids(self, example: Optional[Example]) -> List[str]:
        if example is None:
            return []
        outputs = example.outputs or {}
        chunk_ids: List[str] = outputs.get("chunk_ids", [])
        return chunk_ids

    def extract_retrieved_chunks_ids(self, run: Run) -> List[str]:
        return run.outputs if isinstance(run.outputs, list) else []


class OnlyCalculate(Metrics):
    def calculate(self, retrieved_chunk_ids: List[str], ground_truth_chunk_ids: List[str]) -> float:
        return 0.95


feedback = PrecisionMetric().to_langsmith_evaluator(metric_name="precision", k=5)
by_name = get_langsmith_evaluators({"recall": ChunkLevelRecall(), "own": PrecisionMetric()}, k=5)
in_a_set = get_langsmith_evaluators({OnlyCalculate()}, k=5)
evaluate(lambda inputs: {"chunk_ids": []}, data="questions", evaluators=[feedback, *by_name, *in_a_set])
"""

MIXED = """from rag_eval.evaluation.metrics import ChunkLevelRecall, TokenLevelRecall, get_langsmith_evaluators

get_langsmith_evaluators([ChunkLevelRecall(), TokenLevelRecall()], k=5)
get_langsmith_evaluators([5], k=5)
get_langsmith_evaluators([TokenLevelRecall()], k=5)
"""
