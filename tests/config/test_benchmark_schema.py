"""The schema for editors: it takes what the loader takes and refuses what the loader refuses."""

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from rag_eval import sample
from rag_eval.cli.main import app
from rag_eval.config.loading import benchmark_schema, load_config
from rag_eval.config.models import SECTIONS
from rag_eval.config.objective import DEFAULT_METRICS
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.parts import is_remote, label, settings_of
from tests.config.conftest import Write
from tests.config.test_config_errors import WRONG_CHUNKERS, WRONG_SETTINGS

VALIDATOR = Draft202012Validator(benchmark_schema())

RIGHT = [
    "chunkers: markdown",
    "chunkers: {type: markdown}",
    "chunkers: [markdown, {type: recursive-token, chunk_size: [200, 400], separators: ['a', '']}]",
    "chunkers: {type: recursive-token, separators: [['a'], ['b', '']], encoding: [cl100k_base, o200k_base]}",
    "chunkers: {type: semantic, embedder: [local, {type: openai, dimensions: [8, null]}], max_chunk_size: [null, 9]}",
    "chunkers: sentence\nembedders: {type: openai, base_url: 'http://localhost:8000', price_per_million_tokens: 0.1}",
    "chunkers: sentence\nembedders: [local, {type: sentence-transformers, model: [a, b], normalize: [true, false]}]",
    "chunkers: sentence\nstores: lancedb\nrerankers: none",
    "chunkers: sentence\nstores: [lancedb, {type: lancedb, index: [none, hnsw, {type: ivf-pq, nprobes: [1, 2]}]}]",
    "chunkers: sentence\nrerankers: [none, lexical, {type: cohere, max_retries: 0}, {type: cross-encoder, model: m}]",
    "chunkers: sentence\nretrieval: bm25\nk: 3\nmetrics: span_recall\nfetch_k: null",
    "chunkers: sentence\nretrieval: [bm25, hybrid]\nk: [1, 3]\nfetch_k: 50\nglob: '*.txt'",
    "chunkers: sentence\nglob: ['*.txt', '**/*.md']",
    "chunkers: [sentence, {type: 'json:loads'}]\nmetrics: [span_iou, 'math:dist', {type: 'statistics:covariance'}]",
    "chunkers: sentence\nretrieval: ['random:Random', {type: hybrid, retrievers: [bm25, 'random:Random']}]",
    "chunkers: sentence\nmetrics: [span_recall, span_iou, chroma_iou@min, precision_omega]",
    "chunkers: sentence\nevaluation_type: chunk-level\nmetrics: [chunk_recall, chunk_mrr]",
]

TRUTH = [
    "t.jsonl",
    "{langsmith: reviewed}",
    "{langsmith: {dataset: reviewed}}",
    "{type: langsmith, dataset: reviewed}",
    "[t.jsonl, {langsmith: reviewed}, {file: u.jsonl}]",
    "{generate: {model: m, queries_per_doc: 2, max_cost: 1.5, prices: {input: 1, output: 4}, file: g.jsonl}}",
    "{generate: {options: {personas: [a skipper], filters: {max_leakage: null}}, chunker: markdown}}",
    "{type: generate}",
]
NO_TRUTH = ["5", "''", "[]", "{langsmiht: x}", "{langsmith: ''}", "{langsmith: {dataset: x, more: 1}}", "[[t.jsonl]]"]
NO_TRUTH += ["{generate: {max_cost: 0}}", "{generate: {options: {filters: {nope: 1}}}}", "{generate: {api_key: x}}"]

WRONG = [
    "k: 5",
    "chunkers: 'no module:at all'",
    "chunkers: markdown\nk: [1, 1]",
    "chunkers: markdown\nevaluation_type: chunk-level\nmetrics: [span_recall]",
    *(f"chunkers: {chunkers}" for chunkers in WRONG_CHUNKERS),
    *(f"chunkers: markdown\n{setting}" for setting in WRONG_SETTINGS),
]
BEYOND_A_SCHEMA = (
    "breakpoint_percentile: .nan",
    "encoding: klingon",
    "chunk_overlap: [0, 100]",
    "max_tokens: 10",
    "k: [3, 1]",
    "objective: span_recall@8",
    "fetch_k: 4",
    "where: {lang: {is: en}}",
    "[recall_within_tokens]",
    "objective: span_recal",
)


def test_the_command_prints_it() -> None:
    printed = CliRunner().invoke(app, ["parts", "--schema"])
    assert json.loads(printed.output) == benchmark_schema()


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(benchmark_schema())


@pytest.mark.parametrize("text", RIGHT)
def test_it_takes_what_the_loader_takes(write: Write, text: str) -> None:
    path = write(text)
    load_config(path)
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("text", WRONG)
def test_it_refuses_what_the_loader_refuses(write: Write, text: str) -> None:
    is_beyond = any(setting in text for setting in BEYOND_A_SCHEMA)
    assert VALIDATOR.is_valid(yaml.safe_load(write(text).read_text(encoding="utf-8"))) == is_beyond


def test_it_takes_and_refuses_sources_of_ground_truth_as_the_loader_does(write: Write) -> None:
    for text in (*TRUTH, *NO_TRUTH):
        path = write(f"corpus: docs\nchunkers: markdown\nground_truth: {text}", bare=True)
        assert VALIDATOR.is_valid(yaml.safe_load(path.read_text(encoding="utf-8"))) is (text in TRUTH), text
        if text in TRUTH:
            load_config(path)
            continue
        with pytest.raises(ConfigurationError):
            load_config(path)


def described(schema: Any) -> list[bool]:
    return ["description" in setting for setting in schema["properties"].values() if "const" not in setting]


def test_every_part_and_every_setting_is_in_it_and_described() -> None:
    schema = benchmark_schema()
    assert all(described(schema))
    for kind in (one.kind for one in SECTIONS.values()):
        for name in kind.types:
            part = schema["$defs"][f"{kind.name}.{name}"]
            assert list(part["properties"]) == ["type", *settings_of(kind.load(name))]
            assert all(described(part)), name


def test_the_sample_is_a_benchmark_of_every_mode_that_the_schema_takes() -> None:
    text = sample.BENCHMARK.read_text(encoding="utf-8")
    VALIDATOR.validate(yaml.safe_load(text))
    config = load_config(sample.BENCHMARK)
    ways = config.configurations()
    assert 8 <= len(ways) <= 12
    assert {label(way.retrieval) for way in ways} == {"vector", "bm25", "hybrid"}
    assert not any(is_remote(part) for way in ways for part in (way.chunker, way.embedder, way.reranker))
    assert (config.corpus, config.ground_truth) == (sample.CORPUS, [FileTruth(sample.GROUND_TRUTH)])
    assert config.corpus.is_dir()
    assert config.ground_truth[0].path.is_file()
    assert config.metrics == [*DEFAULT_METRICS["token-level"], "span_ndcg", "tokens_retrieved"]
    assert config.k == [1, 3, 5, 10]
