import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval import Embedder, LocalEmbedder
from rag_eval.embedding import local
from rag_eval.embedding.embedder import ReportsUsage, Usage, embed_queries
from rag_eval.embedding.local import BATCH, MOST_WORDS, token_ids


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


def test_it_can_be_pickled_and_its_questions_are_texts() -> None:
    embedder = pickle.loads(pickle.dumps(LocalEmbedder()))  # noqa: S301  # our own bytes
    assert np.array_equal(embed_queries(embedder, ["noon"]), embedder.embed(["noon"]))
    assert embed_queries(embedder, []).shape == (0, 256)


def as_the_tokenizer_has_it(text: str) -> list[int]:
    ids: list[int] = local._model().tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "   lead", "trail   ", "a  b   c", "\n\n", " \n \n", "x\r\ny;\r\n z", "\t tab\tin"),
        *("👩🏽\u200d🚀 漢字", "▁▁ odd▁word", "<s> hi </s>"),
        *("<unk>a", "e\u0301\u200b \u00a0x", "a" * 3000, " " * 100 + "x", "\n" * 50 + "x"),
    ],
)
def test_words_give_the_tokens_of_the_whole_text(text: str) -> None:
    assert token_ids(text) == as_the_tokenizer_has_it(text)
    if text:
        mean = local._model().weights[as_the_tokenizer_has_it(text)].mean(axis=0)
        assert np.array_equal(LocalEmbedder().embed_query(text), mean / np.linalg.norm(mean))


@given(st.text(st.sampled_from(" \n\r\t▁ab.,;é漢👩\u0301\u00a0<s>/"), max_size=40))
def test_any_text_is_split_as_the_tokenizer_does(text: str) -> None:
    assert token_ids(text) == as_the_tokenizer_has_it(text)


def test_words_are_forgotten_when_there_are_too_many() -> None:
    words = local._model().words
    words.clear()
    words.update({str(number): [] for number in range(MOST_WORDS)})
    assert token_ids("noon tide") == as_the_tokenizer_has_it("noon tide")
    assert len(words) <= 2
