"""An experiment refuses what would make its numbers wrong, before it makes them."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from rag_eval import (
    BM25Retriever,
    CallableRetriever,
    CharacterSpan,
    ChromaRecall,
    Chunk,
    ChunkLevelEvaluation,
    ChunkLevelGroundTruth,
    Corpus,
    Document,
    DocumentId,
    Hit,
    HybridRetriever,
    LocalEmbedder,
    PositionAwareChunk,
    Query,
    QueryId,
    QueryText,
    RecursiveCharacterChunker,
    SpanPrecision,
    SpanRecall,
    TokenLevelEvaluation,
    TokenLevelGroundTruth,
    VectorRAGRetriever,
    generate_chunk_id,
    generate_pa_chunk_id,
    run_experiment,
)
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.config.models import Configuration
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.evaluation.metrics import TokenLevelRecall
from rag_eval.evaluation.run_experiment import RetrievalResult
from rag_eval.retrieval import RETRIEVER

A = Document(DocumentId("a.md"), "one two three four five six seven eight")
CORPUS = Corpus([A])
CHUNKER = RecursiveCharacterChunker(chunk_size=10, chunk_overlap=0)
ASKED = Query.from_text("which numbers?")
TRUTH = [TokenLevelGroundTruth(ASKED, [A.span(0, 3), A.span(9, 10)])]
# Ten places of one character each: the first of the truth stands at rank 1, the last at rank 10.
PLACES = CallableRetriever(lambda query, k: [("a.md", place, place + 1) for place in range(50)][:k], name="places")


def run(retriever: object = PLACES, **settings: object) -> RetrievalResult:
    given: dict[str, object] = {"evaluation_type": "token-level", "corpus": CORPUS, "ground_truth": TRUTH}
    return run_experiment(**(given | settings), retriever=retriever)  # type: ignore[call-overload, no-any-return]


class Retrieves:
    """A user's retriever that gives what it is told to."""

    name = "user's"

    def __init__(self, give: Callable[[Sequence[Query]], object]) -> None:
        self._give = give

    def index(self, corpus: Corpus) -> None: ...

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[PositionAwareChunk]]]:
        return self._give(queries)  # type: ignore[return-value]  # the point of the tests


class Counts:
    def __init__(self, name: str, value: object = None) -> None:
        self.name, self._value = name, value

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        return len(retrieved) if self._value is None else self._value  # type: ignore[return-value]


def test_a_hybrid_of_another_chunker_than_the_truths_is_refused() -> None:
    other = RecursiveCharacterChunker(chunk_size=20, chunk_overlap=0)
    ids = [generate_chunk_id(CHUNKER.chunk(A.content)[0])]

    def hybrid(chunker: RecursiveCharacterChunker) -> HybridRetriever[Chunk]:
        inner = VectorRAGRetriever(chunker, LocalEmbedder(), evaluation_type="chunk-level")
        words = BM25Retriever(chunker, evaluation_type="chunk-level")
        return HybridRetriever([inner, HybridRetriever([words, words])])

    def score(said: dict[str, object], chunker: RecursiveCharacterChunker) -> float:
        truth = [ChunkLevelGroundTruth(Query.from_text("one two", said), ids)]
        result = run_experiment(
            evaluation_type="chunk-level", corpus=CORPUS, ground_truth=truth, retriever=hybrid(chunker)
        )
        return result.metrics["chunk_recall"]

    assert score({"chunker": CHUNKER.name}, CHUNKER) == 1.0
    with pytest.raises(GroundTruthError, match=r"made with .*chunk_size=10.* this run uses .*chunk_size=20"):
        score({"chunker": CHUNKER.name}, other)
    with pytest.raises(GroundTruthError, match="1 of the 1 chunk ids in the ground truth are not among"):
        score({}, other)


