import functools
import re
import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from chunker_contract import lost_text
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_texts, nasty_texts

from rag_eval.chunking.alignment import AlignedText, aligned_form
from rag_eval.chunking.chunker import Chunker, Cut, PositionAwareChunker
from rag_eval.chunking.foreign_chunkers import ForeignChunker, Piece, as_chunker
from rag_eval.chunking.placement import (
    ChunkerPositionAdapter,
    SkippedChunkWarning,
    as_position_aware,
    count_characters,
    place,
)
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.errors import ConfigurationError
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

REPETITIVE = st.builds(
    lambda parts, times: "".join(parts * times),
    st.lists(st.sampled_from(["a", "aa", "ab", " ", "\n", "\r\n", "é", "👍🏽"]), min_size=1, max_size=5),
    st.integers(1, 20),
)
TEXTS = nasty_texts(120) | REPETITIVE


def places(source: str, pieces: list[str]) -> list[Cut | None]:
    return place(source, map(Piece, pieces))


def document(content: str, name: str = "d.md") -> Document:
    return Document(DocumentId(name), content)


def giving(*pieces: object) -> ChunkerPositionAdapter:
    return ChunkerPositionAdapter(lambda text: list(pieces), name="fixed")


def occurrences(source: str, text: str) -> list[int]:
    return [match.start() for match in re.finditer(f"(?={re.escape(text)})", source)]


def naive_place(source: str, text: str, previous: Cut) -> int | None:
    """The rule for exact pieces of short texts that do not overlap, by listing every occurrence."""
    start, end = previous
    candidates = [c for c in occurrences(source, text) if c > start]
    for candidate in candidates:
        if candidate >= end and not source[end:candidate].strip():
            return candidate
    if candidates:
        return min(candidates, key=lambda c: (abs(c - end), -c))
    everywhere = occurrences(source, text)
    return everywhere[0] if len(everywhere) == 1 else None


def follows_the_rule(source: str, pieces: list[str], cuts: list[Cut | None]) -> bool:
    previous = (-1, 0)
    for text, cut in zip(pieces, cuts, strict=True):
        expected = naive_place(source, text, previous)
        if cut is None:
            if expected is not None:
                return False
            continue
        found = source[slice(*cut)]
        if (found == text and cut[0] != expected) or aligned_form(text) not in aligned_form(found):
            return False
        previous = cut
    return True


def least_overlap(source: str, pieces: list[str]) -> int | None:
    """The least sum of squares of the overlaps of places without a gap; None where pieces cannot be placed so."""
    least = {(-1, 0): 0}  # of every place of the piece before
    for text in pieces:
        following: dict[Cut, int] = {}
        for start in occurrences(source, text):
            costs = [
                cost + max(0, end - start) ** 2
                for (before, end), cost in least.items()
                if before < start and not source[end:start].strip()
            ]
            if costs:
                following[start, start + len(text)] = min(costs)
        least = following
    return min((cost for (_, end), cost in least.items() if not source[end:].strip()), default=None)


@pytest.mark.parametrize(
    ("source", "pieces", "expected"),
    [
        ("aa aa aa", ["aa", "aa", "aa"], [(0, 2), (3, 5), (6, 8)]),
        ("abcdef", ["abcd", "cdef"], [(0, 4), (2, 6)]),
        ("x ab - ab", ["x", "- ab"], [(0, 1), (5, 9)]),
        ("one two three", ["three", "one", "two"], [(8, 13), (0, 3), (4, 7)]),
        ("ab ab cd", ["cd", "ab"], [(6, 8), None]),
        ("ab x ab y ab", ["ab x ab y", "ab"], [(0, 9), (10, 12)]),
        ("-- ab ---- ab", ["-- ab", "ab"], [(0, 5), (3, 5)]),
        ("-- ab -ab", ["-- ab", "ab"], [(0, 5), (7, 9)]),
        ("-- ab --ab", ["-- ab", "ab"], [(0, 5), (3, 5)]),
        ("ab ab", ["ab ab", "ab ab"], [(0, 5), (0, 5)]),
        ("ab  -", ["ab", "  -"], [(0, 2), (2, 5)]),
        ("ab  -", ["ab", "   -"], [(0, 2), (4, 5)]),
        ("a\n\nb", ["a", "\n\n", "b"], [(0, 1), (1, 3), (3, 4)]),
        ("abc", ["", "zz", "abc"], [None, None, (0, 3)]),
        ("", ["a"], [None]),
    ],
)
def test_the_rule(source: str, pieces: list[str], expected: list[Cut | None]) -> None:
    assert places(source, pieces) == expected


