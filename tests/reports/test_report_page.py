"""The report in a browser: it draws, filters and compares, says nothing behind the reader's back, and asks nobody."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_eval.benchmark.workspace import Workspace
from rag_eval.reports.report import build_report
from rag_eval.reports.write import keep_report, write_report
from rag_eval.retrieval import RETRIEVER
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
    assert report.page.locator("h1").inner_text() == "By span_recall@5, ship recursive-token 300/0, hybrid"
    assert "79.1 % [" in report.page.locator("#answer").inner_text()
    assert report.page.locator(".ranking tbody tr").count() == 12
    report.draw_charts()
    assert report.page.locator("figure").count() == 5
    for figure in report.page.locator("figure").all():
        title = figure.locator("h3")
        assert figure.get_attribute("aria-labelledby") == title.get_attribute("id")
        drawing = figure.locator("[aria-roledescription=visualization]")
        assert drawing.get_attribute("aria-label") == title.inner_text()
    for box in report.page.locator(".scroll").all():
        assert (box.get_attribute("role"), box.get_attribute("tabindex")) == ("group", "0")
        assert box.get_attribute("aria-label")
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
    question = page.locator("#question h3").inner_text()
    for control in page.locator("button:visible, select:visible, input:visible").all():
        named = control.evaluate("e => e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || e.placeholder")
        assert named.strip(), control.evaluate("e => e.outerHTML")
    # Who follows the link sees the question.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#question[data-drawn]")
    assert page.locator("#question h3").inner_text() == question
    page.wait_for_function("document.querySelector('#questions').getBoundingClientRect().top < 100")


def test_gaps_open_on_both_sides_and_the_address_names_the_question(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page)
    columns = report.page.locator("#question .document .columns").first
    before = columns.locator(".gap").count()
    assert before >= 2
    length = len(columns.inner_text())
    columns.locator(".gap").first.click()
    assert columns.locator(".gap").count() == before - 2
    assert len(columns.inner_text()) > length
    # What was missed is gone to by its count, one stretch after the other.
    report.choose("shown", "part")
    report.page.locator("#list .row").first.click()
    report.page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
    report.page.locator("#question .side button.count.missed").first.click()
    missed = report.page.locator("#question .text mark.missed").first
    missed.evaluate(
        "mark => new Promise((done) => new IntersectionObserver(([e]) => e.isIntersecting && done()).observe(mark))"
    )


def test_a_phone_shows_it_without_sideways_scrolling(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page, viewport={"width": 390, "height": 844}, color_scheme="light")
    page = report.page
    report.draw_charts()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    # What goes on to the right says so, until it has been scrolled there.
    table = page.locator("#ranking .scroll[data-more]")
    assert "Scroll sideways" in page.evaluate(
        "getComputedStyle(document.querySelector('#ranking h2'), '::after').content"
    )
    table.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    page.wait_for_selector("#ranking .scroll:not([data-more])")
    # Who has read to the end of a question gets to the next from there.
    first = page.locator("#question h3").inner_text()
    page.locator("#next-below").click()
    assert page.locator("#question h3").inner_text() != first
    assert page.locator("#question h3").evaluate("e => e.getBoundingClientRect().top") < 844
    assert report.messages == []


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(17, 21, 27)"
GROUND = "getComputedStyle(document.body).backgroundColor"

# The contrast of every text with what is behind it (WCAG 2), below 4.5: [text, ratio].
FAINT = """
() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const channel = (value) => (value <= 0.04045 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((value, i) => value * a + under[i] * (1 - a));
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    return (own[3] ?? 1) === 1 ? own : over(own, behind(element.parentElement));
  };
  const ratio = (x, y) => (Math.max(light(x), light(y)) + 0.05) / (Math.min(light(x), light(y)) + 0.05);
  const faint = [];
  const look = (element, colour, ground) => {
    const found = ratio(over(parse(colour), ground), ground);
    if (found < 4.5) faint.push([element.textContent, found]);
  };
  for (const element of document.querySelectorAll("nav *, main *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (hasText && !element.closest("svg, option") && element.checkVisibility({ visibilityProperty: true })) {
      look(element, getComputedStyle(element).color, behind(element));
    }
  }
  const ground = behind(document.body);
  for (const text of document.querySelectorAll(".drawing svg .role-axis text, .drawing svg .role-legend text")) {
    look(text, getComputedStyle(text).fill, ground);
  }
  const cells = [...document.querySelectorAll("#chart-by-document .mark-rect path")];
  const values = [...document.querySelectorAll("#chart-by-document .mark-text.role-mark text")];
  values.forEach((text, i) => {
    const { fill, opacity } = getComputedStyle(cells[i]);
    look(text, getComputedStyle(text).fill, over([...parse(fill).slice(0, 3), Number(opacity)], ground));
  });
  return { faint, cells: cells.length, values: values.length };
}
"""


def test_every_text_can_be_read_in_both_colours(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page, color_scheme="light")
    page = report.page
    report.draw_charts()
    assert page.evaluate(GROUND) == LIGHT
    everywhere = {"faint": [], "cells": 12 * 14, "values": 12 * 14}
    assert page.evaluate(FAINT) == everywhere
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(GROUND) == DARK
    assert page.evaluate(FAINT) == everywhere
    page.locator("#colours").click()
    assert page.evaluate(GROUND) == LIGHT
    assert page.locator("#colours").inner_text() == "Dark"
    # Charts follow without being drawn again.
    assert {drawing.get_attribute("data-drawn") for drawing in page.locator(".drawing").all()} == {"1"}
    assert page.evaluate(FAINT) == everywhere
    assert report.messages == []


def test_it_prints_on_white_whatever_the_screen_has(sample_run: Kept, open_report: OpenReport) -> None:
    report = open_report(sample_run.page, color_scheme="dark")
    page = report.page
    report.draw_charts()
    label = "getComputedStyle(document.querySelector('.drawing .role-axis text')).fill"
    on_screen = page.evaluate(label)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(GROUND) == LIGHT
    assert page.evaluate(label) == page.evaluate("getComputedStyle(document.body).color") != on_screen
    for gone in ("nav", ".picker", ".controls", ".pager", ".gap", "figure details"):
        assert page.locator(f"{gone}:visible").count() == 0, gone
    assert page.locator(".ranking tbody tr:visible").count() == 12
    assert page.locator("#question mark:visible").count() > 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.evaluate(GROUND) == DARK
    assert page.evaluate(label) == on_screen


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
    retrieval = [RETRIEVER.make(name) for name in ("bm25", "vector")]
    config = SMALL.model_copy(update={"metrics": metrics, "k": [1, 5], "retrieval": retrieval})
    workspace = Workspace(root=tmp_path)
    kept = Kept(workspace, run(config, workspace))
    keep_report(workspace, kept.outcome)
    report = open_report(kept.page)
    report.draw_charts()
    names = [name.partition("@")[0] if name[-1].isdigit() else name for name in kept.outcome.measured]
    assert report.page.locator("#metric option").all_inner_texts() == list(dict.fromkeys(names))
    assert report.page.locator("#metric").input_value().startswith("recall_within_tokens")
    assert report.messages == []


def test_another_run_stands_beside_it(sample_run: Kept, open_report: OpenReport, tmp_path: Path) -> None:
    workspace, outcome = sample_run.workspace, sample_run.outcome
    path = tmp_path / "against.html"
    write_report(workspace, build_report(workspace, outcome, against=outcome), path)
    report = open_report(path)
    assert "every question scores as before in 12 configurations" in report.page.locator("#against").inner_text()
    labels = report.page.locator("#side-b option").all_inner_texts()
    assert f"markdown 1000, hybrid (in {outcome.run})" in labels
    assert len(labels) == 25
    assert report.messages == []
