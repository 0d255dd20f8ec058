import dataclasses

import numpy as np
import pytest

from rag_eval import CharacterSpan, DocumentId
from rag_eval.errors import InvalidSpanError

A, B = DocumentId("a.md"), DocumentId("b.md")


def span(start: int, end: int, doc_id: DocumentId = A) -> CharacterSpan:
    return CharacterSpan(doc_id, start, end, "x" * (end - start))


def test_length_and_overlap() -> None:
    assert span(3, 10).length == 7
    assert span(0, 5).overlap_chars(span(3, 10)) == 2
    assert span(3, 10).overlap_chars(span(0, 5)) == 2
    assert span(0, 10).overlap_chars(span(2, 4)) == 2
    assert span(0, 5).overlaps(span(4, 6))


def test_touching_spans_do_not_overlap() -> None:
    assert not span(0, 5).overlaps(span(5, 9))
    assert span(0, 5).overlap_chars(span(5, 9)) == 0


def test_spans_of_different_documents_do_not_overlap() -> None:
    assert not span(0, 5).overlaps(span(0, 5, B))
    assert span(0, 5).overlap_chars(span(0, 5, B)) == 0


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 2)])
def test_a_span_without_characters_is_refused(start: int, end: int) -> None:
    with pytest.raises(InvalidSpanError, match=r"\[.*\) of 'a.md' has no characters"):
        CharacterSpan(A, start, end, "")


@pytest.mark.parametrize(("start", "end"), [(0.0, 1), (0, 1.0), (False, True), ("0", "1"), (None, 1), (np.int64(0), 1)])
def test_bounds_that_are_not_integers_are_refused(start: object, end: object) -> None:
    with pytest.raises(InvalidSpanError, match=r"of 'a.md' has bounds that are not Python integers"):
        CharacterSpan(A, start, end, "x")  # type: ignore[arg-type]  # the point of the test


def test_a_text_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidSpanError, match="is 2 characters long, its text '🙂🙂🙂' is 3: correct the numbers"):
        CharacterSpan(A, 0, 2, "🙂🙂🙂")
    for end, unit in ((12, "UTF-8 byte"), (6, "UTF-16 unit")):
        with pytest.raises(InvalidSpanError, match=f"these are {unit} offsets, count code points"):
            CharacterSpan(A, 0, end, "🙂🙂🙂")


def test_a_span_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        span(0, 1).start = 5  # type: ignore[misc]  # the point of the test