FAR = "-" * 5000


@pytest.mark.parametrize(
    ("source", "pieces", "expected"),
    [
        (f"ab zz {FAR} cd {FAR} cd", ["ab", "cd"], [(0, 2), None]),
        (f"ab cd {FAR} cd", ["ab", "cd", "cd"], [(0, 2), (3, 5), None]),
        (f"ab zz {FAR} cd", ["ab", "cd"], [(0, 2), (5007, 5009)]),
        (f"ab {FAR[:900]} cd {FAR} cd", ["ab", "cd"], [(0, 2), (904, 906)]),
        (f"ab {FAR} cd {FAR} cd", ["ab", "?" * 5000, "cd"], [(0, 2), None, (5004, 5006)]),
        (f"ab cd {FAR} ef {FAR} ef", ["ab", "ef", "cd"], [(0, 2), None, (3, 5)]),
    ],
)
def test_far_from_the_previous_chunk_only_a_unique_match_counts(
    source: str, pieces: list[str], expected: list[Cut | None]
) -> None:
    assert places(source, pieces) == expected


@pytest.mark.parametrize("letters", range(100, 140))
def test_marks_in_another_order_are_aligned_wherever_they_are(letters: int) -> None:
    block = f"{'a' * letters}q\u0307\u0323 end."
    pieces = [unicodedata.normalize("NFD", block)] * 2
    assert places(f"{block}  {block}", pieces) == [(0, len(block)), (len(block) + 2, 2 * len(block) + 2)]


FILLER = "-" * 3000


def test_without_allowance_only_near_pieces_are_found() -> None:
    source = f"one two three {FILLER} two  four {FILLER} five"
    pieces = ["one two", "two three", "five", "two four", FILLER, "two four"]
    cuts = place(source, map(Piece, pieces), 0)
    far = source.index("two  four")
    assert cuts == [(0, 7), (4, 13), None, None, (14, 3014), (far, far + 9)]


@pytest.mark.parametrize(("allowance", "cut"), [(0, None), (1, (2, 8))])
def test_an_overlap_far_behind_is_looked_for_as_long_as_there_is_allowance(
    allowance: int, cut: tuple[int, int] | None
) -> None:
    source = f"a needle {FILLER}"
    assert place(source, [Piece(source), Piece("needle")], allowance)[1] == cut


@pytest.mark.parametrize(
    ("source", "pieces", "expected"),
    [
        ("Hello   big\r\nworld. Bye", ["Hello big world.", "Bye"], [(0, 19), (20, 23)]),
        ("line\r\n\r\nnext\rlast", ["line\n\nnext", "last"], [(0, 12), (13, 17)]),
        ("Cafe\u0301 – café", ["Café –", "café"], [(0, 7), (8, 12)]),
        ("oﬃce ½ “so”", ["office 1⁄2", '"so"'], [(0, 6), (7, 11)]),
        ("q\u0323\u0307 x", ["q\u0307\u0323", "x"], [(0, 3), (4, 5)]),
        ("한국어 文", [unicodedata.normalize("NFD", "한국어"), "文"], [(0, 3), (4, 5)]),
        ("x a b a  b", ["x a b", "a b"], [(0, 5), (6, 10)]),
        ("x a b a  b y a b", ["x a b", "a b", "y a b"], [(0, 5), (6, 10), (11, 16)]),
        ("first a  b. a  b.", ["first a b.", "b. a b."], [(0, 11), (9, 17)]),
        ("first a  b. a  b. - a  b. a  b.", ["first a b.", "b. a b."], [(0, 11), (9, 17)]),
        ("z a  b. - a  b. - z", ["z - nothing", "a b."], [None, None]),
        ("-- a  b --", ["a b"], [(3, 7)]),
        ("a  b c", ["c", "a b"], [(5, 6), (0, 4)]),
    ],
)
def test_normalised_text_is_aligned_if_unambiguous(source: str, pieces: list[str], expected: list[Cut | None]) -> None:
    assert places(source, pieces) == expected


