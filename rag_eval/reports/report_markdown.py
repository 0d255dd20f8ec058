"""A report as Markdown, for terminals, pull requests and chat."""

from rag_eval.reports.against import data_sentences, left_out_sentences, verdict, verdict_sentence
from rag_eval.reports.costs import CostColumn, cost_columns
from rag_eval.reports.markdown import escape_markdown
from rag_eval.reports.provenance import facts
from rag_eval.reports.ranking import RankingRow, other_metrics
from rag_eval.reports.report import Report
from rag_eval.reports.wording import typeset
from rag_eval.results.compare import ComparedConfigurations, RunComparison
from rag_eval.wording import counted, interval, number, signed


def report_markdown(report: Report) -> str:
    """The answer, the ranked table, what failed, what changed since an earlier run, and the provenance."""
    outcome, said = report.outcome, report.answer
    lines = [f"# {escape_markdown(said.headline)}", "", *(escape_markdown(one) for one in said.sentences), ""]
    if report.ranking:
        lines += [*_ranking(report), ""]
    if outcome.failures:
        lines += ["## Failed", ""]
        lines += [f"- **{escape_markdown(n)}**: {escape_markdown(f.reason)}" for n, f in outcome.failures.items()]
        lines.append("")
    if report.compared:
        lines += ["## Before and after", "", escape_markdown(verdict_sentence(report.compared)), ""]
        lines += [line for said in data_sentences(report.compared) for line in (escape_markdown(said), "")]
        lines += [*_compared(report.compared), ""]
        lines += [line for said in left_out_sentences(report.compared) for line in (escape_markdown(said), "")]
    lines += ["## Provenance", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {escape_markdown(value)} |" for name, value in facts(outcome).items()]
    return "\n".join(lines) + "\n"


def _ranking(report: Report) -> list[str]:
    metric, others = report.outcome.ranking_metric, other_metrics(report.outcome)
    headings = ["#", "configuration", metric, "95 % interval", "against the best", *others]
    costs = cost_columns(report.outcome.configurations)
    headings += [*(cost.heading for cost in costs), "chunks", "mean characters"]
    return [
        _line([escape_markdown(heading) for heading in headings]),
        _line(["---:", "---", "---:", "---", "---", *["---:"] * (len(headings) - 5)]),
        *(_line(_cells(row, others, costs)) for row in report.ranking),
    ]


def _cells(row: RankingRow, others: list[str], costs: list[CostColumn]) -> list[str]:
    one, estimate, comparison = row.outcome, row.placed.estimate, row.placed.against_best
    difference = "" if comparison is None else f"{typeset(signed(comparison.difference, estimate.mean))}, "
    return [
        row.place,
        escape_markdown(one.name),
        number(estimate.mean),
        interval(estimate.low, estimate.high),
        f"{difference}{row.verdict}",
        *(number(one.metrics[name]) for name in others),
        *(cost.cell(one) for cost in costs),
        f"{one.chunks.count:,}",
        f"{one.chunks.mean:,.0f}",
    ]


def _compared(compared: RunComparison) -> list[str]:
    """All configurations by the ranking metric; by the others, those in which a question changed."""
    first, *others = compared.metrics
    rows = [row for metric in others for row in compared.by_metric(metric)]
    shown = compared.by_metric(first) + [row for row in rows if not row.comparison.is_same]
    lines = ["| configuration | metric | before | after | difference | verdict |", "|---|---|---:|---:|---:|---|"]
    lines += [_line(_compared_cells(row)) for row in shown]
    left = len(compared.rows) - len(shown)
    unchanged = ["", f"Every question scores as before in {counted(left, 'further comparisons')}."] if left else []
    return lines + unchanged


def _compared_cells(row: ComparedConfigurations) -> list[str]:
    found = row.comparison
    beside = max(found.before, found.after)
    values = [number(found.before, beside), number(found.after, beside), typeset(signed(found.difference, beside))]
    return [escape_markdown(row.name), escape_markdown(row.metric), *values, verdict(found)]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
