"""Evaluations against datasets in LangSmith: the real SDK over HTTP to a double on loopback."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from langsmith import utils as langsmith_utils
from langsmith.schemas import Example, Run

from rag_eval import CharacterSpan, ChunkId, Corpus, DocumentId, LocalEmbedder, Query, generate_chunk_id
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.evaluation.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval.evaluation.langsmith_evaluation import Evaluation
from rag_eval.evaluation.metrics import ChunkLevelRecall, Metrics
from rag_eval.metrics.formulas import SpanRecall
from rag_eval.services.langsmith_client import langsmith_client
from tests.doubles.langsmith_server import KEY, LangSmithServer

CHUNKER = RecursiveCharacterChunker(chunk_size=30, chunk_overlap=0)


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
    (tmp_path / "b.md").write_text("The captain drinks coffee.")
    return tmp_path


def upload(name: str, examples: list[dict[str, object]]) -> None:
    client = langsmith_client()
    dataset = client.create_dataset(name)
    client.create_examples(dataset_id=dataset.id, examples=examples)
    client.close()


def span_example(query: str, *spans: CharacterSpan, **metadata: object) -> dict[str, object]:
    records = [{"doc_id": s.doc_id, "start": s.start, "end": s.end, "text": s.text} for s in spans]
    return {"inputs": {"query": query}, "reference_outputs": {"relevant_spans": records}, "metadata": metadata or None}


def test_token_level_truth_is_pulled_and_the_run_published(server: LangSmithServer, folder: Path) -> None:
    corpus = Corpus.from_folder(folder)
    ferry = corpus.by_id()[DocumentId("a.md")].span(0, 25)
    upload("spans", [span_example("when does the boat leave?", ferry), span_example("who?", unanswerable=True)])
    evaluation = TokenLevelEvaluation(corpus, langsmith_dataset_name="spans")
    assert {item.query.text: item.unanswerable for item in evaluation.ground_truth} == {
        "when does the boat leave?": False,
        "who?": True,
    }
    result = evaluation.run(CHUNKER, LocalEmbedder(), k=1, metrics=[SpanRecall()])
    assert result.metrics == {"span_recall": 1.0}
    assert result.experiment_url is not None
    assert server.scores("span_recall@1") == [1.0]
    (experiment,) = [one for one in server.api.sessions.values() if one["reference_dataset_id"]]
    assert experiment["end_time"]
    assert re.fullmatch(r"rag-eval [0-9a-f]{8}", experiment["name"])
    runs = [run for run in server.api.runs.values() if run.get("session_name") == experiment["name"]]
    outputs = sorted((run["inputs"]["query"], run["outputs"]["retrieved_spans"][0]["text"]) for run in runs)
    assert [query for query, _ in outputs] == ["when does the boat leave?", "who?"]
    assert outputs[0][1] == ferry.text


def test_with_truth_at_hand_and_no_key_the_run_stays_local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGSMITH_API_KEY", raising=False)
    corpus = Corpus.from_folder(folder)
    truth = folder / "truth.jsonl"
    span = '{"doc_id": "b.md", "start": 0, "end": 3, "text": "The"}'
    truth.write_text(f'{{"query": "coffee?", "relevant_spans": [{span}]}}')
    result = TokenLevelEvaluation(corpus, truth, langsmith_dataset_name="spans").run(CHUNKER, LocalEmbedder())
    assert result.experiment_url is None
    with pytest.raises(ConfigurationError, match="LangSmith needs a key"):
        TokenLevelEvaluation(corpus, langsmith_dataset_name="spans")


def test_a_dataset_of_the_other_type_or_none_is_refused_by_name(server: LangSmithServer, folder: Path) -> None:
    corpus = Corpus.from_folder(folder)
    upload("spans", [span_example("when?", corpus.documents[0].span(0, 25))])
    with pytest.raises(GroundTruthError, match=r"'spans' has token-level ground truth .* is chunk-level"):
        ChunkLevelEvaluation(corpus, langsmith_dataset_name="spans")
    with pytest.raises(GroundTruthError, match="there is no LangSmith dataset 'nothing'"):
        TokenLevelEvaluation(corpus, langsmith_dataset_name="nothing")
    upload("broken", [{"inputs": {"question": "when?"}, "reference_outputs": {"relevant_spans": []}}])
    with pytest.raises(GroundTruthError, match=r"has no inputs\.query"):
        TokenLevelEvaluation(corpus, langsmith_dataset_name="broken")


def test_chunk_level_truth_in_any_spelling(server: LangSmithServer, folder: Path) -> None:
    ferry = generate_chunk_id("The ferry leaves at noon.")
    coffee = generate_chunk_id("The captain drinks coffee.")
    upload(
        "chunks",
        [
            {"inputs": {"query": "boat at noon"}, "reference_outputs": {"relevant_chunk_ids": [ferry]}},
            {"inputs": {"query": "captain's coffee"}, "reference_outputs": {"relevantChunkIds": [coffee, ferry]}},
            {
                "inputs": {"query": "coffee at noon"},
                "reference_outputs": {"chunk_ids": [ferry], "metadata": {"persona": "crew"}},
            },
        ],
    )
    result = ChunkLevelEvaluation(Corpus.from_folder(folder), langsmith_dataset_name="chunks").run(
        CHUNKER, LocalEmbedder(), k=3
    )
    assert result.metrics["chunk_recall"] == 1.0
    assert sorted(score or 0 for score in server.scores("chunk_recall@3")) == [1, 1, 1]


def test_the_metrics_interface_takes_own_metrics_and_parts(server: LangSmithServer, folder: Path) -> None:
    class Expected(Metrics):
        def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
            return len(retrieved_chunk_ids) * 100 + len(ground_truth_chunk_ids)

        def extract_ground_truth_chunks_ids(self, example: object) -> list[str]:
            return list(getattr(example, "outputs")["expected_chunks"])  # noqa: B009  # typed as object here

    upload("own", [{"inputs": {"query": "boat"}, "reference_outputs": {"expected_chunks": ["x", "y", "z"]}}])
    result = Evaluation("own", folder).run(k=2, metrics={Expected()}, chunker=CHUNKER, embedder=LocalEmbedder())
    assert result.metrics == {"Expected@2": 203}


class Talking(Metrics):
    """Written for a target that returns a list, and saying what it does."""

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        print(f"{len(retrieved_chunk_ids)} retrieved")
        return len(set(retrieved_chunk_ids) & set(ground_truth_chunk_ids)) / len(retrieved_chunk_ids)

    def extract_ground_truth_chunks_ids(self, example: Example | None) -> list[str]:
        return (example.outputs or {}).get("chunk_ids", []) if example else []

    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return run.outputs if isinstance(run.outputs, list) else []


class Elsewhere(Talking):
    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return run.outputs.get("found", []) if isinstance(run.outputs, dict) else []


def test_own_extractions_find_what_was_retrieved_and_what_metrics_print_is_seen(
    server: LangSmithServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ferry = generate_chunk_id("The ferry leaves at noon.")
    upload("kb", [{"inputs": {"query": "ferry at noon"}, "reference_outputs": {"relevant_chunk_ids": [ferry]}}])
    evaluation = Evaluation("kb", folder)
    assert evaluation.run(k=2, metrics=[Talking()], chunker=CHUNKER).metrics == {"Talking@2": 0.5}
    assert capsys.readouterr().out == "2 retrieved\n"
    with pytest.raises(ConfigurationError, match=r"Elsewhere@2 scored none of the 1 examples; .* finds nothing in"):
        evaluation.run(k=2, metrics=[Elsewhere()], chunker=CHUNKER)


def test_the_metrics_interface_refuses_ids_of_other_chunks(server: LangSmithServer, folder: Path) -> None:
    upload("old", [{"inputs": {"query": "boat"}, "reference_outputs": {"chunk_ids": [ChunkId("chunk_000000000000")]}}])
    with pytest.raises(GroundTruthError, match="1 of the 1 chunk ids in the ground truth are not among"):
        Evaluation("old", folder).run(metrics=[ChunkLevelRecall()])


def test_a_query_keeps_the_id_of_its_metadata(server: LangSmithServer, folder: Path) -> None:
    corpus = Corpus.from_folder(folder)
    upload("ids", [span_example("when?", corpus.documents[0].span(0, 3), query_id="query_mine", difficulty="easy")])
    (item,) = TokenLevelEvaluation(corpus, langsmith_dataset_name="ids").ground_truth
    assert item.query.id == "query_mine"
    assert item.query.metadata["difficulty"] == "easy"
    assert item.query.id != Query.from_text("when?").id
