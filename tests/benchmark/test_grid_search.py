"""Guided and sure search with real parts: what is evaluated, what is paid for, and what is said of the rest."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rag_eval.benchmark.engine import InMemoryInputs, cut, evaluate, run_in_memory
from rag_eval.benchmark.records import made_once

from rag_eval import Corpus, Document, Query, TokenLevelGroundTruth
from rag_eval.benchmark import stages
from rag_eval.benchmark.config import BenchmarkConfig, BenchmarkRecord, Configuration
from rag_eval.benchmark.estimate import estimated
from rag_eval.benchmark.grid_search import Rounds, Searched, lacks_bound, search_grid
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.benchmark.outcome import summarise
from rag_eval.benchmark.pools import ChunkPlaces, TextCosts
from rag_eval.chunking import CHUNKER
from rag_eval.errors import ConfigurationError, ServiceError
from rag_eval.metrics.score_tables import average_scores
from rag_eval.parts import label
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import ground_truth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.fusion import ZScoreFusion
from rag_eval.retrieval.searching import HybridSearch, VectorSearch, WordSearch, with_reference
from rag_eval.stores import STORE
from rag_eval.tables import documents_to_table, searched_texts, truth_to_tables
from rag_eval.types.ids import DocumentId, text_sha256
from tests.benchmark.made_runs import GRID, write_sentences
from tests.benchmark.made_runs import sweep_benchmark as benchmark
from tests.doubles.openai_fixtures import KEY
from tests.doubles.openai_server import OpenAIServer, Status


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of made-up sentences, and questions that share some of their words."""
    folder = tmp_path_factory.mktemp("data")
    write_sentences(folder)
    return folder


def inputs_of(config: BenchmarkConfig, workspace: Workspace) -> BenchmarkInputs:
    run = partial(made_once, workspace)
    documents = run(stages.load_corpus, CorpusSource.of(config.corpus, config.glob), config.shards)
    truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, copies=config.copies)
    return BenchmarkInputs.of(config, documents, truth)


def searched(config: BenchmarkConfig, workspace: Workspace, names: list[str] | None = None) -> Searched:
    """The search of a benchmark, here and now; ``names`` gets those of its rounds."""
    run, inputs = partial(made_once, workspace), inputs_of(config, workspace)

    def whole(some: list[Configuration]) -> tuple[list[Any], dict[str, Any]]:
        done, failed = [], dict[str, Any]()
        for one in some:
            try:
                done.append(summarise(workspace, one, evaluate(run, one, inputs), {}, inputs))
            except ConfigurationError as error:
                failed[one.name] = str(error)
        return done, failed

    class Listed(Rounds):
        def do(self, name: str, work: Any) -> Any:
            if names is not None:
                names.append(name)
            return work()

    return search_grid(run, workspace, config, inputs, whole, Listed())


def means(config: BenchmarkConfig, found: Searched) -> dict[str, float]:
    return {one.name: one.metrics[config.objective] for one in found.done}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(api_key=KEY, dimension=32) as running:
        yield running


