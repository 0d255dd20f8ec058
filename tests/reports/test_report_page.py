"""The report in a browser: it draws, filters and compares, says nothing behind the reader's back, and asks nobody."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.write import keep_report, write_report
from rag_eval.retrieval import RETRIEVER
from tests.reports.conftest import Kept, Opened, findings, run_and_report
from tests.reports.test_report_files import BROKEN, SMALL
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, make_run, write_data

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenReport = Callable[..., Opened]
SHIPPED, RUNNER_UP = "markdown 1000, hybrid", "recursive-token 300/0, hybrid"


@pytest.fixture(scope="module")
def budget_run(sample_run: Kept) -> Kept:
    """The run of the sample, ranked within 2,000 tokens."""
    outcome = sample_run.outcome.by("recall_within_tokens@2000")
    kept = Kept(sample_run.workspace, outcome.model_copy(update={"run": f"{outcome.run[:-1]}x"}))
    keep_report(kept.workspace, kept.outcome)
    return kept


@pytest.fixture(scope="module")
def report(budget_run: Kept) -> Report:
    return build_report(budget_run.workspace, budget_run.outcome)


def test_the_page_is_one_small_file_with_a_strict_policy(budget_run: Kept) -> None:
    content = budget_run.page.read_text(encoding="utf-8")
    assert len(content.encode()) < 500_000
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    markup = re.sub(r"<script.*?</script>", "", content, flags=re.DOTALL)
    assert not re.search(r"\b(src|href)=\"(?!#)", markup)
    assert not re.search(r"\s(on\w+|style)=", markup)


def test_the_answer_names_the_choices_and_the_chart_shows_them(
    budget_run: Kept, report: Report, open_report: OpenReport
) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    assert page.locator("h1").inner_text() == f"For 2,000 tokens of context, ship {SHIPPED}" == report.words.headline
    assert page.locator(".says h2").all_inner_texts()[:2] == ["How sure", "What is cheaper"]
    chart = page.locator("#chart-frontier")
    assert "nothing is significantly better than markdown 1000, hybrid" in chart.locator("h3").inner_text()
    said = chart.locator("svg text").all_text_contents()
    assert {f"ship, cheapest: {SHIPPED} 87.7\xa0%", f"runner-up: {RUNNER_UP} 85.1\xa0%"} <= set(said)
    # One line is emphasised for each role, every other has its name, and no mark is there twice.
    assert [chart.locator(f"path.{kind}").count() for kind in ("win", "second", "cheap")] == [1, 1, 0]
    named = set(chart.locator("path.other title").all_text_contents())
    assert named == {one.name for one in budget_run.outcome.configurations} - {SHIPPED, RUNNER_UP}
    # The slider reads any budget; the strip has a lane for the shipped one, first at the budget.
    assert chart.locator("rect.lane-first.acc").count() >= 1
    page.locator("#read").focus()
    page.keyboard.press("Home")
    assert page.locator("#readout").inner_text().startswith("At 250 tokens: ")
    assert chart.locator(".reading").get_attribute("visibility") == "visible"
    assert opened.messages == []
    assert opened.requests == [budget_run.page.as_uri()]


def test_no_line_is_drawn_through_a_value_that_is_not_there(
    budget_run: Kept, report: Report, open_report: OpenReport, tmp_path: Path
) -> None:
    charts = report.charts | {"curves": report.charts["curves"] | {"lines": list(report.charts["curves"]["lines"])}}
    whole = charts["curves"]["lines"][0]
    charts["curves"]["lines"][0] = [*whole[:10], None, *whole[11:30], *[None] * (len(whole) - 30)]
    path = tmp_path / "gap.html"
    write_report(budget_run.workspace, replace(report, charts=charts), path)
    page = open_report(path).page
    for drawn in ("win", "band"):
        shape = page.locator(f"#chart-frontier path.{drawn}").get_attribute("d") or ""
        assert shape.count("M") == 2
    ends = [float(x) for x in re.findall(r"[ML]([\d.]+),", page.locator("path.win").first.get_attribute("d") or "")]
    others = page.locator("#chart-frontier path.second").get_attribute("d") or ""
    assert len(ends) == 29
    assert max(ends) < max(float(x) for x in re.findall(r"[ML]([\d.]+),", others))


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_stay_inside_their_chart_and_differ(
    budget_run: Kept, report: Report, open_report: OpenReport, tmp_path: Path, width: int
) -> None:
    long = "recursive-token 100/0, {}, a reranker with a long name, section 2000"
    names = [long.format(search) for search in ("hybrid", "vector", "bm25")]
    charts = report.charts | {"strip": [report.charts["strip"][0] | {"name": name} for name in names]}
    charts["configurations"] = [f"{'a name that is long ' * 3}{name}" for name in charts["configurations"]]
    write_report(budget_run.workspace, replace(report, charts=charts), tmp_path / "strip.html")
    page = open_report(tmp_path / "strip.html", viewport={"width": width, "height": 900}).page
    rows = page.locator("#chart-frontier text.lane").all_text_contents()
    each = len(rows) // len(names)
    assert len({" ".join(rows[n : n + each]) for n in range(0, len(rows), each)}) == len(names)
    assert page.locator(".drawing svg text").count() > 15
    assert page.evaluate(OUTSIDE) == []


OUTSIDE = """() => [...document.querySelectorAll(".drawing svg text")].filter((text) => {
  const [box, frame] = [text, text.closest("figure")].map((one) => one.getBoundingClientRect());
  return box.right > frame.right + 8 || box.left < frame.left - 8;
}).map((text) => text.textContent)"""


def test_every_chart_is_drawn_and_says_what_it_found(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page, color_scheme="dark")
    page = opened.page
    figure = page.locator("#chart-frontier")
    assert figure.locator("svg").first.get_attribute("aria-label")
    assert figure.get_attribute("aria-labelledby") == figure.locator("h3").get_attribute("id")
    # Every cause of a loss is there, those without a loss in one row; they add up.
    losses = page.locator("#losses")
    assert "Most of what is missed is" in losses.locator("h3").inner_text()
    words = losses.locator("tbody").inner_text()
    for cause in ("uncovered", "boundary", "search", "index", "fusion", "selection", "reranker", "return"):
        assert cause in words
    shares = [
        float(text.replace("−", "-")) for text in losses.locator("tbody tr:not(.na) td:nth-child(2)").all_inner_texts()
    ]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.15)
    assert losses.locator(".barrow i").count() >= 5
    assert opened.messages == []


ROW_HEIGHTS = "rows => Math.max(...rows.map(row => row.offsetHeight))"


def test_the_ranking_is_compact_links_to_questions_and_is_filtered(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    rows = page.locator(".ranking tbody tr[data-name]")
    assert rows.count() == 12
    assert rows.evaluate_all(ROW_HEIGHTS) <= 44  # two lines, where there are tags
    assert "p = " not in page.locator(".ranking").inner_text()
    assert page.locator(".ranking .group").first.inner_text().startswith("Not significantly different from the first")
    assert page.locator(".ranking .tag").all_inner_texts() == ["ship", "cheapest", "runner-up"]
    wide = page.locator(".ranking .ci").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert len(wide) == 12
    assert min(wide) > 12  # more than the dot
    page.locator(".ranking tbody tr").last.scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    opened.waits_for("document.querySelector('.ranking thead th').getBoundingClientRect().top === 49")
    # Filtered by words; what matches nothing says so and is undone.
    opened.choose("find", "bm25 token")
    assert page.locator("#ranked").inner_text() == "2 of 12"
    opened.choose("find", "no such")
    page.locator("#clear").click()
    opened.choose("find", "vector")
    assert page.locator("#ranked").inner_text() == "4 of 12"
    with page.expect_download() as download:
        page.locator("#ranking-csv").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("#,configuration,%,points")
    opened.choose("find", "")
    page.get_by_role("button", name="chunks").click()
    counts = page.locator(".ranking tr[data-group=worse] td:nth-last-child(3)").all_inner_texts()
    assert [int(text) for text in counts] == sorted(map(int, counts), reverse=True)
    # A number opens the questions behind it.
    row = page.locator(f".ranking tr[data-name='{RUNNER_UP}']")
    worse = int(row.locator("a[href$='show=worse']").inner_text())
    row.locator("a[href$='show=worse']").click()
    opened.waits_for("document.querySelector('#questions').getBoundingClientRect().top < 200")
    assert page.locator("#count").inner_text() == f"{worse} of 72 questions"
    assert page.locator("#question .side h4 bdi").all_inner_texts() == [RUNNER_UP, SHIPPED]
    assert opened.messages == []


def test_a_hundred_configurations_stay_readable(
    budget_run: Kept, report: Report, open_report: OpenReport, tmp_path: Path
) -> None:
    best, worse = report.ranking.rows[:8], report.ranking.rows[8:]
    ranking = replace(report.ranking, rows=[*best, *worse * 23])
    write_report(budget_run.workspace, replace(report, ranking=ranking), tmp_path / "many.html")
    page = open_report(tmp_path / "many.html").page
    assert page.locator("#ranked").inner_text() == "18 of 100"
    assert page.locator(".ranking tbody tr[data-name]:visible").count() == 18
    page.get_by_role("button", name="Show all 92 that are worse").click()
    assert page.locator(".ranking tbody tr[data-name]:visible").count() == 100


FIRST_MARK = """() => { const pane = document.querySelector("#question"), mark = pane.querySelector("mark");
  return mark ? mark.getBoundingClientRect().top - pane.getBoundingClientRect().top : 0; }"""


def test_a_question_opens_where_its_relevant_text_is(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    page.locator("#question").scroll_into_view_if_needed()
    tops, seen = [], [opened.asked()]
    for _ in range(8):
        tops.append(page.evaluate(FIRST_MARK))
        assert page.locator("#question .steps").is_visible()
        assert (
            max(page.locator("#question .text").evaluate_all("all => all.map(e => e.innerText.length)"), default=0)
            < 3000
        )
        page.locator("body").press("j")
        seen.append(opened.asked())
    assert max(tops) < 420
    assert len(set(seen)) == 9
    page.locator("body").press("k")
    assert opened.asked() == seen[-2]
    # What is long and not relevant is folded; one key unfolds all.
    folds = page.locator("#question .fold, #question details:not([open])").count()
    assert folds > 0
    page.locator("body").press("o")
    opened.waits_for("!document.querySelector('#question details:not([open])')")
    page.locator("body").press("x")
    opened.waits_for(f"document.querySelector('#question .side bdi').innerText === '{RUNNER_UP}'")
    page.locator("body").press("/")
    page.keyboard.type("jkx")
    assert page.locator("#search").input_value() == "jkx"
    page.keyboard.press("Escape")
    assert page.locator("#question .empty").inner_text().startswith("No question contains “jkx”.")
    page.get_by_role("button", name="Clear the search").click()
    assert page.locator("#count").inner_text() == "72 questions"
    assert opened.messages == []


def test_all_that_is_chosen_is_in_the_address_and_back_undoes_it(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    opened.choose("side-a", "3")
    opened.address("a=3")
    opened.choose("cut", "2")
    opened.address("cut=3")
    opened.choose("metric", "span_iou")
    opened.address("by=span_iou")
    opened.choose("order", "best")
    opened.choose("shown", "part")
    opened.choose("search", "the")
    page.locator("#document").select_option(index=2)
    opened.address("doc=")
    page.locator("#list .row").last.click()
    opened.address("q=query_")
    parts = ("a=3", "cut=3", "by=span_iou", "show=part", "order=best", "find=the", "doc=", "q=query_")
    assert all(part in page.url for part in parts)
    link, asked, count = page.url, opened.asked(), page.locator("#count").inner_text()
    # Back goes back one step and stays in the page.
    opened.choose("side-b", "5")
    opened.address("b=5")
    page.go_back()
    opened.waits_for(f"document.querySelector('#question h3').innerText === {asked!r}")
    # Who follows the link sees the very same.
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#question[data-drawn]")
    assert (opened.asked(), page.locator("#count").inner_text()) == (asked, count)
    assert page.locator("#search").input_value() == "the"
    opened.waits_for("document.querySelector('#questions').getBoundingClientRect().top < 100")
    assert opened.messages == []


def test_filters_that_match_nothing_are_not_offered(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    assert page.locator("#count").inner_text() == "72 questions"
    for option in page.locator("#shown option").all():
        value, label = option.get_attribute("value") or "", option.inner_text()
        opened.choose("shown", value)
        said = re.search(r"\((\d+)\)", label)
        assert said is not None
        assert page.locator("#count").inner_text().startswith(said[1])
    opened.choose("shown", "unanswerable")
    assert page.locator("#count").inner_text() == "2 of 72 questions"
    # The same side twice: nothing is better or worse.
    opened.choose("side-b", "0")
    opened.waits_for("document.querySelector('#shown').options.length < 6")
    assert not {"better", "worse"} & set(page.locator("#shown option").evaluate_all("all => all.map(o => o.value)"))
    # Of tokens, less is better: the worst has most of them.
    opened.choose("shown", "all")
    opened.choose("cut", "3")
    opened.choose("metric", "tokens_retrieved")
    opened.choose("order", "worst")
    opened.waits_for("document.querySelector('#order').value === 'worst'")
    texts = page.locator("#list .score.side-0").all_inner_texts()[:8]
    tokens = [int(text.replace(",", "")) for text in texts]
    assert tokens == sorted(tokens, reverse=True)
    opened.choose("side-b", "-1")
    opened.waits_for("document.querySelectorAll('#question .side').length === 1")
    assert page.locator("#order option").count() == 3
    assert opened.messages == []


def test_a_slice_opens_its_questions(budget_run: Kept, report: Report, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    assert page.locator("#slices h3").inner_text() == report.why.finding.removesuffix(".")
    assert page.locator("#next h3").all_inner_texts() == [
        f"{number}. {one.title}" for number, one in enumerate(report.why.experiments, start=1)
    ]
    assert page.locator("#slices .group").all_inner_texts() == ["By kind of question"]
    page.locator("#all-slices").click()
    assert page.locator("#slices .group").all_inner_texts() == ["By document", "By kind of question"]
    assert page.locator("#slices tbody tr:not(.group)").count() == 27
    assert page.locator("#slices th:has-text('relevant passages: 1')").count() == 1
    page.get_by_role("button", name="questions", exact=True).click()
    counts = page.locator("#slices tr.group:nth-child(1) ~ tr td:nth-child(2)").all_inner_texts()[:14]
    assert [int(count) for count in counts] == sorted(map(int, counts), reverse=True)
    before = opened.asked()
    link = page.locator("#slices tbody a").first
    count, title = link.inner_text(), page.locator("#slices tbody th bdi").first.inner_text()
    link.click()
    opened.waits_for("document.querySelector('#count').innerText.includes(' of ')")
    assert page.locator("#count").inner_text() == f"{count} of 72 questions"
    assert opened.asked() in opened.questions()
    assert title in page.locator("#document option:checked").inner_text()
    assert all(title in about for about in page.locator("#list .about").all_inner_texts())
    page.go_back()
    opened.waits_for("document.querySelector('#count').innerText === '72 questions'")
    assert opened.asked() == before
    # Of other pairs nothing is called sure: only the first two were tested.
    opened.choose("side-b", "4")
    opened.waits_for("!document.querySelector('#slices h3').innerText.includes('sure')")
    assert opened.messages == []


def tab_to(page: "Page", selector: str) -> None:
    """Press the tabulator until what a selector names has the focus."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} cannot be reached by keyboard")


