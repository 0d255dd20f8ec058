"""What a search engine loses against exact search, in a run with both."""

from pathlib import Path

import numpy as np
import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.run_losses import configuration_losses
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.chain import run_benchmark

RETRIEVAL = [
    "vector",
    "hybrid",
    {"type": "lancedb", "query": "vector", "index": {"type": "ivf-flat", "num_partitions": 20, "nprobes": 1}},
    {"type": "lancedb", "query": "hybrid", "limit": 10},
    {"type": "lancedb", "query": "fts"},
]


def test_an_engine_loses_in_its_index_or_in_its_fusion_and_the_losses_add_up(tmp_path: Path) -> None:
    settings = {"corpus": CORPUS, "ground_truth": GROUND_TRUTH, "k": [5], "metrics": ["span_recall"], "copies": "off"}
    config = BenchmarkConfig.model_validate(
        settings | {"chunkers": [{"type": "recursive-token", "chunk_size": 100}], "retrieval": RETRIEVAL}
    )
    workspace = Workspace(root=tmp_path)
    outcome = run_benchmark(workspace, config)
    recall, lost = {}, {}
    for one in outcome.configurations:
        name = one.name.removeprefix("recursive-token 100/0, ")
        losses = configuration_losses(workspace, outcome, one, [5])
        assert losses is not None
        recall[name] = one.metrics["span_recall@5"]
        lost[name] = {part: float(np.mean(losses.parts.column(part).to_numpy())) for part in LOSS_PARTS}
        assert 1 - recall[name] == pytest.approx(sum(lost[name].values()))
    indexed, hybrid = "lancedb vector index=(ivf-flat num_partitions=20 nprobes=1)", "lancedb hybrid limit=10"
    assert lost[indexed]["index"] == pytest.approx(recall["vector"] - recall[indexed])
    assert lost[indexed]["index"] > 0.02
    assert lost[hybrid]["fusion"] == pytest.approx(recall["hybrid"] - recall[hybrid])
    assert lost[hybrid]["fusion"] > 0
    assert lost["lancedb fts"]["index"] == lost["lancedb fts"]["fusion"] == 0