@pytest.fixture
def paid(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """An embedder that charges a dollar for a thousand tokens."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = "max_texts: 40, max_retries: 0, concurrency: 1, price_per_million_tokens: 1000.0"
    return f"embedders: {{type: openai, model: tiny, base_url: {server.base_url!r}, {settings}}}"


def test_an_estimate_is_what_a_run_embeds(data: Path, tmp_path: Path, server: OpenAIServer, paid: str) -> None:
    config, workspace = benchmark(data, f"{GRID}\n{paid}"), Workspace(root=tmp_path / "w")
    (full, guided, sure), notes = estimated(partial(made_once, workspace), workspace, config)
    assert server.texts == []
    assert (full.configurations, guided.configurations, sure.configurations) == (18, 12, 18)
    assert (full.shares, sure.all.tokens, sure.shares[1]) == ((1, 1), full.all.tokens, 1)
    assert full.seconds is not None
    assert sure.seconds is not None
    assert sure.seconds[0] < full.seconds[0] == full.seconds[1]
    measured = "times are by recursive-token 60/0, bm25, measured here, without starting a server"
    assert notes[:2] == [measured, f"how long {label(config.embedders[0])} takes to answer is not in the times"]
    assert full.all == full.left
    assert full.all.cost == pytest.approx((full.all.tokens or 0) / 1_000)
    found = searched(config.model_copy(update={"search": "guided"}), workspace)
    questions = 56
    assert len(found.done) == guided.configurations
    assert len(server.texts) - questions == guided.all.texts
    assert found.search is not None
    assert (found.search.tokens, found.search.full_tokens) == (guided.all.tokens, full.all.tokens)
    again, _ = estimated(partial(made_once, workspace), workspace, config, ["full", "guided"])
    assert [one.left.texts for one in again] == [full.all.texts - guided.all.texts, 0]
    searched(config, workspace)
    assert len(server.texts) - questions == len(set(server.texts)) - questions == full.all.texts


def test_guided_evaluates_the_first_chunkings_of_the_guide_and_estimates_the_rest(data: Path, tmp_path: Path) -> None:
    config, workspace = benchmark(data, search="guided"), Workspace(root=tmp_path / "w")
    found = searched(config, workspace)
    record = found.search
    assert record is not None
    assert (record.strategy, record.configurations, record.gap, record.excluded) == ("guided", 18, None, {})
    assert len(found.done) == 6 + 3 * 2  # BM25 costs nothing; two others of three chunkings
    assert record.estimated.keys() | {one.name for one in found.done} == {one.name for one in config.configurations()}
    # The local embedder is itself compared, so that BM25 guides.
    bm25 = {one.name.removesuffix(", bm25"): one.metrics[config.objective] for one in found.done if "bm25" in one.name}
    kept = {one.name.removesuffix(", vector") for one in found.done if "vector" in one.name}
    assert min(bm25[one] for one in kept) >= max(value for one, value in bm25.items() if one not in kept)
    assert 0 < record.tokens < record.full_tokens


def test_guided_keeps_to_the_limit_and_refuses_where_nothing_guides(data: Path, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / "w")
    limited = searched(benchmark(data, search="guided", max_cost="20,000 tokens"), workspace)
    assert limited.search is not None
    assert limited.search.tokens <= 20_000
    assert limited.search.notes == ["max_cost left 1 of 3 chunkings"]
    with pytest.raises(ConfigurationError, match=r"max_cost is 10 tokens and the first chunking alone takes \d"):
        searched(benchmark(data, search="guided", max_cost="10 tokens"), workspace)
    vectors = GRID.replace("[vector, bm25, hybrid]", "[vector]")
    with pytest.raises(ConfigurationError, match="search: guided has no guide here"):
        searched(benchmark(data, vectors, search="guided"), workspace)
    for holdout in (0.0, 0.4):
        with pytest.raises(
            ConfigurationError, match=r"max_cost is 10 tokens, and the full grid has [\d,]+ tokens left"
        ):
            searched(benchmark(data, max_cost="10 tokens", holdout=holdout), Workspace(root=tmp_path / "other"))
    allowed = benchmark(data, max_cost="10 tokens", allowed_cost="900,000 tokens")
    assert len(searched(allowed, Workspace(root=tmp_path / "other")).done) == 18
    assert BenchmarkRecord.of(allowed).max_cost == "10 tokens"


def test_the_local_embedder_guides_where_it_is_not_compared(data: Path, tmp_path: Path, paid: str) -> None:
    vectors = GRID.replace("[vector, bm25, hybrid]", "[vector]") + paid
    config, workspace = benchmark(data, vectors), Workspace(root=tmp_path / "w")
    (guided,), notes = estimated(partial(made_once, workspace), workspace, config, ["guided"])
    assert guided.configurations == 6  # twice as many chunkings as it takes with a lexical side
    assert notes[0] == "the guide is not known to serve searches by vectors alone: it takes twice as many chunkings"


def test_sure_excludes_what_cannot_be_better_and_says_by_how_much(data: Path, tmp_path: Path) -> None:
    config, workspace = benchmark(data, search="sure", tolerance=0.02), Workspace(root=tmp_path / "w")
    rounds: list[str] = []
    found = searched(config, workspace, rounds)
    record = found.search
    assert record is not None
    assert record.gap is not None
    assert record.excluded
    assert rounds[0] == "guide"
    assert all(one.startswith("narrow ") for one in rounds[1:])
    full = searched(config.model_copy(update={"search": "full"}), tmp_workspace := Workspace(root=tmp_path / "full"))
    # The same configurations, with the moments of the reference, measured whole.
    run, inputs = partial(made_once, tmp_workspace), inputs_of(config, tmp_workspace)
    for one in config.configurations():
        scores = tmp_workspace.read_table(evaluate(run, one, inputs).scores)
        named = {(row["metric"], row["size"]): row["mean"] for row in average_scores(scores).to_pylist()}
        true = named["span_recall", 3]
        assert true <= max(means(config, found).values()) + record.gap + 1e-12
        assert true <= record.excluded.get(one.name, 1) + 1e-12
    assert record.gap <= 0.02
    assert record.tokens < record.full_tokens
    assert len(full.done) == len(config.configurations()) == len(found.done) + len(record.excluded)
    assert any(name.endswith(", hybrid frozen-z-score") for name in means(config, found))


CUTS = ["span_recall@1", "recall_within_tokens@12"]
WORDS = ["tide", "ferry", "net", "lamp", "rope", "gull", "salt", "crew", "dusk", "fog", "keel", "oar", "pier"]


class Scattered:
    """An embedder that agrees with nothing, so that retrievers find different chunks."""

    name, dimension = "scattered", 4

    def embed(self, texts: Sequence[str]) -> Any:
        seeds = [int(text_sha256(text)[:8], 16) for text in texts]
        return np.array([np.random.default_rng(seed).standard_normal(4) for seed in seeds], np.float32)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_found_in_a_pool_is_never_less_than_in_all_chunks(sample: st.DataObject) -> None:
    """Every question and configuration at every step of growing pools, with hits fetched from one on."""
    rng = np.random.default_rng(sample.draw(st.integers(0, 10**6)))
    texts = [" ".join(rng.choice(WORDS, rng.integers(30, 120))) for _ in range(3)]
    corpus = [Document(DocumentId(f"{number}.md"), text) for number, text in enumerate(texts)]
    documents, depth = [documents_to_table(Corpus(corpus))], sample.draw(st.sampled_from([1, 2, 3, 50]))
    cutter, reference = (
        CHUNKER.make({"type": "recursive-token", "chunk_size": sample.draw(st.integers(2, 9))}) for _ in range(2)
    )
    weights = sample.draw(st.sampled_from([[1.0, 1.0], [2.0, 1.0], [0.0, 1.0]]))
    frozen = with_reference(HybridSearch(fusion=ZScoreFusion(weights=weights)), reference)
    asked = [Query.from_text(" ".join(rng.choice(WORDS, 4, replace=False))) for _ in range(12)]
    spans = [[corpus[0].span(0, 1)]] * len(asked)
    for retrieval in (VectorSearch(), WordSearch(), frozen):
        embedded = {} if isinstance(retrieval, WordSearch) else {"embedder": Scattered(), "store": STORE.make("memory")}
        one = Configuration(chunker=cutter, retrieval=retrieval, **embedded)
        for _ in range(2):  # what the first time is among the first hits is the truth of the second
            truth = truth_to_tables(map(TokenLevelGroundTruth, asked, spans))
            inputs = InMemoryInputs("token-level", documents, truth, CUTS, [], depth)
            found = evaluate(run_in_memory, one, inputs)
            hits = [*found.hits.values()][-1].to_pylist()
            by_query = [[hit for hit in hits if hit["query_id"] == query.id][:2] or hits[:1] for query in asked]
            picked = [some[rng.integers(len(some))] for some in by_query]
            spans = [[corpus[int(hit["doc_id"][0])].span(hit["start"], hit["end"])] for hit in picked]
        places = ChunkPlaces(pa.concat_tables(cut(run_in_memory, one, documents)))
        query_ids = truth.queries.column("query_id").combine_chunks()
        bearing = places.by_question(*places.overlapping(truth.answers), truth.answers, query_ids)
        whole = found.scores.column("value").to_numpy()
        known, pool = np.ones(len(whole)), np.array([], np.int64)
        for question in range(3, len(asked), 4):
            needed = np.concatenate(bearing[: question + 1])
            pool = np.union1d([*pool, *needed], rng.integers(0, len(places.texts), 6)).astype(int)
            scores = evaluate(run_in_memory, one, inputs, pool.tolist()).scores
            pooled = pc.index_in(scores.column("query_id"), query_ids).to_numpy() <= question
            values = scores.column("value").to_numpy()
            assert (values[pooled] <= known[pooled]).all()  # a larger pool finds no more
            known[pooled] = values[pooled]
            assert (whole <= known).all(), (one.name, depth)


def test_a_search_that_was_stopped_goes_on_and_pays_for_nothing_twice(
    data: Path, tmp_path: Path, server: OpenAIServer, paid: str
) -> None:
    config = benchmark(data, f"{GRID}\n{paid}", search="sure", tolerance=0.05)
    whole = searched(config, Workspace(root=tmp_path / "whole"))
    texts = sorted(server.texts)
    server.requests.clear()
    workspace, refused, rng = Workspace(root=tmp_path / "w"), [], np.random.default_rng(0)
    found: Searched | None = None
    while found is None:
        begun, after = len(server.requests), int(rng.integers(1, 25))
        server.faults = deque([None] * after + [Status(500)])
        try:
            found = searched(config, workspace)
        except ServiceError:
            refused += server.requests[begun + after].body["input"]
    assert len(refused) >= 3
    assert means(config, found) == means(config, whole)
    assert found.search == whole.search
    assert sorted(server.texts) == sorted([*texts, *refused])


def test_sure_names_what_has_no_bound(data: Path, tmp_path: Path) -> None:
    text = GRID.replace("[vector, bm25, hybrid]", "[hybrid, {type: hybrid, fusion: rrf}]")
    config = benchmark(data, text, search="sure", rerankers="[none, lexical]", tolerance=0.3)
    found = searched(config, Workspace(root=tmp_path / "w"))
    assert found.search is not None
    assert set(found.search.unbounded.values()) == {"fused by rrf", "a reranker"}
    assert found.search.unbounded.keys() == found.search.estimated.keys()
    none = benchmark(data, text.replace("[hybrid, ", "["), search="sure")
    with pytest.raises(ConfigurationError, match=r"no configuration has a bound \(fused by rrf\)"):
        searched(none, Workspace(root=tmp_path / "w"))
    precise = benchmark(data, GRID.replace("span_recall@3", "span_iou@3"), search="sure")
    with pytest.raises(ConfigurationError, match="needs an objective with a bound"):
        searched(precise, Workspace(root=tmp_path / "w"))
    one = config.configurations()[0]
    assert lacks_bound(one) is None
    assert lacks_bound(one.model_copy(update={"queries": object()})) == "rewritten queries"


def test_sure_ends_at_the_limit_and_says_what_is_certain(data: Path, tmp_path: Path, paid: str) -> None:
    config = benchmark(data, f"{GRID}\n{paid}", search="sure", max_cost="12 USD", tolerance=0)
    record = searched(config, Workspace(root=tmp_path / "w")).search
    assert record is not None
    assert record.is_stopped
    assert record.cost is not None
    assert record.cost <= 12
    assert record.gap is not None
    assert record.gap > 0
    assert record.open
    assert max(record.excluded.values(), default=0) <= min(record.open.values())


def test_sure_spends_no_more_than_the_limit_on_what_has_no_bound(data: Path, tmp_path: Path) -> None:
    text = GRID.replace("[vector, bm25, hybrid]", "[vector, {type: hybrid, fusion: rrf}]")
    workspace = Workspace(root=tmp_path / "w")
    with pytest.raises(ConfigurationError, match=r"max_cost is 10 tokens and the first chunking alone takes \d"):
        searched(benchmark(data, text, search="sure", max_cost="10 tokens"), workspace)
    assert not list((workspace.root / "cache").glob("embeddings/**/*.arrow"))
    found = searched(benchmark(data, text, search="sure", max_cost="25,000 tokens"), workspace)
    run, inputs = partial(made_once, workspace), inputs_of(benchmark(data, text), workspace)
    embedded = [one for one in benchmark(data, text).configurations() if one.name in {done.name for done in found.done}]
    assert found.search is not None
    assert TextCosts(run, workspace, inputs.documents).of(embedded, kept=True).tokens <= found.search.tokens <= 25_000


@pytest.mark.parametrize("search", ["guided", "sure"])
def test_a_chunker_that_fails_and_an_embedder_that_does_not_count(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    (tmp_path / "own_parts.py").write_text(
        "def bad(text):\n    raise ValueError('no')\n\n\ndef letters(texts):\n"
        "    return [[text.count(one) + 0.1 for one in 'abcdefgh'] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = GRID.replace("retrieval:", "  - own_parts:bad\nretrieval:", 1)
    config = benchmark(data, f"{own}\nembedders: own_parts:letters", search=search, tolerance=0.02)
    found = searched(config, Workspace(root=tmp_path / "w"))
    assert {name.partition(",")[0] for name in found.failed} == {"own_parts:bad"}
    assert found.search is not None
    assert 0 < found.search.tokens <= found.search.full_tokens
    assert len(found.done) > 3


@pytest.mark.parametrize("search", ["guided", "sure"])
def test_a_part_that_fails_within_a_search_loses_its_configurations_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    (tmp_path / "odd_parts.py").write_text(
        "def context(chunk):\n    raise ValueError('no')\n\n\n"
        "def letters(texts):\n    if any(len(text) < 60 for text in texts):\n        raise ValueError('short')\n"
        "    return [[text.count(one) + 0.1 for one in 'abcdefgh'] for text in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []
    config = benchmark(data, f"{GRID}\nembedders: [local, odd_parts:letters]", search=search, tolerance=0.02)
    found = searched(config, Workspace(root=tmp_path / "w"), names)
    assert found.failed
    assert all("odd_parts:letters" in name for name in found.failed)
    assert len(found.done) > 3
    config = benchmark(data, f"{GRID}\ncontext: [none, odd_parts:context]", search=search, tolerance=0.02)
    found = searched(config, Workspace(root=tmp_path / "w"))
    assert found.failed
    assert all("odd_parts:context" in name for name in found.failed)
    assert found.search is not None
    assert not any("odd_parts" in name for name in found.search.excluded | found.search.open | found.search.estimated)


@pytest.mark.parametrize("search", ["full", "guided", "sure"])
def test_the_winner_is_judged_on_documents_that_the_search_did_not_see(data: Path, tmp_path: Path, search: str) -> None:
    config, workspace = benchmark(data, search=search, holdout=0.4, tolerance=0.2), Workspace(root=tmp_path / "w")
    found = searched(config, workspace)
    assert found.search is not None
    held = found.search.holdout
    assert held is not None
    assert (held.questions, held.held_out_questions, held.held_out_documents) == (32, 24, 6)
    (winner,) = [one for one in found.done if one.name == held.name]
    mean = winner.metrics[config.objective]
    assert mean == pytest.approx((32 * held.found + 24 * held.held_out) / 56)
    with pytest.raises(ConfigurationError, match=r"holdout 0.1 leaves 4 questions about 1 document to judge by"):
        searched(config.model_copy(update={"holdout": 0.1}), workspace)


def test_texts_that_chunkings_share_are_counted_once(data: Path, tmp_path: Path) -> None:
    config, workspace = benchmark(data), Workspace(root=tmp_path / "w")
    run, inputs = partial(made_once, workspace), inputs_of(config, workspace)
    costs = TextCosts(run, workspace, inputs.documents)
    every = {
        text
        for one in config.configurations()
        for text in searched_texts(workspace.read_tables(cut(run, one, inputs.documents))).to_pylist()
    }
    assert costs.of(config.configurations()).texts == len(every)
