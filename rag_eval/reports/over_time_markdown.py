"""A run held against the baseline, and the runs before it, as Markdown."""

from rag_eval.reports.markdown import escape_markdown
from rag_eval.results.gate import Gate
from rag_eval.results.history import History, sparkline
from rag_eval.wording import counted, interval, number, p_value, signed

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
