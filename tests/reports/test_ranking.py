"""One set of rows and columns: the terminal, Markdown, the page and Prefect show the same figures."""

import html
import re
from dataclasses import replace

import pytest

from rag_eval.cli.ranking_table import ranking_table
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.ranking import ConfigurationRanking, RankingColumn
from rag_eval.reports.report import Report
from rag_eval.reports.write import report_html
from tests.reports.conftest import Kept


@pytest.fixture
def report(sample_report: Report) -> Report:
    return sample_report


def in_terminal(ranking: ConfigurationRanking, width: int = 1_000) -> list[list[str]]:
    columns = [
        [str(cell).replace("≈", "").strip() for cell in one.cells] for one in ranking_table(ranking, width).columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def in_markdown(report: Report) -> list[list[str]]:
    lines = report_markdown(report).split("| first for a budget")[0].splitlines()
    rows = [line.replace("\\", "").strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [rows[0], *rows[2:]]


def in_page(report: Report) -> list[list[str]]:
    """The rows of the table without the heads of groups, the cells that are drawn and those for a phone."""
    table = report_html(report).split('<table class="ranking">')[1].split("</table>")[0]
    rows = [row for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL) if 'class="group"' not in row]
    cells = (
        [
            re.sub("<[^>]*>", "", cell)
            for cell in re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.DOTALL)
            if 'class="strip' not in cell and 'class="on-phone' not in cell
        ]
        for row in rows
    )
    return [[" ".join(html.unescape(cell).split()) for cell in row] for row in cells]


def test_all_media_show_the_same_rows(report: Report) -> None:
    ranking = report.ranking
    heads, *shown = in_page(report)
    texts = in_markdown(report)
    for column in ("chunks", "index"):
        written = [row[texts[0].index(column)].replace("–", "none") for row in texts[1:]]
        assert [row[heads.index(column)] for row in shown] == written
    assert [float(row[2]) for row in shown] == [
        pytest.approx(100 * float(row[2].split()[0]), abs=0.051) for row in texts[1:]
    ]
    assert [row[1].startswith(other[1]) for row, other in zip(shown, texts[1:], strict=True)] == [True] * 12
    for place, row in enumerate(in_terminal(ranking)):
        texts = [column.text(ranking.rows[place]) for column in ranking.shown_in("terminal", "wide")]
        assert row == texts
    (first, *_), records = ranking.rows, ranking.records()
    assert list(records[0]) == [column.title for column in ranking.shown_in("prefect")]
    assert records[0]["#"] == first.place
    assert records[0]["configuration"] == first.name
    assert records[0]["chunks"] == first.outcome.chunks.count
    for name in report.outcome.measured:
        assert records[0][name] == pytest.approx(first.outcome.metrics[name], abs=5e-5)


def test_the_mark_and_the_groups_follow_the_corrected_test(report: Report) -> None:
    """Rows are told apart from the first or not, whatever their place."""
    first, *others = report.ranking.rows[:4]
    rows = [first]
    for row, among in zip(others, (False, True, False), strict=True):
        assert row.placed is not None
        rows.append(replace(row, placed=replace(row.placed, among_best=among)))
    ranking = replace(report.ranking, rows=rows)
    tested = "not significantly different from the first on these questions, by a paired test"
    assert ranking.mark_meaning == f"{tested} after correction for 3 comparisons"
    assert replace(ranking, rows=[first, rows[2]]).mark_meaning == tested  # one test is not corrected
    assert replace(ranking, rows=[first, rows[1]]).mark_meaning == ""
    table = report_html(replace(report, ranking=ranking)).split('<table class="ranking">')[1].split("</table>")[0]
    assert re.findall(r'data-group="(\w+)"><th', table) == ["best", "worse"]
    assert re.findall(r'data-name="([^"]*)"', table) == [rows[n].name for n in (0, 2, 1, 3)]
    assert "Not significantly different from the first: 2 <span>· after correction for 3 comparisons; " in table
    assert f'a=2&amp;order=worst">{100 * rows[2].outcome.metrics[ranking.metric]:.1f}' in table


def test_a_column_that_is_added_is_shown_everywhere(report: Report) -> None:
    added = RankingColumn("shortest", lambda row: row.outcome.chunks.shortest, "{:,}c".format, lambda row: "<least>")
    ranking = replace(report.ranking, columns=[*report.ranking.columns, added])
    shown = replace(report, ranking=ranking)
    values = [row.outcome.chunks.shortest for row in ranking.rows]
    assert [row[-1] for row in in_markdown(shown)] == ["shortest", *(f"{value:,}c <least>" for value in values)]
    assert [row[-1] for row in in_page(shown)] == ["shortest", *(f"{value:,}c" for value in values)]
    assert 'title="&lt;least&gt;"' in report_html(shown)
    assert [row[-1] for row in in_terminal(ranking)] == [f"{value:,}c" for value in values]
    assert [record["shortest"] for record in ranking.records()] == values


def test_a_column_is_shown_where_it_says_and_left_out_where_it_has_nothing(report: Report) -> None:
    titles = {column.title for column in report.ranking.columns}
    assert titles >= {"index", "tokens read"}  # of vectors, which some of the configurations have
    assert "cost $" not in titles  # nothing was charged
    only = replace(report.ranking.columns[-1], title="x", media=frozenset({"html"}))
    ranking = replace(report.ranking, columns=[*report.ranking.columns, only])
    assert [medium for medium in ("terminal", "markdown", "html", "prefect") if only in ranking.shown_in(medium)] == [
        "html"
    ]


def test_without_tests_of_the_differences_there_are_places_and_means(sample_run: Kept, report: Report) -> None:
    ranking = ConfigurationRanking.of(sample_run.outcome)
    assert [row.place for row in ranking.rows][:3] == ["1", "2", "3"]
    assert "against the best" not in {column.title for column in ranking.columns}
    assert not any(row.may_be_best or row.verdict for row in ranking.rows)
    assert ranking.note == ""
    table = report_html(replace(report, ranking=ranking)).split('<table class="ranking">')[1].split("</table>")[0]
    assert table.count("<tr") == 13
    assert 'class="ci' not in table


def test_a_narrow_terminal_shows_what_decides_and_a_wide_one_intervals_and_costs(report: Report) -> None:
    titles = [
        [str(one.header).split("\n")[0] for one in ranking_table(report.ranking, width).columns]
        for width in (60, 80, 120, 200)
    ]
    assert [one.strip() for one in titles[0]] == ["#", "configuration", "recall", "tokens", "iou", "chunks"]
    assert "95 % interval" in titles[1]
    assert {"95 % interval", "best with", "index"} <= set(titles[3])
    # The context of five hits gives way to how sure the objective is.
    longer = [
        replace(row, outcome=row.outcome.model_copy(update={"name": f"{row.name}, lexical"}))
        for row in report.ranking.rows
    ]
    within = replace(report.ranking, metric="recall_within_tokens@2000", rows=longer)
    context = RankingColumn("tokens_retrieved@2000tokens", lambda row: 1_900.0, "{:,.0f}".format)
    within = replace(within, columns=[*within.columns[:5], context, *within.columns[5:]])
    assert "95 % interval" in [str(one.header) for one in ranking_table(within, 80).columns]
