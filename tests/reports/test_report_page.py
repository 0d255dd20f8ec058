"""The report in a browser: it draws, filters and compares, says nothing behind the reader's back, and asks nobody."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.report import build_report
from rag_eval.reports.write import keep_report, write_report
from tests.reports.conftest import Kept, Opened
from tests.reports.report_runs import run
from tests.reports.test_report_files import BROKEN, SMALL

OpenReport = Callable[..., Opened]


def test_the_page_is_one_small_file_with_a_strict_policy(sample_run: Kept) -> None:
    content = sample_run.page.read_text(encoding="utf-8")
    assert len(content.encode()) < 5_000_000
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    markup = re.sub(r"<script.*?</script>", "", content, flags=re.DOTALL)
    assert not re.search(r"\b(src|href)=\"(?!#)", markup)
    assert not re.search(r"\son\w+=", markup)


def test_it_opens_quietly_and_draws_every_chart(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    assert report.page.locator("h1").inner_text() == "Ship markdown 1000, hybrid."
    assert "73.9 % [" in report.page.locator("#answer").inner_text()
    assert report.page.locator(".ranking tbody tr").count() == 12
    report.draw_charts()
    assert report.page.locator("figure").count() == 5
    for drawing in report.page.locator("figure .drawing").all():
        assert drawing.locator("svg path, svg rect").count() > 20
    report.page.locator("figure select").first.select_option("10")
    report.page.locator("figure .drawing[data-drawn='2']").first.wait_for()
    report.page.locator("figure summary").first.click()
    assert report.page.locator("figure details table tbody tr").count() == 12
    assert report.messages == []
    assert report.requests == [sample_run.page.as_uri()]


def test_questions_are_filtered_searched_and_sorted(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    assert report.page.locator("#count").inner_text() == "72 questions"
    scores = report.page.locator("#list .row .score:first-child > :last-child").all_inner_texts()
    assert scores == sorted(scores)
    report.choose("search", "ferry")
    assert all("ferry" in question.lower() for question in report.questions())
    report.choose("search", "no such word")
    assert report.questions() == []
    assert report.page.locator("#nothing").is_visible()
    report.choose("search", "")
    report.choose("shown", "unanswerable")
    assert report.page.locator("#count").inner_text() == "2 of 72 questions"
    report.choose("shown", "all")
    report.page.locator("#document").select_option(label="phrasebook.md")
    asked = sum("phrasebook.md" in line for line in sample_run.outcome.ground_truth.path.read_text().splitlines())
    assert report.page.locator("#count").inner_text() == f"{asked} of 72 questions"
    report.page.locator("#document").select_option(label="Any document")
    report.choose("order", "differ")
    rows = [row.locator(".score > :last-child").all_inner_texts() for row in report.page.locator("#list .row").all()]
    gaps = [abs(float(a) - float(b)) for a, b in rows]
    assert gaps[0] == 1.0
    assert gaps == sorted(gaps, reverse=True)


def test_two_configurations_stand_side_by_side(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    page = report.page
    page.locator("#side-b").select_option(label="recursive-token 300/0, vector")
    page.locator("#question .sides .side >> nth=1").get_by_text("recursive-token 300/0, vector").wait_for()
    left, right = page.locator("#question .document .columns").first.locator(".text").all()
    boxes = left.bounding_box(), right.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert abs(boxes[0]["y"] - boxes[1]["y"]) < 2
    names = page.locator("#question .side h4").all_inner_texts()
    page.locator("#swap").click()
    page.wait_for_function("before => document.querySelector('#question .side h4').innerText !== before", arg=names[0])
    swapped = [name[2:].strip() for name in page.locator("#question .side h4").all_inner_texts()]
    assert swapped == [name[2:].strip() for name in reversed(names)]
    page.locator("#side-b").select_option("-1")
    page.wait_for_function("() => document.querySelectorAll('#question .side').length === 1")
    assert page.locator("#order option").count() == 3
    assert report.messages == []


def test_it_works_by_keyboard_and_tells_what_it_does(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    page = report.page
    page.locator("#list").focus()
    first = page.locator("#question h3").inner_text()
    page.keyboard.press("ArrowDown")
    second = page.locator("#question h3").inner_text()
    assert second != first
    selected = page.locator("#list [aria-selected=true]")
    assert selected.get_attribute("aria-posinset") == "2"
    assert page.locator("#list").get_attribute("aria-activedescendant") == selected.get_attribute("id")
    page.keyboard.press("End")
    assert page.locator("#list [aria-selected=true]").get_attribute("aria-posinset") == "72"
    page.wait_for_url("**#q=query_*")
    reopened = open_report(sample_run.page)
    reopened.page.goto(page.url)
    reopened.page.wait_for_selector("#question[data-drawn]")
    assert reopened.page.locator("#question h3").inner_text() == page.locator("#question h3").inner_text()
    for control in page.locator("button:visible, select:visible, input:visible").all():
        named = control.evaluate("e => e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || e.placeholder")
        assert named.strip(), control.evaluate("e => e.outerHTML")


def test_gaps_open_on_both_sides_and_the_address_names_the_question(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    columns = report.page.locator("#question .document .columns").first
    before = columns.locator(".gap").count()
    assert before >= 2
    length = len(columns.inner_text())
    columns.locator(".gap").first.click()
    assert columns.locator(".gap").count() == before - 2
    assert len(columns.inner_text()) > length


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_phone_shows_it_without_sideways_scrolling(sample_run: Kept, open_report: OpenReport, colours: str) -> None:
    report = open_report(sample_run.page, viewport={"width": 390, "height": 844}, color_scheme=colours)
    report.draw_charts()
    assert report.page.evaluate("document.documentElement.scrollWidth") == 390
    ground, ink = report.page.evaluate(
        "(({ backgroundColor, color }) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    light, dark = "rgb(255, 255, 255)", "rgb(17, 21, 27)"
    assert ground == (light if colours == "light" else dark)
    assert ink != ground
    report.page.locator("#colours").click()
    report.page.locator("figure .drawing[data-drawn='2']").first.wait_for()
    ground = report.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == (dark if colours == "light" else light)
    assert report.messages == []


def test_a_run_that_failed_whole_says_so(open_report: OpenReport, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    kept = Kept(workspace, run(SMALL.model_copy(update={"chunkers": [BROKEN]}), workspace))
    keep_report(workspace, kept.outcome)
    report = open_report(kept.page, shows=".alive #failures")
    assert "must be smaller" in report.page.locator("#failures").inner_text()
    assert report.page.locator("main > section:visible").count() == 3
    assert report.messages == []


ODD = [
    ["precision_omega", "chroma_iou@min"],
    ["chroma_recall@min", "span_recall(cl100k_base)", "tokens_retrieved"],
    ["tokens_retrieved"],
    ["span_mrr"],
]


@pytest.mark.parametrize("metrics", ODD)
def test_any_metrics_make_a_report(open_report: OpenReport, tmp_path: Path, metrics: list[str]) -> None:
    config = SMALL.model_copy(update={"metrics": metrics, "k": [1, 5], "retrieval": ["bm25", "vector"]})
    workspace = Workspace(root=tmp_path)
    kept = Kept(workspace, run(config, workspace))
    keep_report(workspace, kept.outcome)
    report = open_report(kept.page)
    report.draw_charts()
    names = [name.partition("@")[0] if name[-1].isdigit() else name for name in kept.outcome.configurations[0].metrics]
    assert report.page.locator("#metric option").all_inner_texts() == list(dict.fromkeys(names))
    assert report.page.locator("#metric").input_value() == metrics[0]
    assert report.messages == []


def test_another_run_stands_beside_it(sample_run: Kept, open_report: OpenReport, tmp_path: Path) -> None:
    workspace, outcome = sample_run.workspace, sample_run.outcome
    path = tmp_path / "against.html"
    write_report(workspace, build_report(workspace, outcome, against=outcome), path)
    report = open_report(path)
    assert "none of 12 configurations shows a difference" in report.page.locator("#against").inner_text()
    labels = report.page.locator("#side-b option").all_inner_texts()
    assert f"markdown 1000, hybrid (in {outcome.run})" in labels
    assert len(labels) == 25
    assert report.messages == []
