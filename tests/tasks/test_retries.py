"""Tasks that ask a service, on a real Prefect server: run again after an outage, failed at once by a refusal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import BenchmarkFailedError
from rag_eval.pipeline.workspace import Workspace
from tasks.embed import embed
from tests.doubles.openai_server import OpenAIServer, Status
from tests.flows.benchmarks import SMALL, folder_of
from tests.flows.server_runs import ServerRun, run_and_read, step_of

pytestmark = pytest.mark.usefixtures("prefect_server")
KEY = "sk-test-0123456789-abcdef"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(embed, "retry_delay_seconds", [0.01, 0.01])
    with OpenAIServer(api_key=KEY) as running:
        yield running


@pytest.fixture
def config(server: OpenAIServer, tmp_path: Path) -> BenchmarkConfig:
    corpus, truth = folder_of(tmp_path, 3)
    priced: dict[str, Any] = {"price_per_million_tokens": 1000.0}
    embedder = OpenAIEmbedder(model="tiny", base_url=server.base_url, max_retries=0, **priced)
    return BenchmarkConfig(
        corpus=corpus, ground_truth=truth, chunkers=[SMALL], embedders=[embedder], retrieval=["vector", "bm25"], k=[1]
    )


def embedding(found: ServerRun) -> tuple[str, int]:
    """The state of the task run that embeds, and how often it ran."""
    (one,) = (each for each in found.tasks if step_of(each) == "embed")
    return one["state"]["name"], one["run_count"]


def failure(found: ServerRun) -> str:
    with pytest.raises(BenchmarkFailedError, match="1 of 2 configurations failed") as caught:
        found.outcome  # noqa: B018  # it raises
    return str(caught.value)


def test_a_service_that_comes_back_is_asked_again_and_nothing_is_paid_for_twice(
    server: OpenAIServer, config: BenchmarkConfig, tmp_path: Path
) -> None:
    server.faults += [Status(500, "the model\nis on fire"), Status(503)]
    workspace = Workspace(root=tmp_path / "work")
    first = run_and_read(config, workspace)
    assert embedding(first) == ("Completed", 3)
    effort = first.outcome.configurations[0].steps["embed"].effort
    assert effort is not None
    assert (effort.fresh, effort.total) == (3, 3)
    assert effort.tokens is not None
    assert effort.cost == pytest.approx(effort.tokens / 1000)
    asked = len(server.requests)

    again = run_and_read(config, workspace)
    assert embedding(again)[0] == "Cached"
    kept = again.outcome.configurations[0].steps["embed"]
    assert (kept.state, kept.effort) == ("cached", effort)
    (tmp_path / "docs" / "more.md").write_text("One more ship leaves from another quay.\n")
    grown = run_and_read(config, workspace).outcome.configurations[0].steps["embed"].effort
    assert grown is not None
    assert (grown.fresh, grown.total) == (1, 4)
    assert len(server.requests) == asked + 1
    # All four were read, and one was paid for.
    assert (grown.tokens or 0) > effort.tokens
    assert grown.cost is not None
    assert 0 < grown.cost < effort.cost


def test_a_service_that_stays_away_fails_its_configuration(
    server: OpenAIServer, config: BenchmarkConfig, tmp_path: Path
) -> None:
    server.faults += [Status(500)] * 9
    found = run_and_read(config, Workspace(root=tmp_path / "work"))
    reason = failure(found)
    assert "answered 500" in reason
    assert KEY not in reason
    assert (embedding(found), len(server.requests)) == (("Failed", 3), 3)


def test_a_refusal_is_told_at_once(server: OpenAIServer, config: BenchmarkConfig, tmp_path: Path) -> None:
    server.faults += [Status(401)]
    found = run_and_read(config, Workspace(root=tmp_path / "work"))
    assert "refused the key" in failure(found)
    assert (embedding(found), len(server.requests)) == (("Failed", 1), 1)
