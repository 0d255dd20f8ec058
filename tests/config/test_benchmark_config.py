"""What a benchmark compares: every combination once, each under a name of its own, and the same after JSON."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.config.models import (
    SECTIONS,
    BenchmarkConfig,
    BenchmarkRecord,
    Configuration,
    ConfigurationRecord,
)
from rag_eval.config.objective import measured_by
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.parts import Kind, Setting, label, settings_of
from rag_eval.retrieval import RERANKER
from rag_eval.stores import STORE
from rag_eval.stores.lance import LanceDBVectorStore

FEW = settings(max_examples=60, deadline=None, derandomize=True)


def benchmark(**given: Any) -> BenchmarkConfig:
    return BenchmarkConfig.model_validate(
        {"corpus": "docs", "ground_truth": "truth.jsonl", "chunkers": [{"type": "markdown"}]} | given
    )


def test_the_defaults_need_nothing_but_documents_truth_and_chunkers() -> None:
    config = benchmark()
    assert (config.corpus, config.glob, config.ground_truth) == (
        Path("docs"),
        "**/*.md",
        [FileTruth(Path("truth.jsonl"))],
    )
    assert (config.evaluation_type, config.k, config.fetch_k) == ("token-level", [5], None)
    assert config.metrics == ["span_recall", "span_precision", "span_iou"]
    assert config.configurations() == [
        Configuration(
            chunker=MarkdownChunker(),
            retrieval="vector",
            embedder=LocalEmbedder(),
            store=LanceDBVectorStore(),
            reranker=None,
        )
    ]


def test_every_section_of_parts_is_a_field_of_the_models_and_default_labels_are_left_out() -> None:
    for model in (BenchmarkConfig, BenchmarkRecord):
        assert [name for name in model.model_fields if name in SECTIONS] == list(SECTIONS)
    for model in (Configuration, ConfigurationRecord):
        assert list(model.model_fields) == [one.field for one in SECTIONS.values()]
    for one in SECTIONS.values():
        assert one.plain in (None, one.default and label(one.kind.make(one.default)))


def test_the_default_metrics_follow_the_evaluation_type() -> None:
    assert benchmark(evaluation_type="chunk-level").metrics == ["chunk_recall", "chunk_precision", "chunk_f1"]


def test_configurations_are_the_product_in_order_and_bm25_stands_once_for_chunker_and_reranker() -> None:
    config = benchmark(
        chunkers=[{"type": "markdown"}, {"type": "recursive-token", "chunk_size": 300}],
        retrieval=["vector", "bm25"],
        embedders=[{"type": "local"}, {"type": "openai"}],
        stores=[{"type": "lancedb"}, {"type": "lancedb", "index": {"type": "hnsw", "m": 8}}],
        rerankers=[{"type": "none"}, {"type": "lexical", "k1": 2}],
    )
    assert [one.name for one in config.configurations()] == [
        f"{chunker}, {way}"
        for chunker in ("markdown 1000", "recursive-token 300/0")
        for way in (
            "vector",
            "vector, lexical k1=2",
            "vector, lancedb hnsw m=8",
            "vector, lancedb hnsw m=8, lexical k1=2",
            "vector, openai text-embedding-3-small",
            "vector, openai text-embedding-3-small, lexical k1=2",
            "vector, openai text-embedding-3-small, lancedb hnsw m=8",
            "vector, openai text-embedding-3-small, lancedb hnsw m=8, lexical k1=2",
            "bm25",
            "bm25, lexical k1=2",
        )
    ]


def test_what_is_listed_twice_is_run_once() -> None:
    config = benchmark(
        chunkers=[{"type": "markdown"}, {"type": "sentence"}, {"type": "markdown", "max_chunk_size": 1000}],
        retrieval=["bm25", "vector", "bm25"],
        embedders=[{"type": "local"}, {"type": "local"}],
    )
    assert [one.name for one in config.configurations()] == [
        "markdown 1000, bm25",
        "markdown 1000, vector",
        "sentence 1000/0, bm25",
        "sentence 1000/0, vector",
    ]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"retrieval": "bm25", "embedder": {"type": "local"}, "store": None}, "bm25 does not use the embedder"),
        ({"retrieval": "bm25", "embedder": None, "store": {"type": "lancedb"}}, "bm25 does not use the store"),
        ({"retrieval": "vector", "embedder": None, "store": {"type": "lancedb"}}, "vector needs the embedder"),
        ({"retrieval": "hybrid", "embedder": {"type": "local"}, "store": None}, "hybrid needs the store"),
    ],
)
def test_a_configuration_has_the_parts_that_its_mode_needs(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Configuration.model_validate({"chunker": {"type": "markdown"}, "reranker": {"type": "none"}} | parts)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"k": [2**31]}, "less than or equal to"),
        ({"k": [True]}, "valid integer"),
        ({"k": [3, 3]}, r"increasing order, each once, found \[3, 3\]"),
        ({"retrieval": []}, "at least 1 item"),
        ({"metrics": []}, "at least 1 item"),
        (
            {"metrics": ["span_iou"], "evaluation_type": "chunk-level"},
            "'span_iou' is for token-level evaluation and .* is chunk-level",
        ),
        ({"objective": "chunk_recall"}, "'chunk_recall@2000tokens' is for chunk-level evaluation"),
        ({"metrics": ["span_recall@min"]}, "has no @min"),
        ({"metrics": ["no_such:Name"]}, "there is no module 'no_such': it is neither installed nor in "),
        ({"metrics": [{"type": "math:dist", "surprise": 1}]}, r"math:dist does not take these settings"),
        (
            {"chunkers": [{"type": "json:loads", "api_key": "s3cret"}]},
            "api_key: keys must not be in benchmark files",
        ),
        ({"surprise": 1}, "Extra inputs"),
    ],
)
def test_what_cannot_be_run_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        benchmark(**given)


def test_a_thousand_configurations_are_run_and_no_more() -> None:
    sizes = [MarkdownChunker(max_chunk_size=size) for size in range(1, 502)]
    assert len(benchmark(chunkers=sizes[:500], retrieval=["vector", "bm25"]).configurations()) == 1000
    # What is listed twice counts once.
    assert len(benchmark(chunkers=sizes[:500] * 3, retrieval=["vector", "bm25"]).configurations()) == 1000
    with pytest.raises(ValidationError, match="the grid has 1,002 configurations: reduce it to at most 1,000"):
        benchmark(chunkers=sizes, retrieval=["vector", "bm25"])


TEXTS = st.sampled_from(["a", "b", "a b", "a, b", "a=1", 'a"', "(a)", "none", "a\n", "\x00", "é", "", " ", "a/0"])
NUMBERS = st.integers(0, 3) | st.sampled_from([10, 95, 100])
FRACTIONS = st.sampled_from([0.0, 0.5, 0.1 + 0.2, 0.3, 1.0, 95.0, 95.00000001])


def values(setting: Setting) -> st.SearchStrategy[Any]:
    if setting.kind is not None:
        return component(setting.kind)
    if setting.name == "base_url":
        return st.sampled_from([None, "http://a", "http://a/v1", "https://a:8000/v1"])
    if setting.is_list:
        return st.lists(TEXTS, min_size=1, max_size=3)
    schema = TypeAdapter(setting.type).json_schema()
    kinds = {one.get("type") for one in [schema, *schema.get("anyOf", [])]}
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    drawn = {"null": st.none(), "boolean": st.booleans(), "integer": NUMBERS, "number": FRACTIONS, "string": TEXTS}
    return st.one_of([drawn[kind] for kind in drawn if kind in kinds])


@st.composite
def component(draw: st.DrawFn, kind: Kind) -> Any:
    """Any settings of any type of a kind, right ones: what is refused is drawn again with fewer settings."""
    name = draw(st.sampled_from(list(kind.types)))
    known = settings_of(kind.load(name))
    given: dict[str, Any] = {
        key: draw(values(one)) for key, one in known.items() if one.is_required or draw(st.booleans())
    }
    needed = {key: "m" for key, one in known.items() if one.is_required}
    for chosen in (given, needed):
        with suppress(ConfigurationError):
            return kind.make({"type": name} | chosen)
    raise AssertionError(name)


BENCHMARKS = st.builds(
    lambda chunkers, embedders, stores, rerankers: benchmark(
        chunkers=chunkers,
        embedders=embedders,
        stores=stores,
        rerankers=rerankers,
        retrieval=["vector", "bm25", "hybrid"],
    ),
    st.lists(component(CHUNKER), min_size=1, max_size=4),
    st.lists(component(EMBEDDER), min_size=1, max_size=3),
    st.lists(component(STORE), min_size=1, max_size=2),
    st.lists(component(RERANKER), min_size=1, max_size=3),
)


def test_a_budget_is_measured_beside_an_objective_with_a_cut_of_its_own() -> None:
    config = benchmark(objective="span_recall@10", budget=1_234)
    measured = measured_by(config.metrics, config.k, config.objective, config.evaluation_type, config.budget)
    assert {"span_recall@10", "recall_within_tokens@1234", "recall_within_tokens@2000"} <= set(measured)


@FEW
@given(BENCHMARKS)
def test_no_two_configurations_share_a_name(config: BenchmarkConfig) -> None:
    configurations = config.configurations()
    assert len(set(configurations)) == len(configurations)
    assert len({one.name for one in configurations}) == len(configurations)


@FEW
@given(BENCHMARKS)
def test_a_benchmark_survives_json(config: BenchmarkConfig) -> None:
    stored = json.loads(json.dumps(config.model_dump(mode="json")))
    back = BenchmarkConfig.model_validate(stored)
    assert back == config
    assert back.configurations() == config.configurations()
    for way in config.configurations():
        assert Configuration.model_validate_json(way.model_dump_json()) == way
