"""What became of a generation, as Markdown."""

from rag_eval.benchmark.compare import ComparedConfigurations, RunComparison
from rag_eval.benchmark.gate import Gate
from rag_eval.benchmark.history import History, sparkline
from rag_eval.formatting import counted, interval, number, p_value, signed
from rag_eval.generation.report import GenerationReport
from rag_eval.llm.cost import ChatUsage
from rag_eval.reports.against import data_sentences, left_out_sentences, verdict, verdict_sentence
from rag_eval.reports.provenance import facts
from rag_eval.reports.ranking import CostColumn, RankingRow, cost_columns, other_metrics
from rag_eval.reports.report import Report
from rag_eval.reports.wording import escape_markdown, typeset


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


TO_THE_SECOND = len("2026-01-31T12-00-00")


def gate_markdown(found: Gate) -> str:
    """The verdict, and a row for every configuration with a score that is not as in the baseline."""
    lines = [
        f"**{found.verdict}**",
        "",
        f"Held against {found.baseline}: {found.terms}.",
    ]
    lines += [f"Careful: {escape_markdown(difference)}." for difference in found.differences]
    if not found.can_fail:
        lines.append(f"With so few {found.unit} no drop can be told from chance, so none can fail the gate.")
    changed = [check for check in found.checks if check.changed]
    if changed:
        lines += [
            "",
            f"| configuration | baseline | run | {found.move} | 95 % interval | p | verdict |",
            "|---|--:|--:|--:|--:|--:|---|",
        ]
    for check in changed:
        figures = (number(check.before), number(check.after), number(check.drop), interval(check.low, check.high))
        verdict = ("unsure" if check.unsure else "ok") if check.passed else f"**{found.moved}**"
        lines.append(
            f"| {escape_markdown(check.configuration)} | {' | '.join(figures)} | {p_value(check.p)} | {verdict} |"
        )
    if len(found.checks) > len(changed):
        unchanged = counted(len(found.checks) - len(changed), "configurations")
        lines += ["", f"{unchanged} with every score as in the baseline."]
    lines += [""] * bool(found.missing)
    lines += [
        f"- {escape_markdown(name)} has no score in this run: {escape_markdown(reason)}"
        for name, reason in found.missing.items()
    ]
    return "\n".join(lines)


def trend_markdown(found: History) -> str:
    """The runs that can be held together, the latest first, each with its best configuration and the change."""
    trend = found.trend()
    means = [entry.estimate.mean for entry in trend if entry.estimate is not None]
    bars = f": `{sparkline(means)}`" if len(means) > 1 else ""
    lines = [
        f"{found.metric} on the same documents and questions{bars}",
        "",
        "| run | best configuration | mean | 95 % interval | change |",
        "|---|---|--:|--:|--:|",
    ]
    before = [None, *means]
    rows = []
    for entry, earlier in zip(trend, before, strict=False):
        if entry.estimate is None:
            continue
        seen = entry.estimate
        name = entry.run[:TO_THE_SECOND] + (" (the baseline)" if entry.is_baseline else "")
        change = "" if earlier is None else signed(seen.mean - earlier)
        figures = f"{number(seen.mean)} | {interval(seen.low, seen.high)} | {change}"
        rows.append(f"| {name} | {escape_markdown(entry.configuration or '')} | {figures} |")
    return "\n".join([*lines, *reversed(rows)])


def generation_markdown(report: GenerationReport) -> str:
    """How many questions were kept, why others were not, and what it took."""
    stopped = [
        f"Stopped: {escape_markdown(report.stopped or '')}; {counted(report.unasked, 'questions')} not asked",
        "",
    ]
    documents, model = counted(report.documents, "documents"), escape_markdown(report.model)
    lines = [
        f"# {report.kept:,} of {counted(report.asked, 'questions')} kept",
        "",
        f"{report.evaluation_type} ground truth for {documents} by {model}",
        "",
        *(stopped if report.stopped else []),
        "| dropped because | questions | such as |",
        "|---|---:|---|",
        *(
            f"| {reason} | {dropped.count} | {escape_markdown(dropped.examples[0])} |"
            for reason, dropped in report.dropped.items()
        ),
        "",
        "| purpose | paid | cost | from the cache | failed |",
        "|---|---|---:|---|---:|",
        *(
            f"| {entry.purpose} | {usage_in_words(entry.fresh)} | {cost_in_words(entry.fresh.cost)} "
            f"| {usage_in_words(entry.cached)} | {entry.failed} |"
            for entry in report.ledger
        ),
    ]
    return "\n".join(lines) + "\n"


def usage_in_words(usage: ChatUsage) -> str:
    """Such as ``3 calls, 1,200 + 340 tokens``."""
    return f"{counted(usage.calls, 'calls')}, {usage.input_tokens:,} + {usage.output_tokens:,} tokens"


def cost_in_words(cost: float | None) -> str:
    """US dollars, to a hundredth of a cent; ``unknown`` without prices."""
    return "unknown" if cost is None else f"${cost:,.4f}"
