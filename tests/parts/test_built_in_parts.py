"""The built-in parts by name: what they are called, what is remote, and that no secret is among their settings."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.cli import part_commands as cli_parts
from rag_eval.config.models import SECTIONS
from rag_eval.config.truth_sources import TRUTH_SOURCE
from rag_eval.documents.reading import LOADER
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.parts import Kind, as_data, describe, is_remote, label, located
from rag_eval.parts.definition import REGISTERED
from rag_eval.retrieval import FUSION, RERANKER, TOKENIZER
from rag_eval.retrieval.rerankers import CohereReranker, CrossEncoderReranker, LexicalReranker
from rag_eval.stores import INDEX, STORE
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

KINDS = (LOADER, TRUTH_SOURCE, *(one.kind for one in SECTIONS.values()), INDEX, FUSION, TOKENIZER)
# A system of LanceDB needs a table: tests/retrieval/test_lancedb_table.py makes one.
EVERY = [(kind, name) for kind in KINDS for name in kind.types if (kind.name, name) != ("system", "lancedb")]
NEEDED = {
    "sentence-transformers": {"model": "m"},
    "cross-encoder": {"model": "m"},
    "http": {"url": "http://localhost:1"},
    "file": {"path": "truth.jsonl"},
    "hits": {"path": __file__},
    "langsmith": {"dataset": "reviewed"},
    "select": {"fetch_k": 60},
}


def made(kind: Kind, name: str) -> Any:
    return kind.make({"type": name} | NEEDED.get(name, {}))


def test_the_registries_hold_the_parts_under_their_types() -> None:
    assert list(CHUNKER.types) == [
        *("recursive-character", "recursive-token", "fixed-token", "sentence"),
        *("markdown", "semantic", "cluster-semantic"),
    ]
    assert list(EMBEDDER.types) == ["local", "openai", "sentence-transformers"]
    assert list(STORE.types) == ["lancedb", "memory", "chroma"]
    assert list(RERANKER.types) == ["none", "lexical", "maxsim", "cohere", "cross-encoder"]
    assert {kind.name for kind in KINDS} == cli_parts._kinds().keys() - {"metric", "evaluator"}
    for kind, name in EVERY:
        if (path := kind.types[name]) is not None:
            assert REGISTERED[path] == (kind.name, name)


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=[f"{kind.name}-{name}" for kind, name in EVERY])
def test_a_part_survives_its_data_and_pickling(kind: Kind, name: str) -> None:
    part = made(kind, name)
    assert kind.make(as_data(part)) == part
    assert pickle.loads(pickle.dumps(part)) == part  # noqa: S301  # our own bytes
    assert as_data(part)["type"] == ("none" if part is None else name)


def test_settings_reach_the_chunker() -> None:
    given = {"chunk_size": 50, "chunk_overlap": 10, "separators": ["\n"], "encoding": "o200k_base"}
    assert CHUNKER.make({"type": "recursive-token"} | given) == RecursiveTokenChunker(50, 10, ("\n",), "o200k_base")
    semantic = CHUNKER.make({"type": "semantic", "embedder": {"type": "openai", "model": "m"}, "window": 2})
    assert semantic == SemanticChunker(OpenAIEmbedder("m"), window=2)
    assert SemanticChunker("local", 80) == SemanticChunker(LocalEmbedder(), 80.0)  # type: ignore[arg-type]  # a name


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (CHUNKER.make("markdown"), "markdown 1000"),
        (RecursiveTokenChunker(chunk_size=300), "recursive-token 300/0"),
        (RecursiveTokenChunker(encoding="o200k_base"), "recursive-token 400/0 encoding=o200k_base"),
        (RecursiveTokenChunker(separators=("\n", "")), r'recursive-token 400/0 separators=["\n",""]'),
        (SemanticChunker(), "semantic 95"),
        (SemanticChunker(breakpoint_percentile=80.5, window=2), "semantic 80.5 window=2"),
        (
            SemanticChunker(embedder=OpenAIEmbedder(dimensions=64)),
            "semantic 95 embedder=(openai text-embedding-3-small dimensions=64)",
        ),
        (LocalEmbedder(), "local"),
        (OpenAIEmbedder(max_tokens=None), "openai text-embedding-3-small"),
        (SentenceTransformersEmbedder(model="a b", normalize=True), 'sentence-transformers "a b" normalize=true'),
        (LanceDBVectorStore(), "lancedb exact"),
        (LanceDBVectorStore(index=IvfPq(nprobes=3)), "lancedb ivf-pq nprobes=3"),
        (None, "none"),
        (LexicalReranker(b=0), "lexical b=0"),
        (CohereReranker(), "cohere rerank-v3.5"),
        (CrossEncoderReranker(model="org/model"), "cross-encoder org/model"),
    ],
)
def test_labels_show_what_is_not_the_default(part: object, named: str) -> None:
    assert label(part) == named


def test_only_what_uses_the_network_is_remote() -> None:
    assert {name for kind, name in EVERY if is_remote(made(kind, name))} == {
        *("langsmith", "generate", "openai", "cohere", "http"),
        *("written", "rewritten", "variants", "hyde"),
    }
    assert is_remote(SentenceTransformersEmbedder(model="m", allow_download=True))
    assert is_remote(CrossEncoderReranker(model="m", allow_download=True))
    assert is_remote(SemanticChunker(embedder=OpenAIEmbedder()))


@pytest.mark.parametrize("cls", [OpenAIEmbedder, CohereReranker])
@pytest.mark.parametrize(
    "address",
    [
        *("http://user:geheim@host/v1", "http://geheim@host", "http://host/v1?key=geheim", "http://host/#geheim"),
        *("ftp://geheim", "geheim", "http://", "http://host:geheim/", "http://[geheim/"),
    ],
)
def test_an_address_with_credentials_is_refused_and_never_quoted(cls: Any, address: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url: expected an address") as caught:
        cls(base_url=address)
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("kind", "name"), [(EMBEDDER, "openai"), (RERANKER, "cohere")])
@pytest.mark.parametrize("key", ["api_key", "key", "token", "password"])
def test_a_key_is_never_a_setting(kind: Kind, name: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} has no such key") as caught:
        kind.make({"type": name, key: "sk-geheim"})
    assert "geheim" not in str(caught.value)
    given_in_python = kind.load(name)(api_key="sk-geheim")
    assert "geheim" not in f"{given_in_python!r} {vars(given_in_python)} {as_data(given_in_python)}"


def test_a_store_is_opened_where_it_is_told_with_its_index(tmp_path: Path) -> None:
    chunk = PositionAwareChunk(generate_pa_chunk_id("some"), "some", DocumentId("a.md"), 0, 4)
    located(LanceDBVectorStore(), tmp_path / "index").add([chunk], np.ones((1, 2), np.float32))
    reopened = located(LanceDBVectorStore(), str(tmp_path / "index"))
    assert reopened.search_many(np.ones((1, 2), np.float32), 1).chunks.tolist() == [0]
    assert label(reopened) == "lancedb exact"
    with pytest.raises(ConfigurationError, match="has the indexes"):
        located(LanceDBVectorStore(index=Hnsw()), tmp_path / "index")
    with pytest.raises(ConfigurationError, match="has no place"):
        LanceDBVectorStore().add([chunk], np.ones((1, 2), np.float32))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_every_part_and_every_setting_is_described(kind: Kind) -> None:
    for part in describe(kind):
        assert part.summary.endswith("."), part.name
        assert part.remote
        for setting in part.settings:
            assert setting.description.endswith("."), f"{part.name}.{setting.name}"
    data = {part.name: part.as_data() for part in describe(kind)}
    assert list(data) == list(kind.types)
