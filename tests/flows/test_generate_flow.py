"""Generating as a flow on a real Prefect server, and from the command line; the service is on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from rag_eval import GenerationOptions, RecursiveTokenChunker, read_chunk_level, read_token_level
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.rows import KeyedRows
from rag_eval.errors import RagEvalError, ServiceError
from rag_eval.generation.levels import GenerationConfig
from rag_eval.llm.chat import ANSWERS
from tests.doubles.openai_chat import refusal
from tests.doubles.openai_fixtures import KEY, server
from tests.doubles.openai_server import OpenAIServer, Status
from tests.generation.corpora import PLACES, harbour_text

__all__ = ["server"]

COMMAND = str(Path(sys.executable).with_name("rag-eval"))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for place in PLACES:
        (folder / f"{place}.md").write_text(harbour_text(place), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_asks_once_keeps_what_is_done_and_goes_on(
    server: OpenAIServer, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL

    from flows.generate import generate

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.seconds = 0.02
    config = GenerationConfig(
        corpus=docs,
        output=tmp_path / "truth.jsonl",
        model="tiny",
        base_url=server.base_url,
        queries_per_doc=2,
        options=GenerationOptions(cross_document=2, unanswerable=1),
        concurrency=3,
        max_retries=0,
    )
    workspace = Workspace(root=tmp_path / "work")
    server.faults += [Status(500)] * 9
    with pytest.raises(ServiceError, match="what was answered is kept"):
        generate(config, workspace)
    assert not config.output.exists()
    server.faults.clear()
    server.requests.clear()
    report = generate(config, workspace)
    assert report.total.fresh.calls == len(server.requests) == 4 + 1 + 1 + 1
    assert 1 < server.most_at_once <= 3
    truth = read_token_level(config.output)
    assert len(truth) == report.kept
    again = generate(config, workspace)
    assert (again.total.fresh.calls, again.total.cached.calls) == (0, 7)
    assert read_token_level(config.output) == truth

    chunked = config.model_copy(
        update={"chunker": RecursiveTokenChunker(chunk_size=40), "output": tmp_path / "chunks.jsonl"}
    )
    assert generate(chunked, workspace).evaluation_type == "chunk-level"
    (name,) = {item.chunker for item in read_chunk_level(chunked.output)}
    assert name == RecursiveTokenChunker(chunk_size=40).name

    artifacts = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json={"limit": 200}).json()
    shown = [one["data"] for one in artifacts if one["key"] == "generation"]
    assert any("questions kept" in text and "cross-document" in text for text in shown)


def command(server: OpenAIServer, *arguments: str) -> list[str]:
    return ["generate", "docs", "--base-url", server.base_url, "--model", "tiny", *arguments]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "LANGSMITH_"))}
    return {**kept, "OPENAI_API_KEY": KEY}


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
    arguments += ["--query-type", "causal", "--option", "min_relevance=off", "--upload"]
    done = subprocess.run(
        [COMMAND, *command(server, *PRICED, *arguments)], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "4 documents, 8 questions in 4 requests to tiny" in done.stderr
    assert "8 of 8 questions kept" in done.stdout
    assert "Answers that could not be used: refused 1" in done.stdout
    assert "Written to mine.jsonl" in done.stdout
    assert "waits in the outbox for the LangSmith dataset rag-eval-token-level-v1" in done.stdout
    metadata = read_token_level(tmp_path / "mine.jsonl")[0].query.metadata
    assert (metadata["persona"], metadata["difficulty"], metadata["query_type"]) == ("a skipper", "hard", "causal")
    assert KEY not in done.stdout + done.stderr


@pytest.mark.usefixtures("beside_docs")
def test_a_limit_ends_the_command_with_what_is_done(server: OpenAIServer, tmp_path: Path) -> None:
    arguments = (*PRICED, "--queries-per-doc", "2", "--option", "max_output_tokens=500", "--concurrency", "1")
    limit = 0.005  # of which a request puts aside about 0.0036, and costs about 0.001
    done = CliRunner().invoke(app, command(server, *arguments, "--max-cost", str(limit), "--json"))
    assert done.exit_code == 1, done.output
    assert "not asked: the same command with a higher --max-cost and --overwrite goes on from there" in done.stderr
    report = json.loads(done.stdout)["report"]
    assert 0 < report["kept"] < 8
    assert report["ledger"][-1]["fresh"]["cost"] <= limit
    assert len(read_token_level(tmp_path / "truth.jsonl")) == report["kept"]
    asked = len(server.requests)
    rest = CliRunner().invoke(app, command(server, *arguments, "--overwrite", "--json"))
    assert rest.exit_code == 0, rest.output
    assert len(server.requests) == 4
    assert json.loads(rest.stdout)["report"]["ledger"][-1]["cached"]["calls"] == asked
    assert len(read_token_level(tmp_path / "truth.jsonl")) == 8


@pytest.mark.usefixtures("beside_docs")
def test_a_stopped_command_keeps_the_answers_under_way_and_goes_on(server: OpenAIServer, tmp_path: Path) -> None:
    server.seconds = 0.5
    process = subprocess.Popen(
        [COMMAND, *command(server, "--concurrency", "2")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.requests) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "what was answered is kept, and the same command goes on from there" in errors
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
        (["--option", "window_tokens"], "has no value: write it like"),
        (["--option", "window_tokens=5"], "--option window_tokens: expected a number of at least 100"),
        (["--set", "chunk_size=5"], "name it with --chunker"),
        (["--chunker", "nope"], "there is no chunker 'nope'"),
        (["--max-cost", "0"], "--max-cost: expected a number above 0, found 0"),
        (["--input-price", "-1", "--output-price", "1"], "--input-price: expected a number of at least 0, found -1"),
        (["--max-cost", "1"], "those of 'tiny' are not known at this server: give --input-price"),
        (["--input-price", "1"], "go together: give both"),
        (["--glob", "*.txt"], "no file in"),
        (["--prompts", "nowhere"], "the folder of prompts 'nowhere' is not there"),
        (["--base-url", "ftp://x"], "--base-url: expected an address"),
        (["--queries-per-doc", "0"], "no question is asked for"),
        (["--output", "docs"], "'docs' is there already: give another --output, or --overwrite"),
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
