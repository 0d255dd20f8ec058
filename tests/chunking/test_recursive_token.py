from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from recursive_twin import expected_cuts, langchain_spans, pieces_of
from strategies import nasty_texts

from rag_eval.chunking.recursive import CHROMA_SEPARATORS, DEFAULT_SEPARATORS, RecursiveTokenChunker
from rag_eval.errors import ConfigurationError, TextEncodingError
from rag_eval.tokens import ENCODINGS, TokenCounter, count_slices, count_tokens, get_encoding

SEPARATORS = [
    DEFAULT_SEPARATORS,
    CHROMA_SEPARATORS,
    ("\n\n",),
    ("aa", "a", ""),
    ("\n\n", " "),
    ("'", "/", "\t", " ", ""),
    ("。", "\u2028", "word", "\r\n"),
]

WORDS = ["It's", " don't", "I'LL", "'s", "3.14", " 12345", "word", " Word", "é", "e\u0301", "ſ", "漢", "🎉", "٣", "Ⅷ"]
SIGNS = [
    "...",
    ".\n",
    ".\n\n",
    "!?",
    " - ",
    "/",
    "//\n",
    "(see",
    ")",
    "_",
    "  ",
    "\t",
    "\n ",
    " \n",
    "\r",
    "\x1c",
    "\xa0",
]
PUNCTUATED = st.lists(st.sampled_from(WORDS + SIGNS), max_size=60).map("".join)


def token_length(encoding: str) -> Callable[[str], int]:
    coder = get_encoding(encoding)
    return lambda piece: len(coder.encode_ordinary(piece))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    nasty_texts(300) | PUNCTUATED,
    st.integers(1, 60),
    st.integers(0, 59),
    st.sampled_from(SEPARATORS),
    st.sampled_from(ENCODINGS),
)
def test_cuts_equal_the_plain_algorithm(
    text: str, size: int, overlap: int, separators: tuple[str, ...], encoding: str
) -> None:
    overlap = min(overlap, size - 1)
    chunker = RecursiveTokenChunker(size, overlap, separators, encoding)
    spans = langchain_spans(text, separators, size, overlap, token_length(encoding))
    assert chunker.cuts(text) == expected_cuts(spans, text)
    check_contract(chunker, text)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(
    st.lists(nasty_texts(100) | PUNCTUATED, max_size=4).map("".join),
    st.sampled_from(["\n\n", "\n", ".", " ", "\t", "'", "/", "!", "a", "漢", "", "\r\n"]),
    st.sampled_from(ENCODINGS),
)
def test_pieces_are_counted_as_if_encoded_alone(text: str, separator: str, encoding: str) -> None:
    length = token_length(encoding)
    pieces = pieces_of(text, separator, 0, len(text))
    if not pieces:
        return
    counter = TokenCounter(text, encoding)
    borders = counter.borders(separator, 0, len(text))
    assert borders.tolist() == [start for start, _ in pieces] + [len(text)]
    assert counter.counts(borders, separator).tolist() == [length(text[start:end]) for start, end in pieces]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.lists(nasty_texts(100) | PUNCTUATED, max_size=4).map("".join),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)).map(sorted), max_size=20),
    st.sampled_from(ENCODINGS),
)
def test_slices_are_counted_as_if_encoded_alone(text: str, pairs: list[list[int]], encoding: str) -> None:
    places = np.minimum(np.array(pairs, np.int64).reshape(-1, 2), len(text))
    expected = [count_tokens(text[start:end], encoding) for start, end in places]
    assert count_slices(text, places, encoding).tolist() == expected
    # Enough of them to be read off the tokens of the whole.
    more = np.vstack([places, 2 * [[0, len(text)]]])
    assert count_slices(text, more, encoding)[: len(places)].tolist() == expected


def test_special_token_text_is_ordinary() -> None:
    text = "<|endoftext|> " * 20
    chunker = RecursiveTokenChunker(10, 0)
    assert all(len(get_encoding("cl100k_base").encode_ordinary(chunk)) <= 10 for chunk in chunker.chunk(text))
    check_contract(chunker, text)


@pytest.mark.parametrize("text", ["", " ", "\n\n\t\u3000\r\n"])
def test_text_without_a_solid_character_has_no_chunks(text: str) -> None:
    assert RecursiveTokenChunker().cuts(text) == []
    assert RecursiveTokenChunker(1, 0).cuts(text) == []


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TextEncodingError, match="lone surrogate"):
        RecursiveTokenChunker().cuts("abc \ud800 def")


def test_name_tells_the_settings() -> None:
    assert RecursiveTokenChunker().name == (
        "RecursiveTokenChunker(chunk_size=400, chunk_overlap=0, encoding=cl100k_base)"
    )
    assert "o200k_base" in RecursiveTokenChunker(encoding="o200k_base").name
    assert RecursiveTokenChunker(separators=CHROMA_SEPARATORS).name != RecursiveTokenChunker().name


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk_size": 0},
        {"chunk_size": 4.5},
        {"chunk_size": True},
        {"chunk_overlap": -1},
        {"chunk_overlap": 400},
        {"separators": ()},
        {"separators": " "},
        {"encoding": "cl100k"},
        {"encoding": None},
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RecursiveTokenChunker(**settings)


@pytest.mark.parametrize("unit", ["a", " ", "👍🏽", "ab ", "x\n\n", ".\n", "漢"])
def test_a_long_text_of_one_kind_is_cut_to_its_end(unit: str) -> None:
    text = unit * (300_000 // len(unit)) + "end"
    cuts = RecursiveTokenChunker().cuts(text)
    assert cuts[-1][1] == len(text)
