from collections.abc import Callable

from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from recursive_twin import expected_cuts, langchain_spans, pieces_of
from strategies import nasty_texts

from rag_eval.chunking.recursive import CHROMA_SEPARATORS, DEFAULT_SEPARATORS, RecursiveTokenChunker
from rag_eval.tokens import ENCODINGS, TokenCounter, get_encoding

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
    "...", ".\n", ".\n\n", "!?", " - ", "/", "//\n", "(see", ")", "_", "  ", "\t", "\n ", " \n", "\r", "\x1c", "\xa0",
]  # fmt: skip
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
