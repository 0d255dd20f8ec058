"""What any embedder gives, ours or a user's, is held against what an embedder is."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import embed_queries, text_vectors
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ArtifactError, ConfigurationError, TextEncodingError

TEXTS = ["one", "two", "one", "three"]


class Given:
    """Gives whatever a function gives for the texts; it says that its vectors have three numbers."""

    name = "given"

    def __init__(self, give: Callable[[Sequence[str]], object], dimension: int = 3) -> None:
        self._give, self.dimension = give, dimension

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._give(texts)  # type: ignore[return-value]  # the point of the tests

    def embed_query(self, text: str) -> np.ndarray:
        return self._give([text])[0]  # type: ignore[index, no-any-return]


def rows(texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(text)), float(ord(text[0])), 1.0] for text in texts]


@pytest.mark.parametrize("give", [rows, lambda texts: np.array(rows(texts), np.float64), lambda t: tuple(rows(t))])
def test_lists_and_other_precisions_are_vectors_too(give: Callable[[Sequence[str]], object]) -> None:
    embedder = Given(give)
    for vectors in (text_vectors(embedder, TEXTS), embed_queries(embedder, TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.tolist() == rows(TEXTS)
    assert text_vectors(embedder, []).shape == embed_queries(embedder, []).shape == (0, 3)


@pytest.mark.parametrize(
    ("give", "reason"),
    [
        (lambda texts: np.ones((len(texts) - 1, 3)), r"shape \(2, 3\) for 3 texts"),
        (lambda texts: np.ones((len(texts) + 1, 3)), r"shape \(4, 3\) for 3 texts"),
        (lambda texts: np.ones((len(texts), 4)), r"shape \(3, 4\) for 3 texts: .* of 3 numbers"),
        (lambda texts: np.ones((3, len(texts), 1)), r"shape \(3, 3, 1\)"),
        (lambda texts: np.ones(3), r"shape \(3,\)"),
        (lambda texts: None, r"shape \(\)"),
        (lambda texts: [[1.0] * (1 + place) for place in range(len(texts))], "no array of numbers for 3 texts"),
        (lambda texts: ["vector"] * len(texts), "no array of numbers"),
        (lambda texts: np.full((len(texts), 3), np.nan), "NaN or infinite"),
    ],
)
def test_what_is_not_one_vector_a_text_is_refused(give: Callable[[Sequence[str]], object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the embedder given gave .*{reason}"):
        text_vectors(Given(give), TEXTS)
    symmetric = Given(give)
    symmetric.symmetric = True  # type: ignore[attr-defined]  # optional
    with pytest.raises(ConfigurationError, match="the embedder given gave"):
        embed_queries(symmetric, TEXTS[:3])


def test_questions_of_different_sizes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no array of numbers for 2 texts"):
        embed_queries(Given(lambda texts: [[1.0] * len(texts[0])]), ["two", "four"])
    with pytest.raises(ConfigurationError, match=r"shape \(2, 4\) for 2 texts"):
        embed_queries(Given(lambda texts: [[1.0] * 4]), ["two", "four"])


def test_texts_that_are_none_are_refused_by_number(tmp_path: Path) -> None:
    for embedder in (LocalEmbedder(), CachedEmbedder(LocalEmbedder(), tmp_path)):
        with pytest.raises(ConfigurationError, match="text 1 to embed is 'None'"):
            embedder.embed(["a", None])  # type: ignore[list-item]
        with pytest.raises(ConfigurationError, match="the texts to embed are '<generator"):
            embedder.embed(text for text in "ab")  # type: ignore[arg-type]
        with pytest.raises(TextEncodingError, match="text 1 has a lone surrogate"):
            embedder.embed(["a", "\ud800"])


def test_the_cache_is_for_one_dimension_also_where_all_is_kept(tmp_path: Path) -> None:
    cache = tmp_path
    four = CachedEmbedder(Given(lambda texts: np.ones((len(texts), 4)), 4), cache)
    four.embed(["a", "b"])
    four.embed_query("a")
    eight = CachedEmbedder(Given(lambda texts: np.ones((len(texts), 8)), 8), cache)
    assert eight.dimension == 8
    with pytest.raises(ArtifactError, match="vectors of 4 and of 8 numbers"):
        eight.embed(["a"])
    with pytest.raises(ArtifactError, match="vectors of 4 and of 8 numbers"):
        eight.embed_query("a")
    with pytest.raises(ConfigurationError, match=r"shape \(1, 4\) for 1 texts: .* of 5 numbers"):
        CachedEmbedder(Given(lambda texts: np.ones((len(texts), 4)), 5), tmp_path / "new").embed(["a"])


def test_an_embedder_that_would_have_to_ask_for_its_dimension_is_not_asked(tmp_path: Path) -> None:
    class Knows(Given):
        identity = "the same vectors"

    class Asks(Knows):
        @property
        def known_dimension(self) -> int | None:
            return None

        @property
        def dimension(self) -> int:
            raise AssertionError("asked")

        @dimension.setter
        def dimension(self, value: int) -> None: ...

    cache = tmp_path
    CachedEmbedder(Knows(rows), cache).embed(["a"])
    cached = CachedEmbedder(Asks(rows), cache)
    assert cached.dimension == 3
    assert cached.embed(["a"]).tolist() == rows(["a"])


def test_models_behind_two_paths_of_one_host_are_two() -> None:
    names = {OpenAIEmbedder("m", base_url=f"http://gpu:8000/{path}").name for path in ("a/v1", "b/v1", "b", "v1", "")}
    assert names == {"m@gpu:8000/a", "m@gpu:8000/b", "m@gpu:8000"}
