"""The gate: fails for a certified drop, warns of a suspected one, and fails for a configuration without scores."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flows.deployments import read_deployments
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.sweep_settings import SearchRecord
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.gate import MAX_DROP, MOST_GAINED, baseline_power, large_allowance, run_gate
from rag_eval.results.run_scores import SCORES_FILE
from rag_eval.stats.significance import certified_p_values, holm, rise_p_values
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run, write_data

METRIC = "span_recall@3"


def test_a_certified_drop_fails_a_suspected_one_warns_and_an_unsure_one_passes(store: Store) -> None:
    bad = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02)
    assert [check.answer for check in bad.checks] == ["FAIL", "FAIL"]
    assert (bad.answer, bad.passed) == ("FAIL", False)
    assert bad.verdict == "FAIL: 2 configurations dropped by more than 0.02."
    assert bad.terms == "60 questions with an answer in both runs, about 12 documents; span_recall@3 may drop by 0.02"
    assert bad.checks[1].drop == pytest.approx(0.3)
    assert bad.checks[1].changed == 18
    assert bad.checks[1].low is not None
    assert 0.02 < bad.checks[1].low < 0.3
    # An allowance that the drop exceeds by too little to be certain.
    close = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.155)
    assert [check.answer for check in close.checks] == ["WARN", "WARN"]
    assert (close.answer, close.passed) == ("WARN", True)
    assert close.verdict == (
        "WARN: 2 configurations probably dropped by more than 0.155, which is not certain; "
        "this does not fail the build."
    )
    strict = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.155, fail_on_warn=True)
    assert (strict.answer, strict.passed) == ("WARN", False)
    assert strict.verdict.endswith("which is not certain; this fails the build (--fail-on-warn).")
    # 0.05 is more than 0.02, and three lost queries may be chance.
    slight = run_gate(store.workspace, store.good, store.slightly_worse, METRIC, 0.02, fail_on_warn=True)
    assert (slight.answer, slight.passed) == ("PASS", True)
    assert slight.verdict == "PASS: 2 configurations dropped by more than 0.02, but not significantly."
    assert slight.checks[1].drop == pytest.approx(0.05)


def test_the_least_drop_that_can_fail_is_one_of_all_documents_alike(store: Store) -> None:
    found = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02, configurations=[LARGE_NAME])
    assert found.least_certified == pytest.approx(0.02 + MOST_GAINED * (20 ** (1 / 12) - 1))
    assert found.power == (
        "With 12 documents and 1 configuration only a drop of 0.105 or more can fail; a smaller one can warn."
    )
    assert found.assumption == (
        "FAIL rests on Gaffke's bound, which is conjectured, not proven, and assumes that no document of average size "
        "gains more than 0.300 beyond the allowance."
    )
    for more, p in ((0.002, "below"), (-0.002, "above")):
        beyond = np.full((1, 12), found.least_certified - 0.02 + more)
        (value,) = certified_p_values(beyond, MOST_GAINED, np.random.default_rng(0), 200_000)
        assert (value < 0.05) == (p == "below")
    assert baseline_power(store.workspace, store.good).startswith("With 12 documents and 2 configurations only a drop")


def test_configurations_that_lost_the_same_are_one_hypothesis(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    alike = [RecursiveTokenChunker(chunk_size=size) for size in (500, 600, 700, 800)]  # each document is one chunk
    config = write_data(tmp_path).model_copy(update={"chunkers": alike})
    good, bad = make_run(workspace, config), make_run(workspace, config, lost=0.3)
    together = run_gate(workspace, good, bad, METRIC, 0.02).checks
    (alone,) = run_gate(workspace, good, bad, METRIC, 0.02, configurations=[together[0].configuration]).checks
    assert [check.p_suspected for check in together] == [alone.p_suspected] * 4
    assert [check.p_certified for check in together] == [alone.p_certified] * 4


def test_a_drop_within_the_allowance_passes_however_sure_it_is(store: Store) -> None:
    assert run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.29).passed
    assert not run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.0).passed


def test_an_allowance_of_the_size_of_the_scores_is_warned_of(store: Store) -> None:
    found = run_gate(store.workspace, store.good, store.slightly_worse, METRIC, 0.4)
    assert found.warning == (
        "A drop of 0.4 is large beside the span_recall@3 of 2 of 2 configurations, the lowest 0.983: "
        "allow less, such as --max-drop 0.02."
    )
    assert run_gate(store.workspace, store.good, store.slightly_worse, METRIC).warning == ""
    assert "of 1 of 2 configurations, the lowest 0.030: allow less, such as --max-drop 0.002." in large_allowance(
        "span_iou@2000tokens", [0.03, 0.1], 0.02
    )
    assert large_allowance("tokens_retrieved@3", [10.0], 5) == ""  # a rise may well be a multiple
    assert "such as" not in large_allowance(METRIC, [0.0], 0.02)


def test_the_same_scores_and_better_ones_pass(store: Store) -> None:
    same = run_gate(store.workspace, store.good, store.good, METRIC, 0.0)
    assert same.passed
    assert {(check.p_certified, check.p_suspected, check.drop, check.changed) for check in same.checks} == {
        (1, 1, 0, 0)
    }
    risen = run_gate(store.workspace, store.much_worse, store.good, METRIC, 0.0)
    assert risen.passed
    assert risen.checks[0].drop < 0


def test_what_rounding_takes_away_is_no_drop(own_store: Store) -> None:
    path = own_store.workspace.runs / own_store.slightly_worse.run / SCORES_FILE
    table = pq.read_table(own_store.workspace.runs / own_store.good.run / SCORES_FILE)
    less = pc.subtract(table.column("value"), 1e-15)
    pq.write_table(table.set_column(7, table.schema.field("value"), less), path)
    found = run_gate(own_store.workspace, own_store.good, own_store.slightly_worse, METRIC, 0.0)
    assert found.passed
    assert {(check.p_certified, check.p_suspected, check.changed) for check in found.checks} == {(1, 1, 0)}
    # A drop of just what is allowed: in a computer 0.8 - 0.7 is more than 0.1.
    for run, value in ((own_store.good, 0.8), (own_store.slightly_worse, 0.7)):
        path = own_store.workspace.runs / run.run / SCORES_FILE
        same = pa.array(np.full(table.num_rows, value))
        pq.write_table(table.set_column(7, table.schema.field("value"), same), path)
    assert run_gate(own_store.workspace, own_store.good, own_store.slightly_worse, METRIC, 0.1).passed
    assert run_gate(own_store.workspace, own_store.good, own_store.slightly_worse, METRIC, 0.099).answer == "WARN"


def test_a_rise_of_costs_is_a_drop(store: Store) -> None:
    risen = run_gate(store.workspace, store.much_worse, store.good, "tokens_retrieved@3", 1)
    assert not risen.passed
    assert risen.checks[1].drop > 10
    assert risen.terms.endswith(" in both runs, about 12 documents; tokens_retrieved@3 may rise by 1")
    assert risen.verdict == "FAIL: 2 configurations rose by more than 1."
    assert run_gate(store.workspace, store.good, store.much_worse, "tokens_retrieved@3", 1).passed


def test_p_values_are_adjusted_over_the_configurations_looked_at(store: Store) -> None:
    both = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02)
    alone = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02, configurations=[LARGE_NAME])
    assert [check.configuration for check in alone.checks] == [LARGE_NAME]
    assert both.checks[1].p_suspected == pytest.approx(2 * alone.checks[0].p_suspected)


def test_a_configuration_without_scores_fails_the_gate(own_store: Store) -> None:
    found = run_gate(own_store.workspace, own_store.good, own_store.partly_failed, METRIC, 0.5)
    assert found.missing == {LARGE_NAME: "it failed: no key"}
    assert [check.configuration for check in found.checks] == [SMALL_NAME]
    assert not found.passed
    only = own_store.config.model_copy(update={"chunkers": own_store.config.chunkers[:1]})
    fewer = make_run(own_store.workspace, only)
    gone = run_gate(own_store.workspace, own_store.good, fewer, METRIC, 0.5)
    assert gone.missing[LARGE_NAME].startswith("it is not in the run: ")
    search = SearchRecord(
        objective=METRIC,
        configurations=2,
        estimated={LARGE_NAME: 0.4},
        tokens=1,
        full_tokens=2,
        cost=None,
        full_cost=None,
        notes=[],
    )
    left = run_gate(own_store.workspace, own_store.good, fewer.model_copy(update={"search": search}), METRIC, 0.5)
    assert left.missing[LARGE_NAME].startswith("the guided search left it out: name the others")
    assert run_gate(own_store.workspace, own_store.good, fewer, METRIC, 0.5, configurations=[SMALL_NAME]).passed
    nothing = make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME, LARGE_NAME])
    empty = run_gate(own_store.workspace, own_store.good, nothing, METRIC, 0.5)
    assert set(empty.missing) == {SMALL_NAME, LARGE_NAME}
    assert (empty.queries, empty.units, empty.power, empty.checks) == (0, 0, "", [])
    assert (empty.terms, empty.verdict) == (
        "span_recall@3 may drop by 0.5",
        "FAIL: 2 configurations without scores.",
    )


def test_a_configuration_with_another_name_is_gated_as_a_pair(own_store: Store) -> None:
    chunkers = [own_store.config.chunkers[0], RecursiveTokenChunker(chunk_size=120)]
    changed = make_run(own_store.workspace, own_store.config.model_copy(update={"chunkers": chunkers}))
    new_name = LARGE_NAME.replace("90", "120")
    pairs = [SMALL_NAME, f"{LARGE_NAME}={new_name}"]
    pair = run_gate(own_store.workspace, own_store.good, changed, METRIC, configurations=pairs)
    assert [check.configuration for check in pair.checks] == [SMALL_NAME, f"{LARGE_NAME} → {new_name}"]
    assert (pair.passed, pair.missing) == (True, {})
    twice = [SMALL_NAME, f"{LARGE_NAME}={SMALL_NAME}"]
    with pytest.raises(ConfigurationError, match="names a configuration twice"):
        run_gate(own_store.workspace, own_store.good, changed, METRIC, configurations=twice)


def test_without_an_allowance_a_metric_may_drop_by_that_of_the_nightly_run(store: Store) -> None:
    assert run_gate(store.workspace, store.good, store.good, METRIC).max_drop == 0.02
    nightly = next(spec for spec in read_deployments() if spec["name"] == "nightly")
    assert nightly["parameters"]["max_drop"] == MAX_DROP


def test_what_cannot_be_tested_is_said(store: Store) -> None:
    arguments = (store.workspace, store.good, store.much_worse)
    with pytest.raises(ConfigurationError, match="use 0 or more, such as"):
        run_gate(*arguments, METRIC, -0.1)
    for nothing in (math.nan, math.inf):
        with pytest.raises(ConfigurationError, match="use 0 or more, such as"):
            run_gate(*arguments, METRIC, nothing)
    with pytest.raises(
        ConfigurationError, match=r"by 'recall@3' \(did you mean span_recall@3\?\): use one of .* others"
    ):
        run_gate(*arguments, "recall@3", 0.1)
    # Nor is a pair of which one run has only one half.
    for unknown in ("markdown", f"{LARGE_NAME}=markdown", f"markdown={LARGE_NAME}"):
        with pytest.raises(ConfigurationError, match=f"there is no configuration '{unknown}'.*: use one of"):
            run_gate(*arguments, METRIC, 0.1, configurations=[unknown])


def test_other_data_is_refused_unless_allowed(own_store: Store, tmp_path: Path) -> None:
    other = make_run(own_store.workspace, write_data(tmp_path / "other", documents=11))
    with pytest.raises(ConfigurationError, match=r"the corpus differs.*; the ground truth differs"):
        run_gate(own_store.workspace, own_store.good, other, METRIC, 0.02)
    found = run_gate(own_store.workspace, own_store.good, other, METRIC, 0.02, allow_different=True)
    assert len(found.differences) == 2
    assert (found.queries, found.units, found.passed) == (55, 11, True)


def test_so_few_queries_that_nothing_can_be_certified_are_said(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    config = write_data(tmp_path, documents=2, queries=2)
    good, bad = make_run(workspace, config), make_run(workspace, config, lost=1)
    found = run_gate(workspace, good, bad, METRIC, 0.0)
    assert (found.units, found.unit, found.most_gained) == (4, "queries", 1)  # a single query can gain all
    assert found.answer != "FAIL"
    assert found.power == (
        "With 4 questions and 2 configurations this gate can warn, not certify: no drop is large enough to fail."
    )
    assert baseline_power(workspace, good) == found.power


@pytest.mark.parametrize(("units", "tests"), [(8, 1), (14, 12), (40, 12)])
def test_a_drop_of_the_allowance_is_seldom_certified(units: int, tests: int) -> None:
    """Most documents stay the same and a few drop: where few documents are drawn, the sensitive test errs."""
    rng, failed, suspected, draws = np.random.default_rng(20240711), 0, 0, 200
    for _ in range(draws):
        lost = np.where(rng.random((tests, units)) < 0.1, -0.27, 0.03)  # the mean is 0: at the allowance
        failed += bool((holm(certified_p_values(lost, MOST_GAINED, rng, 2_000)) < 0.05).any())
        suspected += bool((holm(rise_p_values(lost, rng, 1_000)) < 0.05).any())
    assert failed / draws <= 0.05
    assert suspected > failed
