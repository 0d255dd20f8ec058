import numpy as np
import pytest
from chunker_contract import TrigramEmbedder, check_contract

from rag_eval.chunking.semantic import SemanticChunker, neighbour_distances, unit_vectors
from rag_eval.errors import ConfigurationError

CATS = "Cats purr when cats sleep. Cats hunt mice while cats wait. Cats purr and cats sleep again."
TAXES = "Income taxes rise with income. Sales taxes hit income harder. Income taxes and sales taxes differ."


def test_the_break_is_where_the_subject_changes() -> None:
    assert SemanticChunker(TrigramEmbedder(), 80, window=0).chunk(f"{CATS} {TAXES}") == [CATS, TAXES]


def test_the_percentile_sets_how_many_breaks() -> None:
    text = " ".join(f"{word} {word} goes." for word in ("Alpha", "Bravo", "Carol", "Delta", "Eagle", "Fancy"))
    counts = [len(SemanticChunker(TrigramEmbedder(), p, window=0).cuts(text)) for p in (0, 50, 100)]
    assert counts[0] > counts[1] > counts[2] == 1


def test_equal_distances_do_not_break() -> None:
    assert len(SemanticChunker(TrigramEmbedder(), 0, window=0).cuts("The same again. " * 50)) == 1


def test_zero_vectors_have_distance_one_to_others_and_none_to_each_other() -> None:
    vectors = np.array([[0.0, 0], [0, 0], [1, 0], [0, 1], [0, 1], [0, -1]])
    assert neighbour_distances(vectors).tolist() == [0, 1, 1, 0, 2]
    check_contract(SemanticChunker(TrigramEmbedder()), "A. B! Cd? Longer one here. E. F.")


def test_vectors_of_any_size_become_unit_or_zero() -> None:
    class Sizes(TrigramEmbedder):
        def embed(self, texts: object) -> np.ndarray:
            return np.array([[1e-300, 1e-300], [1e300, 0], [0, 0]])

    vectors = unit_vectors(Sizes(), "abc", [(0, 1), (1, 2), (2, 3)])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0])


def test_the_window_reaches_both_ways() -> None:
    seen: list[str] = []

    class Recorder(TrigramEmbedder):
        def embed(self, texts: list[str]) -> np.ndarray:
            seen.extend(texts)
            return super().embed(texts)

    SemanticChunker(Recorder(), window=1).cuts("One is. Two is.\nThree is.")
    assert seen == ["One is. Two is.", "One is. Two is.\nThree is.", "Two is.\nThree is."]


@pytest.mark.parametrize("result", [np.zeros((1, 4)), np.zeros(2), np.array([[1.0, np.nan], [0, 1]])])
def test_invalid_vectors_name_the_embedder(result: np.ndarray) -> None:
    class Broken(TrigramEmbedder):
        def embed(self, texts: object) -> np.ndarray:
            return result

    with pytest.raises(ConfigurationError, match="the embedder trigrams gave"):
        SemanticChunker(Broken()).cuts("One is. Two is.")
