import numpy as np

from rag_eval.stores.exact_search import exact_scores, row_dots, score_margin, unit_vectors
from rag_eval.stores.rankings import BestPairs
from tests.stores.contract import random_vectors


def test_a_dot_product_does_not_depend_on_the_rows_around_it() -> None:
    for dimension in (1, 3, 8, 129, 257, 1536):
        left, right = random_vectors(500, dimension, 1).astype(float), random_vectors(500, dimension, 2).astype(float)
        together = row_dots(left, right)
        assert [row_dots(left[n : n + 1], right[n : n + 1])[0] for n in range(500)] == together.tolist()
        np.testing.assert_array_equal(row_dots(np.asfortranarray(left), right), together)
        np.testing.assert_array_equal(row_dots(left[::3], right[::3]), together[::3])


def test_a_unit_vector_does_not_depend_on_the_rows_around_it() -> None:
    rows = random_vectors(9_000, 5, 3)
    together = unit_vectors(rows, "rows")
    np.testing.assert_array_equal(unit_vectors(np.asfortranarray(rows), "rows"), together)
    for number in (0, 8_191, 8_192, 8_999):
        np.testing.assert_array_equal(unit_vectors(rows[number : number + 1], "rows")[0], together[number])


def test_scores_are_multiples_of_a_step_within_one() -> None:
    units = unit_vectors(random_vectors(2_000, 3, 4), "rows")
    left = np.concatenate([np.arange(2_000), np.arange(1_000)])
    right = np.concatenate([np.arange(2_000), np.arange(2_000, 4_000)[1_000:]])
    scores = exact_scores(units, np.concatenate([units, -units]), left, right)
    assert scores.max() == 1.0
    assert scores.min() >= -1.0
    np.testing.assert_array_equal(np.rint(scores * 2.0**24), scores * 2.0**24)
    one = np.eye(2, dtype=np.float32)
    assert not np.signbit(exact_scores(-one, one, np.array([0, 1]), np.array([1, 0]))).any()


def test_the_margin_covers_twice_what_float32_kernels_lose() -> None:
    """The worst order of summation: one running float32 sum over numbers of one sign."""
    for dimension in (16, 256, 3072):
        rows = unit_vectors(np.abs(random_vectors(50, dimension, 5)) + 1, "rows")
        running = np.cumsum(rows * rows[0], axis=1, dtype=np.float32)[:, -1]
        lost = np.abs(running - row_dots(rows.astype(float), np.tile(rows[0].astype(float), (50, 1)))).max()
        assert 0 < 2 * lost < score_margin(dimension)


def test_the_best_are_cut_from_pairs_given_in_any_order() -> None:
    parts = [
        (np.array([1, 0]), np.array([3, 3]), np.array([0.5, 0.5], np.float32)),
        (np.array([0, 0, 0]), np.array([0, 1, 2]), np.array([0.5, 0.25, 0.5], np.float32)),
    ]
    for given in (parts, parts[::-1]):
        best = BestPairs(3, 2)
        for part in given:
            best.add(*part)
        found = best.ranking()
        assert (found.searches.tolist(), found.chunks.tolist()) == ([0, 0, 1], [0, 2, 3])
        assert found.scores.tolist() == [0.5, 0.5, 0.5]
