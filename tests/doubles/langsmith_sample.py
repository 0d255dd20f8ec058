"""Questions, a target, and runs and examples as LangSmith holds them."""

import uuid
from datetime import UTC, datetime
from typing import Any

from langsmith import Client
from langsmith.schemas import Example, Run

from rag_eval.evaluation.metrics.base import Metrics

NOW = datetime.now(UTC)
TRUTH = {"q1": ["a", "b"], "q2": ["c"], "q3": ["d", "e", "f", "g"]}
FOUND = {"q1": ["a", "x", "b"], "q2": ["x", "y", "z"], "q3": ["g", "f", "e", "d"]}
RECALL_AT_2 = {"q1": 0.5, "q2": 0.0, "q3": 0.5}
PRECISION_AT_2 = {"q1": 0.5, "q2": 0.0, "q3": 1.0}


class SeedPrecision(Metrics):
    """A user's metric, with all three methods and LangSmith's outputs taken for a list."""

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        if len(retrieved_chunk_ids) == 0:
            return 0.0
        return len(set(retrieved_chunk_ids) & set(ground_truth_chunk_ids)) / len(set(retrieved_chunk_ids))

    def extract_ground_truth_chunks_ids(self, example: Example | None) -> list[str]:
        return [] if example is None else (example.outputs or {}).get("relevant_chunk_ids", [])

    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return run.outputs if isinstance(run.outputs, list) else []


class WrappedPrecision(SeedPrecision):
    """The same, written for what LangSmith records."""

    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return list((run.outputs or {})["output"])


def a_run(outputs: Any, error: str | None = None) -> Run:
    run = Run(id=uuid.uuid4(), name="target", start_time=NOW, run_type="chain", inputs={}, trace_id=uuid.uuid4())
    run.outputs = outputs
    run.error = error
    return run


def an_example(outputs: dict[str, Any] | None, metadata: dict[str, Any] | None = None, query: str = "q") -> Example:
    return Example(
        id=uuid.uuid4(),
        dataset_id=uuid.uuid4(),
        created_at=NOW,
        inputs={"query": query},
        outputs=outputs,
        metadata=metadata,
    )


def examples() -> list[Example]:
    return [an_example({"relevant_chunk_ids": ids}, query=query) for query, ids in TRUTH.items()]


def uploaded_dataset(client: Client, name: str = "questions") -> str:
    dataset = client.create_dataset(name)
    rows = [{"inputs": {"query": q}, "reference_outputs": {"relevant_chunk_ids": ids}} for q, ids in TRUTH.items()]
    client.create_examples(dataset_id=dataset.id, examples=rows)
    return name


def record(start: int, end: int) -> dict[str, Any]:
    return {"doc_id": "d.md", "start": start, "end": end, "text": "x" * (end - start)}


def retrieve(inputs: dict[str, Any]) -> list[str]:
    return FOUND[inputs["query"]]
