"""An upgrade of a package that decides a result gives its parts and steps other keys, and leaves the rest alone."""

from pathlib import Path
from typing import Any

import pytest

from rag_eval.chunking import CHUNKER
from rag_eval.embedding import EMBEDDER
from rag_eval.errors import ConfigurationError
from rag_eval.parts import Kind, check_extras, digest
from rag_eval.pipeline.document_steps import count_texts
from rag_eval.pipeline.retrieve_steps import retrieve
from rag_eval.pipeline.score_steps import score
from rag_eval.pipeline.search_steps import index_words, search
from rag_eval.retrieval import RERANKER
from rag_eval.stores import STORE

TRANSFORMERS = {"sentence-transformers", "transformers", "tokenizers", "torch"}
DECIDING: list[tuple[Kind, str, dict[str, Any], set[str]]] = [
    (CHUNKER, "fixed-token", {}, {"tiktoken"}),
    (CHUNKER, "recursive-token", {}, {"tiktoken"}),
    (CHUNKER, "recursive-character", {}, set()),
    (CHUNKER, "markdown", {}, set()),
    (CHUNKER, "sentence", {}, set()),
    (CHUNKER, "semantic", {}, {"wordllama", "tokenizers"}),
    (CHUNKER, "cluster-semantic", {}, {"wordllama", "tokenizers"}),
    (EMBEDDER, "local", {}, {"wordllama", "tokenizers"}),
    (EMBEDDER, "openai", {}, set()),
    (
        EMBEDDER,
        "sentence-transformers",
        {"model": "m"},
        TRANSFORMERS,
    ),
    (STORE, "lancedb", {}, {"lancedb"}),
    (STORE, "chroma", {}, {"chromadb"}),
    (RERANKER, "lexical", {}, set()),
    (RERANKER, "maxsim", {}, {"wordllama", "tokenizers"}),
    (RERANKER, "cross-encoder", {"model": "m"}, TRANSFORMERS),
]
PACKAGES = sorted(set().union(*(packages for *_, packages in DECIDING)))


def upgrade(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another version of a package be the installed one."""
    metadata = folder / f"{package.replace('-', '_')}-999.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 999.0\n")
    monkeypatch.syspath_prepend(str(folder))


def digests() -> list[str]:
    return [digest(kind.make({"type": name} | settings)) for kind, name, settings, _ in DECIDING]


@pytest.mark.parametrize("package", PACKAGES)
def test_an_upgrade_changes_the_parts_that_it_decides(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    before = digests()
    upgrade(package, tmp_path, monkeypatch)
    changed = [old != new for old, new in zip(before, digests(), strict=True)]
    assert changed == [package in packages for *_, packages in DECIDING]


def test_steps_that_count_tokens_depend_on_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> list[str]:
        return [step.cache_key({"depth": 5}) for step in (score, retrieve, count_texts, search, index_words)]

    before = keys()
    upgrade("tiktoken", tmp_path, monkeypatch)
    assert [old != new for old, new in zip(before, keys(), strict=True)] == [True, True, True, False, False]


def test_an_extra_that_is_missing_is_said_wherever_the_part_is() -> None:
    class Needy:
        name, dimension, extra = "needy", 2, ("some-extra", "no_such_module_here")

        def embed(self, texts: Any) -> Any:
            raise NotImplementedError

        def embed_query(self, text: str) -> Any:
            raise NotImplementedError

    with pytest.raises(
        ConfigurationError, match=r"needs the extra some-extra: pip install 'rag-span-eval\[some-extra\]'"
    ):
        check_extras(Needy())
    check_extras([CHUNKER.make("semantic"), EMBEDDER.make("local"), None])