def test_three_tasks_by_keyboard_alone(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page)
    page = opened.page
    # Read the verdict.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the answer"
    page.keyboard.press("Enter")
    opened.waits_for("location.hash === '#answer'")
    # Find the worst question of the runner-up.
    tab_to(page, ".ranking a[href='#a=1&order=worst']")
    page.keyboard.press("Enter")
    opened.waits_for("document.querySelector('#order').value === 'worst'")
    assert page.locator("#question .side h4 bdi").first.inner_text() == RUNNER_UP
    scores = page.locator("#list .score.side-0").all_inner_texts()
    assert page.locator("#question .side .score").first.inner_text().split()[0] == scores[0].split()[0] == "0"
    # Copy its link.
    tab_to(page, "#list")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    asked = opened.asked()
    page.keyboard.press("c")
    opened.waits_for("document.querySelector('#copy').innerText === 'Copied'")
    page.keyboard.press("/")
    page.keyboard.press("Control+v")
    link = page.locator("#search").input_value()
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#question[data-drawn]")
    assert opened.asked() == asked
    assert opened.messages == []


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(17, 20, 23)"
GROUND = "getComputedStyle(document.body).backgroundColor"


def test_the_colours_that_are_chosen_are_kept_and_paper_is_white(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page, color_scheme="light")
    page = opened.page
    assert page.evaluate(GROUND) == LIGHT
    page.locator("#colours").click()
    assert (page.evaluate(GROUND), page.locator("#colours").inner_text()) == (DARK, "Light")
    page.reload()
    page.wait_for_selector("#question[data-drawn]")
    assert page.evaluate(GROUND) == DARK
    small = page.locator("a:visible, button:visible, select:visible, input:visible").evaluate_all(
        "all => all.filter(e => !e.closest('p, td, th') && e.getBoundingClientRect().height < 24).map(e => e.outerHTML)"
    )
    assert small == []
    # On paper all is black on white, and what cannot be pressed there is gone.
    page.emulate_media(media="print")
    assert page.evaluate(GROUND) == LIGHT
    for gone in (".bar", "#list", ".controls", ".tools", ".reader", ".steps"):
        assert page.locator(f"{gone}:visible").count() == 0, gone
    assert page.locator(".ranking tbody tr[data-name]:visible").count() == 12
    assert page.locator("#question mark:visible").count() > 0
    # Within the width of a page, and no name broken for want of room.
    page.set_viewport_size({"width": 1060, "height": 750})
    assert page.locator(".ranking").evaluate("e => e.scrollWidth") <= 1060
    assert min(page.locator("#slices tbody tr:not(.group) th").evaluate_all("all => all.map(e => e.offsetWidth)")) > 90
    assert opened.messages == []


