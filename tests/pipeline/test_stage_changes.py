"""The stage that loses more than before is named, and none is where nothing is wrong."""

from pathlib import Path

import numpy as np
import pytest

from rag_eval.metrics.metric import Values
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import compare_runs
from rag_eval.results.run_losses import StageChange, compare_stages, drop_sentences, named_stage
from rag_eval.stats.paired_scores import Units
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, make_run, write_data

QUERIES, HIT = 400, 40
STAGES = ("uncovered", "boundary", "search (vector)", "search (words)", "fusion", "reranker")


def two_runs(rng: np.random.Generator, drop: float, stage: str) -> tuple[dict[str, Values], dict[str, Values]]:
    """Losses that change by chance in one query of twenty, as often up as down; one stage loses more in 40 queries."""
    before = {name: rng.choice([0.0, 0.5, 1.0], QUERIES, p=[0.8, 0.1, 0.1]) for name in STAGES}
    changes = {name: rng.choice([-0.5, 0.0, 0.5], QUERIES, p=[0.025, 0.95, 0.025]) for name in STAGES[2:]}
    after = {name: values + changes.get(name, 0.0) for name, values in before.items()}
    after[stage] = after[stage].copy()
    after[stage][rng.choice(QUERIES, HIT, replace=False)] += drop * QUERIES / HIT
    return before, after


def named(drop: float, trials: int, seed: int) -> list[str | None]:
    units, rng = Units("queries", np.arange(QUERIES), QUERIES), np.random.default_rng(seed)
    found = []
    for trial in range(trials):
        stage = STAGES[2 + trial % 4]
        one = named_stage(compare_stages(*two_runs(rng, drop, stage), units, rng))
        found.append(None if one is None else "right" if one.stage == stage else one.stage)
    return found


@pytest.mark.parametrize(("drop", "least"), [(0.10, 38), (0.05, 36), (0.02, 24)])
def test_a_planted_defect_is_found_in_its_stage(drop: float, least: int) -> None:
    assert named(drop, 40, seed=1).count("right") >= least


def test_nothing_is_named_where_nothing_is_wrong() -> None:
    assert named(0.0, 40, seed=2).count(None) >= 38


def test_a_stage_that_does_not_change_asks_for_no_correction_and_is_never_named() -> None:
    same = np.array([0.5, 0.0, 1.0, 0.25] * 5)
    worse = same + 0.1
    units = Units("queries", np.arange(20), 20)
    found = compare_stages(
        {"uncovered": same, "reranker": same, "gone": same}, {"uncovered": same, "reranker": worse}, units,
        np.random.default_rng(0),
    )  # fmt: skip
    assert [one.stage for one in found] == ["uncovered", "reranker"]
    assert (found[0].p, found[0].p_adjusted) == (1, 1)
    assert found[1].p == found[1].p_adjusted
    assert found[1].growth == pytest.approx(0.1)
    assert named_stage(found) is found[1]
    better = compare_stages({"reranker": worse}, {"reranker": same}, units, np.random.default_rng(0))
    assert named_stage(better) is None
    assert named_stage([StageChange("search", 0.1, 0.2, 0.01, 0.05)]) is None


def test_a_search_that_loses_hits_is_named_of_two_real_runs(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path)
    before, same, worse = (make_run(workspace, config, lost=lost) for lost in (0, 0, 0.3))
    assert drop_sentences(workspace, compare_runs(workspace, before, same)) == []
    assert drop_sentences(workspace, compare_runs(workspace, worse, before)) == []
    compared = compare_runs(workspace, before, worse)
    for row, sentence in zip(compared.by_metric("span_recall@3"), drop_sentences(workspace, compared), strict=True):
        # All that these runs lose is lost by the one search, so that the loss is the whole drop.
        lost = f"{row.name}: the drop is in: search (words), which loses {-row.comparison.difference:.3f} more"
        assert sentence.startswith(lost)
    for one in before.configurations:
        (workspace.root / one.hits.uri).unlink()
    told = drop_sentences(workspace, compare_runs(workspace, before, worse))
    assert {one.split(":")[0] for one in told} == {SMALL_NAME, LARGE_NAME}
    assert all("the stage of the drop is unknown: " in one and ".arrow" in one for one in told)
