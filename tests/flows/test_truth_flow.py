"""A benchmark that generates its ground truth and joins some from LangSmith, on a real Prefect server."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from langsmith import utils as langsmith_utils
from typer.testing import CliRunner

from rag_eval import Corpus
from rag_eval.cli.main import app
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.llm.chat import ANSWERS
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.services.langsmith_client import LangSmithService, langsmith_client
from rag_eval.services.langsmith_datasets import push_truth
from rag_eval.storage.rows import KeyedRows
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from tests.doubles.langsmith_fixtures import no_langsmith_settings
from tests.doubles.langsmith_server import KEY as LANGSMITH_KEY
from tests.doubles.langsmith_server import LangSmithServer
from tests.doubles.openai_fixtures import KEY, server
from tests.doubles.openai_server import OpenAIServer
from tests.flows import server_runs
from tests.flows.interrupted_run import ended, start
from tests.generation.corpora import PLACES, harbour_text

__all__ = ["no_langsmith_settings", "server"]

BENCHMARK = """\
corpus: docs
ground_truth:
  - langsmith: reviewed
  - generate: {{model: tiny, queries_per_doc: 2, base_url: "{url}", concurrency: 2, prices: {{input: 1, output: 4}}}}
chunkers: {{type: recursive-token, chunk_size: 60}}
retrieval: bm25
"""


@pytest.fixture
def reviewed() -> Iterator[LangSmithServer]:
    with LangSmithServer() as langsmith:
        yield langsmith


@pytest.fixture
def file(server: OpenAIServer, reviewed: LangSmithServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A benchmark file, with documents and a dataset that has one question about them."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_API_KEY", LANGSMITH_KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", reviewed.url)
    langsmith_utils.get_env_var.cache_clear()
    (tmp_path / "docs").mkdir()
    for place in PLACES:
        (tmp_path / "docs" / f"{place}.md").write_text(harbour_text(place), encoding="utf-8")
    document = Corpus.from_folder(tmp_path / "docs").documents[0]
    start = document.content.index("The crane")
    span = document.span(start, start + 30)
    client = langsmith_client(auto_batch_tracing=False)
    truth = [TokenLevelGroundTruth(Query.from_text("How much does the crane lift?"), [span])]
    push_truth(LangSmithService(client), "reviewed", truth)
    client.close()
    (tmp_path / "benchmark.yaml").write_text(BENCHMARK.format(url=server.base_url))
    return tmp_path / "benchmark.yaml"


def run(file: Path, *, reanchor: bool = False) -> BenchmarkOutcome:
    return server_runs.run(load_config(file), Workspace(root=file.parent / ".rag-eval"), reanchor=reanchor)


def works(outcome: BenchmarkOutcome) -> dict[str, str]:
    return {name: stage.state for name, stage in outcome.steps.items()}


@pytest.mark.usefixtures("prefect_server")
def test_a_benchmark_generates_and_joins_its_truth_and_pays_for_new_documents_only(
    server: OpenAIServer, file: Path
) -> None:
    from prefect.settings import PREFECT_API_URL

    first = run(file)
    assert works(first) == dict.fromkeys(["load corpus", "load ground truth"], "computed")
    assert (first.answerable, len(server.requests)) == (1 + 8, 4)
    assert first.ground_truth.name == "langsmith reviewed, generate tiny"
    kept = read_token_level(file.parent / ".rag-eval" / "runs" / first.run / "ground_truth.jsonl")
    assert Counter(origin for item in kept for origin in item.origins.values()) == {
        "langsmith reviewed": 1,
        "generate tiny": 8,
    }

    again = run(file)
    assert set(works(again).values()) == {"cached"}
    assert again.work()[0] == 0
    assert len(server.requests) == 4

    added = file.parent / "docs" / "Havnes.md"
    added.write_text(harbour_text("Havnes"), encoding="utf-8")
    grown = run(file)
    assert (grown.answerable, len(server.requests)) == (1 + 10, 5)
    assert "# Havnes" in str(server.requests[-1].body)

    added.write_text("A line above all others.\n\n" + harbour_text("Havnes"), encoding="utf-8")
    moved = run(file)
    assert (moved.answerable, moved.documents, len(server.requests)) == (11, 5, 5)
    truth = read_token_level(file.parent / "generated-truth.jsonl")
    check_against_corpus(truth, Corpus.from_folder(file.parent / "docs"))
    assert moved.configurations[0].metrics["span_recall@5"] == pytest.approx(
        grown.configurations[0].metrics["span_recall@5"], abs=0.2
    )

    runs = httpx.post(f"{PREFECT_API_URL.value()}/task_runs/filter", json={"limit": 200}).json()
    names = {one["name"] for one in runs}
    assert {
        f"{what} {source}" for what in ("pull", "load") for source in ("langsmith reviewed", "generate tiny")
    } <= names
    assert "join_ground_truth" in {server_runs.step_of(one) for one in runs}
    artifacts = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json={"limit": 200}).json()
    shown = [one["data"] for one in artifacts if one["key"] == "ground-truth"]
    assert any("langsmith reviewed" in text and "generated-truth.jsonl" in text for text in shown)


@pytest.mark.usefixtures("prefect_server")
def test_a_run_killed_inside_the_generation_pays_nothing_twice(server: OpenAIServer, file: Path) -> None:
    server.seconds = 0.3
    workspace = file.parent / ".rag-eval"
    answers = KeyedRows(workspace / "cache" / "answers", ANSWERS)
    killed = start(file, workspace)
    deadline = time.monotonic() + 60
    while sum(len(one) for one in answers.files()) < 2:
        assert killed.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.kill()
    assert ended(killed) == -9
    time.sleep(0.7)  # the service goes on with what was under way
    kept, sent = sum(len(one) for one in answers.files()), len(server.requests)
    assert 2 <= kept < 4
    assert sent <= kept + 2, "two requests at once were under way"
    assert not (file.parent / "generated-truth.jsonl").exists()
    server.seconds = 0.0
    outcome = run(file)
    assert (outcome.answerable, outcome.steps["load corpus"].state) == (9, "cached")
    assert len(server.requests) - sent == 4 - kept, "what was answered before was asked again"


def test_the_check_of_a_benchmark_asks_no_service(
    server: OpenAIServer, reviewed: LangSmithServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(reviewed.requests)
    done = CliRunner().invoke(app, ["validate", str(file)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "the questions of the LangSmith dataset 'reviewed' are pulled when it runs" in text
    assert "generate tiny: the run asks about 4 documents, in addition to 0 questions" in text
    assert (server.requests, len(reviewed.requests)) == ([], before)
    monkeypatch.delenv("LANGSMITH_API_KEY")
    refused = CliRunner().invoke(app, ["validate", str(file)])
    assert isinstance(refused.exception, ConfigurationError)
    assert "set LANGSMITH_API_KEY" in str(refused.exception)


def test_truth_on_the_command_line_takes_the_place_of_all_sources(file: Path) -> None:
    from rag_eval.config.loading import chosen_benchmark

    config: BenchmarkConfig = chosen_benchmark(file, truth=Path("mine.jsonl"))
    assert [one.title for one in config.ground_truth] == ["file mine.jsonl"]
