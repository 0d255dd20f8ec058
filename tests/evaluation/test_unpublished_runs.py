"""What is sent to LangSmith arrives, or is said not to have; a finished run is never lost by it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langsmith import utils as langsmith_utils

from rag_eval import (
    ChunkLevelEvaluation,
    Corpus,
    Evaluation,
    LocalEmbedder,
    Query,
    RecursiveCharacterChunker,
    TokenLevelEvaluation,
    TokenLevelGroundTruth,
    UnpublishedRunWarning,
    generate_chunk_id,
)
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.evaluation.metrics import ChunkLevelRecall, Metrics, TokenLevelRecall
from rag_eval.services.langsmith_client import LangSmithService, langsmith_client
from rag_eval.services.langsmith_experiments import ExperimentUpload, RowOutcome, publish_experiment
from tests.doubles.langsmith_server import KEY, LangSmithServer

CHUNKER = RecursiveCharacterChunker(chunk_size=30, chunk_overlap=0)
FERRY = generate_chunk_id("The ferry leaves at noon.")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmithServer]:
    with LangSmithServer() as server:
        monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
        langsmith_utils.get_env_var.cache_clear()
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text("The ferry leaves at noon.\n\nRye bread is baked at dawn.")
    return tmp_path


@pytest.fixture
def corpus(folder: Path) -> Corpus:
    return Corpus.from_folder(folder)


def upload(name: str, *examples: dict[str, Any]) -> None:
    client = langsmith_client()
    dataset = client.create_dataset(name)
    if examples:
        client.create_examples(dataset_id=dataset.id, examples=list(examples))
    client.close()


def asks(query: str, **outputs: object) -> dict[str, Any]:
    return {"inputs": {"query": query}, "reference_outputs": outputs}


def truth(corpus: Corpus, *queries: str) -> list[TokenLevelGroundTruth]:
    return [TokenLevelGroundTruth(Query.from_text(query), [corpus.documents[0].span(0, 25)]) for query in queries]


def test_a_dataset_that_is_not_there_is_found_out_before_the_run(server: LangSmithServer, corpus: Corpus) -> None:
    with pytest.raises(GroundTruthError, match="there is no LangSmith dataset 'nope'"):
        TokenLevelEvaluation(corpus, truth(corpus, "when?"), langsmith_dataset_name="nope")
    upload("empty")
    with pytest.raises(GroundTruthError, match="'empty' has no examples"):
        TokenLevelEvaluation(corpus, truth(corpus, "when?"), langsmith_dataset_name="empty")


def test_a_service_that_is_down_keeps_nobody_from_evaluating(server: LangSmithServer, corpus: Corpus) -> None:
    server.fail("GET", "/datasets", status=403, times=50)
    evaluation = TokenLevelEvaluation(corpus, truth(corpus, "when?"), langsmith_dataset_name="spans")
    with pytest.warns(UnpublishedRunWarning, match="'spans' could not be read"):
        result = evaluation.run(CHUNKER, LocalEmbedder())
    assert result.metrics["span_recall"] == 1.0
    assert result.experiment_url is None


def test_no_failure_to_publish_loses_a_finished_run(
    server: LangSmithServer, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload("odd", {"inputs": {"question": "when?"}, "reference_outputs": {"relevant_spans": []}})
    evaluation = TokenLevelEvaluation(corpus, truth(corpus, "when?"), langsmith_dataset_name="odd")
    with pytest.warns(UnpublishedRunWarning, match=r"has no inputs\.query.*; the run is complete without it"):
        assert evaluation.run(CHUNKER, LocalEmbedder()).metrics["span_recall"] == 1.0
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "localhost:1984")
    with pytest.warns(UnpublishedRunWarning, match="'localhost:1984' is not a web address"):
        assert evaluation.run(CHUNKER, LocalEmbedder()).metrics["span_recall"] == 1.0


def test_without_all_that_was_sent_there_is_no_address(server: LangSmithServer, corpus: Corpus, folder: Path) -> None:
    upload("spans", asks("when?", relevant_spans=[]))
    upload("chunks", asks("when?", relevant_chunk_ids=[FERRY]))
    evaluation = TokenLevelEvaluation(corpus, truth(corpus, "when?"), langsmith_dataset_name="spans")
    through = Evaluation("chunks", folder)
    # A run that arrives whole has its address.
    assert evaluation.run(CHUNKER, LocalEmbedder()).experiment_url
    assert through.run(k=1, chunker=CHUNKER).experiment_url
    for path in ("/runs/multipart", "/runs/batch", "/runs", "/feedback"):
        server.fail("POST", path, status=422, times=50)
    with pytest.warns(UnpublishedRunWarning, match=r"LangSmith (did not take|has \d+ of)"):
        result = evaluation.run(CHUNKER, LocalEmbedder())
    assert (result.metrics["span_recall"], result.experiment_url) == (1.0, None)
    with pytest.warns(UnpublishedRunWarning, match="the averages are complete without it"):
        scored = through.run(k=1, chunker=CHUNKER)
    assert (scored.metrics["recall@1"], scored.experiment_url) == (1.0, None)


def test_queries_that_the_dataset_lacks_are_counted(server: LangSmithServer, corpus: Corpus) -> None:
    upload("spans", asks("when?", relevant_spans=[]), asks("other?", relevant_spans=[]))
    evaluation = TokenLevelEvaluation(corpus, truth(corpus, "when?", "mine?"), langsmith_dataset_name="spans")
    with pytest.warns(UnpublishedRunWarning, match="1 of the 2 queries of the run are not in the LangSmith dataset"):
        assert evaluation.run(CHUNKER, LocalEmbedder()).experiment_url
    assert len(server.scores("span_recall@5")) == 1


def test_the_keys_of_all_examples_are_announced(server: LangSmithServer) -> None:
    upload("two", asks("a"), asks("b"))
    client = langsmith_client()
    examples = list(client.list_examples(dataset_name="two"))
    rows = [(examples[0], RowOutcome(id="a")), (examples[1], RowOutcome(id="b", scores={"recall": 1.0}))]
    experiment = ExperimentUpload(uuid4(), "run", {}, rows, datetime.now(UTC))
    assert publish_experiment(LangSmithService(client), experiment)
    (body,) = [request.json() for request in server.requests if str(request) == "POST /sessions"]
    client.close()
    assert body["evaluator_keys"] == ["recall"]


def test_metrics_that_do_not_fit_are_refused_before_anything_is_sent(server: LangSmithServer, folder: Path) -> None:
    evaluation = Evaluation("none", folder)
    with pytest.raises(ConfigurationError, match="TokenLevelRecall is a token-level metric and this is a chunk-level"):
        evaluation.run(metrics=[TokenLevelRecall()])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="there is no metric to compute"):
        evaluation.run(metrics=[])
    with pytest.raises(ConfigurationError, match="recall has k = 0"):
        evaluation.run(k=0)
    assert server.requests == []


def test_a_metric_that_scored_nothing_is_an_error_with_the_first_reason(server: LangSmithServer, folder: Path) -> None:
    class Boom(Metrics):
        def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
            raise ZeroDivisionError("by nothing")

    class Down(LocalEmbedder):
        symmetric = False

        def embed_query(self, text: str) -> Any:
            raise OSError("service down")

    upload("chunks", asks("when?", relevant_chunk_ids=[FERRY]))
    upload("bare", asks("when?", answer="noon"))
    evaluation = Evaluation("chunks", folder)
    with pytest.raises(ConfigurationError, match=r"Boom@1 scored none of the 1 examples; .*by nothing"):
        evaluation.run(k=1, chunker=CHUNKER, metrics=[ChunkLevelRecall(), Boom()])
    with pytest.raises(ConfigurationError, match=r"recall@1 scored none of the 1 examples; .*service down"):
        evaluation.run(k=1, chunker=CHUNKER, embedder=Down())
    with pytest.raises(ConfigurationError, match=r"scored none .* no chunk-level ground truth"):
        Evaluation("bare", folder).run(chunker=CHUNKER)


def test_chunk_ids_that_are_none_name_example_and_dataset(server: LangSmithServer, corpus: Corpus) -> None:
    upload("numbers", asks("when?", relevant_chunk_ids=[1]))
    with pytest.raises(GroundTruthError, match=r"example [0-9a-f-]+ of the LangSmith dataset 'numbers': .*item 0"):
        ChunkLevelEvaluation(corpus, langsmith_dataset_name="numbers")


def test_unanswerable_is_the_same_for_both_ways_of_evaluating(
    server: LangSmithServer, corpus: Corpus, folder: Path
) -> None:
    nobody = asks("who?", relevant_chunk_ids=[], metadata={"unanswerable": True})
    upload("some", asks("ferry?", relevant_chunk_ids=[FERRY]), nobody)
    (item,) = [
        item
        for item in ChunkLevelEvaluation(corpus, langsmith_dataset_name="some").ground_truth
        if item.query.text == "who?"
    ]
    assert item.unanswerable
    rows = list(Evaluation("some", folder).run(k=1, chunker=CHUNKER).raw_results)  # type: ignore[call-overload]
    (row,) = [row for row in rows if row["example"].inputs["query"] == "who?"]
    assert {feedback.comment for feedback in row["evaluation_results"]["results"]} == {
        "not scored, the query is declared unanswerable"
    }


def test_a_question_that_stands_twice_in_a_dataset_is_refused(server: LangSmithServer, corpus: Corpus) -> None:
    span = {"doc_id": "a.md", "start": 0, "end": 3, "text": "The"}
    upload("twice", asks("when?", relevant_spans=[span]), asks("when?", relevant_spans=[span]))
    with pytest.raises(GroundTruthError, match=r"two queries have the id .* merge them into one"):
        TokenLevelEvaluation(corpus, langsmith_dataset_name="twice").run(CHUNKER, LocalEmbedder())
