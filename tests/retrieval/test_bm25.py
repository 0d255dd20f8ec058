import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.bm25 import BM25Index, Postings, best_first, word_statistics
from rag_eval.retrieval.tokenizers import WordTokenizer, words

texts = st.lists(st.lists(st.sampled_from("abcdef"), max_size=12).map(" ".join), max_size=8)


def by_the_formula(corpus: list[str], query: str, k1: float, b: float) -> list[float]:
    bags = [Counter(words(text)) for text in corpus]
    average = sum(bag.total() for bag in bags) / len(bags) or 1
    scores = []
    for bag in bags:
        score = 0.0
        for word in words(query):
            having = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            tf = bag[word]
            score += idf * tf / (tf + k1 * (1 - b + b * bag.total() / average)) if tf else 0
        scores.append(score)
    return scores


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts.filter(bool), st.lists(st.sampled_from("abcxy"), max_size=5).map(" ".join), st.sampled_from([(1.5, 0.75), (0.9, 0.4), (0, 0), (2, 1)]))  # fmt: skip  # noqa: E501
def test_scores_follow_the_formula(corpus: list[str], query: str, parameters: tuple[float, float]) -> None:
    np.testing.assert_allclose(
        BM25Index(corpus, *parameters).scores(query), by_the_formula(corpus, query, *parameters), atol=1e-12
    )


def word_by_word(corpus: list[str], query: str, k1: float, b: float) -> np.ndarray:
    """A list of postings for each word, each with its weight: the same operations in the same order."""
    bags = [Counter(words(text)) for text in corpus]
    lengths = np.array([bag.total() for bag in bags], np.float64)
    damping = k1 * (1 - b + b * lengths / (lengths.mean() or 1.0))
    scores = np.zeros(len(corpus))
    for word in words(query):
        where = np.array([number for number, bag in enumerate(bags) if word in bag], np.int64)
        tf = np.array([bags[number][word] for number in where], np.float64)
        idf = np.log1p((len(corpus) - len(where) + 0.5) / (len(where) + 0.5))
        scores[where] += idf * tf / (tf + damping[where])
    return scores


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts.filter(bool), st.lists(st.sampled_from("abcxya"), max_size=6).map(" ".join), st.integers(1, 3), st.data())
def test_texts_shards_and_single_texts_have_the_same_scores_to_the_last_bit(
    corpus: list[str], query: str, shards: int, data: st.DataObject
) -> None:
    expected = word_by_word(corpus, query, 1.5, 0.75)
    whole = BM25Index(corpus)
    assert whole.scores(query).tolist() == expected.tolist()
    size = -(-len(corpus) // shards)
    parts = [corpus[begin : begin + size] for begin in range(0, len(corpus), size)]
    tables, counts = [Postings.of(part, words).to_table() for part in parts], [len(part) for part in parts]
    statistics = word_statistics(tables, counts)
    index = BM25Index.of_tables(tables, counts, statistics, [query], 1.5, 0.75, WordTokenizer())
    for _ in range(2):  # the second time by what was kept of the words
        assert index.scores(query).tolist() == expected.tolist()
    some = np.array(data.draw(st.lists(st.integers(0, len(corpus) - 1), max_size=9)), np.int64)
    assert index.scores_of(query, some).tolist() == expected[some].tolist()
    k, many = data.draw(st.integers(1, 9)), np.tile(expected, data.draw(st.integers(1, 60)))
    ordered = [number for number in np.argsort(-many, kind="stable").tolist() if many[number] > 0]
    assert best_first(many, k).tolist() == ordered[:k]


def test_a_part_of_a_corpus_is_scored_with_the_statistics_of_all_of_it() -> None:
    corpus = ["rye bread bread", "the ferry", "the bread of the captain"]
    tables, counts = [Postings.of(corpus, words).to_table(), Postings.of(corpus[:2], words).to_table()], [3, 2]
    statistics = word_statistics(tables[:1], counts[:1])
    some = BM25Index.of_tables(tables[1:], counts[1:], statistics, ["the bread"], 1.5, 0.75, WordTokenizer())
    assert some.scores("the bread").tolist() == BM25Index(corpus).scores("the bread")[:2].tolist()
    assert statistics.slice(0, 2).to_pylist() == [
        {"word": None, "texts": 3, "occurrences": 10},
        {"word": "rye", "texts": 1, "occurrences": 1},
    ]


def test_words_are_counted_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [f"a {'b ' * n}c{n}" for n in range(300)]
    expected = Postings.of(corpus, words).to_table()
    assert expected.schema.field("frequencies").type.value_type == pa.uint16()  # 299 times b
    monkeypatch.setattr("rag_eval.retrieval.bm25.WORDS_AT_ONCE", 50)
    assert Postings.of(corpus, words).to_table().equals(expected)
    assert Postings.of(corpus, words).lengths.tolist() == [len(words(text)) for text in corpus]


def test_best_first_breaks_ties_by_number_and_leaves_out_what_does_not_match() -> None:
    assert best_first(np.array([0.0, 2.0, 1.0, 2.0, 0.0, 1.0]), 3).tolist() == [1, 3, 2]
    assert best_first(np.array([0.0, 0.5]), 3).tolist() == [1]


def test_nothing_to_search() -> None:
    assert BM25Index([]).scores("a").tolist() == []
    assert BM25Index(["", ""]).scores("a").tolist() == [0, 0]


@pytest.mark.parametrize("parameters", [(-1, 0.5), (1, -0.1), (1, 1.1)])
def test_parameters_that_cannot_be_are_refused(parameters: tuple[float, float]) -> None:
    with pytest.raises(ConfigurationError, match="k1 must be 0 or more, b between 0 and 1"):
        BM25Index(["a"], *parameters)
