"""How many documents a difference takes to be significant: against simulated tests."""

import numpy as np
import pytest

from rag_eval.stats.paired_scores import Units
from rag_eval.stats.significance import documents_needed, sign_flip_p_values


def pilot(documents: int, queries: int, mean: float, within: float = 0.5) -> tuple[np.ndarray, Units]:
    rng = np.random.default_rng(documents)
    strays = rng.normal(0, 0.1, (documents, 1)) + rng.normal(0, within, (documents, queries))
    units = Units("documents", np.repeat(np.arange(documents), queries), documents)
    return (strays - strays.mean()).ravel() + mean, units


@pytest.mark.parametrize("mean", [0.08, 0.12])
def test_the_power_of_the_sign_flip_test_with_so_many_documents_is_80_percent(mean: float) -> None:
    documents = documents_needed(*pilot(3_000, 5, mean))
    assert documents is not None
    rng = np.random.default_rng(1)
    sums = (mean + rng.normal(0, 0.1, (600, documents)) + rng.normal(0, 0.5 / 5**0.5, (600, documents))) * 5
    assert np.mean(sign_flip_p_values(sums, rng, "greater", 999) < 0.05) == pytest.approx(0.8, abs=0.06)


def test_more_tests_and_smaller_differences_need_more_documents() -> None:
    plain, more_tests, smaller = (
        documents_needed(*pilot(200, 5, mean), tests) for mean, tests in ((0.05, 1), (0.05, 12), (0.04, 1))
    )
    assert plain is not None
    assert more_tests is not None
    assert smaller is not None
    assert plain < min(more_tests, smaller)


def test_a_small_pilot_counts_with_more_variance_than_it_shows() -> None:
    values = np.array([0.0, 0.2, 0.1, 0.4, -0.1, 0.3])
    few, many = (
        documents_needed(np.tile(values, times), Units("queries", np.arange(6 * times), 6 * times))
        for times in (1, 200)
    )
    assert few is not None
    assert many is not None
    assert few > many


@pytest.mark.parametrize(
    ("values", "units"), [([0.1], 1), ([0.2, 0.2, 0.2], 3), ([-0.1, -0.3, 0.1], 3), ([1e-9, 1.0, -1.0], 3)]
)
def test_there_is_no_number_where_nothing_can_be_learned(values: list[float], units: int) -> None:
    assert documents_needed(np.array(values), Units("queries", np.arange(units), units)) is None
