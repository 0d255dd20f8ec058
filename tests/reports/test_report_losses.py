"""Where recall is lost, from the hits that a run kept of every stage: the parts add up."""

from pathlib import Path

import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.charts import losses_of_run
from rag_eval.retrieval.rerankers import LexicalReranker
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.chain import run_benchmark

BOTH = BenchmarkConfig(
    corpus=CORPUS,
    ground_truth=GROUND_TRUTH,
    chunkers=[RecursiveTokenChunker(chunk_size=100)],
    rerankers=[None, LexicalReranker()],
    k=[1, 5],
)


@pytest.mark.parametrize("beside", [True, False])
def test_the_parts_add_up_and_the_rerankers_part_needs_no_run_without_it(tmp_path: Path, beside: bool) -> None:
    config = BOTH if beside else BOTH.model_copy(update={"rerankers": [LexicalReranker()]})
    workspace = Workspace(root=tmp_path)
    outcome = run_benchmark(workspace, config)
    found = losses_of_run(workspace, outcome, outcome.configurations)
    assert outcome.ranking_metric == "recall_within_tokens@2000"
    at = {"2,000 tokens": outcome.ranking_metric, "1 hit": "span_recall@1", "5 hits": "span_recall@5"}
    assert list(found) == list(at)
    for cut, rows in found.items():
        for one, shares in zip(outcome.configurations, rows, strict=True):
            assert shares is not None
            assert sum(shares) == pytest.approx(1 - one.metrics[at[cut]], abs=1e-4)
            is_reranked = one.configuration.reranker.type != "none"
            if cut == "5 hits":
                assert (shares[LOSS_PARTS.index("reranker")] != 0) == is_reranked
