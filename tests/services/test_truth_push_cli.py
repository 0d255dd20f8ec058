"""``rag-eval truth push`` and ``rag-eval truth import langsmith``."""

import json
from pathlib import Path

import pytest
from langsmith import Client
from typer.testing import CliRunner, Result

from rag_eval.cli.main import app
from rag_eval.errors import RagEvalError
from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level, write_chunk_level, write_token_level
from tests.doubles.langsmith_server import LangSmithServer
from tests.doubles.langsmith_truth import chunk_level, spans_of, token_level


def rag_eval(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["truth", *map(str, arguments)])


def error_of(result: Result) -> str:
    assert isinstance(result.exception, RagEvalError), result.output
    return str(result.exception)


@pytest.mark.usefixtures("settings")
def test_both_types_go_there_and_come_back_the_same(server: LangSmithServer, tmp_path: Path) -> None:
    write_token_level(tmp_path / "spans.jsonl", token_level())
    write_chunk_level(tmp_path / "chunks.jsonl", chunk_level())
    pushed = rag_eval("push", tmp_path / "spans.jsonl")
    assert (pushed.exit_code, "3 created, 0 updated, 0 unchanged" in pushed.output) == (0, True)
    rag_eval("push", tmp_path / "chunks.jsonl")
    names = {one["name"] for one in server.api.datasets.values()}
    assert names == {"rag-eval-token-level-v1", "rag-eval-chunk-level-v1"}
    pulled = rag_eval("import", "langsmith", "rag-eval-token-level-v1", "--output", tmp_path / "spans2.jsonl")
    assert "Imported 3 queries (1 unanswerable) with" in pulled.output
    assert "Ground truth: " in pulled.output
    assert read_token_level(tmp_path / "spans2.jsonl") == token_level()
    rag_eval("import", "langsmith", "rag-eval-chunk-level-v1", "--output", tmp_path / "chunks2.jsonl")
    assert read_chunk_level(tmp_path / "chunks2.jsonl") == chunk_level()
    assert (tmp_path / "spans2.jsonl").read_bytes() == (tmp_path / "spans.jsonl").read_bytes()


@pytest.mark.usefixtures("settings")
def test_pushing_again_says_what_changed_and_deletes_only_when_asked(server: LangSmithServer, tmp_path: Path) -> None:
    one, two = spans_of("one?", "two?")
    truth = tmp_path / "truth.jsonl"
    write_token_level(truth, [one, two])
    rag_eval("push", truth, "--dataset", "mine")
    write_token_level(truth, [one])
    again = rag_eval("push", truth, "--dataset", "mine")
    assert "0 created, 0 updated, 1 unchanged" in again.output
    assert "It has 1 other example, which --delete-others deletes." in again.output
    told = json.loads(rag_eval("push", truth, "--dataset", "mine", "--delete-others", "--json").output)
    assert (told["deleted"], told["others"], len(server.api.examples)) == (1, 0, 1)


@pytest.mark.usefixtures("settings")
def test_what_goes_wrong_is_one_sentence_and_no_file_is_touched(
    server: LangSmithServer, client: Client, tmp_path: Path
) -> None:
    write_chunk_level(tmp_path / "chunks.jsonl", chunk_level())
    write_token_level(tmp_path / "spans.jsonl", token_level())
    rag_eval("push", tmp_path / "spans.jsonl", "--dataset", "spans")
    assert "'spans' has token-level" in error_of(rag_eval("push", tmp_path / "chunks.jsonl", "--dataset", "spans"))
    before = (tmp_path / "spans.jsonl").read_bytes()
    assert "already exists with other" in error_of(
        rag_eval("import", "langsmith", "spans", "--output", tmp_path / "chunks.jsonl")
    )
    assert "no LangSmith dataset 'none'" in error_of(
        rag_eval("import", "langsmith", "none", "--output", tmp_path / "spans.jsonl", "--overwrite")
    )
    dataset = client.create_dataset("bare")
    client.create_example({"query": "when?"}, dataset_id=dataset.id, reference_outputs={"relevant_spans": []})
    assert "has no relevant spans" in error_of(
        rag_eval("import", "langsmith", "bare", "--output", tmp_path / "bare.jsonl")
    )
    assert (tmp_path / "spans.jsonl").read_bytes() == before
    assert not (tmp_path / "bare.jsonl").exists()


def test_without_a_key_it_says_which_to_set(tmp_path: Path) -> None:
    write_token_level(tmp_path / "spans.jsonl", token_level())
    for command in (
        ["push", tmp_path / "spans.jsonl"],
        ["import", "langsmith", "spans", "--output", tmp_path / "new.jsonl"],
    ):
        assert "set LANGSMITH_API_KEY" in error_of(rag_eval(*command))
