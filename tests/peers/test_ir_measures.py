"""The rank metrics on chunks against ir_measures, which trec_eval's own code computes."""

import numpy as np
import pytest

from rag_eval.metrics import METRIC
from rag_eval.metrics.metric import built_in_metric, metric_of
from rag_eval.types.ids import ChunkId

ir_measures = pytest.importorskip("ir_measures")

PAIRS = {
    "chunk_recall": "R@{k}",
    "chunk_hit_rate": "Success@{k}",
    "chunk_mrr": "RR@{k}",
    "chunk_map": "AP@{k}",
    "chunk_ndcg": "nDCG@{k}",
    "chunk_precision": "P@{k}",
    "chunk_f1": "SetF",
}
CHUNKS = [ChunkId(f"chunk_{number:02d}") for number in range(30)]
HITS = 10


def runs(seed: int, queries: int = 40) -> tuple[dict[str, list[ChunkId]], dict[str, list[ChunkId]]]:
    rng = np.random.default_rng(seed)
    retrieved = {f"q{number:02d}": rng.permutation(CHUNKS)[:HITS].tolist() for number in range(queries)}
    relevant = {query: rng.permutation(CHUNKS)[: rng.integers(1, 15)].tolist() for query in retrieved}
    return retrieved, relevant


def test_every_chunk_metric_has_its_peer() -> None:
    assert set(PAIRS) == {name for name in METRIC.types if metric_of(name).levels == ("chunk-level",)}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("k", [1, 3, 5, 10])
def test_each_query_scores_as_in_ir_measures(name: str, k: int) -> None:
    retrieved, relevant = runs(seed=k)
    measure = ir_measures.parse_measure(PAIRS[name].format(k=k))
    # SetF has no cut of its own, so every run is cut before it is scored.
    run = {query: {chunk: 1 - rank / 100 for rank, chunk in enumerate(found[:k])} for query, found in retrieved.items()}
    qrels = {query: dict.fromkeys(chunks, 1) for query, chunks in relevant.items()}
    peer = {score.query_id: score.value for score in ir_measures.iter_calc([measure], qrels, run)}
    metric = built_in_metric(f"{name}@{k}", "chunk-level")
    ours = {query: metric.calculate(retrieved[query], relevant[query]) for query in retrieved}
    assert ours == pytest.approx(peer, abs=1e-12)
    assert len(set(ours.values())) > 1, "the runs tell metrics apart"
