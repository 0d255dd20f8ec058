from typing import Any

import pytest
from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from recursive_twin import expected_cuts, langchain_spans
from strategies import nasty_texts

from rag_eval.chunking.chunker import Chunker, PositionAwareChunker
from rag_eval.chunking.recursive import CHROMA_SEPARATORS, DEFAULT_SEPARATORS, RecursiveCharacterChunker
from rag_eval.errors import ConfigurationError

SEPARATORS = [
    DEFAULT_SEPARATORS,
    CHROMA_SEPARATORS,
    ("\n\n",),
    ("aa", "a"),
    (" ", "", "x"),
    ("\n\n", " "),
    ("\r\n", "word", "aa"),
    ("|", "`", "\n\n\n", ""),
]


@settings(deadline=None, derandomize=True, max_examples=400)
@given(nasty_texts(200), st.integers(1, 40), st.integers(0, 39), st.sampled_from(SEPARATORS))
def test_cuts_equal_the_plain_algorithm(text: str, size: int, overlap: int, separators: tuple[str, ...]) -> None:
    overlap = min(overlap, size - 1)
    chunker = RecursiveCharacterChunker(size, overlap, separators)
    assert chunker.cuts(text) == expected_cuts(langchain_spans(text, separators, size, overlap, len), text)
    check_contract(chunker, text)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(nasty_texts(300), st.integers(2, 40), st.integers(0, 39))
def test_no_chunk_is_longer_than_the_size_when_characters_may_be_split(text: str, size: int, overlap: int) -> None:
    chunker = RecursiveCharacterChunker(size, min(overlap, size - 1))
    assert all(end - start <= size for start, end in chunker.cuts(text))


def test_repeated_text_lands_where_it_was_taken_from() -> None:
    text = "Same words here.\n\n" * 5
    cuts = RecursiveCharacterChunker(chunk_size=20, chunk_overlap=0).cuts(text)
    assert [start for start, _ in cuts] == [0, 18, 36, 54, 72]


def test_overlap_repeats_whole_words() -> None:
    cuts = RecursiveCharacterChunker(chunk_size=11, chunk_overlap=6).cuts("aaaa bbbb cccc dddd")
    assert cuts == [(0, 9), (5, 14), (10, 19)]


def test_of_two_chunks_with_one_start_the_longer_is_kept() -> None:
    text = "\n\n\n\nshort\n\n" + "x" * 10
    assert langchain_spans(text, DEFAULT_SEPARATORS, 20, 8, len) == [(4, 9), (4, 21)]
    assert RecursiveCharacterChunker(20, 8).cuts(text) == [(4, 21)]


def test_a_piece_without_separators_is_kept_whole() -> None:
    chunker = RecursiveCharacterChunker(chunk_size=5, chunk_overlap=0, separators=["\n"])
    assert chunker.chunk("123456789\nab") == ["123456789", "ab"]


@pytest.mark.parametrize("text", ["", " ", "\n\n\t\u3000\r\n"])
def test_text_without_a_solid_character_has_no_chunks(text: str) -> None:
    assert RecursiveCharacterChunker().cuts(text) == []
    assert RecursiveCharacterChunker(1, 0).cuts(text) == []


def test_separators_become_a_tuple_and_show_in_the_name_only_when_changed() -> None:
    assert RecursiveCharacterChunker(separators=list(DEFAULT_SEPARATORS)).name == (
        "RecursiveCharacterChunker(chunk_size=1000, chunk_overlap=200)"
    )
    other = RecursiveCharacterChunker(separators=[";"])
    assert other.separators == (";",)
    assert other.name != RecursiveCharacterChunker().name
    assert hash(other) != hash(RecursiveCharacterChunker())


def test_satisfies_both_protocols() -> None:
    assert isinstance(RecursiveCharacterChunker(), Chunker)
    assert isinstance(RecursiveCharacterChunker(), PositionAwareChunker)


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk_size": 0},
        {"chunk_size": -3},
        {"chunk_size": 10.0},
        {"chunk_size": True, "chunk_overlap": 0},
        {"chunk_size": "10"},
        {"chunk_overlap": -1},
        {"chunk_size": 100, "chunk_overlap": 100},
        {"separators": []},
        {"separators": "\n"},
        {"separators": ["\n", 3]},
        {"separators": None},
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RecursiveCharacterChunker(**settings)


@pytest.mark.parametrize("unit", ["a", "\n", " ", "👍🏽", "ab ", "x\n\n", "\n\n\n", ". "])
def test_a_megabyte_of_one_kind_is_cut_to_its_end(unit: str) -> None:
    text = unit * (1_000_000 // len(unit)) + "end"
    cuts = RecursiveCharacterChunker(1000, 200).cuts(text)
    assert max(end - start for start, end in cuts) <= 1000
    assert cuts[-1][1] == len(text)


def test_the_default_overlap_fits_any_size() -> None:
    found = {size: RecursiveCharacterChunker(chunk_size=size).chunk_overlap for size in (1, 3, 200, 799, 800, 5000)}
    assert found == {1: 0, 3: 0, 200: 50, 799: 199, 800: 200, 5000: 200}
    assert RecursiveCharacterChunker() == RecursiveCharacterChunker(chunk_size=1000, chunk_overlap=200)
