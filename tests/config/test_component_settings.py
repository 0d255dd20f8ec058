"""The parts by name: what they build, what they are called, and that no secret is among their settings."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from rag_eval.benchmark.chunker_settings import RecursiveTokenConfig, SemanticConfig
from rag_eval.benchmark.component import Component
from rag_eval.benchmark.config_grid import CHUNKERS, EMBEDDERS, RERANKERS, STORES
from rag_eval.benchmark.embedder_settings import LocalEmbedderConfig, OpenAIEmbedderConfig, SentenceTransformersConfig
from rag_eval.benchmark.reranker_settings import (
    CohereRerankerConfig,
    CrossEncoderConfig,
    LexicalRerankerConfig,
    NoRerankerConfig,
)
from rag_eval.benchmark.store_settings import HnswConfig, IvfPqConfig, LanceDBConfig
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.embedding.embedder import is_embedder
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.rerankers import LexicalReranker
from rag_eval.stores.lance import Hnsw, IvfPq
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

ALL = {**CHUNKERS, **EMBEDDERS, **STORES, **RERANKERS}


def test_the_registries_hold_the_parts_under_their_types() -> None:
    assert list(CHUNKERS) == [
        *("recursive-character", "recursive-token", "fixed-token", "sentence"),
        *("markdown", "semantic", "cluster-semantic"),
    ]
    assert list(EMBEDDERS) == ["local", "openai", "sentence-transformers"]
    assert list(STORES) == ["lancedb"]
    assert list(RERANKERS) == ["none", "lexical", "cohere", "cross-encoder"]


@pytest.mark.parametrize("model", CHUNKERS.values(), ids=list(CHUNKERS))
def test_the_defaults_of_a_chunker_are_those_of_the_library(model: type[Component]) -> None:
    built = model().build()  # type: ignore[attr-defined]
    embedder = {"embedder": built.embedder} if hasattr(built, "embedder") else {}
    assert built == type(built)(**embedder)


def test_settings_reach_the_chunker() -> None:
    config = RecursiveTokenConfig(chunk_size=50, chunk_overlap=10, separators=("\n",), encoding="o200k_base")
    assert config.build() == RecursiveTokenChunker(50, 10, ("\n",), "o200k_base")
    semantic = SemanticConfig(embedder=LocalEmbedderConfig(), breakpoint_percentile=80, window=2, max_chunk_size=400)
    built = semantic.build()
    assert isinstance(built, SemanticChunker)
    assert (built.breakpoint_percentile, built.window, built.max_chunk_size) == (80.0, 2, 400)


@pytest.mark.parametrize(
    ("config", "label"),
    [
        (CHUNKERS["markdown"](), "markdown 1000"),
        (RecursiveTokenConfig(chunk_size=300), "recursive-token 300/0"),
        (RecursiveTokenConfig(encoding="o200k_base"), "recursive-token 400/0 encoding=o200k_base"),
        (RecursiveTokenConfig(separators=("\n", "")), r'recursive-token 400/0 separators=["\n",""]'),
        (SemanticConfig(), "semantic 95"),
        (SemanticConfig(breakpoint_percentile=80.5, window=2), "semantic 80.5 window=2"),
        (
            SemanticConfig(embedder=OpenAIEmbedderConfig(dimensions=64)),
            "semantic 95 embedder=(openai text-embedding-3-small dimensions=64)",
        ),
        (LocalEmbedderConfig(), "local"),
        (OpenAIEmbedderConfig(max_tokens=None), "openai text-embedding-3-small max_tokens=null"),
        (SentenceTransformersConfig(model="a b", normalize=True), 'sentence-transformers "a b" normalize=true'),
        (LanceDBConfig(), "lancedb exact"),
        (LanceDBConfig(index=IvfPqConfig(nprobes=3)), "lancedb ivf-pq nprobes=3"),
        (NoRerankerConfig(), "none"),
        (LexicalRerankerConfig(b=0), "lexical b=0"),
        (CohereRerankerConfig(), "cohere rerank-v3.5"),
        (CrossEncoderConfig(model="org/model"), "cross-encoder org/model"),
    ],
)
def test_labels_show_what_is_not_the_default(config: Component, label: str) -> None:
    assert config.label == label


def test_only_what_uses_the_network_is_remote() -> None:
    model = {"model": "m"}
    remote = {
        name
        for name, part in ALL.items()
        if part.model_validate(model if part.model_fields.get("model") else {}).remote
    }
    assert remote == {"openai", "cohere"}
    assert SentenceTransformersConfig(model="m", local_files_only=False).remote
    assert CrossEncoderConfig(model="m", allow_download=True).remote
    assert SemanticConfig(embedder=OpenAIEmbedderConfig()).remote


def test_an_openai_embedder_has_the_settings_and_needs_no_key_to_be_built() -> None:
    config = OpenAIEmbedderConfig(model="m", dimensions=8, base_url="http://localhost:1/v1", too_long="truncate")
    assert config.build().name == "m/8@localhost:1/first-8192-cl100k_base"
    with pytest.raises(ConfigurationError, match="a text may not be longer than a request"):
        OpenAIEmbedderConfig(max_tokens=10).check()


@pytest.mark.parametrize("model", [OpenAIEmbedderConfig, CohereRerankerConfig])
@pytest.mark.parametrize(
    "address",
    [
        *("http://user:geheim@host/v1", "http://geheim@host", "http://host/v1?key=geheim", "http://host/#geheim"),
        *("ftp://geheim", "geheim", "http://", "http://host:geheim/", "http://[geheim/"),
    ],
)
def test_an_address_with_credentials_is_refused_and_never_quoted(model: type[Component], address: str) -> None:
    with pytest.raises(ValidationError, match="expected an address") as caught:
        model.model_validate({"base_url": address})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, part in ALL.items() if "base_url" in part.model_fields])
@pytest.mark.parametrize("key", ["api_key", "key", "token", "password"])
def test_a_key_is_never_a_setting(name: str, key: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs") as caught:
        ALL[name].model_validate({key: "sk-geheim"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("given", ["300", True, 300.0, None, 0])
def test_numbers_are_not_guessed(given: object) -> None:
    with pytest.raises(ValidationError, match=r"valid integer|greater than"):
        RecursiveTokenConfig.model_validate({"chunk_size": given})


def test_a_store_builds_where_it_is_told_with_its_index(tmp_path: Path) -> None:
    assert LanceDBConfig(index=HnswConfig(m=7, ef=9)).index.build() == Hnsw(m=7, ef=9)
    assert LanceDBConfig(index=IvfPqConfig(num_partitions=2)).index.build() == IvfPq(num_partitions=2)
    chunk = PositionAwareChunk(generate_pa_chunk_id("some"), "some", DocumentId("a.md"), 0, 4)
    LanceDBConfig().build(tmp_path / "index").add([chunk], np.ones((1, 2), np.float32))
    reopened = LanceDBConfig().build(str(tmp_path / "index"))
    assert reopened.search_many(np.ones((1, 2), np.float32), 1).numbers.tolist() == [[0]]
    with pytest.raises(ConfigurationError, match="has the indexes"):
        LanceDBConfig(index=HnswConfig()).build(tmp_path / "index")


def test_rerankers_build_and_none_builds_none() -> None:
    assert NoRerankerConfig().build() is None
    lexical = LexicalRerankerConfig(k1=2).build()
    assert isinstance(lexical, LexicalReranker)
    assert lexical.name == "LexicalReranker(k1=2.0, b=0.75)"


def test_embedders_build() -> None:
    for config in (
        LocalEmbedderConfig(),
        OpenAIEmbedderConfig(),
        SentenceTransformersConfig(model="m", truncate_dim=4),
    ):
        assert is_embedder(config.build())
    assert SentenceTransformersConfig(model="m", truncate_dim=4, revision="r").build().name == (
        "sentence-transformers/m@r/4"
    )