def test_a_phone_shows_it_without_sideways_scrolling(budget_run: Kept, open_report: OpenReport) -> None:
    opened = open_report(budget_run.page, viewport={"width": 390, "height": 844}, color_scheme="light")
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    outside = page.locator("figure svg, #chart-frontier svg text").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().right > 391).length"
    )
    assert outside == 0
    assert page.locator(".ranking .on-phone:visible").count() == 12
    over = "all => all.filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert page.locator(".ranking tr.group th").evaluate_all(over) == 0
    # A question that is opened begins at the top of the screen.
    first = opened.asked()
    page.locator("#question .steps button").last.click()
    assert opened.asked() != first
    assert 0 <= page.locator("#question h3").evaluate("e => e.getBoundingClientRect().top") < 200
    assert opened.messages == []


def test_axe_finds_nothing_in_either_colour_on_desk_and_phone(budget_run: Kept, open_report: OpenReport) -> None:
    page = open_report(budget_run.page, color_scheme="light").page
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    assert findings(page) == []


def test_without_a_script_the_answer_and_the_ranking_are_there(budget_run: Kept, open_report: OpenReport) -> None:
    page = open_report(budget_run.page, shows="h1", java_script_enabled=False).page
    assert page.locator("h1").inner_text().endswith(SHIPPED)
    assert page.locator(".ranking tbody tr[data-name]:visible").count() == 12
    assert page.locator("#questions:visible, #why:visible, figure:visible").count() == 0
    page.get_by_text("The numbers of the chart").click()
    budgets = page.locator(".says table")
    assert budgets.locator("tbody tr").count() == 12
    assert budgets.locator("thead th").all_inner_texts()[1::3] == ["250", "2,000", "16,000"]
    assert budgets.locator(f"tr:has-text('{SHIPPED}') td:nth-child(5) b").inner_text() == "87.7"


