import importlib.util
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import check_embedder, embed_queries
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.errors import ConfigurationError

TEXTS = ["the ferry leaves at noon", "how to bake rye bread", "漢字"]


class StaticModel:
    """The local embedder's vectors behind the interface of a SentenceTransformer of today."""

    max_seq_length = 4

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def encode(self, sentences: list[str], *, normalize_embeddings: bool, **_: object) -> np.ndarray:
        vectors = LocalEmbedder().embed(sentences) * np.float32(1 if normalize_embeddings else 3)
        self.asked.append(("encode", sentences))
        return vectors

    def tokenizer(self, texts: list[str], **_: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(range(len(text.split()))) for text in texts]}


class PromptedModel(StaticModel):
    """A model with different prompts for texts and questions."""

    def encode_query(self, sentences: list[str], **options: bool) -> np.ndarray:
        return self.encode([f"query: {sentence}" for sentence in sentences], **options)

    def encode_document(self, sentences: list[str], **options: bool) -> np.ndarray:
        return self.encode([f"passage: {sentence}" for sentence in sentences], **options)


def test_it_is_an_embedder_that_counts() -> None:
    embedder = SentenceTransformersEmbedder(StaticModel(), name="static", normalize=True)
    check_embedder(embedder)
    assert embedder.name == "static/normalized"
    assert np.array_equal(embedder.embed(TEXTS), LocalEmbedder().embed(TEXTS))
    assert (embedder.usage.requests, embedder.usage.texts, embedder.usage.tokens) == (0, 3, 4 + 4 + 1)
    assert embedder.usage.cost == 0.0
    assert embedder.dimension == 256
    assert embedder.embed([]).shape == (0, 256)


def test_questions_get_the_prompt_of_questions() -> None:
    model = PromptedModel()
    embedder = SentenceTransformersEmbedder(model, name="prompted", normalize=True)
    assert np.array_equal(embedder.embed_query("when"), LocalEmbedder().embed_query("query: when"))
    assert np.array_equal(embedder.embed(["noon"])[0], LocalEmbedder().embed_query("passage: noon"))
    embed_queries(embedder, TEXTS)
    assert len(model.asked) == 3


def test_a_cache_keeps_texts_and_questions_apart(tmp_path: Path) -> None:
    embedder = SentenceTransformersEmbedder(PromptedModel(), name="prompted", normalize=True)
    for _ in range(2):
        cached = CachedEmbedder(embedder, tmp_path)
        assert np.array_equal(cached.embed(["noon"])[0], LocalEmbedder().embed_query("passage: noon"))
        assert np.array_equal(cached.embed_query("noon"), LocalEmbedder().embed_query("query: noon"))
    assert (cached.statistics.hits, cached.statistics.misses) == (2, 0)


def test_texts_that_the_model_cuts_are_said(caplog: pytest.LogCaptureFixture) -> None:
    SentenceTransformersEmbedder(StaticModel(), name="static").embed(["short", "one two three four five"])
    assert "static reads 4 tokens of a text: 1 of 2 were truncated, first text 1 with 5 tokens" in caplog.text


def test_without_a_tokenizer_tokens_are_unknown() -> None:
    class Bare:
        def encode(self, sentences: list[str], **_: object) -> np.ndarray:
            return np.ones((len(sentences), 3))

    embedder = SentenceTransformersEmbedder(Bare(), name="bare")
    assert embedder.embed(["a"]).dtype == np.float32
    assert embedder.usage.tokens is None


@pytest.mark.parametrize("vectors", [np.ones((1, 3)), np.ones(3), np.full((2, 3), np.nan)])
def test_vectors_that_cannot_be_used_are_refused(vectors: np.ndarray) -> None:
    class Wrong:
        def encode(self, sentences: list[str], **_: object) -> np.ndarray:
            return vectors

    with pytest.raises(ConfigurationError, match="the embedder wrong gave"):
        SentenceTransformersEmbedder(Wrong(), name="wrong").embed(["a", "b"])


def test_names_tell_what_changes_the_vectors() -> None:
    names = [
        SentenceTransformersEmbedder("org/model").name,
        SentenceTransformersEmbedder("org/model", revision="abc").name,
        SentenceTransformersEmbedder("org/model", normalize=True).name,
        SentenceTransformersEmbedder("org/model", truncate_dim=64).name,
        SentenceTransformersEmbedder("org/other").name,
    ]
    assert len(set(names)) == len(names)
    assert SentenceTransformersEmbedder("org/model", batch_size=8, device="cpu").name == names[0]


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        ("", {}, "model: expected text that is not empty"),
        (5, {}, "model: expected text, found 5"),
        (Path("m"), {}, "model: expected a name or an object with encode, found PosixPath"),
        (StaticModel(), {}, "needs a unique name"),
        (StaticModel(), {"name": "x", "truncate_dim": 3}, "set them on your object"),
        ("org/model", {"batch_size": 0}, "batch_size: expected a number of at least 1, found 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(model: object, settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        SentenceTransformersEmbedder(model, **settings)  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is not None, reason="the library is installed")
def test_without_the_library_the_extra_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"rag-span-eval\[sentence-transformers\]"):
        SentenceTransformersEmbedder("org/model").embed(["a"])
