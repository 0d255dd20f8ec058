from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from recursive_twin import expected_cuts, langchain_spans
from strategies import nasty_texts

from rag_eval.chunking.recursive import CHROMA_SEPARATORS, DEFAULT_SEPARATORS, RecursiveCharacterChunker

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


def test_the_longer_of_two_chunks_with_the_same_start_is_kept() -> None:
    text = "\n\n\n\nshort\n\n" + "x" * 10
    assert langchain_spans(text, DEFAULT_SEPARATORS, 20, 8, len) == [(4, 9), (4, 21)]
    assert RecursiveCharacterChunker(20, 8).cuts(text) == [(4, 21)]


def test_a_piece_without_separators_is_kept_whole() -> None:
    chunker = RecursiveCharacterChunker(chunk_size=5, chunk_overlap=0, separators=["\n"])
    assert chunker.chunk("123456789\nab") == ["123456789", "ab"]


def test_separators_become_a_tuple_and_show_in_the_name_only_when_changed() -> None:
    assert RecursiveCharacterChunker(separators=list(DEFAULT_SEPARATORS)).name == (
        "RecursiveCharacterChunker(chunk_size=1000, chunk_overlap=200)"
    )
    other = RecursiveCharacterChunker(separators=[";"])
    assert other.separators == (";",)
    assert other.name != RecursiveCharacterChunker().name
    assert hash(other) != hash(RecursiveCharacterChunker())


def test_the_default_overlap_fits_any_size() -> None:
    found = {size: RecursiveCharacterChunker(chunk_size=size).chunk_overlap for size in (1, 3, 200, 799, 800, 5000)}
    assert found == {1: 0, 3: 0, 200: 50, 799: 199, 800: 200, 5000: 200}
    assert RecursiveCharacterChunker() == RecursiveCharacterChunker(chunk_size=1000, chunk_overlap=200)