def test_a_run_that_failed_whole_says_so(open_report: OpenReport, tmp_path: Path) -> None:
    kept = run_and_report(tmp_path, SMALL.model_copy(update={"chunkers": [BROKEN]}))
    opened = open_report(kept.page, shows=".alive #failures")
    assert opened.page.locator("h1").inner_text() == "No configuration finished"
    assert "must be smaller" in opened.page.locator("#failures").inner_text()
    assert opened.page.locator("main > section:visible").count() == 3
    assert opened.messages == []


ODD = [["precision_omega", "chroma_iou@min"], ["tokens_retrieved"]]


@pytest.mark.parametrize("metrics", ODD)
def test_any_metrics_make_a_report(open_report: OpenReport, tmp_path: Path, metrics: list[str]) -> None:
    retrieval = [RETRIEVER.make(name) for name in ("bm25", "vector")]
    objective = metrics[0] if metrics[0] == "precision_omega" else f"{metrics[0]}@5"
    update = {"metrics": metrics, "k": [1, 5], "retrieval": retrieval, "objective": objective}
    kept = run_and_report(tmp_path, SMALL.model_copy(update=update))
    opened = open_report(kept.page)
    assert opened.page.locator("#metric").input_value() == metrics[0]
    assert opened.page.locator("#chart-frontier svg").count() == 1
    says = opened.page.locator(".says").inner_text()
    assert f"The chart shows recall within tokens; this run is ranked by {objective}." in says
    assert opened.messages == []


