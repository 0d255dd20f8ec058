import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.embedding.openai import OpenAIEmbedder, make_batches, truncate
from rag_eval.errors import ConfigurationError
from rag_eval.tokens import count_tokens

PIECES = ["", " word", "👩🏽‍🚀", "漢字", "\r\n", "<|endoftext|>", "   ", "e\u0301", "\0"]
texts_strategy = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=30)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts_strategy, st.integers(1, 5), st.integers(1, 20), st.integers(0, 20))
def test_batches_hold_every_text_once_in_order_and_keep_the_limits(
    texts: list[str], max_texts: int, max_tokens_per_text: int, more: int
) -> None:
    tokens = {"max_tokens": max_tokens_per_text + more, "max_tokens_per_text": max_tokens_per_text}
    limits = OpenAIEmbedder(max_texts=max_texts, **tokens, too_long="truncate")
    places = [place for place in range(len(texts)) if place % 4 != 3]
    batches = make_batches(texts, places, limits)
    assert [place for batch in batches for place in batch.places] == [place for place in places if texts[place]]
    for batch in batches:
        sizes = [count_tokens(text, "cl100k_base") for text in batch.texts]
        assert 1 <= len(sizes) <= max_texts
        assert max(sizes) <= max_tokens_per_text
        assert sum(sizes) <= max_tokens_per_text + more
        for place, text in zip(batch.places, batch.texts, strict=True):
            assert texts[place].startswith(text)
            assert text == texts[place] or count_tokens(texts[place], "cl100k_base") > max_tokens_per_text


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(1, 30))
def test_a_cut_text_is_a_beginning_within_the_limit(text: str, limit: int) -> None:
    cut = truncate(text, limit, "cl100k_base")
    assert text.startswith(cut)
    assert count_tokens(cut, "cl100k_base") <= limit
    if count_tokens(text, "cl100k_base") <= limit:
        assert cut == text


def test_without_limits_on_tokens_only_the_count_matters() -> None:
    limits = OpenAIEmbedder(max_texts=2, max_tokens=None, max_tokens_per_text=None)
    batches = make_batches(["word " * 100_000, "b", "c"], range(3), limits)
    assert [batch.places for batch in batches] == [[0, 1], [2]]


def test_many_texts_that_are_too_long_are_counted() -> None:
    with pytest.raises(
        ConfigurationError, match=r"5 of 6 texts .* text 0 has .*, text 1 has .*, text 2 has .* and 2 more"
    ):
        make_batches(
            [" word" * 9] * 5 + ["a"], range(6), OpenAIEmbedder(max_texts=10, max_tokens=8, max_tokens_per_text=8)
        )


@pytest.mark.parametrize(
    "limits",
    [
        {"max_texts": 0},
        {"max_tokens": -1},
        {"max_tokens_per_text": -5},
        {"max_tokens": 10, "max_tokens_per_text": 11},
        {"encoding": "none"},
    ],
)
def test_limits_that_cannot_be_used_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        OpenAIEmbedder(**limits)  # type: ignore[arg-type]
