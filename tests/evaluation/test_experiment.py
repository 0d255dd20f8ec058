from collections.abc import Sequence
from pathlib import Path

import pytest

from rag_eval import (
    CharacterSpan,
    Chunk,
    ChunkId,
    ChunkLevelGroundTruth,
    Corpus,
    Document,
    DocumentId,
    LocalEmbedder,
    PositionAwareChunk,
    Query,
    TokenLevelGroundTruth,
    generate_chunk_id,
    generate_pa_chunk_id,
)
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.errors import ConfigurationError, GroundTruthError, SpanMismatchError
from rag_eval.evaluation.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval.evaluation.run_experiment import ExperimentTables, run_experiment
from rag_eval.ground_truth.truth_files import read_token_level, write_chunk_level
from rag_eval.metrics.formulas import ChunkRecall, SpanMRR, SpanNDCG, SpanRecall
from rag_eval.retrieval.rerankers import LexicalReranker
from rag_eval.retrieval.retriever import Hit, Retriever
from rag_eval.retrieval.retrievers import BM25Retriever, VectorRAGRetriever
from rag_eval.retrieval.systems import CallableRetriever
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.tables import SCORES, check_schema
from tests.type_checking import type_errors

SAMPLE = Corpus.from_folder(CORPUS)
CHUNKER = RecursiveCharacterChunker(chunk_size=300, chunk_overlap=0)
A = Document(DocumentId("a.md"), "one two three four five six")
SMALL = Corpus([A])
ASKED = Query.from_text("which numbers?")
TRUTH = [
    TokenLevelGroundTruth(ASKED, [A.span(0, 7), A.span(8, 13)]),
    TokenLevelGroundTruth(Query.from_text("what is missing?"), [A.span(24, 27)]),
    TokenLevelGroundTruth(Query.from_text("who knows?"), [], unanswerable=True),
]


def finds(*places: tuple[int, int]) -> CallableRetriever:
    """Finds these places of a.md for the first query, and nothing for the others."""
    return CallableRetriever(
        lambda query, k: [("a.md", *place) for place in places] if query == ASKED.text else [], name="known places"
    )


def tables(result: object) -> ExperimentTables:
    assert isinstance(result, ExperimentTables)
    return result


def test_averages_are_over_answerable_queries_and_no_hits_count() -> None:
    result = run_experiment(
        evaluation_type="token-level", corpus=SMALL, ground_truth=TRUTH, retriever=finds((0, 13), (14, 18)), k=5
    )
    assert result.metrics == pytest.approx({"span_recall": 0.5, "span_precision": 12 / 17 / 2, "span_iou": 12 / 17 / 2})
    rows = tables(result.raw_results)
    check_schema(rows.scores, SCORES, "scores")
    assert rows.scores.num_rows == 2 * 3
    assert rows.unanswerable == (TRUTH[2].query.id,)
    assert rows.hits.num_rows == 2
    assert result.experiment_url is None


def test_several_k_come_from_one_retrieval() -> None:
    result = run_experiment(
        evaluation_type="token-level",
        corpus=SMALL,
        ground_truth=TRUTH[:1],
        retriever=finds((8, 13), (0, 7)),
        metrics=[SpanRecall(), SpanNDCG()],
        k=[1, 2],
    )
    assert result.metrics == pytest.approx(
        {"span_recall@1": 5 / 12, "span_recall@2": 1.0, "span_ndcg@1": 5 / 12, "span_ndcg@2": (5 + 7 * 0.63093) / 12},
        abs=1e-5,
    )


def test_a_subclass_that_calculates_otherwise_is_not_swept() -> None:
    class Half(SpanRecall):
        def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
            return super().calculate(retrieved, ground_truth) / 2

    result = run_experiment(
        evaluation_type="token-level", corpus=SMALL, ground_truth=TRUTH[:1], retriever=finds((0, 13)), metrics=[Half()]
    )
    assert result.metrics == {"span_recall": 0.5}