def test_two_runs_stand_beside_each_other_and_counts_open_questions(open_report: OpenReport, tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / "work"), write_data(tmp_path)
    before, after = make_run(workspace, config), make_run(workspace, config, lost=0.3)
    path = tmp_path / "against.html"
    write_report(workspace, build_report(workspace, after, against=before), path)
    opened = open_report(path)
    page = opened.page
    said = page.locator(".says").inner_text()
    assert f"The recommendation stays {LARGE_NAME}." in said
    assert f"Compared with {before.run} by span_recall@3: of 2 configurations 2 are worse." in said
    # This run on the left, the same configuration in the other on the right.
    names = page.locator("#question .side h4 bdi")
    assert names.all_inner_texts() == [LARGE_NAME, f"{LARGE_NAME} (in {before.run})"]
    row = page.locator("#against table").first.locator("tbody tr").nth(1)
    worse = row.locator("a[href$='show=worse']")
    count = worse.inner_text()
    worse.click()
    opened.waits_for("document.querySelector('#count').innerText.includes(' of ')")
    assert page.locator("#count").inner_text().startswith(f"{count} of ")
    assert names.all_inner_texts() == [SMALL_NAME, f"{SMALL_NAME} (in {before.run})"]
    assert page.locator("#metric").input_value() == "span_recall"
    assert opened.messages == []
