from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.tokens import ENCODINGS, get_encoding


def plain_windows(text: str, size: int, overlap: int, encoding: str) -> list[tuple[int, int]]:
    """Windows over the tokens, their byte borders moved left to characters, without the empty and the contained."""
    coder = get_encoding(encoding)
    tokens = [coder.decode_single_token_bytes(token) for token in coder.encode_ordinary(text)]
    utf8 = text.encode()

    def place(token: int) -> int:
        return len(utf8[: len(b"".join(tokens[:token]))].decode(errors="ignore"))

    windows, first = [], 0
    while first < len(tokens):
        windows.append((place(first), place(min(first + size, len(tokens)))))
        if first + size >= len(tokens):
            break
        first += size - overlap
    windows = [(start, end) for start, end in dict.fromkeys(windows) if start < end]
    return [w for w in windows if not any(v != w and v[0] <= w[0] and w[1] <= v[1] for v in windows)]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(nasty_texts(120), st.integers(1, 12), st.integers(0, 11), st.sampled_from(ENCODINGS))
def test_cuts_equal_plain_windows(text: str, size: int, overlap: int, encoding: str) -> None:
    overlap = min(overlap, size - 1)
    chunker = FixedTokenChunker(size, overlap, encoding)
    assert chunker.cuts(text) == plain_windows(text, size, overlap, encoding)
    check_contract(chunker, text, may_be_blank=True)
