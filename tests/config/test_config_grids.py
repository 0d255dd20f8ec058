"""A list in a setting is a grid, wherever a setting stands; short forms mean what the long ones do."""

import itertools
from pathlib import Path

import pytest
import yaml

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.config.loading import load_config
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.retrieval.rerankers import LexicalReranker
from rag_eval.retrieval.searching import WordSearch
from rag_eval.stores.lance import Hnsw, LanceDBVectorStore
from tests.config.conftest import Write


def test_a_list_is_a_grid_and_several_are_their_product_in_the_order_written(write: Write) -> None:
    config = load_config(
        write("""
chunkers:
  - {type: recursive-token, chunk_overlap: [0, 20], chunk_size: [200, 400]}
  - {type: fixed-token, tokens_per_chunk: 50}
""")
    )
    assert config.chunkers == [
        RecursiveTokenChunker(chunk_size=200, chunk_overlap=0),
        RecursiveTokenChunker(chunk_size=400, chunk_overlap=0),
        RecursiveTokenChunker(chunk_size=200, chunk_overlap=20),
        RecursiveTokenChunker(chunk_size=400, chunk_overlap=20),
        FixedTokenChunker(tokens_per_chunk=50),
    ]


def test_a_list_of_lists_is_the_grid_of_a_setting_that_is_a_list(write: Write) -> None:
    one = load_config(write('chunkers: {type: recursive-character, separators: [".", ""]}'))
    assert one.chunkers == [RecursiveCharacterChunker(separators=(".", ""))]
    two = load_config(write('chunkers: {type: recursive-character, separators: [[".", ""], ["!"]]}'))
    assert two.chunkers == [RecursiveCharacterChunker(separators=separators) for separators in ((".", ""), ("!",))]


def test_the_settings_of_a_nested_part_are_grids_as_well(write: Write) -> None:
    config = load_config(
        write("""
chunkers:
  type: semantic
  embedder: [local, {type: openai, dimensions: [64, 128]}]
  window: [1, 2]
""")
    )
    embedders = [LocalEmbedder(), OpenAIEmbedder(dimensions=64), OpenAIEmbedder(dimensions=128)]
    assert config.chunkers == [
        SemanticChunker(embedder=embedder, window=window) for embedder, window in itertools.product(embedders, (1, 2))
    ]


def test_every_section_takes_grids_and_null_may_be_one_of_the_values(write: Write) -> None:
    config = load_config(
        write("""
chunkers: [{type: cluster-semantic, piece_size: [null, 40]}]
embedders: {type: openai, dimensions: [null, 8]}
stores: {type: lancedb, index: [none, {type: hnsw, m: [8, 16]}]}
rerankers: [none, {type: lexical, k1: [1, 2.5], b: 0.5}]
""")
    )
    assert config.chunkers == [ClusterSemanticChunker(), ClusterSemanticChunker(piece_size=40)]
    assert config.embedders == [OpenAIEmbedder(), OpenAIEmbedder(dimensions=8)]
    assert config.stores == [
        LanceDBVectorStore(),
        LanceDBVectorStore(index=Hnsw(m=8)),
        LanceDBVectorStore(index=Hnsw(m=16)),
    ]
    assert config.rerankers == [
        None,
        LexicalReranker(k1=1, b=0.5),
        LexicalReranker(k1=2.5, b=0.5),
    ]
    assert len(config.configurations()) == 2 * 2 * 3 * 3


@pytest.mark.parametrize("chunkers", ["markdown", "[markdown]", "{type: markdown}", "[{type: markdown}]"])
def test_a_name_alone_means_default_settings_and_one_part_needs_no_list(write: Write, chunkers: str) -> None:
    config = load_config(write(f"chunkers: {chunkers}\nretrieval: bm25\nk: 3\nmetrics: span_iou\n"))
    assert (config.chunkers, config.retrieval, config.k) == ([MarkdownChunker()], [WordSearch()], [3])
    assert config.metrics == ["span_iou"]


def test_what_a_grid_repeats_stands_once(write: Write) -> None:
    config = load_config(write("chunkers: [sentence, {type: sentence, max_chunk_size: [500, 1000, 500]}]"))
    assert config.chunkers == [SentenceChunker(), SentenceChunker(max_chunk_size=500)]


def test_the_dump_of_a_loaded_benchmark_loads_as_the_same(write: Write, tmp_path: Path) -> None:
    config = load_config(write("chunkers: [semantic, {type: recursive-token, chunk_size: [50, 60]}]\nk: [1, 2]\n"))
    path = tmp_path / "dumped.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    assert load_config(path) == config


def test_paths_start_at_the_folder_of_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(write("chunkers: markdown"))
    assert (config.corpus, config.ground_truth) == (tmp_path / "docs", [FileTruth(tmp_path / "truth.jsonl")])
    absolute = load_config(write("corpus: /data\nground_truth: .\nchunkers: markdown", bare=True))
    assert (absolute.corpus, absolute.ground_truth) == (Path("/data"), [FileTruth(tmp_path)])
    monkeypatch.chdir(tmp_path.parent)
    relative = load_config(Path(tmp_path.name) / "bench.yaml")
    assert relative == absolute
