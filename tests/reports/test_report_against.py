"""A run beside an earlier one: in the page and as Markdown."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.against import recommendation_sentence
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.question_data import pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.verdict import verdict_of
from rag_eval.reports.write import report_html
from rag_eval.results.compare import compare_runs
from rag_eval.results.run_scores import read_scores
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, make_run, write_data

EXTRA = RecursiveTokenChunker(chunk_size=60)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A run that is much worse than the one before, lacks a configuration of it and has another."""
    folder = tmp_path_factory.mktemp("against")
    workspace, config = Workspace(root=folder / ".rag-eval"), write_data(folder)
    small, large = config.chunkers
    before = make_run(workspace, config.model_copy(update={"chunkers": [small, large, EXTRA]}))
    other = write_data(folder / "other", documents=11)
    after = make_run(workspace, other, lost=0.3)
    return build_report(workspace, after, against=before, allow_different=True)


def comparison_section(report: Report) -> str:
    return report_html(report).split('<section id="against"')[1].split("</section>")[0]


def rows(page: str) -> list[list[str]]:
    cells = (re.findall(r"<t[dh]\b.*?</t[dh]>", row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL))
    return [[re.sub("<[^>]*>", "", cell) for cell in row] for row in cells]


def test_the_best_comes_first_and_of_tokens_that_is_the_fewest(report: Report) -> None:
    page = comparison_section(report)
    recall, tokens = (page.split(f"<caption>{metric}")[1] for metric in ("span_recall@3", "tokens_retrieved@3"))
    assert [row[0] for row in rows(recall)[1:3]] == [LARGE_NAME, SMALL_NAME]
    assert [row[0] for row in rows(tokens)[1:3]] == [SMALL_NAME, LARGE_NAME]
    # Scores have decimals, counts of tokens have none.
    assert re.fullmatch(r"−0\.\d{3} \[−0\.\d{3}, −0\.\d{3}\]", rows(recall)[1][3])
    assert re.fullmatch(r"−\d+ \[−\d+, −\d+\]", rows(tokens)[1][3])
    assert rows(recall)[1][4].startswith("worse, p = 0.0")


def test_what_is_not_compared_is_said_in_both(report: Report) -> None:
    text = report_markdown(report)
    assert report.compared is not None
    page = report_html(report)
    for said in (text, page):
        assert "Not measured on the same data: the corpus differs: 12 documents" in said
        assert f"{report.compared.before.run} by span" in said
        assert "@3: of 2 configurations 2 are worse." in said
        assert "Left out, only in the run before: recursive-token 60/0, bm25." in said
    counts = r"\\_retrieved@3 \| \d\d \| \d\d \| −\d\d \| better, p = 0\.0"
    assert re.search(rf"\| {LARGE_NAME} \| tokens{counts}", text)


def test_what_stayed_the_same_is_called_so(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path)
    before, after = make_run(workspace, config), make_run(workspace, config)
    text = report_markdown(build_report(workspace, after, against=before))
    assert f"The recommendation stays {LARGE_NAME}. Compared" in text
    assert (
        f"Compared with {before.run} by span\\_recall@3: every question scores as before in 2 configurations." in text
    )
    assert f"| {LARGE_NAME} | span\\_recall@3 | 1.000 | 1.000 | ±0.000 | the same |" in text
    assert "Every question scores as before in 4 further comparisons." in text
    assert "p = 1.000" not in text


def test_the_stage_that_a_drop_is_in_is_said_in_both(report: Report) -> None:
    found = re.compile(
        r"recursive-token (30|90)/0, bm25: the drop is in: search \\?\(words\\?\), which loses 0\.\d{3} more"
    )
    assert set(found.findall(report_markdown(report))) == set(found.findall(comparison_section(report))) == {"30", "90"}


@pytest.mark.parametrize("losing", [[SMALL_NAME], [LARGE_NAME, SMALL_NAME], []])
def test_the_page_opens_with_what_fell_where_the_first_stayed_the_same(tmp_path: Path, losing: list[str]) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path)
    before, after = make_run(workspace, config), make_run(workspace, config, lost=0.3, losing=losing)
    overlay = build_report(workspace, after, against=before).overlay
    assert overlay is not None
    names = [overlay.manifest["configurations"][side]["name"] for side in overlay.manifest["opened"]]
    name = SMALL_NAME if losing == [SMALL_NAME] else LARGE_NAME
    assert names == [name, f"{name} (in {before.run})"]


def test_a_pair_that_the_page_has_no_room_for_is_not_opened(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path)
    before, after = make_run(workspace, config), make_run(workspace, config, lost=0.3)
    asked = questions_of(workspace, after, read_scores(workspace, after), compare_runs(workspace, before, after))
    assert pack_overlay(asked).manifest["opened"] == (0, 2)
    fewer = replace(asked, configurations=asked.configurations[:2])
    assert pack_overlay(fewer).manifest["opened"] == (0, 1)


def test_that_another_comes_first_is_said_with_the_reason(tmp_path: Path) -> None:
    workspace, config = Workspace(root=tmp_path / ".rag-eval"), write_data(tmp_path)
    before = make_run(workspace, config)
    after = make_run(workspace, config)
    large = next(one for one in after.configurations if one.name == LARGE_NAME)
    worse = large.model_copy(update={"metrics": dict.fromkeys(large.metrics, 0.1)})
    others = [one for one in after.configurations if one.name != LARGE_NAME]
    changed = after.model_copy(update={"configurations": [worse, *others]})
    compared = replace(compare_runs(workspace, before, after), after=changed)
    old = verdict_of(before, read_scores(workspace, before))
    new = replace(old, contenders=old.contenders[::-1])
    assert recommendation_sentence(compared, old, new) == (
        f"The recommendation changed from {LARGE_NAME} to {SMALL_NAME}: {LARGE_NAME} went from 1.000 to 1.000 "
        f"(the same); {SMALL_NAME} went from 0.983 to 0.983 (the same)."
    )
    by_tokens = replace(new, outcome=after.by("tokens_retrieved@3"))
    told = recommendation_sentence(compared, old, by_tokens)
    assert "the objective is tokens_retrieved@3 instead of span_recall@3" in told
    tied = replace(old, kind="tied")
    assert recommendation_sentence(compared, tied, tied) == (
        "Neither run recommends a configuration: by span_recall@3, these questions cannot separate 1 of the 2 "
        "configurations."
    )
    assert recommendation_sentence(compared, old, tied).startswith(f"{LARGE_NAME} is no longer recommended: by")
    assert recommendation_sentence(compared, tied, old).startswith(f"{LARGE_NAME} is recommended; the earlier run")
