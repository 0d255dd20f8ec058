"""Plans: the variances of a pilot, and the power of the gate, by formula and by its own test."""

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.stats.power import FEWEST_CHANGED, Pilot, plan_questions
from rag_eval.stats.scores import Units


def made_pilot(documents: int, each: int, between: float = 0.1, within: float = 0.5) -> Pilot:
    rng = np.random.default_rng(documents)
    strays = rng.normal(0, between, (documents, 1)) + rng.normal(0, within, (documents, each))
    return Pilot(strays.ravel(), Units("documents", np.repeat(np.arange(documents), each), documents))


def test_the_variances_are_those_of_documents_and_of_questions() -> None:
    between, within = made_pilot(20_000, 5).variances
    assert between == pytest.approx(0.01, rel=0.1)
    assert within == pytest.approx(0.25, rel=0.03)


def test_with_one_question_a_document_all_of_it_is_between() -> None:
    between, within = made_pilot(20_000, 1).variances
    assert within == 0
    assert between == pytest.approx(0.26, rel=0.05)


def test_a_small_pilot_counts_with_more_than_it_shows() -> None:
    values = np.array([0.0, 0.2, 0.1, 0.4, -0.1, 0.3])
    between, _ = Pilot(values, Units("documents", np.arange(6), 6)).variances
    assert between > 1.5 * values.var(ddof=1)


@pytest.mark.parametrize("documents", [FEWEST_CHANGED, 100])
@pytest.mark.parametrize("drop", [0.05, 0.08])
def test_the_formula_agrees_with_the_gates_own_test(documents: int, drop: float) -> None:
    pilot, rng = made_pilot(3_000, 5), np.random.default_rng(1)
    # The simulation has a standard error of up to 1.6 points.
    assert pilot.power(documents, 5, drop) == pytest.approx(pilot.simulated_power(documents, 5, drop, rng), abs=0.06)


def test_more_tests_need_more_documents_and_larger_drops_fewer() -> None:
    pilot, rng = made_pilot(200, 5), np.random.default_rng(1)
    needed = pilot.documents_needed(5, 0.05, 0.8, rng)
    together, larger = pilot.documents_needed(5, 0.05, 0.8, rng, 12), pilot.documents_needed(5, 0.07, 0.8, rng)
    assert needed is not None
    assert together is not None
    assert larger is not None
    assert larger < needed < together
    assert pilot.power(needed, 5, 0.05) >= 0.8 > pilot.power(needed - 1, 5, 0.05)
    assert pilot.power(needed, 5, pilot.noticed(needed, 5, 0.8)) == pytest.approx(0.8, abs=1e-6)


def test_few_documents_are_planned_by_the_gates_own_test() -> None:
    pilot, rng = made_pilot(60, 5), np.random.default_rng(1)
    needed = pilot.documents_needed(5, 0.3, 0.8, rng)
    assert needed is not None
    assert 6 <= needed < FEWEST_CHANGED


def test_many_together_are_planned_by_the_formula_from_the_documents_on_where_it_holds() -> None:
    pilot = made_pilot(60, 5)
    needed = pilot.documents_needed(10, 0.4, 0.8, np.random.default_rng(1), tests=1_000)
    assert (pilot.fewest(10, 0.4, 0.8, 1_000) or 0) < FEWEST_CHANGED == needed


def test_what_no_number_of_documents_shows() -> None:
    assert made_pilot(60, 5).documents_needed(5, 1e-6, 0.8, np.random.default_rng(1)) is None


def test_a_plan_counts_what_is_allowed() -> None:
    pilot = made_pilot(100, 5)
    found = plan_questions(pilot, 0.07, 0.02, 0.8, np.random.default_rng(1))
    assert (found.questions, found.documents, found.changed) == (500, 100, 100)
    assert found.noticed == pytest.approx(0.02 + pilot.noticed(100, 5, 0.8))
    assert found.needed[5] == pilot.documents_needed(5, 0.07 - 0.02, 0.8, np.random.default_rng(1))


def test_bad_input() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ConfigurationError, match="beyond what is allowed"):
        plan_questions(made_pilot(60, 5), 0.02, 0.02, 0.8, rng)
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        plan_questions(made_pilot(60, 5), 0.05, 0.02, 1.0, rng)
    with pytest.raises(ConfigurationError, match="two documents"):
        Pilot(np.array([0.1, 0.2]), Units("documents", np.array([0, 0]), 1))
    with pytest.raises(ConfigurationError, match="differ by the same"):
        Pilot(np.array([0.1, 0.1]), Units("documents", np.array([0, 1]), 2))
