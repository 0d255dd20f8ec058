"""A file of generated ground truth grows with the documents, and what people did to it stays."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_eval import Corpus, RecursiveTokenChunker, read_chunk_level, read_token_level
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, ServiceError
from rag_eval.generation.growing import GeneratedTruth, asked_path
from rag_eval.ground_truth.drift import reanchor
from rag_eval.ground_truth.plain_data import read_queries
from rag_eval.ground_truth.review.session import DocumentFolder, ReviewSession
from rag_eval.ground_truth.sources import Surroundings
from rag_eval.pipeline.references import TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.bucket import Storage
from rag_eval.types.ids import EvaluationType
from tests.chain import load_documents, load_truth
from tests.doubles.openai_chat import refusal
from tests.doubles.openai_fixtures import KEY
from tests.doubles.openai_server import Change, Disconnect, OpenAIServer, Status
from tests.generation.corpora import PLACES, harbour_text

Load = Callable[..., TruthRef]
PRICES = {"input": 1, "output": 4}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for place in PLACES[:3]:
        (folder / f"{place}.md").write_text(harbour_text(place), encoding="utf-8")
    return folder


@pytest.fixture
def load(server: OpenAIServer, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads the ground truth as a run does, without Prefect."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    workspace = Workspace(root=tmp_path / "work")

    def loaded(level: EvaluationType = "token-level", **settings: Any) -> TruthRef:
        given = {"model": "tiny", "queries_per_doc": 2, "base_url": server.base_url, "file": tmp_path / "truth.jsonl"}
        source = GeneratedTruth(**(given | {"max_retries": 0} | settings))
        config = BenchmarkConfig(corpus=docs, ground_truth=[source], evaluation_type=level, chunkers=["markdown"])
        return load_truth(workspace, config, load_documents(workspace, config))

    return loaded


def asked_about(server: OpenAIServer) -> list[str]:
    """The documents that the server was asked about."""
    return [place for one in server.requests for place in (*PLACES, "Havnes") if f"# {place}\n" in str(one.body)]


def test_a_second_time_nothing_is_asked_and_a_new_document_alone_is(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path
) -> None:
    first = load()
    assert (first.queries.rows, len(server.requests), first.effort and first.effort.fresh) == (6, 3, 6)
    before = (tmp_path / "truth.jsonl").read_bytes()
    server.requests.clear()
    again = load()
    assert (again.queries, again.effort and again.effort.fresh, server.requests) == (first.queries, 0, [])
    (docs / "Havnes.md").write_text(harbour_text("Havnes"), encoding="utf-8")
    grown = load()
    assert (grown.queries.rows, grown.effort and grown.effort.fresh) == (8, 2)
    assert len(server.requests) == 1
    after = (tmp_path / "truth.jsonl").read_bytes()
    assert after.startswith(before.rstrip(b"\n")), "what was there stays, byte for byte"
    told = json.loads(asked_path(tmp_path / "truth.jsonl").read_text())
    assert sorted(told["documents"]) == sorted(path.name for path in docs.iterdir())


def test_an_edited_document_keeps_its_questions_and_their_spans_move(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path
) -> None:
    load()
    server.requests.clear()
    path = docs / f"{PLACES[0]}.md"
    path.write_text("A new first line.\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    truth = load()
    assert (truth.queries.rows, server.requests) == (6, [])
    corpus = Corpus.from_folder(docs).by_id()
    for item in read_token_level(tmp_path / "truth.jsonl"):
        for span in item.relevant_spans:
            assert corpus[span.doc_id].content[span.start : span.end] == span.text, "the file has them carried over"


def test_a_document_that_is_gone_takes_its_questions_out_of_the_run_and_not_out_of_the_file(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load()
    server.requests.clear()
    path = docs / f"{PLACES[0]}.md"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    with caplog.at_level(logging.WARNING):
        assert load().queries.rows == 4
    assert (
        "generate tiny were moved to their text in changed documents: 4 kept, 2 lost; 2 questions left" in caplog.text
    )
    assert len(read_token_level(tmp_path / "truth.jsonl")) == 6
    path.write_text(text, encoding="utf-8")
    assert (load().queries.rows, server.requests) == (6, [])


def test_what_a_review_rejects_adjusts_and_accepts_stays_so(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path
) -> None:
    load()
    path = tmp_path / "truth.jsonl"
    session = ReviewSession(path, DocumentFolder(docs, "**/*.md"))
    first, second = (item.query.id for item in read_token_level(path)[:2])
    session.decide(first, session.entries[first].version, "rejected")
    session.decide(second, session.entries[second].version, "accepted")
    reviewed = path.read_bytes()
    (docs / "Havnes.md").write_text(harbour_text("Havnes"), encoding="utf-8")
    truth = load()
    assert truth.queries.rows == 5 + 2
    assert path.read_bytes().startswith(reviewed.rstrip(b"\n"))
    asked_path(path).unlink()  # all documents are asked about again, and their answers are in the cache
    server.requests.clear()
    assert (load().queries.rows, server.requests) == (7, [])


@pytest.mark.parametrize(
    ("name", "text", "queries"),
    [
        ("q.txt", "\ufeffWhen?\r\n\r\n  Where? \nWhen?\n", [("When?", {}), ("Where?", {})]),
        ("q.csv", 'query,n\n"a, ""b""\nc?",1\nd?,\n', [('a, "b"\nc?', {"n": "1"}), ("d?", {})]),
        ("q.jsonl", '"a?"\n{"query": "b?", "n": [1]}\n', [("a?", {}), ("b?", {"n": [1]})]),
    ],
)
def test_a_file_of_questions_is_read(
    tmp_path: Path, name: str, text: str, queries: list[tuple[str, dict[str, object]]]
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert [(one.text, one.metadata) for one in read_queries(tmp_path / name)] == queries


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.txt", " \n", "has no questions: write one per line"),
        ("q.csv", "question\na?\n", "a row has no query: .*give a column query"),
        ("q.csv", 'query\n"a?\n', r"is not csv with a query in each row: .*unexpected end"),
        ("q.jsonl", "{\n", "is not jsonl with a query in each row"),
        ("q.jsonl", "5\n", "is not jsonl with a query in each row"),
        ("none.txt", None, "the file of questions .* does not exist"),
    ],
)
def test_a_file_without_questions_is_named(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(GroundTruthError, match=told):
        read_queries(tmp_path / name)


def test_real_questions_are_asked_once_and_those_that_are_new_alone(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.csv"
    rows = 'id,query,channel\nq1,"Fresh water cost in Storvåg, kroner?",chat\n,Who conducts in Vienna?,mail\n'
    queries.write_text(rows, encoding="utf-8")
    assert load(queries=queries).queries.rows == 2
    first, second = read_token_level(tmp_path / "truth.jsonl")
    assert (first.query.id, first.query.metadata["channel"], len(first.relevant_spans)) == ("q1", "chat", 1)
    assert second.unanswerable
    server.requests.clear()
    with queries.open("a") as file:
        file.write(",The crane of Lyngholm lifts how many tonnes?,mail\n")
    assert (load(queries=queries).queries.rows, len(server.requests)) == (3, 1)
    assert (load(queries=queries).queries.rows, len(server.requests)) == (3, 1)
    source = GeneratedTruth(queries=queries, model="tiny", file=tmp_path / "truth.jsonl")
    assert "3 questions in" in source.check(Corpus.from_folder(docs), "token-level")


def test_a_question_that_is_added_by_hand_without_the_text_of_its_span_counts(
    server: OpenAIServer, load: Load, docs: Path, tmp_path: Path
) -> None:
    load()
    name = f"{PLACES[0]}.md"
    line = {"query": "What is it called?", "relevant_spans": [{"doc_id": name, "start": 2, "end": 9}]}
    with (tmp_path / "truth.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    truth = load()
    assert truth.queries.rows == 7
    rows = Workspace(root=tmp_path / "work").read_table(truth.answers).to_pylist()
    assert rows[-1]["text"] == PLACES[0]


def test_other_settings_hold_for_new_documents_only(server: OpenAIServer, load: Load, docs: Path) -> None:
    load()
    server.requests.clear()
    assert load(queries_per_doc=4, model="other").queries.rows == 6
    assert server.requests == []
    (docs / "Havnes.md").write_text(harbour_text("Havnes"), encoding="utf-8")
    assert load(queries_per_doc=4, model="other").queries.rows == 10
    assert [one.body["model"] for one in server.requests] == ["other"]


def test_a_limit_leaves_documents_for_the_next_run(server: OpenAIServer, load: Load) -> None:
    # A request puts aside about 0.0036 and costs about 0.001.
    limited = {"prices": PRICES, "max_cost": 0.0042, "concurrency": 1, "options": {"max_output_tokens": 500}}
    first = load(**limited)
    assert 0 < first.queries.rows < 6
    assert first.effort is not None
    assert 0 < (first.effort.cost or 0) <= 0.0042
    rows = first.queries.rows
    while rows < 6:
        before, asked = rows, len(server.requests)
        rows = load(**limited).queries.rows
        assert rows > before, "the next run goes on"
        assert len(server.requests) > asked
    assert len(server.requests) == 3, "nothing was paid twice"


def test_a_limit_holds_over_the_attempts_of_a_run(
    server: OpenAIServer, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    source = GeneratedTruth(
        model="tiny",
        queries_per_doc=2,
        file=tmp_path / "truth.jsonl",
        base_url=server.base_url,
        concurrency=1,
        max_retries=0,
        max_cost=0.006,  # of which a request puts aside about 0.0036, and costs about 0.001
        prices=PRICES,
        options={"max_output_tokens": 500},
    )
    corpus = Corpus.from_folder(docs)

    def read(run: str) -> list[Any]:
        around = Surroundings(Storage(tmp_path), reanchor, run=run)
        return list(source.read(source.observe("token-level"), lambda: corpus, "token-level", around).truth)

    # The second answer is lost on its way, and may have been charged.
    server.faults += [Change(lambda answer: answer), Disconnect(0.5)]
    with pytest.raises(ServiceError, match="answers so far are cached"):
        read("first")
    asked = len(server.requests)
    assert len(read("first")) == 2, "what was paid for is there"
    assert len(server.requests) == asked, "the second attempt has the rest of the money, which is too little"
    assert len(read("second")) > 2


def test_a_failing_service_keeps_what_was_answered(server: OpenAIServer, load: Load, tmp_path: Path) -> None:
    server.faults += [Status(500)] * 3
    with pytest.raises(ServiceError, match="answers so far are cached"):
        load(concurrency=1)
    assert not (tmp_path / "truth.jsonl").exists()
    server.faults.clear()
    server.requests.clear()
    assert load(concurrency=1).queries.rows == 6
    assert len(server.requests) == 3


def test_a_model_that_refuses_everything_is_one_sentence(server: OpenAIServer, load: Load, tmp_path: Path) -> None:
    server.faults += [refusal("no")] * 9
    with pytest.raises(GroundTruthError, match=r"no question was kept.*no usable answer \(6\); .* refused \(9\)"):
        load()
    assert not (tmp_path / "truth.jsonl").exists()


def test_chunk_level_questions_grow_too(server: OpenAIServer, load: Load, docs: Path, tmp_path: Path) -> None:
    chunked = {"chunker": RecursiveTokenChunker(chunk_size=40), "level": "chunk-level"}
    assert load(**chunked).queries.rows == 6
    (docs / "Havnes.md").write_text(harbour_text("Havnes"), encoding="utf-8")
    assert load(**chunked).queries.rows == 8
    assert len(server.requests) == 4
    assert len(read_chunk_level(tmp_path / "truth.jsonl")) == 8
    with pytest.raises(ConfigurationError, match="makes token-level ground truth and the evaluation is chunk-level"):
        load("chunk-level")


def test_files_that_cannot_be_used_are_named(load: Load, docs: Path, tmp_path: Path) -> None:
    (tmp_path / "nowhere").write_text("a file")
    with pytest.raises(ArtifactError, match="nowhere"):
        load(file=tmp_path / "nowhere" / "truth.jsonl")
    load()
    asked_path(tmp_path / "truth.jsonl").write_text("{")
    with pytest.raises(GroundTruthError, match="is damaged: restore it, or remove"):
        load()
