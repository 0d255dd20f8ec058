"""The losses of a whole retriever, from its parts and the ground truth."""

import pytest

from rag_eval import (
    BM25Retriever,
    ChunkLevelGroundTruth,
    Corpus,
    LexicalReranker,
    LocalEmbedder,
    Query,
    RecursiveCharacterChunker,
    VectorRAGRetriever,
    average_losses,
    generate_chunk_id,
    read_token_level,
    retrieval_losses,
    run_experiment,
)
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.stores.lance import IvfPq, LanceDBVectorStore

SAMPLE = Corpus.from_folder(CORPUS)
TRUTH = read_token_level(GROUND_TRUTH)
CHUNKER = RecursiveCharacterChunker(chunk_size=300, chunk_overlap=0)


def test_the_parts_of_a_run_add_up_to_what_its_recall_lacks() -> None:
    retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=LexicalReranker(), fetch_k=50)
    rows = average_losses(retrieval_losses(retriever, SAMPLE, TRUTH, [1, 5])).to_pylist()
    run = run_experiment(
        evaluation_type="token-level", corpus=SAMPLE, ground_truth=TRUTH, retriever=retriever, k=[1, 5]
    )
    for row in rows:
        assert row["final_recall"] == pytest.approx(run.metrics[f"span_recall@{row['k']}"])
        assert sum(row[part] for part in LOSS_PARTS) == pytest.approx(1 - row["final_recall"])
        assert row["index"] == 0
        assert row["n"] == len(TRUTH) - len(run.raw_results.unanswerable)
    assert rows[1]["reranker"] < 0 < rows[1]["search"]  # words find more here than static vectors do


def test_an_approximate_index_has_its_part(tmp_path: object) -> None:
    def index_loss(store: LanceDBVectorStore) -> float:
        small = RecursiveCharacterChunker(chunk_size=80, chunk_overlap=0)
        losses = retrieval_losses(VectorRAGRetriever(small, LocalEmbedder(), store), SAMPLE, TRUTH, [5])
        return float(average_losses(losses).to_pylist()[0]["index"])

    assert index_loss(LanceDBVectorStore(f"{tmp_path}/exact")) == 0
    assert index_loss(LanceDBVectorStore(f"{tmp_path}/coarse", index=IvfPq(num_partitions=16, nprobes=1))) > 0


def test_chunk_level_losses_and_what_cannot_be_compared() -> None:
    ids = [generate_chunk_id(text) for text in CHUNKER.chunk(SAMPLE.documents[0].content)[:2]]
    truth = [ChunkLevelGroundTruth(Query.from_text("ferry", {"chunker": CHUNKER.name}), ids)]
    retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder(), evaluation_type="chunk-level")
    (row,) = retrieval_losses(retriever, SAMPLE, truth, [1]).to_pylist()
    assert row["boundary"] == 0.5
    assert sum(row[part] for part in LOSS_PARTS) == 1 - row["final_recall"]
    with pytest.raises(GroundTruthError, match="chunk-level evaluation and needs ChunkLevelGroundTruth"):
        retrieval_losses(retriever, SAMPLE, TRUTH, [1])  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="has no stages to compare: give a VectorRAGRetriever"):
        retrieval_losses(BM25Retriever(CHUNKER), SAMPLE, TRUTH, [1])  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="ks is"):
        retrieval_losses(retriever, SAMPLE, truth, [])
