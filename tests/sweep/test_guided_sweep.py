"""The guided sweep with real parts: what is evaluated, what is paid for, and what is said of the rest."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.benchmark import benchmark
from rag_eval.config.models import BenchmarkConfig
from rag_eval.config.sweep_settings import CostLimit, SearchRecord
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.sweep.estimate import Estimates
from rag_eval.tables import searched_texts
from tasks.caching import result_storage
from tests.chain import choose_configurations, cut, load_inputs, run_benchmark, text_costs
from tests.doubles.openai_fixtures import KEY
from tests.doubles.openai_server import OpenAIServer, Status
from tests.sweep.made_grids import GRID, sweep_benchmark, write_sentences

QUESTIONS = 56
VECTORS = GRID.replace("[vector, bm25, hybrid]", "[vector]")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of made-up sentences, and questions that share some of their words."""
    folder = tmp_path_factory.mktemp("data")
    write_sentences(folder)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "work")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(api_key=KEY, dimension=32) as running:
        yield running


@pytest.fixture
def paid(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """An embedder that charges a dollar for a thousand tokens."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = "max_texts: 40, max_retries: 0, concurrency: 1, price_per_million_tokens: 1000.0"
    return f"{GRID}\nembedders: {{type: openai, model: tiny, base_url: {server.base_url!r}, {settings}}}"


def record_of(workspace: Workspace, config: BenchmarkConfig) -> SearchRecord | None:
    """How the configurations of a benchmark are chosen, before those that are embedded are evaluated."""
    return choose_configurations(workspace, config, load_inputs(workspace, config)).record


def means(run: BenchmarkOutcome) -> dict[str, float]:
    return {one.name: one.metrics[run.config.objective] for one in run.configurations}


def test_an_estimate_is_what_a_run_embeds(data: Path, workspace: Workspace, server: OpenAIServer, paid: str) -> None:
    config = sweep_benchmark(data, paid)
    estimates = Estimates(workspace, config)
    full, guided = estimates.of()
    assert server.texts == []
    assert (full.configurations, guided.configurations) == (18, 12)
    assert estimates.notes == []
    assert full.all == full.left
    assert full.all.cost == pytest.approx((full.all.tokens or 0) / 1_000)
    run = run_benchmark(workspace, config.model_copy(update={"search": "guided"}))
    assert len(run.configurations) == guided.configurations
    assert len(server.texts) - QUESTIONS == guided.all.texts
    assert run.search is not None
    assert (run.search.tokens, run.search.full_tokens) == (guided.all.tokens, full.all.tokens)
    assert [one.left.texts for one in Estimates(workspace, config).of()] == [full.all.texts - guided.all.texts, 0]
    run_benchmark(workspace, config)
    assert len(server.texts) - QUESTIONS == len(set(server.texts)) - QUESTIONS == full.all.texts


def test_guided_evaluates_the_first_chunkings_of_the_guide_and_estimates_the_rest(
    data: Path, workspace: Workspace
) -> None:
    config = sweep_benchmark(data, search="guided")
    run = run_benchmark(workspace, config)
    record = run.search
    assert record is not None
    assert (record.configurations, record.notes) == (18, [])
    assert len(run.configurations) == 6 + 3 * 2  # BM25 costs nothing; two others of three chunkings
    assert record.estimated.keys() | means(run).keys() == {one.name for one in config.configurations()}
    assert not record.estimated.keys() & means(run).keys()
    # The local embedder is itself compared, so that BM25 guides.
    bm25 = {name.removesuffix(", bm25"): mean for name, mean in means(run).items() if "bm25" in name}
    kept = {name.removesuffix(", vector") for name in means(run) if "vector" in name}
    assert min(bm25[one] for one in kept) >= max(value for one, value in bm25.items() if one not in kept)
    assert {bm25[name.rpartition(",")[0]] == mean for name, mean in record.estimated.items()} == {True}
    assert 0 < record.tokens < record.full_tokens


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_chooses_and_finds_what_is_chosen_and_found_here(
    data: Path, tmp_path: Path, workspace: Workspace
) -> None:
    few = GRID.replace("[30, 60, 90, 120]", "[30, 60]")
    config, there = sweep_benchmark(data, few, search="guided"), Workspace(root=tmp_path / "flow")
    here, by_flow = (
        run_benchmark(workspace, config),
        benchmark.with_options(result_storage=result_storage(there))(config, there),
    )
    assert here.search is not None
    assert here.search.estimated
    assert by_flow.search == here.search
    assert means(by_flow) == means(here)
    assert by_flow.fingerprint == here.fingerprint


def test_guided_keeps_to_the_limit_and_refuses_where_nothing_guides(data: Path, workspace: Workspace) -> None:
    limited = record_of(workspace, sweep_benchmark(data, search="guided", max_cost="20,000 tokens"))
    assert limited is not None
    assert limited.tokens <= 20_000
    assert limited.notes == ["max_cost left 1 of 3 chunkings"]
    with pytest.raises(ConfigurationError, match=r"max_cost is 10 tokens and the first chunking alone takes \d"):
        record_of(workspace, sweep_benchmark(data, search="guided", max_cost="10 tokens"))
    with pytest.raises(ConfigurationError, match="search: guided has no guide here"):
        record_of(workspace, sweep_benchmark(data, VECTORS, search="guided"))


def test_a_full_sweep_over_the_limit_is_refused(data: Path, workspace: Workspace) -> None:
    with pytest.raises(ConfigurationError, match=r"max_cost is 10 tokens, and the full grid has [\d,]+ tokens left"):
        record_of(workspace, sweep_benchmark(data, max_cost="10 tokens"))
    allowed = sweep_benchmark(data, max_cost="900,000 tokens")
    assert record_of(workspace, allowed) is None


def test_the_local_embedder_guides_where_it_is_not_compared(data: Path, workspace: Workspace, paid: str) -> None:
    estimates = Estimates(workspace, sweep_benchmark(data, paid.replace(GRID, VECTORS)))
    (guided,) = estimates.of(["guided"])
    assert guided.configurations == 6  # twice as many chunkings as it takes with a lexical side
    told = "the guide is less reliable for vector search alone, so twice as many chunkings are embedded"
    assert told in estimates.notes


def test_a_sweep_that_was_stopped_goes_on_and_pays_for_nothing_twice(
    data: Path, tmp_path: Path, workspace: Workspace, server: OpenAIServer, paid: str
) -> None:
    config = sweep_benchmark(data, paid.replace("[vector, bm25, hybrid]", "[hybrid]"), search="guided")
    whole = run_benchmark(Workspace(root=tmp_path / "whole"), config)
    texts = sorted(server.texts)
    server.requests.clear()
    refused: list[str] = []
    for after in (1, 5, 9):
        begun = len(server.requests)
        server.faults = deque([None] * after + [Status(500)] * 100)
        assert run_benchmark(workspace, config).failures
        refused += [text for request in server.requests[begun + after :] for text in request.body["input"]]
    server.faults.clear()
    found = run_benchmark(workspace, config)
    assert found.failures == {}
    assert means(found) == means(whole)
    assert found.search == whole.search
    assert sorted(server.texts) == sorted([*texts, *refused])


def test_a_chunker_that_fails_and_an_embedder_that_does_not_count(
    data: Path, tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_parts.py").write_text(
        "def bad(text):\n    raise ValueError('no')\n\n\ndef letters(texts):\n"
        "    return [[text.count(one) + 0.1 for one in 'abcdefgh'] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = GRID.replace("retrieval:", "  - own_parts:bad\nretrieval:", 1)
    run = run_benchmark(workspace, sweep_benchmark(data, f"{own}\nembedders: own_parts:letters", search="guided"))
    assert {name.partition(",")[0] for name in run.failures} == {"own_parts:bad"}
    assert run.search is not None
    assert 0 < run.search.tokens <= run.search.full_tokens
    assert any("own_parts:bad" in note for note in run.search.notes)
    assert len(run.configurations) > 3


@pytest.mark.parametrize(
    ("failing", "grid"),
    [
        ("odd_parts:letters", "embedders: [local, odd_parts:letters]"),
        ("odd_parts:context", "context: [none, odd_parts:context]"),
    ],
)
def test_a_part_that_fails_within_a_sweep_loses_its_configurations_alone(
    data: Path, tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, failing: str, grid: str
) -> None:
    (tmp_path / "odd_parts.py").write_text(
        "def context(chunk):\n    raise ValueError('no')\n\n\n"
        "def letters(texts):\n    if any(len(text) < 60 for text in texts):\n        raise ValueError('short')\n"
        "    return [[text.count(one) + 0.1 for one in 'abcdefgh'] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = run_benchmark(workspace, sweep_benchmark(data, f"{GRID}\n{grid}", search="guided"))
    assert run.failures
    assert all(failing in name for name in run.failures)
    assert len(run.configurations) > 3
    assert run.search is not None
    assert failing == "odd_parts:letters" or not any("odd_parts" in name for name in run.search.estimated)


def test_texts_that_chunkings_share_are_counted_once(data: Path, workspace: Workspace) -> None:
    config = sweep_benchmark(data, shards=3)
    inputs, configurations = load_inputs(workspace, config), config.configurations()
    every = {
        text
        for one in configurations
        for shard in cut(workspace, one, inputs)
        for text in searched_texts(workspace.read_table(shard.table)).to_pylist()
    }
    assert text_costs(workspace, configurations, inputs).of(configurations).texts == len(every)


def test_a_limit_is_tokens_or_dollars() -> None:
    assert CostLimit.parse("500,000 tokens") == CostLimit(500_000, "tokens")
    assert CostLimit.parse("2.50 USD") == CostLimit(2.5, "USD")
    for wrong in ("500000", "2 EUR", "-1 tokens", "1e9 tokens", ""):
        with pytest.raises(ConfigurationError, match="expected a cost such as '500,000 tokens'"):
            CostLimit.parse(wrong)
