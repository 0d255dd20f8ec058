"""Configurations that find the same, and metrics of which less is better, in the charts, the table and the list."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.scores import read_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.reports.charts import by_budget
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.verdict import copies_note
from rag_eval.reports.write import keep_report, write_report
from rag_eval.sample import CORPUS, GROUND_TRUTH
from tests.benchmark.made_runs import write_data
from tests.reports.conftest import Kept, Opened
from tests.reports.report_runs import run

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
    kept = Kept(workspace, run(CONFIG, workspace))
    keep_report(workspace, kept.outcome)
    return kept


@pytest.fixture(scope="module")
def tied(tied_run: Kept) -> Report:
    return build_report(tied_run.workspace, tied_run.outcome)


def test_equal_ones_are_rings_around_each_other(tied: Report) -> None:
    charts = {chart.id: chart for chart in tied.charts}
    for name in ("trade-off", "by-k", "by-budget"):
        rings = {row["configuration"].split("/")[0]: (row["ring"], row["equal"]) for row in charts[name].rows}
        assert rings == {
            "recursive-character 100000": (0, 2),
            "recursive-character 200000": (1, 2),
            "recursive-character 400": (0, 1),
        }, name


def test_a_line_ends_where_the_kept_hits_no_longer_fill_the_budget(tied: Report) -> None:
    (chart,) = (chart for chart in tied.charts if chart.id == "by-budget")
    budgets: dict[str, list[int]] = {}
    for row in chart.rows:
        budgets.setdefault(row["chunker"], []).append(row["tokens"])
    # Fifty hits of about 100 tokens fill 4,000; those of a whole document do not fit into 250.
    assert budgets["recursive-character 400/0"] == [250, 500, 1_000, 2_000, 4_000]
    assert budgets["recursive-character 100000/0"][0] == 250


def test_only_budgets_that_are_drawn_have_a_tick(tied_run: Kept) -> None:
    whole = [one for one in tied_run.outcome.ranked() if "100000" in one.name]
    chart = by_budget(whole, read_scores(tied_run.workspace, tied_run.outcome).estimates())
    assert {row["tokens"] for row in chart.rows} == {250, 500, 1_000, 2_000, 4_000, 8_000, 16_000}
    assert '"values": [250, 500, 1000, 2000, 4000, 8000, 16000]' in json.dumps(chart.spec)


@pytest.mark.parametrize(
    ("spans", "sentence"), [(1, "1 relevant span of 1 question occurs"), (2, "spans of 1 question occur ")]
)
def test_a_copy_occurs_and_copies_occur(tied_run: Kept, spans: int, sentence: str) -> None:
    (note,) = copies_note(tied_run.outcome.model_copy(update={"copied_spans": spans, "copied_questions": 1}))
    assert sentence in note


def test_columns_in_which_nothing_took_anything_are_left_out(tied_run: Kept) -> None:
    headings = tied_run.page.read_text(encoding="utf-8").split("<thead>")[1].split("</thead>")[0]
    for shown in ("configuration", "span_<wbr>recall<wbr>@3", "chunks", "characters"):
        assert f">{shown}<" in headings
    for empty in ("cost $", "tokens read", "index"):
        assert f">{empty}<" not in headings


def test_a_chart_that_cannot_be_drawn_takes_nothing_else_with_it(
    tied_run: Kept, tied: Report, open_report: Callable[..., Opened], tmp_path: Path
) -> None:
    first, *others = tied.charts
    broken = replace(first, spec={"mark": "bar", "height": 100, "transform": [{"calculate": "(", "as": "x"}]})
    write_report(tied_run.workspace, replace(tied, charts=[broken, *others]), tmp_path / "broken.html")
    report = open_report(tmp_path / "broken.html")
    figures = report.page.locator("figure")
    figures.first.get_by_text("This chart cannot be drawn. Its numbers are below.").wait_for()
    for place in range(1, len(tied.charts)):
        figures.nth(place).locator(".drawing[data-drawn] svg").wait_for()
    figures.first.locator("summary").click()
    assert figures.first.locator("tbody tr").count() == 3


def test_the_page_shows_ties_and_knows_that_tokens_cost(tied_run: Kept, open_report: Callable[..., Opened]) -> None:
    report = open_report(tied_run.page)
    page = report.page
    report.draw_charts()
    points = page.locator("#chart-trade-off .mark-symbol.role-mark path")
    places = [point.get_attribute("transform") for point in points.all()]
    sizes = [point.evaluate("path => path.getBBox().width") for point in points.all()]
    # The wide ones first, so that the others stand in front of them.
    assert (len(set(places)), sizes) == (2, sorted(sizes, reverse=True))
    assert page.locator("#chart-trade-off .mark-text.role-mark text").all_text_contents() == ["×2"]
    # Beside the best stands the best that finds something else.
    assert page.locator("#side-b").evaluate("select => select.selectedOptions[0].text") == (
        "recursive-character 400/0, bm25"
    )
    assert "A finds a part" in page.locator("#shown option").all_inner_texts()
    report.choose("metric", "span_precision")
    assert "A scores between 0 and 1" in page.locator("#shown option").all_inner_texts()
    report.choose("shown", "part")
    # Of tokens less is better: the worst has most of them, and no share of them was found.
    report.choose("metric", "tokens_retrieved")
    page.wait_for_function("document.querySelector('#count').innerText === '72 questions'")
    assert page.locator("#shown option").all_inner_texts() == [
        "All questions",
        "A beats B",
        "B beats A",
        "Declared unanswerable",
    ]
    first = page.locator("#list .row .score:first-child > :last-child").all_inner_texts()
    tokens = [int(text.replace(",", "")) for text in first]
    assert tokens == sorted(tokens, reverse=True)
    widths = page.locator("#list .row .score:first-child .bar > span").evaluate_all(
        "bars => bars.map(b => b.style.width)"
    )
    assert widths[0] == "100%"
    report.choose("shown", "better")
    assert page.locator("#count").inner_text() == "0 of 72 questions"
    report.choose("shown", "worse")
    assert page.locator("#count").inner_text() == "70 of 72 questions"
    assert report.messages == []


OUTSIDE = """() => [...document.querySelectorAll(".drawing svg .role-legend text")].filter((text) =>
  text.getBoundingClientRect().right > text.closest("svg").getBoundingClientRect().right + 1
).map((text) => text.textContent)"""


def test_long_names_stay_inside_of_the_legend(tmp_path: Path, open_report: Callable[..., Opened]) -> None:
    separators = ["\n\n", "\n", ". ", ", ", " ", ""]
    long = [
        RecursiveCharacterChunker(chunk_size=size, chunk_overlap=0, separators=separators) for size in (80, 120, 160)
    ]
    config = write_data(tmp_path).model_copy(update={"chunkers": long})
    kept = Kept(workspace := Workspace(root=tmp_path / "work"), run(config, workspace))
    keep_report(workspace, kept.outcome)
    report = open_report(kept.page)
    report.draw_charts()
    assert report.page.locator(".drawing svg .role-legend text").count() > 0
    assert report.page.evaluate(OUTSIDE) == []
