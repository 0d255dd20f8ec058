from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.metrics.coverage import SpanCoverage, SpanRows
from rag_eval.metrics.metric import ALL
from rag_eval.metrics.oracle import best_cover, useful_chunks

Place = tuple[int, int, int]
DOCUMENTS, LENGTH, MOST = 3, 14, 5


def places(smallest: int, largest: int) -> st.SearchStrategy[list[Place]]:
    """Long spans in short documents: they overlap, repeat and lie within each other."""
    span = st.tuples(st.integers(0, DOCUMENTS - 1), st.integers(0, LENGTH - 1), st.integers(1, LENGTH))
    place = span.map(lambda s: (s[0], s[1], min(s[1] + s[2], LENGTH)))
    return st.lists(place, min_size=smallest, max_size=largest)


def rows(*queries: list[Place]) -> SpanRows:
    columns = np.array([place for places in queries for place in places], dtype=np.int64).reshape(-1, 3).T
    return SpanRows(np.cumsum([0, *map(len, queries)]), *columns)


def characters(places: list[Place]) -> set[tuple[int, int]]:
    return {(doc, position) for doc, start, end in places for position in range(start, end)}


def best_by_trying(chunks: list[Place], truth: list[Place], k: int) -> int:
    wanted = characters(truth)
    useful = [characters([chunk]) & wanted for chunk in chunks]
    return max(
        len(set().union(*choice)) for size in range(k + 1) for choice in combinations(useful, min(size, len(useful)))
    )


def oracle(chunks: list[Place], *truths: list[Place]) -> np.ndarray:
    truth = rows(*truths)
    return best_cover(SpanCoverage(useful_chunks(rows(chunks), truth), truth), MOST)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(places(0, 9), st.lists(places(1, 5), min_size=1, max_size=4))
def test_no_choice_of_k_chunks_covers_more_and_one_covers_as_much(
    chunks: list[Place], truths: list[list[Place]]
) -> None:
    best = oracle(chunks, *truths)
    for k in range(1, MOST + 1):
        expected = [best_by_trying(chunks, truth, k) for truth in truths]
        assert best[min(k, len(best)) - 1].tolist() == expected


@settings(deadline=None, derandomize=True, max_examples=200)
@given(places(0, 12), st.lists(places(1, 6), min_size=1, max_size=4))
def test_the_projection_keeps_what_is_covered_of_the_truth(chunks: list[Place], truths: list[list[Place]]) -> None:
    truth, found = rows(*truths), rows(*[chunks for _ in truths])
    sweep = SpanCoverage(found, truth)
    start, end = (side.reshape(len(truths), -1) for side in sweep.on_truth())
    assert (np.diff(start, axis=1) >= 0).all()
    lengths = [len(characters(spans)) for spans in truths]
    for number, length in enumerate(lengths):
        first = sum(lengths[:number]) + number
        pieces = [(0, *piece) for piece in zip(start[number] - first, end[number] - first, strict=True)]
        assert characters(pieces) <= characters([(0, 0, length)])
        assert len(characters(pieces)) == sweep.covered(ALL)[number]


@pytest.mark.parametrize(
    ("chunks", "truth", "expected"),
    [
        pytest.param([(0, 0, 10), (0, 2, 4), (0, 3, 9)], [(0, 0, 10)], [10], id="nested chunks add nothing"),
        pytest.param([(0, 0, 6), (0, 3, 9), (0, 6, 12)], [(0, 0, 12)], [6, 12], id="the middle one is not for two"),
        pytest.param([(0, 0, 5), (0, 4, 10), (0, 9, 14)], [(0, 0, 14)], [6, 10, 14], id="an overlap counts once"),
        pytest.param([(0, 0, 12), (0, 4, 8)], [(0, 0, 2), (0, 10, 12)], [4], id="a chunk bridges a gap"),
        pytest.param([(0, 0, 4), (1, 0, 6)], [(0, 0, 4), (1, 0, 6)], [6, 10], id="two documents share the k"),
        pytest.param([(0, 0, 3), (0, 6, 9)], [(0, 3, 6)], [0], id="a border is not an overlap"),
        pytest.param([(2, 0, 9)], [(0, 0, 9)], [0], id="another document"),
        pytest.param([], [(0, 0, 9)], [0], id="no chunks"),
        pytest.param([(0, 0, 5), (0, 0, 5)], [(0, 0, 9)], [5], id="the same chunk twice"),
    ],
)
def test_cases_worth_a_name(chunks: list[Place], truth: list[Place], expected: list[int]) -> None:
    assert oracle(chunks, truth)[:, 0].tolist() == expected


def test_a_query_without_useful_chunks_takes_nothing_from_its_neighbours() -> None:
    best = oracle([(0, 0, 6)], [(0, 0, 6)], [(1, 0, 6)], [(0, 3, 9)])
    assert best.tolist() == [[6, 0, 3]]


def test_a_document_without_truth_is_not_taken_for_that_of_another_query() -> None:
    found = rows([(0, 1, 4), (1, 0, 5), (2, 0, 5), (9, 0, 5)], [], [])
    start, end = SpanCoverage(found, rows([(0, 0, 5)], [(0, 0, 5)], [(0, 0, 5)])).on_truth()
    assert start.tolist() == [1, 5, 5, 5]
    assert end.tolist() == [4, 5, 5, 5]


def test_a_chunk_of_the_whole_document_does_not_make_every_chunk_a_candidate() -> None:
    small = [(0, start, start + 10) for start in range(0, 100_000, 10)]
    truth = rows(*[[(0, 99_000 + number, 99_500 + number)] for number in range(200)])
    useful = useful_chunks(rows([(0, 0, 100_000), *small]), truth)
    assert np.diff(useful.offsets).tolist() == [1] * 200
