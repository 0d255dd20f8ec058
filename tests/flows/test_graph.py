"""The graph of a run as a Prefect server shows it: one subflow for each chunking, its steps connected, and cached."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from prefect.settings import PREFECT_TASKS_REFRESH_CACHE, temporary_settings

from rag_eval.config.models import BenchmarkConfig
from rag_eval.evaluation.in_memory import InMemoryInputs, evaluate
from rag_eval.parts import located
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval import RERANKER, RETRIEVER
from tests.flows.benchmarks import LARGE, SMALL, every_step
from tests.flows.server_runs import ServerRun, edges, run_and_read, step_of

pytestmark = pytest.mark.usefixtures("prefect_server")

CHAIN = ["chunk", "embed", "index_vectors", "search", "retrieve", "score"]
"""The steps of a search by vectors, in their order."""

EDGES = {
    "embed": {"chunk"},
    "index_vectors": {"chunk", "embed"},
    "sum_vectors": {"chunk", "embed"},
    "index_words": {"chunk"},
    "sum_words": {"chunk", "index_words"},
    "search": {"index_vectors", "sum_words", "prepare_queries"},
    "retrieve": {"search", "sum_vectors"},
    "score": {"retrieve"},
}
"""What each step is given."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graph")


@pytest.fixture(scope="module")
def config(folder: Path) -> BenchmarkConfig:
    """Twelve configurations of two chunkers, on three shards."""
    return every_step(folder).model_copy(
        update={
            "chunkers": [SMALL, LARGE],
            "retrieval": [RETRIEVER.make(name) for name in ("vector", "bm25", "hybrid")],
            "rerankers": [RERANKER.make(name) for name in ("none", "lexical")],
            "shards": 3,
        }
    )


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Workspace:
    return Workspace(root=folder / "work")


@pytest.fixture(scope="module")
def first(prefect_server: None, config: BenchmarkConfig, workspace: Workspace) -> ServerRun:
    return run_and_read(config, workspace)


def test_twelve_configurations_of_two_chunkers_are_two_subflows(first: ServerRun) -> None:
    assert len(first.outcome.configurations) == 12
    assert {one["name"] for one in first.subflows} == {"recursive-token 60/0", "recursive-token 300/0"}
    assert len(first.subflows) == 2
    shards = len(first.outcome.inputs.documents)
    assert shards > 1
    for subflow in first.subflows:
        runs = Counter(step_of(one) for one in first.tasks if one["flow_run_id"] == subflow["id"])
        assert runs == {
            **dict.fromkeys(("chunk", "embed", "index_vectors", "index_words", "sum_vectors"), shards),
            **dict.fromkeys(("sum_words", "prepare_queries"), 1),
            "search": shards + 1,  # by vectors in each shard, and by words; all configurations share them
            "retrieve": 6,
            "score": 6,
        }
    # What the subflows share is computed once in the run, whichever of them comes first.
    assert first.outcome.work_by_step()["prepare queries"][:2] == (1, 11)


def test_the_steps_of_a_chunking_are_connected_and_nothing_else_is(first: ServerRun) -> None:
    for subflow in first.subflows:
        inside = [one for one in first.tasks if one["flow_run_id"] == subflow["id"]]
        assert edges(inside) == {(before, step) for step, some in EDGES.items() for before in some}
        assert set(pairwise(CHAIN)) <= edges(inside)
        # What a score is of is what its own configuration retrieved; what a shard is embedded to is of its own chunks.
        names = {one["id"]: one["name"] for one in inside}
        for one in inside:
            given = {name: [each["id"] for each in some] for name, some in one["task_inputs"].items()}
            if step_of(one) == "score":
                (hits,) = given["hits"]
                assert names[hits].removeprefix("retrieve") == one["name"].removeprefix("score")
            if step_of(one) in ("embed", "index_words"):
                assert len(given["chunks"]) == 1
        searched = {
            name: {names[each["id"]] for each in one["task_inputs"]["index"]}
            for one in inside
            if step_of(one) == "search"
            for name in [one["name"]]
        }
        assert not any("embed" in name for name in searched["search bm25"])
        assert not any("words" in name for name in searched["search vector"])
    # A subflow is given the documents and the ground truth, and the report what the subflows found.
    assert {
        ("find_documents", "load_corpus"),
        ("load_corpus", "load_ground_truth"),
        ("load_corpus", "evaluate"),
        ("load_ground_truth", "find_copies"),
        ("find_copies", "join_copies"),
        ("join_copies", "evaluate"),
        ("evaluate", "report"),
    } <= edges(first.tasks)
    keys = {
        step_of(one): {each["task_key"] for each in first.tasks if step_of(each) == step_of(one)} for one in first.tasks
    }
    assert all(len(some) == 1 for some in keys.values())


def test_runs_are_named_and_tagged_by_their_step(first: ServerRun) -> None:
    assert re.fullmatch(r"corpus \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first.flow["name"])
    tags = {step_of(task): task["tags"] for task in first.tasks}
    assert {tags[step][0] for step in CHAIN} == {"chunk", "embed", "index", "retrieve", "score"}
    assert tags["load_corpus"] == ["corpus"]
    assert tags["load_ground_truth"] == ["ground-truth"]
    names = {one["name"] for one in first.tasks}
    assert {"load corpus corpus", "load file few.jsonl", "chunk recursive-token 60/0", "embed local"} <= names
    assert {"search vector", "search bm25", "score recursive-token 300/0, hybrid, lexical"} <= names


def test_the_flow_and_the_evaluation_in_memory_give_the_same_scores(
    first: ServerRun, config: BenchmarkConfig, workspace: Workspace, tmp_path: Path
) -> None:
    given = first.outcome.inputs
    documents, truth = workspace.read_tables(given.documents), workspace.read_truth(given.truth)
    inputs = InMemoryInputs(given.evaluation_type, documents, truth, given.metrics, given.ks, given.depth)
    for one, configuration in zip(first.outcome.configurations, config.configurations(), strict=True):
        assert one.name == configuration.name
        if configuration.store is not None:
            configuration = configuration.model_copy(update={"store": located(configuration.store, tmp_path)})
        alone = evaluate(configuration, inputs)
        assert workspace.read_table(one.scores).equals(alone.scores), one.name
        assert workspace.read_table(one.returned).equals(list(alone.hits.values())[-1]), one.name


def test_a_second_run_is_cached_and_prefects_setting_computes_it_again(
    first: ServerRun, config: BenchmarkConfig, workspace: Workspace
) -> None:
    assert {state for _, state in first.states()} <= {"Completed", "Cached"}
    again = run_and_read(config, workspace)
    assert {state for _, state in again.states()} == {"Cached"}
    assert {step for step, _ in again.states()} == {step for step, _ in first.states()} >= {*CHAIN, "load_corpus"}
    assert len(again.steps) == len(first.steps)
    assert edges(again.tasks) == edges(first.tasks)
    assert again.outcome.work()[0] == 0
    assert [one.scores for one in again.outcome.configurations] == [one.scores for one in first.outcome.configurations]
    with temporary_settings({PREFECT_TASKS_REFRESH_CACHE: True}):
        refreshed = run_and_read(config, workspace)
    assert {state for _, state in refreshed.states()} == {"Completed"}
    assert [one.scores for one in refreshed.outcome.configurations] == [
        one.scores for one in first.outcome.configurations
    ]