def test_token_level_on_the_sample_with_every_part() -> None:
    evaluation = TokenLevelEvaluation(SAMPLE, GROUND_TRUTH)
    plain = evaluation.run(CHUNKER, LocalEmbedder(), k=5)
    reranked = evaluation.run(CHUNKER, LocalEmbedder(), k=5, reranker=LexicalReranker(), metrics=[SpanRecall()])
    assert set(plain.metrics) == {"span_recall", "span_precision", "span_iou"}
    assert set(reranked.metrics) == {"span_recall"}
    assert plain.experiment_url is None
    # On this corpus words find more than static vectors do, so reranking by words must help.
    assert reranked.metrics["span_recall"] > plain.metrics["span_recall"]
    lexical = run_experiment(
        evaluation_type="token-level",
        corpus=SAMPLE,
        ground_truth=read_token_level(GROUND_TRUTH),
        retriever=BM25Retriever(CHUNKER),
        metrics=[SpanMRR()],
    )
    rows = lexical.raw_results
    first: dict[str, float] = {}
    relevant = {item.query.id: item.relevant_spans for item in read_token_level(GROUND_TRUTH)}
    documents = SAMPLE.by_id()
    for hit in rows.hits.to_pylist():
        span = documents[hit["doc_id"]].span(hit["start"], hit["end"])
        if any(span.overlaps(other) for other in relevant[hit["query_id"]]):
            first.setdefault(hit["query_id"], 1 / hit["rank"])
    answerable = len(relevant) - len(rows.unanswerable)
    assert lexical.metrics["span_mrr"] == pytest.approx(sum(first.values()) / answerable)


def test_an_evaluation_gives_the_numbers_of_run_experiment() -> None:
    evaluation = TokenLevelEvaluation(SAMPLE, GROUND_TRUTH)
    ours = evaluation.run(CHUNKER, LocalEmbedder(), k=[1, 5])
    theirs = run_experiment(
        evaluation_type="token-level",
        corpus=SAMPLE,
        ground_truth=read_token_level(GROUND_TRUTH),
        retriever=VectorRAGRetriever(CHUNKER, LocalEmbedder(), evaluation_type="token-level"),
        k=[1, 5],
    )
    assert ours.metrics == theirs.metrics


def test_chunk_level_on_the_sample(tmp_path: Path) -> None:
    chunks = [text for document in SAMPLE for text in CHUNKER.chunk(document.content)]
    asked = Query.from_text(chunks[7], {"chunker": CHUNKER.name})
    nobody = Query.from_text("Is there a swimming pool?")
    truth = [
        ChunkLevelGroundTruth(asked, [generate_chunk_id(chunks[7]), generate_chunk_id(chunks[40])]),
        ChunkLevelGroundTruth(nobody, [], unanswerable=True),
    ]
    write_chunk_level(tmp_path / "truth.jsonl", truth)
    result = ChunkLevelEvaluation(SAMPLE, tmp_path / "truth.jsonl").run(CHUNKER, LocalEmbedder(), k=4)
    assert result.metrics["chunk_recall"] == 0.5
    assert result.metrics["chunk_precision"] == 0.25
    assert result.metrics["chunk_f1"] == pytest.approx(1 / 3)


def test_chunk_level_truth_of_another_chunker_is_refused_by_name() -> None:
    other = RecursiveCharacterChunker(chunk_size=200, chunk_overlap=0)
    text = CHUNKER.chunk(SAMPLE.documents[0].content)[0]
    said = ChunkLevelGroundTruth(Query.from_text("?", {"chunker": CHUNKER.name}), [generate_chunk_id(text)])
    with pytest.raises(GroundTruthError, match=r"made with .*chunk_size=300.* this run uses .*chunk_size=200"):
        ChunkLevelEvaluation(SAMPLE, [said]).run(other, LocalEmbedder())
    unsaid = ChunkLevelGroundTruth(Query.from_text("?"), [generate_chunk_id(text), ChunkId("chunk_000000000000")])
    with pytest.raises(GroundTruthError, match=r"1 of the 2 chunk ids in the ground truth are not among the \d+"):
        ChunkLevelEvaluation(SAMPLE, [unsaid]).run(CHUNKER, LocalEmbedder())
    missing = ChunkLevelGroundTruth(Query.from_text("?"), [])
    with pytest.raises(GroundTruthError, match="has no relevant chunk ids"):
        ChunkLevelEvaluation(SAMPLE, [missing]).run(CHUNKER, LocalEmbedder())


