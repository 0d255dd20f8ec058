import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.bm25 import BM25Index, best_first, words

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
