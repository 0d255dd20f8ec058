"""Sweeps through the flow, on a real Prefect server: what a guide leaves out is not paid for, and a limit is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from tests.chain import run_benchmark
from tests.doubles.openai_fixtures import KEY
from tests.doubles.openai_server import OpenAIServer
from tests.flows.server_runs import run, run_and_read, step_of
from tests.sweep.made_grids import GRID, sweep_benchmark, write_sentences

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(api_key=KEY, dimension=32) as running:
        yield running


@pytest.fixture
def grid(server: OpenAIServer, tmp_path: Path) -> str:
    """Five chunkings and two retrievers, embedded by a service that charges a dollar for a thousand tokens."""
    write_sentences(tmp_path)
    own = GRID.replace("[100, 250]", "250").replace("[vector, bm25, hybrid]", "[vector, hybrid]")
    settings = "max_texts: 200, max_retries: 0, price_per_million_tokens: 1000.0"
    return f"{own}\nembedders: {{type: openai, model: tiny, base_url: {server.base_url!r}, {settings}}}"


def test_a_guided_sweep_pays_for_the_chunkings_that_its_guide_ranks_first(
    server: OpenAIServer, grid: str, tmp_path: Path
) -> None:
    config, workspace = sweep_benchmark(tmp_path, grid, search="guided"), Workspace(root=tmp_path / "work")
    found = run_and_read(config, workspace)
    outcome, record = found.outcome, found.outcome.search
    assert record is not None
    assert record.configurations == 10
    evaluated = {one.name for one in outcome.configurations}
    assert len(evaluated) == 3 * 2  # of five chunkings three are embedded
    assert evaluated | record.estimated.keys() == {one.name for one in config.configurations()}
    assert evaluated.isdisjoint(record.estimated)
    assert 0 < record.tokens < record.full_tokens
    assert len(server.texts) == len(set(server.texts))
    # The guide's chunkings and those chosen are subflows; what was counted and cut for the guide is cached.
    assert len(found.subflows) == 5 + 3
    assert sum(step_of(one) == "count_texts" for one in found.tasks) == 5 * len(outcome.inputs.documents)
    cut = [one["state"]["name"] for one in found.tasks if step_of(one) == "chunk"]
    assert cut.count("Completed") == 5 * len(outcome.inputs.documents)

    # It is what the same steps give without a server.
    alone = run_benchmark(Workspace(root=tmp_path / "alone"), config)
    assert [(one.name, one.scores.digest) for one in outcome.configurations] == [
        (one.name, one.scores.digest) for one in alone.configurations
    ]
    assert alone.search == record
    asked = len(server.texts)
    again = run_and_read(config, workspace)
    assert (again.computed(), len(server.texts)) == (set(), asked)
    assert again.outcome.search == record


def test_a_full_sweep_over_its_limit_is_refused_before_anything_is_embedded(
    server: OpenAIServer, grid: str, tmp_path: Path
) -> None:
    workspace = Workspace(root=tmp_path / "work")
    with pytest.raises(
        ConfigurationError, match=r"max_cost is 1,000 tokens, .* [\d,]+ tokens left to embed: allow more, or use search"
    ):
        run(sweep_benchmark(tmp_path, grid, max_cost="1,000 tokens"), workspace)
    assert server.texts == []
    outcome = run(sweep_benchmark(tmp_path, grid, max_cost="9,000,000 tokens"), workspace)
    assert len(outcome.configurations) == 10
    # What is embedded is not counted again.
    assert len(run(sweep_benchmark(tmp_path, grid, max_cost="1,000 tokens"), workspace).configurations) == 10
