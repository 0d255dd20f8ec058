import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rag_eval import Embedder, LocalEmbedder
from rag_eval.embedding.embedder import ReportsUsage, Usage, embed_queries
from rag_eval.embedding.local import BATCH
from rag_eval.errors import ConfigurationError


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


def test_it_counts_texts_and_tokens_and_costs_nothing() -> None:
    embedder = LocalEmbedder()
    assert isinstance(embedder, ReportsUsage)
    assert embedder.usage == Usage(requests=0, texts=0, tokens=0, cost=0.0)
    embedder.embed(["the ferry leaves at noon", ""])
    embedder.embed_query("noon")
    usage = embedder.usage
    assert (usage.requests, usage.texts, usage.cost) == (0, 3, 0.0)
    assert 5 <= (usage.tokens or 0) <= 12


def test_many_threads_count_together() -> None:
    embedder = LocalEmbedder()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: embedder.embed(["noon", "one"]), range(200)))
    assert embedder.usage.texts == 400


def test_a_bare_string_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one string"):
        LocalEmbedder().embed("letters")


def test_it_can_be_pickled_and_its_questions_are_texts() -> None:
    embedder = pickle.loads(pickle.dumps(LocalEmbedder()))  # noqa: S301  # our own bytes
    assert np.array_equal(embed_queries(embedder, ["noon"]), embedder.embed(["noon"]))
    assert embed_queries(embedder, []).shape == (0, 256)
