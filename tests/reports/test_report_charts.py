"""The numbers behind the charts: where lines end, who is first over which budgets, and names that are long."""

import numpy as np
import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.strip import Strip
from rag_eval.results.run_scores import read_scores
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.reports.conftest import Kept, run_and_report

# Both of the large sizes leave every document whole.
SIZES = (100_000, 200_000, 400)
CONFIG = BenchmarkConfig(
    objective="span_recall@3",
    corpus=CORPUS,
    ground_truth=GROUND_TRUTH,
    chunkers=[RecursiveCharacterChunker(chunk_size=size, chunk_overlap=0) for size in SIZES],
    retrieval=["bm25"],
    k=[1, 3],
    metrics=["span_recall", "span_precision", "tokens_retrieved"],
)


@pytest.fixture(scope="module")
def tied_run(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return run_and_report(tmp_path_factory.mktemp("tied"), CONFIG)


@pytest.fixture(scope="module")
def tied(tied_run: Kept) -> Report:
    return build_report(tied_run.workspace, tied_run.outcome)


def test_a_line_ends_where_the_fetched_hits_do(tied_run: Kept, tied: Report) -> None:
    scores = read_scores(tied_run.workspace, tied_run.outcome)
    curves = tied.charts["curves"]
    ended = 0
    for name, points in zip(tied.charts["configurations"], curves["lines"], strict=True):
        fetched = scores.paired("tokens_fetched").subset([name]).values[0]
        for budget, point in zip(curves["budgets"], points, strict=True):
            values = scores.paired(f"recall_within_tokens@{budget}").subset([name]).values[0]
            if np.mean(fetched <= budget) > 0.05:
                assert point is None
                ended += 1
            else:
                assert point[0] == pytest.approx(values.mean(), abs=1e-5)
                assert point[1] <= point[0] <= point[2]
    assert ended


def test_a_lane_for_those_that_are_first_somewhere() -> None:
    budgets, first = [250, 500, 1_000, 2_000], ["a", "b", "b", None]
    among = [["a", "b"], ["b"], ["a", "b"], []]
    curves = {name: [0.5] * 4 for name in "ab"}
    strip = Strip("recall_within_tokens", 500, budgets, curves, curves, curves, first, among)
    a, b = strip.lanes("b")
    assert (a["name"], b["name"]) == ("a", "b")
    # Up to the middle between two budgets, on a scale of doublings.
    assert a == {"name": "a", "first": [(250, 353.6)], "tied": [(250, 353.6), (707.1, 1414.2)]}
    assert b["first"] == [(353.6, 1414.2)]
    assert strip.safe_budgets("b", 500) == (250, 1_000)
    assert strip.safe_budgets("a", 500) is None
    assert strip.safe_budgets("b", None) is None


def test_beside_the_best_stands_the_best_that_finds_something_else(tied: Report) -> None:
    assert tied.overlay is not None
    _, second = tied.overlay.manifest["opened"]
    assert tied.overlay.manifest["configurations"][second]["name"] == "recursive-character 400/0, bm25"