@settings(deadline=None, derandomize=True, max_examples=300)
@given(TEXTS, st.data())
def test_contiguous_and_stripped_cuts_are_found_where_they_came_from(source: str, data: st.DataObject) -> None:
    borders = sorted(data.draw(st.sets(st.integers(0, len(source)), max_size=12)) | {0, len(source)})
    cuts = list(pairwise(borders))
    assert places(source, [source[a:b] for a, b in cuts]) == cuts
    stripped = [(a + len(source[a:b]) - len(source[a:b].lstrip()), a + len(source[a:b].rstrip())) for a, b in cuts]
    stripped = [(a, b) for a, b in stripped if a < b]
    assert places(source, [source[a:b] for a, b in stripped]) == stripped


@settings(deadline=None, derandomize=True, max_examples=300)
@given(TEXTS, st.integers(2, 12), st.data())
def test_overlapping_windows_are_placed_evenly_without_gaps(source: str, size: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size - 1))
    pieces = [source[i : i + size] for i in range(0, max(1, len(source) - size + stride), stride)] if source else []
    cuts = [cut for cut in places(source, pieces) if cut]
    assert [source[start:end] for start, end in cuts] == pieces
    assert all(before[0] < after[0] for before, after in pairwise(cuts))
    assert not lost_text(source, cuts)
    overlaps = [max(0, before[1] - after[0]) for before, after in pairwise(cuts)]
    assert sum(overlap**2 for overlap in overlaps) == least_overlap(source, pieces)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(TEXTS, st.data())
def test_slices_in_any_order_are_exact_or_skipped_for_being_ambiguous(source: str, data: st.DataObject) -> None:
    place_ = st.integers(0, len(source))
    cuts = [sorted(pair) for pair in data.draw(st.lists(st.tuples(place_, place_), max_size=8))]
    pieces = [source[a:b] for a, b in cuts if a < b]
    found = places(source, pieces)
    if sum(map(len, pieces)) <= len(source) and sum(map(count_characters, pieces)) <= count_characters(source):
        assert follows_the_rule(source, pieces, found)
    assert all(cut or len(occurrences(source, text)) > 1 for text, cut in zip(pieces, found, strict=True))


def test_pieces_that_overlap_are_placed_together() -> None:
    # Taken one by one, the second "ab ab" would continue at the end of the first, and the third have no place left.
    assert places("ab ab ab ab", ["ab ab", "ab ab", "ab ab"]) == [(0, 5), (3, 8), (6, 11)]
    # Only the piece that ends the repetition tells where the ones before it were.
    assert places("x aa aa aa y", ["x aa", "aa aa", "aa aa", "aa y"]) == [(0, 4), (2, 7), (5, 10), (8, 12)]
    # A piece that cannot be found does not disturb the others.
    assert places("ab ab ab ab", ["ab ab", "??", "ab ab", "ab ab"])[1:] == [None, (3, 8), (6, 11)]
    # A chunk may start where the one before it does, if it goes further.
    source = "one. - two\nthree. - two\nfour"
    assert places(source, ["one.", "- two", "- two\nthree.", "- two", "- two\nfour"]) == [
        (0, 4), (5, 10), (5, 17), (18, 23), (18, 28)
    ]  # fmt: skip


def test_blanks_left_out_do_not_hide_that_pieces_overlap() -> None:
    source = ("aa" + " " * 40) * 9
    cuts = [(42 * i, 42 * i + 86) for i in range(0, 7, 2)]
    assert sum(end - start for start, end in cuts) <= len(source)
    assert places(source, [source[start:end] for start, end in cuts]) == cuts


WORDS = ["café", "cafe\u0301", "oﬃce", "office", "“so”", '"so"', "naïve", "½", "don’t", "x", "漢字", "ﾊﾟ", "é\u0323"]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "  ", "\r\n", "\n\n", "\u00a0"])), min_size=1),
    st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    st.integers(1, 4),
)
def test_normalised_chunks_in_order_are_found(words: list[tuple[str, str]], form: str, size: int) -> None:
    source = "".join(word + space for word, space in words)
    ends, at = [], 0
    for word, space in words:
        ends.append((at, at + len(word)))
        at += len(word) + len(space)
    cuts = [(ends[i][0], ends[min(i + size, len(ends)) - 1][1]) for i in range(0, len(ends), size)]
    pieces = [" ".join(unicodedata.normalize(form, source[a:b]).split()) for a, b in cuts]
    assert places(source, pieces) == cuts
    quoted = [piece.replace("“", '"').replace("”", '"').replace("’", "'") for piece in pieces]
    assert places(source, quoted) == cuts


