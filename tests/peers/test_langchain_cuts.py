"""Our recursive chunkers give LangChain's chunks: the same texts in the same order, at the places they came from."""

import logging
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recursive_twin import langchain_spans
from strategies import nasty_texts

from rag_eval.chunking.recursive import (
    CHROMA_SEPARATORS,
    DEFAULT_SEPARATORS,
    RecursiveCharacterChunker,
    RecursiveTokenChunker,
)
from rag_eval.tokens import ENCODINGS, get_encoding

langchain = pytest.importorskip("langchain_text_splitters")

CORPORA = Path(__file__).parents[2].parent / "shared" / "data" / "chroma" / "corpora"
SOURCES = Path(sysconfig.get_paths()["stdlib"])
SEPARATORS = pytest.mark.parametrize("separators", [DEFAULT_SEPARATORS, CHROMA_SEPARATORS], ids=["default", "chroma"])


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """LangChain logs every chunk that is too long."""
    logging.getLogger("langchain_text_splitters").setLevel(logging.ERROR)


def split(
    text: str, separators: tuple[str, ...], size: int, overlap: int, length: Callable[[str], int] = len
) -> list[str]:
    splitter = langchain.RecursiveCharacterTextSplitter(
        separators=list(separators), chunk_size=size, chunk_overlap=overlap, length_function=length
    )
    return splitter.split_text(text)


def token_length(encoding: str) -> Callable[[str], int]:
    coder = get_encoding(encoding)
    return lambda piece: len(coder.encode_ordinary(piece))


def check_same_chunks(ours: list[str], theirs: list[str]) -> int:
    """Equal, but for chunks of theirs that are blank or with which the next one begins: ours leave those out."""
    kept = iter(ours)
    expected = next(kept, None)
    left_out = 0
    for i, chunk in enumerate(theirs):
        if chunk == expected:
            expected = next(kept, None)
        else:
            assert not chunk.strip() or chunk == theirs[i - 1] or theirs[i + 1].startswith(chunk)
            left_out += 1
    assert expected is None
    return left_out


def corpora() -> list[str]:
    if not CORPORA.is_dir():
        pytest.skip(f"the Chroma corpora are not at {CORPORA}")
    return [path.read_bytes().decode() for path in sorted(CORPORA.glob("*.md"))]


def sources() -> list[str]:
    return [path.read_bytes().decode() for path in sorted(SOURCES.glob("*.py"))[:25]]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    nasty_texts(200),
    st.integers(1, 40),
    st.integers(0, 39),
    st.sampled_from([DEFAULT_SEPARATORS, CHROMA_SEPARATORS, ("\n\n",), ("aa", "a"), (" ", "", "x"), ("word",)]),
    st.sampled_from([None, *ENCODINGS]),
)
def test_the_twin_gives_the_chunks_of_langchain(
    text: str, size: int, overlap: int, separators: tuple[str, ...], encoding: str | None
) -> None:
    overlap = min(overlap, size - 1)
    length = token_length(encoding) if encoding else len
    spans = langchain_spans(text, separators, size, overlap, length)
    assert [text[start:end] for start, end in spans] == split(text, separators, size, overlap, length)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(nasty_texts(300), st.integers(1, 60), st.sampled_from([DEFAULT_SEPARATORS, CHROMA_SEPARATORS]))
def test_chunks_are_equal_on_nasty_text_without_overlap(text: str, size: int, separators: tuple[str, ...]) -> None:
    characters = RecursiveCharacterChunker(size, 0, separators).chunk(text)
    assert characters == [chunk for chunk in split(text, separators, size, 0) if chunk.strip()]
    tokens = RecursiveTokenChunker(size, 0, separators).chunk(text)
    theirs = split(text, separators, size, 0, token_length("cl100k_base"))
    assert tokens == [chunk for chunk in theirs if chunk.strip()]


@SEPARATORS
@pytest.mark.parametrize(("size", "overlap"), [(1000, 200), (1000, 0), (200, 0), (4000, 2000), (800, 0)])
@pytest.mark.parametrize("texts", [corpora, sources])
def test_character_chunks_are_equal_on_real_text(
    texts: Callable[[], list[str]], size: int, overlap: int, separators: tuple[str, ...]
) -> None:
    chunker = RecursiveCharacterChunker(size, overlap, separators)
    for text in texts():
        assert chunker.chunk(text) == split(text, separators, size, overlap)


@SEPARATORS
@pytest.mark.parametrize(
    ("size", "overlap", "encoding"),
    [(400, 0, "cl100k_base"), (400, 200, "cl100k_base"), (100, 60, "cl100k_base"), (200, 0, "o200k_base")],
)
@pytest.mark.parametrize("texts", [corpora, sources])
def test_token_chunks_are_equal_on_real_text(
    texts: Callable[[], list[str]], size: int, overlap: int, encoding: str, separators: tuple[str, ...]
) -> None:
    chunker = RecursiveTokenChunker(size, overlap, separators, encoding)
    length = token_length(encoding)
    for text in texts():
        left_out = check_same_chunks(chunker.chunk(text), split(text, separators, size, overlap, length))
        assert left_out == 0 or overlap > 0