def test_the_levels_do_not_mix_at_run_time_and_both_are_named() -> None:
    with pytest.raises(ConfigurationError, match="span_recall is a token-level metric and this is a chunk-level"):
        ChunkLevelEvaluation(SAMPLE, [ChunkLevelGroundTruth(ASKED, [generate_chunk_id("x")])]).run(
            CHUNKER,
            LocalEmbedder(),
            metrics=[SpanRecall()],  # type: ignore[list-item]  # the point of the test
        )
    with pytest.raises(ConfigurationError, match="chunk_recall is a chunk-level metric and this is a token-level"):
        TokenLevelEvaluation(SMALL, TRUTH).run(CHUNKER, LocalEmbedder(), metrics=[ChunkRecall()])  # type: ignore[list-item]
    with pytest.raises(GroundTruthError, match="token-level evaluation and needs TokenLevelGroundTruth, not Chunk"):
        TokenLevelEvaluation(SMALL, [ChunkLevelGroundTruth(ASKED, [generate_chunk_id("x")])]).run(  # type: ignore[list-item]
            CHUNKER, LocalEmbedder()
        )


MIX = """
from rag_eval import Corpus, LocalEmbedder
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.evaluation.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval import ChunkRecall, SpanRecall

def mix(corpus: Corpus) -> None:
    chunker, embedder = RecursiveCharacterChunker(), LocalEmbedder()
    TokenLevelEvaluation(corpus, "truth.jsonl").run(chunker, embedder, metrics=[SpanRecall()])
    ChunkLevelEvaluation(corpus, "truth.jsonl").run(chunker, embedder, metrics=[ChunkRecall()])
    TokenLevelEvaluation(corpus, "truth.jsonl").run(chunker, embedder, metrics=[ChunkRecall()])
    ChunkLevelEvaluation(corpus, "truth.jsonl").run(chunker, embedder, metrics=[SpanRecall()])
"""


def test_a_type_checker_rejects_a_mix(tmp_path: Path) -> None:
    errors = type_errors(tmp_path, MIX)
    assert list(errors) == [11, 12]
    assert '"ChunkRecall"; expected "TokenLevelMetric' in errors[11]
    assert '"SpanRecall"; expected "ChunkLevelMetric' in errors[12]


def test_a_retriever_that_does_not_keep_its_word_is_named() -> None:
    class Short:
        name = "short"

        def index(self, corpus: Corpus) -> None: ...

        def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
            return []

    class Shifted(Short):
        def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
            wrong = PositionAwareChunk(generate_pa_chunk_id("one"), "one", A.id, 1, 4)
            return [[Hit(wrong, 1.0)] for _ in queries]

    class Placeless(Short):
        def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
            return [[Hit(Chunk(generate_chunk_id("one"), "one", A.id), 1.0)] for _ in queries]  # type: ignore[list-item]

    cases: list[tuple[Retriever[PositionAwareChunk], type[Exception], str]] = [
        (Short(), ConfigurationError, "returned 0 of 3 queries"),
        (Shifted(), SpanMismatchError, r"'a\.md' has 'ne ' at \[1, 4\), the span says 'one'"),
        (Placeless(), ConfigurationError, "returned a Chunk, this evaluation needs a PositionAwareChunk"),
    ]
    for retriever, error, reason in cases:
        with pytest.raises(error, match=reason):
            run_experiment(evaluation_type="token-level", corpus=SMALL, ground_truth=TRUTH, retriever=retriever)


def test_without_ground_truth_there_is_nothing_to_evaluate() -> None:
    with pytest.raises(GroundTruthError, match="there is no ground truth: give a list or a JSON-lines file"):
        TokenLevelEvaluation(SMALL)
    with pytest.raises(GroundTruthError, match="there is no query to evaluate"):
        TokenLevelEvaluation(SMALL, []).run(CHUNKER, LocalEmbedder())
