"""Stretches of documents against a naive twin, and which texts a report carries."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.metrics.span_sets import merge_places
from rag_eval.reports.question_data import CONTEXT, Ranges, choose_texts, cut_texts, merged, touching

ROW = st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 25)).map(
    lambda row: (row[0], row[1], sum(row[1:]))
)
ROWS = st.lists(ROW, max_size=25)


def places(rows: list[tuple[int, int, int]]) -> Ranges:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def as_rows(ranges: Ranges) -> list[tuple[int, int, int]]:
    return [(document, start, end) for document, start, end in ranges.tolist()]


@settings(deadline=None, derandomize=True)
@given(ROWS)
def test_merging_is_that_of_the_metrics(rows: list[tuple[int, int, int]]) -> None:
    expected = merge_places((str(document), start, end) for document, start, end in rows)
    assert as_rows(merged(places(rows))) == [(int(d), s, e) for d, spans in sorted(expected.items()) for s, e in spans]


@settings(deadline=None, derandomize=True)
@given(ROWS, ROWS)
def test_touching_is_sharing_a_character(rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> None:
    held = {(document, place) for document, start, end in others for place in range(start, end)}
    expected = [
        number
        for number, (document, start, end) in enumerate(rows)
        if any((document, place) in held for place in range(start, end))
    ]
    assert touching(places(rows), merged(places(others))).tolist() == expected


LENGTHS = np.array([5_000, 100_000, 40, 80_000])
TRUTH = places([(0, 100, 200), (1, 50_000, 50_100), (1, 50_300, 50_400)])
HITS = places([(1, 90_000, 95_000), (2, 0, 40)])


def test_whole_documents_where_that_is_affordable() -> None:
    carried, notes = choose_texts(LENGTHS, TRUTH, HITS)
    assert notes == []
    assert as_rows(carried) == [(0, 0, 5_000), (1, 0, 100_000), (2, 0, 40)]


def test_else_what_stands_around_as_many_spans_as_fit_and_the_page_says_so() -> None:
    around = [(0, 0, 200 + CONTEXT), (1, 50_000 - CONTEXT, 50_400 + CONTEXT)]
    both, notes = choose_texts(LENGTHS, TRUTH, HITS, most=10_000)
    assert as_rows(both) == [*around, (1, 90_000 - CONTEXT, 95_000 + CONTEXT), (2, 0, 40)]
    about = "The documents have 105,040 characters, too many for one page: only the text around"
    assert notes == [f"{about} spans of truth and hits is shown."]
    truth, _ = choose_texts(LENGTHS, TRUTH, HITS, most=3_000)
    assert as_rows(truth) == around
    some, notes = choose_texts(LENGTHS, TRUTH, HITS, most=1_000)
    assert as_rows(some) == around[:1]
    assert notes == [f"{about} 1 of 5 spans of truth and hits is shown."]
    assert len(choose_texts(LENGTHS, TRUTH, HITS, most=10)[0]) == 0


def test_texts_are_cut_in_code_points() -> None:
    contents = pa.chunked_array([pa.array(["🚢a🚢b", "é中x"], pa.large_string())])
    assert cut_texts(contents, places([(0, 1, 3), (0, 3, 4), (1, 0, 2)])) == ["a🚢".encode(), b"b", "é中".encode()]
