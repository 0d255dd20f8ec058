"""The gate: fails for a drop that is significantly too large, and for a configuration without scores."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy import stats

from flows.deployments import read_deployments
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.sweep_settings import SearchRecord
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.gate import MAX_DROP, fewest_units, gate_units, large_allowance, most_configurations, run_gate
from rag_eval.results.run_scores import SCORES_FILE, read_scores
from rag_eval.stats.significance import holm, sign_flip_p_values
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run, write_data

METRIC = "span_recall@3"


def test_a_sure_drop_fails_and_an_unsure_one_does_not(store: Store) -> None:
    bad = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02)
    assert not bad.passed
    assert [check.passed for check in bad.checks] == [False, False]
    assert bad.terms == "60 questions with an answer in both runs, about 12 documents; span_recall@3 may drop by 0.02"
    assert bad.checks[1].drop == pytest.approx(0.3)
    assert bad.checks[1].changed == 18
    assert bad.checks[1].low is not None
    assert 0.02 < bad.checks[1].low < 0.3
    # 0.05 is more than 0.02, and three lost queries may be chance.
    slight = run_gate(store.workspace, store.good, store.slightly_worse, METRIC, 0.02)
    assert slight.passed
    assert [check.unsure for check in slight.checks] == [True, True]
    assert slight.verdict == "The gate passed: 2 configurations dropped by more than 0.02, but not significantly."
    assert not any(check.unsure for check in bad.checks)
    assert slight.checks[1].drop == pytest.approx(0.05)
    assert slight.checks[1].noticed_from is not None
    assert slight.checks[1].noticed_from > 0.05


def test_the_smallest_drop_that_fails_is_the_allowance_and_a_quantile_of_standard_errors(store: Store) -> None:
    changes = [
        read_scores(store.workspace, run, METRIC).paired(METRIC).subset([LARGE_NAME])
        for run in (store.good, store.slightly_worse)
    ]
    drops = (changes[0].values - changes[1].values)[0].reshape(12, 5).mean(axis=1)  # five queries a document, in order
    error = np.std(drops, ddof=1) / math.sqrt(12)
    (alone,) = run_gate(
        store.workspace, store.good, store.slightly_worse, METRIC, 0.02, configurations=[LARGE_NAME]
    ).checks
    assert alone.noticed_from == pytest.approx(0.02 + stats.t.ppf(0.95, 11) * error)
    # The strictest of two tests asks for half the error; those that lost the same count as one.
    both = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02)
    tests = len({(check.drop, check.changed) for check in both.checks})
    one = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02, configurations=[LARGE_NAME]).checks[0]
    errors = (one.noticed_from - 0.02) / stats.t.ppf(0.95, 11)
    assert both.checks[1].noticed_from == pytest.approx(0.02 + stats.t.ppf(1 - 0.05 / tests, 11) * errors)


def test_configurations_that_lost_the_same_are_one_hypothesis(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    alike = [RecursiveTokenChunker(chunk_size=size) for size in (500, 600, 700, 800)]  # each document is one chunk
    config = write_data(tmp_path).model_copy(update={"chunkers": alike})
    good, bad = make_run(workspace, config), make_run(workspace, config, lost=0.3)
    together = run_gate(workspace, good, bad, METRIC, 0.02).checks
    (alone,) = run_gate(workspace, good, bad, METRIC, 0.02, configurations=[together[0].configuration]).checks
    assert [check.p for check in together] == [alone.p] * 4


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
    assert {(check.p, check.drop, check.changed, check.noticed_from) for check in same.checks} == {(1, 0, 0, None)}
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
    assert {(check.p, check.changed) for check in found.checks} == {(1, 0)}
    # A drop of just what is allowed: in a computer 0.8 - 0.7 is more than 0.1.
    for run, value in ((own_store.good, 0.8), (own_store.slightly_worse, 0.7)):
        path = own_store.workspace.runs / run.run / SCORES_FILE
        same = pa.array(np.full(table.num_rows, value))
        pq.write_table(table.set_column(7, table.schema.field("value"), same), path)
    assert run_gate(own_store.workspace, own_store.good, own_store.slightly_worse, METRIC, 0.1).passed
    assert not run_gate(own_store.workspace, own_store.good, own_store.slightly_worse, METRIC, 0.099).passed


def test_a_rise_of_costs_is_a_drop(store: Store) -> None:
    risen = run_gate(store.workspace, store.much_worse, store.good, "tokens_retrieved@3", 1)
    assert not risen.passed
    assert risen.checks[1].drop > 10
    assert risen.terms.endswith(" in both runs, about 12 documents; tokens_retrieved@3 may rise by 1")
    assert risen.verdict == "The gate failed: 2 configurations rose by more than 1."
    assert run_gate(store.workspace, store.good, store.much_worse, "tokens_retrieved@3", 1).passed


def test_p_values_are_adjusted_over_the_configurations_looked_at(store: Store) -> None:
    both = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02)
    alone = run_gate(store.workspace, store.good, store.much_worse, METRIC, 0.02, configurations=[LARGE_NAME])
    assert [check.configuration for check in alone.checks] == [LARGE_NAME]
    assert both.checks[1].p == pytest.approx(2 * alone.checks[0].p)


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
        cost=0.0,
        full_cost=0.0,
        notes=[],
    )
    left = run_gate(own_store.workspace, own_store.good, fewer.model_copy(update={"search": search}), METRIC, 0.5)
    assert left.missing[LARGE_NAME].startswith("the guided search left it out: name the others")
    assert run_gate(own_store.workspace, own_store.good, fewer, METRIC, 0.5, configurations=[SMALL_NAME]).passed
    nothing = make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME, LARGE_NAME])
    empty = run_gate(own_store.workspace, own_store.good, nothing, METRIC, 0.5)
    assert set(empty.missing) == {SMALL_NAME, LARGE_NAME}
    assert (empty.queries, empty.units, empty.can_fail, empty.checks) == (0, 0, True, [])
    assert (empty.terms, empty.verdict) == (
        "span_recall@3 may drop by 0.5",
        "The gate failed: 2 configurations without scores.",
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


def test_so_few_queries_that_nothing_can_be_shown_are_said(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    config = write_data(tmp_path, documents=2, queries=2)
    good, bad = make_run(workspace, config), make_run(workspace, config, lost=1)
    found = run_gate(workspace, good, bad, METRIC, 0.0)
    assert (found.units, found.unit) == (4, "queries")
    assert found.passed
    assert not found.can_fail
    assert run_gate(workspace, good, good, METRIC, 0.0, configurations=[SMALL_NAME]).can_fail is False


def test_the_fewest_units_are_those_with_which_a_drop_everywhere_is_sure() -> None:
    assert [fewest_units(configurations) for configurations in (1, 3, 6, 12, 18, 25)] == [5, 6, 7, 8, 9, 9]
    assert [most_configurations(units) for units in (1, 4, 5, 6, 7, 9)] == [0, 0, 1, 3, 6, 25]
    for configurations in range(1, 60):
        units = fewest_units(configurations)
        drops = np.ones((configurations, units))
        p_values = sign_flip_p_values(drops, np.random.default_rng(0), "greater")
        assert holm(p_values)[0] < 0.05
        fewer = sign_flip_p_values(drops[:, 1:], np.random.default_rng(0), "greater")
        assert holm(fewer)[0] >= 0.05
        assert most_configurations(units) >= configurations > most_configurations(units - 1)


def test_what_a_gate_flips_is_known_from_the_baseline(store: Store) -> None:
    units = gate_units(store.workspace, store.good)
    found = run_gate(store.workspace, store.good, store.good, METRIC, 0.0)
    assert (units.count, units.kind) == (found.units, found.unit) == (12, "documents")


def test_two_questions_tell_from_where_on_a_drop_is_noticed_and_one_does_not(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    checks = []
    for documents in (1, 2):
        config = write_data(tmp_path / str(documents), documents=documents, queries=1)
        good, bad = make_run(workspace, config), make_run(workspace, config, lost=1 / 3)
        found = run_gate(workspace, good, bad, METRIC, 0.02, configurations=[LARGE_NAME])
        assert found.units == documents
        checks += found.checks
    assert checks[0].noticed_from is None
    assert checks[1].drop == 0.5  # of 1 and 0, whose mean strays by ½
    assert checks[1].noticed_from == pytest.approx(0.02 + stats.t.ppf(0.95, 1) * 0.5)
