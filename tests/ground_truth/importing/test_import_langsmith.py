from pathlib import Path

import pytest
from langsmith import Client

from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.ground_truth.importing import import_truth
from rag_eval.ground_truth.importing.output import write_import
from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level
from rag_eval.services.langsmith_truth import read_langsmith
from tests.doubles.langsmith_sample import record, uploaded_dataset
from tests.doubles.langsmith_server import KEY, LangSmithServer

OTHERS = {"langsmith": read_langsmith}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, server: LangSmithServer, no_langsmith_settings: None) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)


def test_a_chunk_level_dataset_is_written_as_one(tmp_path: Path, client: Client) -> None:
    uploaded_dataset(client)
    found = import_truth("langsmith", "questions", OTHERS)
    summary = write_import(found, tmp_path / "truth.jsonl")
    assert (summary.evaluation_type, summary.queries, summary.answers) == ("chunk-level", 3, 7)
    assert (summary.corpus, summary.next_command) == (None, None)
    assert {item.query.text for item in read_chunk_level(tmp_path / "truth.jsonl")} == {"q1", "q2", "q3"}


def test_a_token_level_dataset_is_written_as_one(tmp_path: Path, client: Client) -> None:
    dataset = client.create_dataset("spans")
    outputs = {"relevant_spans": [record(3, 9)]}
    client.create_examples(dataset_id=dataset.id, examples=[{"inputs": {"query": "q?"}, "reference_outputs": outputs}])
    found = import_truth("langsmith", "spans", OTHERS)
    write_import(found, tmp_path / "truth.jsonl")
    (item,) = read_token_level(tmp_path / "truth.jsonl")
    assert [(span.doc_id, span.start, span.end) for span in item.relevant_spans] == [("d.md", 3, 9)]


def test_a_missing_dataset_or_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GroundTruthError, match="there is no LangSmith dataset 'none'"):
        import_truth("langsmith", "none", OTHERS)
    monkeypatch.delenv("LANGSMITH_API_KEY")
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY"):
        import_truth("langsmith", "none", OTHERS)
