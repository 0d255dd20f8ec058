"""A report as Markdown, for terminals, pull requests and chat."""

from rag_eval.reports.against import verdict_sentence
from rag_eval.reports.costs import CostColumn, cost_columns
from rag_eval.reports.markdown import escape_markdown
from rag_eval.reports.provenance import facts
from rag_eval.reports.ranking import RankingRow, other_metrics, p_value, signed
from rag_eval.reports.report import Report
from rag_eval.results.compare import RunComparison


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
        lines += [*_compared(report.compared), ""]
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
    interval = "" if estimate.low is None or estimate.high is None else f"{estimate.low:.3f} to {estimate.high:.3f}"
    difference = "" if comparison is None else f"{signed(comparison.difference)}, "
    return [
        row.place,
        escape_markdown(one.name),
        f"{estimate.mean:.3f}",
        interval,
        f"{difference}{row.verdict}",
        *(f"{one.metrics[name]:.3f}" for name in others),
        *(cost.cell(one) for cost in costs),
        f"{one.chunks.count:,}",
        f"{one.chunks.mean:,.0f}",
    ]


def _compared(compared: RunComparison) -> list[str]:
    lines = ["| configuration | metric | before | after | difference | verdict |", "|---|---|---:|---:|---:|---|"]
    for row in compared.rows:
        found = row.comparison
        verdict = f"{found.verdict}, {p_value(found)}"
        values = [f"{found.before:.3f}", f"{found.after:.3f}", signed(found.difference), verdict]
        lines.append(_line([escape_markdown(row.after), escape_markdown(row.metric), *values]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