@settings(deadline=None, derandomize=True, max_examples=300)
@given(nasty_texts(80) | st.text(st.sampled_from("ae\u0301\u0323\u0344ﾞ\u3099 ﬁ\u0f73ẛ가ᄀ“\n¨")))
def test_the_aligned_text_is_the_form_mapped_back(text: str) -> None:
    aligned = AlignedText.of(text)
    assert aligned.form == aligned_form(text)
    assert len(aligned.source_index) == len(aligned.form) == aligned.form_index[-1]
    assert len(aligned.form_index) == len(text) + 1
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert aligned_form(unicodedata.normalize(form, text)) == aligned.form


def test_a_skipped_chunk_is_warned_of_and_counted() -> None:
    adapter = giving("One two", "z" * 80, "four")
    with pytest.warns(SkippedChunkWarning, match=f"'guide/a.md'.*'{'z' * 49}…'"):
        chunks = adapter.chunk_with_positions(document("One two three four", "guide/a.md"))
    assert [chunk.content for chunk in chunks] == ["One two", "four"]
    with pytest.warns(SkippedChunkWarning):
        adapter.chunk_with_positions(document("four", "b.md"))
    adapter.chunk_with_positions(document("One two four" + "z" * 80, "b.md"))
    assert adapter.skipped_chunks == 1, "each document counts once"


def windows(unit: str, size: int, stride: int, text: str) -> list[Cut]:
    """Return windows of so many units, each so many after the window before."""
    units = [match.span() for match in re.finditer(unit, text)]
    starts = range(0, max(len(units) - size + stride, 1) if units else 0, stride)
    return [(units[i][0], units[min(i + size, len(units)) - 1][1]) for i in starts]


CHARACTER, WORD, LINE, SENTENCE = r"(?s:.)", r"\S+", r"[^\n]*\n|[^\n]+", r"[^.!?。]+[.!?。]*\s*|[.!?。]+\s*"


@pytest.mark.parametrize(
    ("unit", "size", "stride"),
    [
        (CHARACTER, 100, 50), (CHARACTER, 100, 90), (CHARACTER, 64, 63), (CHARACTER, 150, 20), (CHARACTER, 1000, 800),
        (WORD, 20, 10), (WORD, 12, 5), (LINE, 3, 1), (LINE, 10, 7), (SENTENCE, 2, 1),
    ],
)  # fmt: skip
def test_windows_over_ugly_texts_are_placed_in_order_and_without_a_gap(unit: str, size: int, stride: int) -> None:
    for text in known_texts().values():
        if len(text) < 100_000:
            pieces = [text[start:end] for start, end in windows(unit, size, stride, text)]
            cuts = [cut or (0, 0) for cut in places(text, pieces)]
            assert [text[start:end] for start, end in cuts] == pieces
            assert all(before[0] < after[0] for before, after in pairwise(cuts))
            assert lost_text(text, cuts) == lost_text(text, windows(unit, size, stride, text))


@dataclass
class ClaimedChunk:
    """As chonkie gives it."""

    text: str
    start_index: int
    end_index: int


@dataclass
class SplitDocument:
    """As LangChain gives it."""

    page_content: str
    metadata: dict[str, object] = field(default_factory=dict)


def test_true_claims_are_used_even_against_the_rule() -> None:
    adapter = giving(ClaimedChunk("ab", 6, 8), ClaimedChunk("ab", 3, 5))
    assert [c.start for c in adapter.chunk_with_positions(document("ab ab ab"))] == [6, 3]
    adapter = giving(ClaimedChunk("aaaa", 0, 4), ClaimedChunk("aaaa", 1, 5), ClaimedChunk("aaa", 4, 7))
    assert [c.start for c in adapter.chunk_with_positions(document("a" * 7))] == [0, 1, 4], "2 would be even"


