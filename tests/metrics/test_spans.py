import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import SpanMismatchError
from rag_eval.metrics.span_sets import calculate_overlap, merge_overlapping_spans
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

TEXTS = {"a.md": "né\r\n👩🏽‍🚀 漢字 a\u0301 <|endoftext|>", "b.md": "aa aa aa\u2028aa aa aa aa aa"}
DOCUMENTS = {doc_id: Document(DocumentId(doc_id), text) for doc_id, text in TEXTS.items()}


@st.composite
def spans(draw: st.DrawFn) -> CharacterSpan:
    document = DOCUMENTS[draw(st.sampled_from(sorted(DOCUMENTS)))]
    start = draw(st.integers(0, len(document.content) - 1))
    return document.span(start, draw(st.integers(start + 1, min(start + 9, len(document.content)))))


def characters(some: list[CharacterSpan]) -> set[tuple[str, int]]:
    return {(span.doc_id, place) for span in some for place in range(span.start, span.end)}


@given(st.lists(spans(), max_size=8))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_merged_spans_hold_the_same_characters_once_and_their_own_text(some: list[CharacterSpan]) -> None:
    merged = merge_overlapping_spans(some)
    assert characters(merged) == characters(some)
    assert sum(span.length for span in merged) == len(characters(some))
    assert merged == sorted(merged, key=lambda span: (span.doc_id, span.start))
    for before, after in pairwise(merged):
        assert before.doc_id != after.doc_id or before.end < after.start, "touching spans are one"
    for span in merged:
        DOCUMENTS[span.doc_id].check_span(span)


@given(st.lists(spans(), max_size=8), st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_the_order_of_the_spans_does_not_matter(some: list[CharacterSpan], shuffler: random.Random) -> None:
    shuffled = list(some)
    shuffler.shuffle(shuffled)
    assert merge_overlapping_spans(shuffled) == merge_overlapping_spans(some)


@given(st.lists(spans(), max_size=8), st.lists(spans(), max_size=8))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_the_overlap_is_the_number_of_shared_characters(a: list[CharacterSpan], b: list[CharacterSpan]) -> None:
    assert calculate_overlap(a, b) == len(characters(a) & characters(b)) == calculate_overlap(b, a)


def test_a_long_span_may_hold_many_short_ones() -> None:
    text = "".join("abcdef"[number * number % 6] for number in range(5000))
    document = Document(DocumentId("long.md"), text)
    inside = [document.span(start, start + 3) for start in range(0, 4990, 7)]
    assert merge_overlapping_spans([*inside, document.span(0, 5000)]) == [document.span(0, 5000)]


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ([("abc", 0), ("xd", 2)], r"\[2, 3\): one has 'c', the other 'x'"),
        ([("abcdef", 0), ("b", 1), ("xx", 3)], r"\[3, 5\): one has 'de', the other 'xx'"),
        ([("abc", 0), ("cde", 2), ("xef", 3)], r"\[3, 5\): one has 'de', the other 'xe'"),
        ([("abc", 0), ("abd", 0)], r"\[0, 3\): one has 'abc', the other 'abd'"),
    ],
)
def test_spans_that_disagree_about_their_text_are_refused(wrong: list[tuple[str, int]], place: str) -> None:
    some = [CharacterSpan(DocumentId("a.md"), start, start + len(text), text) for text, start in wrong]
    with pytest.raises(SpanMismatchError, match=rf"'a\.md' disagree about {place}"):
        merge_overlapping_spans(some)


def test_no_spans_give_no_spans() -> None:
    assert merge_overlapping_spans([]) == []
    assert calculate_overlap([], []) == 0
