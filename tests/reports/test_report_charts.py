"""The numbers behind the charts: where lines end, who is first over which budgets, and names that are long."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.charts import lanes_of, safe_budgets
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.strip import Strip
from rag_eval.reports.wording import copies_note
from rag_eval.reports.write import keep_report
from rag_eval.results.run_scores import read_scores
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.chain import run_benchmark
from tests.reports.conftest import Kept, Opened
from tests.results.made_runs import write_data

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
    workspace = Workspace(root=tmp_path_factory.mktemp("tied"))
    kept = Kept(workspace, run_benchmark(workspace, CONFIG))
    keep_report(workspace, kept.outcome)
    return kept


@pytest.fixture(scope="module")
def tied(tied_run: Kept) -> Report:
    return build_report(tied_run.workspace, tied_run.outcome)


def test_a_line_ends_where_the_fetched_hits_do(tied_run: Kept, tied: Report) -> None:
    scores = read_scores(tied_run.workspace, tied_run.outcome)
    curves = tied.charts["curves"]
    ended = 0
    for one, points in zip(tied.charts["configurations"], curves["lines"], strict=True):
        fetched = scores.paired("tokens_fetched").subset([one["name"]]).values[0]
        for budget, point in zip(curves["budgets"], points, strict=True):
            values = scores.paired(f"recall_within_tokens@{budget}").subset([one["name"]]).values[0]
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
    strip = Strip("recall_within_tokens", budgets, curves, curves, curves, first, among)
    a, b = lanes_of(strip, "b")
    assert (a["name"], b["name"]) == ("a", "b")
    # Up to the middle between two budgets, on a scale of doublings.
    assert a == {"name": "a", "first": [(250, 353.6)], "tied": [(250, 353.6), (707.1, 1414.2)]}
    assert b["first"] == [(353.6, 1414.2)]
    assert safe_budgets(strip, "b", 500) == (250, 1_000)
    assert safe_budgets(strip, "a", 500) is None
    assert safe_budgets(strip, "b", None) is None


@pytest.mark.parametrize(
    ("spans", "sentence"), [(1, "1 relevant span of 1 question occurs"), (2, "spans of 1 question occur ")]
)
def test_a_copy_occurs_and_copies_occur(tied_run: Kept, spans: int, sentence: str) -> None:
    (note,) = copies_note(tied_run.outcome.model_copy(update={"copied_spans": spans, "copied_questions": 1}))
    assert sentence in note


def test_columns_in_which_nothing_took_anything_are_left_out(tied_run: Kept) -> None:
    table = tied_run.page.read_text(encoding="utf-8").split('<table class="ranking">')[1]
    headings = table.split("<thead>")[1].split("</thead>")[0]
    for shown in ("configuration", "chunks", "characters", "tokens a question"):
        assert f">{shown}<" in headings
    for empty in ("cost $", "tokens read", "index"):
        assert f">{empty}<" not in headings


OUTSIDE = """() => [...document.querySelectorAll(".drawing svg text")].filter((text) => {
  const [box, frame] = [text, text.closest("figure")].map((one) => one.getBoundingClientRect());
  return box.right > frame.right + 8 || box.left < frame.left - 8;
}).map((text) => text.textContent)"""


def test_beside_the_best_stands_the_best_that_finds_something_else(
    tied_run: Kept, open_report: Callable[..., Opened]
) -> None:
    page = open_report(tied_run.page).page
    assert page.locator("#side-b option:checked").inner_text() == "recursive-character 400/0, bm25"


@pytest.mark.parametrize("width", [1440, 390])
def test_long_names_stay_inside(tmp_path: Path, open_report: Callable[..., Opened], width: int) -> None:
    separators = ["\n\n", "\n", ". ", ", ", " ", ""]
    long = [
        RecursiveCharacterChunker(chunk_size=size, chunk_overlap=0, separators=separators) for size in (80, 120, 160)
    ]
    config = write_data(tmp_path).model_copy(update={"chunkers": long, "objective": "recall_within_tokens@2000"})
    kept = Kept(workspace := Workspace(root=tmp_path / "work"), run_benchmark(workspace, config))
    keep_report(workspace, kept.outcome)
    page = open_report(kept.page, viewport={"width": width, "height": 900}).page
    assert page.locator(".drawing svg text").count() > 20
    assert page.evaluate(OUTSIDE) == []