@pytest.mark.parametrize(
    "claim",
    [
        ClaimedChunk("ab", 1, 3),
        ClaimedChunk("ab", 0, 3),
        ClaimedChunk("ab", -1, 1),
        ClaimedChunk("ab", -8, -6),
        ClaimedChunk("ab", 99, 101),
        SplitDocument("ab", {"start_index": -1}),
        SplitDocument("ab", {"start_index": 4}),
        SplitDocument("ab", {"start_index": None}),
    ],
)
def test_a_piece_with_a_wrong_claim_is_searched(claim: object) -> None:
    chunks = giving(claim).chunk_with_positions(document("ab ab ab"))
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 2)]


class Splitter:
    """Shaped like a LangChain splitter."""

    def __init__(self, size: int, separators: list[str]) -> None:
        self._chunk_size = size
        self._separators = separators

    def split_text(self, text: str) -> list[str]:
        return text.split()


class Named:
    name = "Named(size=3)"

    def chunk(self, text: str) -> list[str]:
        return text.split()


def split_words(text: str, sep: str | None = None) -> list[str]:
    return text.split(sep)


def test_names() -> None:
    assert ChunkerPositionAdapter(Named()).name == "PositionAdapter(Named(size=3))"
    assert as_chunker(split_words).name == f"{__name__}.split_words"
    assert as_chunker(functools.partial(split_words, sep="x")).name == f"{__name__}.split_words(sep='x')"
    assert as_chunker(lambda text: [text], name="whole").name == "whole"
    first, same, other = Splitter(5, ["a"]), Splitter(5, ["a"]), Splitter(5, ["b"])
    assert as_chunker(first).name == as_chunker(same).name != as_chunker(other).name
    assert as_chunker(first).name.startswith("Splitter(chunk_size=5, settings=")
    assert as_chunker(first.split_text).name == as_chunker(first).name + ".split_text"


def test_a_name_given_for_a_wrapped_chunker_replaces_its_own_and_keeps_the_places() -> None:
    claiming = ForeignChunker(lambda text: [ClaimedChunk("ab", 6, 8), ClaimedChunk("ab", 3, 5)], name="claiming")
    for named, expected in (
        (ChunkerPositionAdapter(claiming, "mine"), "PositionAdapter(mine)"),
        (ChunkerPositionAdapter(claiming), "PositionAdapter(claiming)"),
        (as_position_aware(claiming, "mine"), "PositionAdapter(mine)"),
    ):
        assert named.name == expected
        assert [chunk.start for chunk in named.chunk_with_positions(document("ab ab ab"))] == [6, 3]
    assert as_chunker(claiming, "mine").name == "mine"
    assert as_chunker(claiming) is claiming
    assert claiming.name == "claiming"
    assert as_position_aware(SentenceChunker(), "mine").name == "PositionAdapter(mine)"
    assert as_chunker(SentenceChunker(), "mine").name == "mine"


def test_accepted_chunkers() -> None:
    for source in (Splitter(5, []), Named(), split_words, str.split):
        wrapped = as_chunker(source)
        assert isinstance(wrapped, Chunker)
        assert wrapped.chunk("a b") == ["a", "b"]
        adapter = as_position_aware(source)
        assert isinstance(adapter, PositionAwareChunker)
        assert [chunk.content for chunk in adapter.chunk_with_positions(document("a b"))] == ["a", "b"]
    ours = SentenceChunker()
    assert as_chunker(ours) is as_position_aware(ours) is ours
    assert as_chunker(ForeignChunker(split_words)).chunk("a") == ["a"]


@pytest.mark.parametrize("wrong", [None, 5, "text", object(), Named, SentenceChunker, ["a"]])
def test_other_objects_are_refused(wrong: object) -> None:
    for wrap in (ChunkerPositionAdapter, as_chunker, as_position_aware):
        with pytest.raises(ConfigurationError, match=r"is not a chunker: give .*LangChain.*chonkie.*function"):
            wrap(wrong)


@pytest.mark.parametrize("result", ["a string", None, 5, [5], [b"bytes"], [None]])
def test_a_wrong_result_names_the_chunker(result: object) -> None:
    with pytest.raises(ConfigurationError, match="odd returned"):
        as_chunker(lambda text: result, name="odd").chunk("text")
