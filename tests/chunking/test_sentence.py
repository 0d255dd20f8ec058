from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.chunking.sentence import SentenceChunker, cut_to_size, pack, sentence_cuts


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_cuts(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["Dr. Smith met J. R. Tolkien of the U.S. Army.", "He left."],
        [
            "It cost 3.14 dollars at example.com, e.g. for v1.2.",
            "See Fig. 3 and No. 5.",
            "He said no.",
            "Then he left.",
        ],
        ['"Really?" he asked.', '"Yes!"', "(It was.)", "Then..."],
        ["1. First step.", "Do it.", "12) Second."],
        ["Wait... what happened?", "Nothing… nothing."],
        ["Wait.. what?", "Then..", "No.", "Really?", "Fig.", "Tree."],
        ["See (Dr. Smith), [cf. Jones] and «vol. 3».", 'He said "e.g."', "Then he left ."],
        ["It ended .", "He was No.", "He was no. 7.", "Then."],
        ["123. First of them.", "In 1234.", "Of item no. 12.", "Then 7.", "Yes"],
        ["Supercalifragilisticexpialidocious.", "Mrs. Supercalifragilistic of the U.S.A. And more."],
    ],
)
def test_english(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["彼は来た。", "「本当？」", "そうだ！", "終わり"],
        ["圆周率是3．14吗？", "是．", "好"],
        ["هل هذا سؤال؟", "نعم.", "لا"],
        ["यह है।", "वह था॥", "अंत"],
    ],
)
def test_stops_of_other_scripts_need_no_space(expected: list[str]) -> None:
    assert sentences("".join(expected).replace("؟نعم.لا", "؟نعم. لا")) == expected


@pytest.mark.parametrize("blank_line", ["\n\n", "\r\n\r\n", "\r\r", "\n \t\n", "\u2029", "\u2028\u2028"])
def test_a_blank_line_ends_a_sentence(blank_line: str) -> None:
    assert sentences(f"A heading{blank_line}then text\nover two lines") == ["A heading", "then text\nover two lines"]


def test_a_number_at_the_start_of_a_line_does_not_end_a_sentence() -> None:
    assert sentences("Steps:\n1. Go in 1999. Then\n2. Return.") == ["Steps:\n1. Go in 1999.", "Then\n2. Return."]
    assert sentences("123. Go.\n1999. Return.") == ["123. Go.", "1999.", "Return."]


def test_overlap_repeats_whole_sentences() -> None:
    text = "A1 is. B2 is. C3 is. D4 is."
    assert SentenceChunker(20, sentence_overlap=1).chunk(text) == ["A1 is. B2 is. C3 is.", "C3 is. D4 is."]
    assert SentenceChunker(20, sentence_overlap=9).chunk(text) == ["A1 is. B2 is. C3 is.", "B2 is. C3 is. D4 is."]
    assert SentenceChunker(6, sentence_overlap=3).chunk(text) == ["A1 is.", "B2 is.", "C3 is.", "D4 is."]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(9, 30),
    st.integers(0, 4),
)
def test_pieces_are_packed_greedily(gaps: list[tuple[int, int]], size: int, overlap: int) -> None:
    pieces, at = [], 0
    for gap, length in gaps:
        pieces.append((at + gap, at + gap + length))
        at = pieces[-1][1]
    starts, ends = [start for start, _ in pieces], [end for _, end in pieces]
    groups = [(starts.index(start), ends.index(end)) for start, end in pack(pieces, size, overlap)]
    assert groups[0][0] == 0
    assert groups[-1][1] == len(pieces) - 1
    for (first, last), (following, _) in pairwise(groups):
        assert ends[last] - starts[first] <= size < ends[last + 1] - starts[first], "one more would not fit"
        shared = range(max(first + 1, last + 1 - overlap), last + 2)
        assert following == next(number for number in shared if ends[last + 1] - starts[number] <= size)


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("aaa bbb", 7, ["aaa bbb"]),
        ("aaa bbb", 6, ["aaa", "bbb"]),
        ("aaa bbb", 4, ["aaa", "bbb"]),
        ("aaa bbb", 3, ["aaa", "bbb"]),
        ("aaa bbb", 2, ["aa", "a", "bb", "b"]),
        ("aa   bbbb", 4, ["aa", "bbbb"]),
        ("aa bb\ncc", 5, ["aa bb", "cc"]),
        ("aa\u2028 bb\rcc ", 3, ["aa", "bb", "cc"]),
        ("  \n\t ", 2, []),
    ],
)
def test_lines_and_words_up_to_the_size(text: str, size: int, expected: list[str]) -> None:
    assert [text[start:end] for start, end in cut_to_size(text, 0, len(text), size)] == expected
    inside = f"x{text}y"
    found = cut_to_size(inside, 1, 1 + len(text), size)
    assert [inside[start:end] for start, end in found] == expected, "nothing outside of the stretch"
