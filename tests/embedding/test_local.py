import logging

import numpy as np

from rag_eval import Embedder, LocalEmbedder
from rag_eval.embedding.local import BATCH


def test_it_is_an_embedder_whose_vectors_have_length_one() -> None:
    embedder: Embedder = LocalEmbedder()
    vectors = embedder.embed(["the ferry leaves at noon", "👩🏽‍🚀", "漢字"])
    assert vectors.shape == (3, embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_near_texts_are_nearer_than_far_ones() -> None:
    asked, near, far = LocalEmbedder().embed(
        ["when does the boat depart", "the ship leaves the harbour at noon", "how to bake rye bread"]
    )
    assert asked @ near > asked @ far + 0.1


def test_a_vector_does_not_depend_on_its_neighbours() -> None:
    texts = [f"sentence number {n} " * (1 + n % 7) for n in range(BATCH + 5)]
    together = LocalEmbedder().embed(texts)
    for place in (0, 3, BATCH - 1, BATCH, BATCH + 4):
        assert np.array_equal(LocalEmbedder().embed_query(texts[place]), together[place])


def test_nothing_to_embed() -> None:
    assert LocalEmbedder().embed([]).shape == (0, 256)
    assert not LocalEmbedder().embed_query("").any()


def test_it_leaves_the_root_logger_alone() -> None:
    LocalEmbedder().embed_query("text")
    assert logging.getLogger().level == logging.WARNING