def test_functions_and_splitters_of_other_libraries_are_chunkers_at_both_levels() -> None:
    class Splitter:
        def split_text(self, text: str) -> list[str]:
            return [text[:10], text[10:]]

    def halves(text: str) -> list[str]:
        return [text[:10], text[10:]]

    ids = [ChunkLevelGroundTruth(Query.from_text("one two"), [generate_chunk_id(A.content[:10])])]
    for chunker in (Splitter(), halves, lambda text: [text[:10], text[10:]]):
        assert TokenLevelEvaluation(CORPUS, TRUTH).run(chunker, LocalEmbedder(), k=2).metrics["span_recall"] == 1.0
        assert ChunkLevelEvaluation(CORPUS, ids).run(chunker, LocalEmbedder(), k=2).metrics["chunk_recall"] == 1.0


def test_a_chunker_that_only_knows_places_is_one_at_both_levels() -> None:
    class Whole:
        name = "whole"

        def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
            return [PositionAwareChunk(generate_pa_chunk_id(doc.content), doc.content, doc.id, 0, len(doc.content))]

    ids = [ChunkLevelGroundTruth(Query.from_text("?", {"chunker": "whole"}), [generate_chunk_id(A.content)])]
    assert TokenLevelEvaluation(CORPUS, TRUTH).run(Whole(), LocalEmbedder()).metrics["span_recall"] == 1.0
    assert ChunkLevelEvaluation(CORPUS, ids).run(Whole(), LocalEmbedder()).metrics["chunk_recall"] == 1.0


def test_a_metric_with_a_cut_of_its_own_is_scored_there_whatever_k_is() -> None:
    metrics = [SpanRecall(k=10), SpanRecall(), Counts("mine@7"), Counts("mine")]
    assert run(metrics=metrics, k=2).metrics == {"span_recall@10": 1.0, "span_recall": 0.5, "mine@7": 7, "mine": 2}
    assert run(metrics=metrics, k=[2, 20]).metrics == {
        "span_recall@10": 1.0,
        "span_recall@2": 0.5,
        "span_recall@20": 1.0,
        "mine@7": 7,
        "mine@2": 2,
        "mine@20": 20,
    }
    assert run(metrics=[SpanRecall(k=10)], k=10).metrics == {"span_recall@10": 1.0}
    for same in ([SpanRecall(), SpanRecall(k=5)], [SpanRecall(k=5), SpanRecall(k=5)], [Counts("x"), Counts("x")]):
        with pytest.raises(ConfigurationError, match=r"two metrics have the name '(span_recall|x)@5'"):
            run(metrics=same, k=5)


