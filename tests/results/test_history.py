"""Runs over time."""

import json
from pathlib import Path

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.history import history, sparkline
from rag_eval.results.housekeeping import clear
from rag_eval.results.outcome import SUMMARY
from rag_eval.results.run_scores import SCORES_FILE
from rag_eval.results.runs import choose_baseline
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run, write_data


def test_each_run_is_there_with_its_best_configuration_and_interval(own_store: Store) -> None:
    choose_baseline(own_store.workspace, own_store.good.run)
    found = history(own_store.workspace)
    assert found.metric == "span_recall@3"
    assert [entry.run for entry in found.entries] == [run.run for run in own_store.runs]
    assert [entry.configuration for entry in found.entries] == [LARGE_NAME] * 3 + [SMALL_NAME]
    means = [entry.estimate.mean for entry in found.entries if entry.estimate]
    assert means == pytest.approx([1, 0.95, 0.7, 0.983], abs=0.001)
    worst = found.entries[2].estimate
    assert worst is not None
    assert worst.low is not None
    assert worst.low < 0.7
    assert [entry.failures for entry in found.entries] == [0, 0, 0, 1]
    assert [entry.is_baseline for entry in found.entries] == [True, False, False, False]
    assert {entry.data for entry in found.entries} == {"A"}
    assert found.trend() == found.entries


def test_one_configuration_or_another_metric_can_be_followed(store: Store) -> None:
    followed = history(store.workspace, "tokens_retrieved@1", LARGE_NAME)
    assert [entry.configuration for entry in followed.entries] == [LARGE_NAME] * 3 + [None]
    assert len(followed.trend()) == 3
    # Of costs the lowest is the best.
    assert history(store.workspace, "tokens_retrieved@1").entries[0].configuration == SMALL_NAME
    assert history(store.workspace, "recall_within_tokens@4000").entries[0].estimate is not None
    with pytest.raises(
        ConfigurationError,
        match=r"no run shown has scores by 'span_recal@3' \(did you mean span_recall@3\?\): use one of",
    ):
        history(store.workspace, "span_recal@3")
    with pytest.raises(
        ConfigurationError, match=f"no run shown has the configuration 'nope': use one of {SMALL_NAME}; "
    ):
        history(store.workspace, configuration="nope")


def test_the_last_runs_are_shown_and_the_earlier_counted(store: Store) -> None:
    found = history(store.workspace, last=2)
    assert [entry.run for entry in found.entries] == [store.much_worse.run, store.partly_failed.run]
    assert found.earlier == 2
    with pytest.raises(ConfigurationError, match="use 1 or more"):
        history(store.workspace, last=0)


def test_runs_on_other_data_are_marked_and_kept_out_of_the_trend(own_store: Store, tmp_path: Path) -> None:
    make_run(own_store.workspace, write_data(tmp_path / "other", documents=7))
    make_run(own_store.workspace, own_store.config)
    found = history(own_store.workspace)
    assert [entry.data for entry in found.entries] == ["A", "A", "A", "A", "B", "A"]
    assert len(found.trend()) == 5
    assert found.entries[4].documents == 7


def test_the_best_of_another_grid_is_marked_and_kept_out_of_the_trend(own_store: Store) -> None:
    small = own_store.config.model_copy(update={"chunkers": own_store.config.chunkers[:1]})
    fewer = make_run(own_store.workspace, small)
    found = history(own_store.workspace)
    assert [entry.grid for entry in found.entries] == [1, 1, 1, 1, 2]  # one that failed is in the grid all the same
    assert [entry.run for entry in found.trend()] == [fewer.run]
    make_run(own_store.workspace, own_store.config)
    assert len(history(own_store.workspace).trend()) == 5
    # One configuration is the same in every grid.
    followed = history(own_store.workspace, configuration=SMALL_NAME)
    assert {entry.grid for entry in followed.entries} == {None}
    assert len(followed.trend()) == 6


def test_a_run_that_cannot_be_read_is_named_and_passed_over(own_store: Store) -> None:
    path = own_store.workspace.runs / own_store.slightly_worse.run / SUMMARY
    path.write_text(json.dumps({"schema_version": 7}))
    found = history(own_store.workspace)
    assert len(found.entries) == 3
    (problem,) = found.unreadable
    assert "schema_version 7" in problem


@pytest.mark.parametrize(
    ("content", "sentence"), [("{", "is not a baseline"), ('{"run": "gone", "chosen": ""}', "'gone' is missing")]
)
def test_a_broken_baseline_hides_no_run(own_store: Store, content: str, sentence: str) -> None:
    (own_store.workspace.root / "baseline.json").write_text(content)
    found = history(own_store.workspace)
    assert len(found.entries) == 4
    assert not any(entry.is_baseline for entry in found.entries)
    (problem,) = found.unreadable
    assert sentence in problem


def test_when_scores_are_gone_the_summary_still_has_the_means(own_store: Store) -> None:
    clear(own_store.workspace)
    (own_store.workspace.runs / own_store.much_worse.run / SCORES_FILE).unlink()
    entry = history(own_store.workspace).entries[2]
    assert entry.estimate is not None
    assert entry.estimate.mean == pytest.approx(0.7)
    assert entry.estimate.low is None
    assert entry.configuration == LARGE_NAME


def test_a_run_of_failures_has_no_score_and_an_empty_store_says_so(own_store: Store, tmp_path: Path) -> None:
    make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME, LARGE_NAME])
    last = history(own_store.workspace).entries[-1]
    assert (last.configuration, last.estimate, last.failures) == (None, None, 2)
    with pytest.raises(ConfigurationError, match="there is no run yet"):
        history(Workspace(root=tmp_path / "none"))


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0.1, 0.2, 0.8]) == "▁▂█"
    assert sparkline([0.5, 0.5]) == "▅▅"
    assert sparkline([]) == ""
