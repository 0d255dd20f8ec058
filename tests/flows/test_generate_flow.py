"""Generating as a flow on a real Prefect server, and from the command line; the service is on loopback."""

import json
import signal
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from rag_eval import read_token_level
from rag_eval.cli.main import app
from rag_eval.errors import RagEvalError, RequestRefusedError
from rag_eval.llm.chat import ANSWERS
from rag_eval.storage.rows import KeyedRows
from tests.cli.commands import rag_eval, started
from tests.doubles.openai_chat import refusal
from tests.doubles.openai_fixtures import KEY, server
from tests.doubles.openai_server import OpenAIServer, Status
from tests.generation.corpora import PLACES, harbour_text

__all__ = ["server"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for place in PLACES:
        (folder / f"{place}.md").write_text(harbour_text(place), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_asks_once_goes_on_after_a_failure_and_asks_about_new_documents_alone(
    server: OpenAIServer, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL

    from flows.generate import generate

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.seconds = 0.02
    output = tmp_path / "truth.jsonl"
    given = {"corpus": str(docs), "output": str(output), "model": "tiny", "base_url": server.base_url}
    given |= {
        "glob": ["*.md"],
        "queries_per_doc": 2,
        "cross_document": 2,
        "unanswerable": 1,
        "workspace": str(tmp_path / "work"),
    }
    # The service refuses one request, which is no outage that may pass; what was answered is not asked again.
    server.faults += [Status(400)]
    with pytest.raises(RequestRefusedError, match="the answers so far are cached"):
        generate(**given)
    made = generate(**given)
    assert len(server.requests) == 1 + 4 + 1 + 1 + 1
    assert 1 < server.most_at_once <= 4
    truth = read_token_level(output)
    assert made.queries.rows == len(truth) >= 9
    assert (generate(**given).queries, len(server.requests)) == (made.queries, 8)
    (docs / "new.md").write_text(harbour_text("Ytre Sula"), encoding="utf-8")
    assert generate(**given).queries.rows == len(truth) + 2
    assert len(server.requests) == 9
    assert read_token_level(output)[: len(truth)] == truth

    artifacts = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json={"limit": 200}).json()
    shown = [one["data"] for one in artifacts if one["key"] == "generation"]
    assert any("questions kept" in text and "cross-document" in text for text in shown)


def command(server: OpenAIServer, *arguments: str) -> list[str]:
    return ["generate", "docs", "--base-url", server.base_url, "--model", "tiny", *arguments]


PRICED = ("--input-price", "1", "--output-price", "4")


@pytest.fixture
def beside_docs(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs.parent)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("LANGSMITH_API_KEY", raising=False)


@pytest.mark.usefixtures("beside_docs")
def test_the_command_says_what_it_will_take_and_what_it_took(server: OpenAIServer, tmp_path: Path) -> None:
    dry = CliRunner().invoke(app, command(server, *PRICED, "--queries-per-doc", "2", "--dry-run", "--json"))
    assert dry.exit_code == 0, dry.output
    estimate = json.loads(dry.stdout)["estimate"]
    assert (estimate["questions"], estimate["calls"], estimate["cached"]) == (8, 4, 0)
    assert estimate["cost"] > 0
    assert server.requests == []
    assert not (tmp_path / "truth.jsonl").exists()

    server.faults.append(refusal("no"))
    arguments = ["-o", "mine.jsonl", "--queries-per-doc", "2", "--persona", "a skipper", "--difficulty", "hard"]
    arguments += ["--query-type", "causal", "--option", "min_relevance=off", "--upload", "ships"]
    done = rag_eval(*command(server, *PRICED, *arguments), cwd=tmp_path, OPENAI_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert "4 documents, 8 questions in 4 requests to tiny" in done.stderr
    assert "8 of 8 questions kept" in done.stdout
    assert "Unusable answers: refused 1" in done.stdout
    assert "Written to mine.jsonl" in done.stdout
    assert "Not uploaded to the LangSmith dataset ships: " in done.stdout
    metadata = read_token_level(tmp_path / "mine.jsonl")[0].query.metadata
    assert (metadata["persona"], metadata["difficulty"], metadata["query_type"]) == ("a skipper", "hard", "causal")
    assert KEY not in done.stdout + done.stderr


@pytest.mark.usefixtures("beside_docs")
def test_real_questions_get_their_evidence_or_are_declared_unanswerable(server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("Fresh water costs in Storvåg\nWho conducts the orchestra in Vienna?\n")
    arguments = (*PRICED, "--queries", "queries.txt")
    dry = CliRunner().invoke(app, command(server, *arguments, "--dry-run"))
    assert "4 documents, 2 questions in 4 requests to tiny" in dry.stdout
    assert server.requests == []
    done = CliRunner().invoke(app, command(server, *arguments))
    assert done.exit_code == 0, done.output
    assert "2 of 2 questions kept" in done.stdout
    assert "evidence" in done.stdout
    first, second = read_token_level(tmp_path / "truth.jsonl")
    assert ([span.doc_id for span in first.relevant_spans], second.unanswerable) == (["Storvåg.md"], True)
    again = CliRunner().invoke(app, command(server, *arguments, "--extend"))
    assert (again.exit_code, len(server.requests)) == (0, 3), again.output
    for more in (["--unanswerable", "2"], ["--chunker", "recursive-token"]):
        refused = CliRunner().invoke(app, command(server, *arguments, *more, "-o", "other.jsonl"))
        assert "--queries uses the questions as they are" in str(refused.exception)


@pytest.mark.usefixtures("beside_docs")
def test_a_limit_ends_the_command_with_what_is_done(server: OpenAIServer, tmp_path: Path) -> None:
    arguments = (*PRICED, "--queries-per-doc", "2", "--option", "max_output_tokens=500", "--concurrency", "1")
    limit = 0.005  # of which a request puts aside about 0.0036, and costs about 0.001
    done = CliRunner().invoke(app, command(server, *arguments, "--max-cost", str(limit), "--json"))
    assert done.exit_code == 1, done.output
    assert "not asked: run the same command with a higher --max-cost and --extend" in done.stderr
    report = json.loads(done.stdout)["report"]
    assert 0 < report["kept"] < 8
    assert report["ledger"][-1]["fresh"]["cost"] <= limit
    assert len(read_token_level(tmp_path / "truth.jsonl")) == report["kept"]
    asked = len(server.requests)
    rest = CliRunner().invoke(app, command(server, *arguments, "--extend", "--json"))
    assert rest.exit_code == 0, rest.output
    assert len(server.requests) == 4
    assert json.loads(rest.stdout)["report"]["ledger"][-1]["fresh"]["calls"] == 4 - asked
    assert len(read_token_level(tmp_path / "truth.jsonl")) == 8


@pytest.mark.usefixtures("beside_docs")
def test_a_stopped_command_keeps_the_answers_under_way_and_goes_on(server: OpenAIServer, tmp_path: Path) -> None:
    server.seconds = 0.5
    process = started(*command(server, "--concurrency", "2"), cwd=tmp_path, OPENAI_API_KEY=KEY)
    while len(server.requests) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "answers are saved, and the same command continues" in errors
    assert "total" in output
    kept = KeyedRows(tmp_path / ".rag-eval" / "cache" / "answers", ANSWERS)
    assert sum(len(file) for file in kept.files()) == 2
    server.seconds = 0.0
    assert CliRunner().invoke(app, command(server)).exit_code == 0
    assert len(server.requests) == 4


@pytest.mark.usefixtures("beside_docs")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--difficulty", "brutal"], "--difficulty: expected 'easy', 'medium' or 'hard'"),
        (["--option", "max_leekage=1"], "--option max_leekage: there is no such setting"),
        (["--option", "window_tokens"], "has no value: write for example"),
        (["--option", "window_tokens=5"], "--option window_tokens: expected a number of at least 100"),
        (["--chunker", "{type: markdown, chunk_sise: 5}"], "--chunker: chunk_sise: markdown has no such"),
        (["--chunker", "{"], "is not YAML"),
        (["--chunker", "nope"], "there is no chunker 'nope'"),
        (["--max-cost", "0"], "--max-cost: expected a number above 0, found 0"),
        (["--input-price", "-1", "--output-price", "1"], "--input-price: expected a number of at least 0, found -1"),
        (["--max-cost", "1"], "those of 'tiny' are not known at this server: give --input-price"),
        (["--input-price", "1"], "belong together: give both"),
        (["--glob", "*.txt"], "no file in"),
        (["--base-url", "ftp://x"], "--base-url: expected an address"),
        (["--queries-per-doc", "0"], "no question is asked for"),
        (["--output", "docs"], "'docs' already exists: give --extend"),
        (["--base-url", "https://api.openai.com/v1", "--yes"], "needs a key: set OPENAI_API_KEY"),
    ],
)
def test_a_mistake_is_said_before_anything_is_asked(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    done = CliRunner().invoke(app, command(server, *arguments))
    assert isinstance(done.exception, RagEvalError), done.output
    assert sentence in str(done.exception)
    assert server.requests == []