def test_a_metric_at_min_sees_as_many_hits_as_it_wants() -> None:
    truth = [TokenLevelGroundTruth(Query.from_text("one two three"), [A.span(0, 10)])]
    configuration = Configuration(chunker=FixedTokenChunker(1), retrieval=RETRIEVER.make("bm25"))
    found = run(metrics=[ChromaRecall(k="min")], ground_truth=truth, k=2, retriever=configuration)
    assert found.metrics == {"chroma_recall@min": 1.0}


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ([Counts], r"Counts needs settings \(.*\): pass an object"),
        (["span_recal"], r"there is no metric 'span_recal' here \(did you mean span_recall\?\)"),
        (["no_such_module:Name"], "there is no module 'no_such_module'"),
        ([object()], r"is not a metric: give an object with calculate\(retrieved, ground_truth\)"),
        ([Counts("span_recall", 1.0)], "span_recall is the name of a built-in metric: rename yours"),
        ([Counts("mine@min", 1.0)], "mine@min uses @min, which only Chroma's metrics have"),
        ("span_recall", "metrics is .*span_recall.*: give a list of metrics"),
        ({"recall": SpanRecall()}, "metrics is .*: give a list of metrics"),
        (SpanRecall(), "metrics is .*: give a list of metrics"),
        ([TokenLevelRecall()], "is a metric for LangSmith's evaluate: use one of span_recall"),
        ([None], "expected a metric, by name or with settings, found nothing"),
        ([], "there is no metric to compute"),
        ([Counts("mine", float("nan"))], f"mine.calculate returned 'nan' for {ASKED.id}: return a finite number"),
        ([Counts("mine", "1")], f"mine.calculate returned .*1.* for {ASKED.id}"),
    ],
)
def test_what_is_no_metric_or_gives_no_number_is_refused(metrics: object, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        run(metrics=metrics)


def test_metrics_may_come_one_by_one() -> None:
    assert set(run(metrics=(metric for metric in [SpanRecall(), SpanPrecision()])).metrics) == {
        "span_recall",
        "span_precision",
    }


HIT = Hit(PositionAwareChunk(generate_pa_chunk_id("one"), "one", A.id, 0, 3), 1.0)


def test_hits_may_come_one_by_one() -> None:
    for retriever in (
        Retrieves(lambda queries: ([HIT] for _ in queries)),
        Retrieves(lambda queries: [(hit for hit in [HIT]) for _ in queries]),
    ):
        result = run(retriever)
        assert result.metrics["span_recall"] == 0.75
        assert result.raw_results.hits.num_rows == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "user's returned 'None': a retriever must return a list of hits"),
        (["a.md"], "user's returned .* a list of hits"),
        ([[HIT.chunk]], r"user's returned .*: wrap every chunk as Hit\(chunk, score\)"),
        ([[], []], "user's returned 2 of 1 queries"),
    ],
)
def test_what_is_not_a_list_of_hits_is_refused(found: object, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        run(Retrieves(lambda queries: found))


def test_a_chunk_without_an_ordinal_is_refused_with_what_to_do() -> None:
    found = Hit(Chunk(generate_chunk_id("one"), "one", A.id), 1.0)
    with pytest.raises(ConfigurationError, match=r"has no metadata\['ordinal'\]: number"):
        run(
            Retrieves(lambda queries: [[found] for _ in queries]),
            evaluation_type="chunk-level",
            ground_truth=[ChunkLevelGroundTruth(ASKED, [found.chunk.id])],
        )


def test_two_queries_with_one_id_are_refused_with_their_texts() -> None:
    other = TokenLevelGroundTruth(Query(QueryId(ASKED.id), QueryText("another?")), [A.span(0, 3)])
    for twice in ([TRUTH[0], TRUTH[0]], [TRUTH[0], other]):
        with pytest.raises(GroundTruthError, match=rf"two queries have the id '{ASKED.id}', 'which numbers\?' and"):
            TokenLevelEvaluation(CORPUS, twice).run(CHUNKER, LocalEmbedder())


@pytest.mark.parametrize("k", [0, -1, [5, 5], True, 5.0, None, [None], [1, None], "5", [], {0}, [2.5]])
def test_a_k_that_is_no_number_is_refused(k: object) -> None:
    with pytest.raises(ConfigurationError, match="must be a whole number of 1 or more, or several different ones"):
        run(k=k)


def test_numbers_of_numpy_are_ks() -> None:
    assert run(k=np.int64(10)).metrics["span_recall"] == 1.0
    assert run(k=np.array([1, 10])).metrics["span_recall@10"] == 1.0


def test_what_is_not_a_corpus_or_a_retriever_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the corpus is .*docs.*Corpus\.from_folder"):
        TokenLevelEvaluation("docs", TRUTH)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"the corpus is .*docs"):
        run(corpus="docs")
    with pytest.raises(ConfigurationError, match="is not a retriever: give an object with index, retrieve, name"):
        run(BM25Retriever)


def test_the_depth_of_candidates_follows_the_largest_k_unless_it_is_set() -> None:
    class Backwards:
        name = "backwards"

        def rerank(self, query: str, chunks: Sequence[object], top_k: int) -> list[object]:
            return list(reversed(chunks))[:top_k]

    big = Corpus([Document(DocumentId(f"{n}.md"), f"word{n} and more words") for n in range(300)])
    truth = [TokenLevelGroundTruth(Query.from_text("word5"), [big.documents[0].span(0, 5)])]

    def first(k: object, fetch_k: int | None) -> str:
        retriever = VectorRAGRetriever(CHUNKER, LocalEmbedder(), reranker=Backwards(), fetch_k=fetch_k)  # type: ignore[arg-type]
        return str(run(retriever, corpus=big, ground_truth=truth, k=k).raw_results.hits.to_pylist()[0]["doc_id"])

    assert first(5, None) != first([5, 20], None)
    assert first(5, 100) == first([5, 20], 100)
