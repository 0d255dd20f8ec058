"""Windows hold the whole document, and questions are spread along it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import Chunk, Document, DocumentId, generate_chunk_id
from rag_eval.generation.windows import ENCODING, chunk_windows, spread, text_windows
from rag_eval.tokens import count_tokens

NASTY = st.text(alphabet=st.sampled_from("ab .\n\r\t\u2028👩🏽‍🦽é漢字\0<|>"), min_size=1, max_size=400)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(NASTY, st.integers(5, 60), st.integers(0, 20))
def test_windows_are_slices_that_leave_no_text_out(text: str, size: int, overlap: int) -> None:
    windows = text_windows(Document(DocumentId("a.md"), text), size, overlap)
    covered = [False] * len(text)
    for window in windows:
        assert text[window.start : window.end] == window.text
        assert window.tokens == count_tokens(window.text, ENCODING)
        covered[window.start : window.end] = [True] * len(window.text)
    assert all(character.isspace() for character, seen in zip(text, covered, strict=True) if not seen)


def test_a_document_that_fits_is_one_window_and_a_blank_one_none() -> None:
    assert [window.text for window in text_windows(Document(DocumentId("a"), " x "), 100, 0)] == [" x "]
    assert text_windows(Document(DocumentId("a"), " \r\n\u2028"), 100, 0) == []


def test_windows_of_a_long_document_keep_to_the_size_and_share_their_borders() -> None:
    text = "\n\n".join(f"Paragraph {number} says that item {number} is in box {number * 7}." for number in range(300))
    windows = text_windows(Document(DocumentId("a"), text), 500, 60)
    assert len(windows) > 8
    assert max(window.tokens for window in windows) <= 510  # counted as a whole, a window may have a few more
    assert all(later.start < earlier.end for earlier, later in pairwise(windows))
    assert all(window.text.lstrip().startswith("Paragraph") for window in windows)


def chunk(text: str) -> Chunk:
    return Chunk(generate_chunk_id(text), text, DocumentId("a.md"))


def test_chunks_are_taken_together_up_to_the_size() -> None:
    chunks = [chunk(f"number {number} of all the chunks here") for number in range(10)] + [
        chunk("  "),
        chunk("b " * 99),
    ]
    windows = chunk_windows(chunks, 30)
    assert [one for window in windows for one in window.chunks] == [*chunks[:10], chunks[11]]
    assert all(window.tokens <= 30 for window in windows[:-1])
    assert windows[-1].chunks == (chunks[11],)
    assert chunk_windows([chunk(" ")], 30) == []


@pytest.mark.parametrize(
    ("count", "sizes", "shares"),
    [
        (5, [10], [5]),
        (5, [100, 100, 100], [2, 1, 2]),
        (4, [300, 100], [3, 1]),
        (2, [10] * 6, [0, 1, 0, 0, 1, 0]),
        (0, [10, 10], [0, 0]),
        (6, [1, 600, 1], [0, 6, 0]),
    ],
)
def test_questions_are_spread_evenly_along_the_text(count: int, sizes: list[int], shares: list[int]) -> None:
    assert spread(count, sizes) == shares


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 50), st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_no_question_is_lost_and_none_is_off_by_more_than_one(count: int, sizes: list[int]) -> None:
    shares = spread(count, sizes)
    assert sum(shares) == count
    for share, size in zip(shares, sizes, strict=True):
        assert abs(share - count * size / sum(sizes)) <= 1
