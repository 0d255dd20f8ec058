import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.embedding.openai import OpenAIEmbedder, make_batches
from rag_eval.errors import ConfigurationError
from rag_eval.tokens import count_tokens

PIECES = ["", " word", "👩🏽‍🚀", "漢字", "\r\n", "<|endoftext|>", "   ", "e\u0301", "\0"]
texts_strategy = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=30)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts_strategy, st.integers(1, 5), st.integers(0, 20))
def test_batches_hold_every_text_once_in_order_and_keep_the_limits(texts: list[str], max_texts: int, more: int) -> None:
    longest = max((count_tokens(text, "cl100k_base") for text in texts), default=0) or 1
    limits = OpenAIEmbedder(max_texts=max_texts, max_tokens=longest + more, max_tokens_per_text=longest)
    batches = make_batches(texts, limits)
    assert [place for batch in batches for place in batch.places] == [place for place, text in enumerate(texts) if text]
    for batch in batches:
        assert batch.texts == [texts[place] for place in batch.places]
        assert 1 <= len(batch.texts) <= max_texts
        assert sum(count_tokens(text, "cl100k_base") for text in batch.texts) <= longest + more


def test_without_limits_on_tokens_only_the_count_matters() -> None:
    limits = OpenAIEmbedder(max_texts=2, max_tokens=None, max_tokens_per_text=None)
    batches = make_batches(["word " * 100_000, "b", "c"], limits)
    assert [batch.places for batch in batches] == [[0, 1], [2]]


def test_many_texts_that_are_too_long_are_counted() -> None:
    with pytest.raises(
        ConfigurationError, match=r"5 of 6 texts .* text 0 has .*, text 1 has .*, text 2 has .* and 2 more"
    ):
        make_batches([" word" * 9] * 5 + ["a"], OpenAIEmbedder(max_tokens=8, max_tokens_per_text=8))


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
