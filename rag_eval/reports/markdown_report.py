"""Results as Markdown: the report of a run, one configuration, the gate, the trend, and generated ground truth."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rag_eval.formatting import asked, cost_in_words, counted, escape_markdown, interval, number, percent, signed
from rag_eval.metrics.formulas import strip_metrics
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.reports.against import (
    UNJUDGED,
    change_text,
    changed_in,
    data_sentences,
    gate_figures,
    gate_warnings,
    gate_word,
    left_out_sentences,
)
from rag_eval.reports.no_answer import NoAnswer
from rag_eval.reports.report import Report, facts
from rag_eval.reports.unjudged import UnjudgedReport
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.verdict_words import VerdictWords
from rag_eval.reports.why import Why
from rag_eval.reports.wording import points
from rag_eval.results.compare import RunComparison
from rag_eval.results.gate import Gate
from rag_eval.results.history import History, sparkline
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome, StepRecord

if TYPE_CHECKING:
    from rag_eval.generation.candidates import GenerationReport
    from rag_eval.llm.cost import ChatUsage


def report_markdown(report: Report) -> str:
    """Return the answer, the ranked table, what failed, what changed since an earlier run, and the provenance."""
    outcome = report.outcome
    lines = verdict_lines(report.words)
    if report.ranking.rows:
        shown = report.ranking.shown_in("markdown")
        rows = [[f"{one.text(row)} {one.detail(row)}".strip() for one in shown] for row in report.ranking.rows]
        text = [one.title for one in shown if one.kind in ("name", "verdict")]
        lines += [*_table([one.title for one in shown], rows, text), report.ranking.note, ""]
        lines += [*_strip_lines(report.verdict), *why_lines(report.why)]
        lines += [*no_answer_lines(report.no_answer), *unjudged_lines(report.unjudged)]
    if outcome.failures:
        lines += ["## Failed", ""]
        lines += [f"- **{escape_markdown(n)}**: {escape_markdown(f.reason)}" for n, f in outcome.failures.items()]
        lines.append("")
    if report.compared:
        lines += ["## Before and after", "", *_paragraphs([" ".join(report.since), *data_sentences(report.compared)])]
        lines += [*_compared(report.compared), ""]
        lines += _paragraphs([*report.drops, *left_out_sentences(report.compared)])
    lines += ["## Provenance", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {escape_markdown(value)} |" for name, value in facts(outcome).items()]
    return "\n".join(lines) + "\n"


def verdict_lines(words: VerdictWords) -> list[str]:
    """Return the answer with what its name stands for, its sentences, and what to know besides."""
    lines = [f"# {escape_markdown(words.headline)}", "", *_paragraphs(filter(None, [words.made_of]))]
    for head, text in words.sections.items():
        lines += [f"**{head}.** {escape_markdown(text)}", ""]
    return lines + [f"- {escape_markdown(note)}" for note in words.notes] + [""] * bool(words.notes)


def _paragraphs(sentences: Iterable[str]) -> list[str]:
    return [line for sentence in sentences for line in (escape_markdown(sentence), "")]


def why_lines(why: Why) -> list[str]:
    """Where the first two lose what is relevant and differ, and what to try next."""
    lines = []
    if why.losses:
        found = why.losses.values()
        shares = {part: [one[part] for one in found] for part in LOSS_PARTS if any(one[part] for one in found)}
        shares["in all"] = [sum(one.values()) for one in found]
        rows = [[part, *(percent(share, 1) for share in own)] for part, own in shares.items()]
        told = f"What is relevant and not in the first {counted(why.k, why.kind)}, by the stage that lost it:"
        lines += ["## Why", "", told, "", *_table(["lost by", *why.losses], rows, ["lost by"])]
        lines += [escape_markdown(why.finding), ""]
    if why.experiments:
        lines += ["## What to try next", "", "Each with the most it could gain on these questions: no forecast.", ""]
    for place, one in enumerate(why.experiments, 1):
        gain = "" if one.gain is None else f" At most {points(one.gain)} points."
        told = f"{escape_markdown(one.why)}{gain} Cost: {escape_markdown(one.cost)}. `{one.setting}`"
        lines.append(f"{place}. **{escape_markdown(one.title)}.** {told}")
    return lines + [""] * bool(why.experiments)


def no_answer_lines(found: NoAnswer | None) -> list[str]:
    """What is returned for unanswerable questions, the threshold to keep that low, and the risk–coverage curve."""
    if found is None:
        return []
    lines = ["## Questions without an answer", "", *(escape_markdown(told) for told in found.sentences), ""]
    lines += [*_table(found.TITLES, found.rows()), escape_markdown(found.curve_note), ""]
    return lines + _table(found.CURVE_TITLES, found.curve_rows())


def unjudged_lines(found: UnjudgedReport | None) -> list[str]:
    """How much of what was retrieved nobody judged, and what that leaves open."""
    if found is None:
        return []
    return ["## Unjudged", "", escape_markdown(" ".join(found.sentences)), "", *_table(found.titles, found.rows())]


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], text: Collection[str] = ("configuration",)
) -> list[str]:
    """A table and an empty line after it; the columns of the titles in ``text`` hold text, the others figures."""
    return [_line(titles), _line("---" if title in text else "---:" for title in titles), *map(_line, rows), ""]


def _strip_lines(verdict: RunVerdict) -> list[str]:
    """Who is first at which budgets; nothing where there is but one configuration."""
    if verdict.strip is None or len(verdict.contenders) < 2:
        return []
    stretches = verdict.strip.stretches()
    rows = [(f"{low:,}–{high:,} tokens" if low < high else f"{low:,} tokens", name) for low, high, name in stretches]
    return _table(("first for a budget of", "configuration"), rows)


def _compared(compared: RunComparison) -> list[str]:
    """All configurations by the ranking metric; by the others, those in which a question changed."""
    first, *others = compared.metrics
    shown = compared.by_metric(first) + [row for metric in others for row in changed_in(compared, metric)]
    changes = [(row, change_text(row)) for row in shown]
    rows = [(row.name, row.metric, one.before, one.after, one.difference, one.verdict) for row, one in changes]
    titles = ("configuration", "metric", "before", "after", "difference", "verdict")
    left = len(compared.rows) - len(shown)
    unchanged = [f"Every question scores as before in {counted(left, 'further comparisons')}."] if left else []
    return _table(titles, rows, ("configuration", "metric", "verdict")) + unchanged


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |"


def work_in_words(step: StepRecord) -> str:
    """Return what became of a step, such as ``computed (3 of 100 documents)``."""
    if step.effort is None or step.state == "cached":
        return step.state
    return f"computed ({step.effort.fresh:,} of {step.effort.total:,} {step.effort.unit})"


def ground_truth_markdown(outcome: BenchmarkOutcome, files: Mapping[str, str], scored: str) -> str:
    """Return where the ground truth of a run came from and what that took.

    Args:
        outcome: The run.
        files: The files of its sources, by name.
        scored: Where the ground truth is as it was scored: the address on a server, or a place.
    """
    counts = asked(outcome.answerable, outcome.unanswerable)
    rows = []
    for name, step in outcome.steps.items():
        if "ground truth" in name:
            tokens = "–" if step.effort is None or step.effort.tokens is None else f"{step.effort.tokens:,}"
            cost = "–" if step.effort is None else cost_in_words(step.effort.cost)
            rows.append((name, work_in_words(step), tokens, cost))
    # A page of a server cannot link to a file, whose place is told instead.
    where = f"[ground_truth.jsonl]({scored})" if scored.startswith("http") else f"ground_truth.jsonl: `{scored}`"
    lines = [f"# {counts} from {escape_markdown(outcome.ground_truth.name)}", ""]
    lines += _table(("step", "work", "tokens", "cost"), rows, ("step", "work"))
    lines += [f"As this run scored them, to be read and reviewed: {where}", ""]
    lines += [f"- {escape_markdown(title)}: `{path}`" for title, path in files.items()]
    return "\n".join(lines) + "\n"


def configuration_markdown(outcome: ConfigurationOutcome) -> str:
    """Return the averages of a configuration, its chunks and its work."""
    chunks, strip = outcome.chunks, strip_metrics()
    means = [(name, f"{mean:.4f}") for name, mean in outcome.metrics.items() if name not in strip]
    work = [(name, work_in_words(step), f"{step.seconds:.2f}") for name, step in outcome.steps.items()]
    lines = [
        f"# {escape_markdown(outcome.name)}",
        "",
        f"{counted(outcome.queries, 'queries')}, {counted(chunks.count, 'chunks')} of {chunks.shortest:,} to "
        f"{chunks.longest:,} characters ({chunks.mean:,.0f} on average)",
        "",
        *_table(("metric", "mean"), means, ("metric",)),
        *_table(("step", "work", "seconds"), work, ("step", "work")),
    ]
    return "\n".join(lines) + "\n"


TO_THE_SECOND = len("2026-01-31T12-00-00")


def gate_markdown(found: Gate | Exception) -> str:
    """The verdict, and a row for every configuration with a score that is not as in the baseline."""
    if isinstance(found, Exception):
        return f"**{UNJUDGED}**: {escape_markdown(str(found))}"
    lines = [f"**{found.verdict}**", "", f"Compared with {found.baseline}: {found.terms}."]
    lines += [f"Warning: {escape_markdown(warning)}" for warning in gate_warnings(found)]
    changed = [check for check in found.checks if check.changed]
    if changed:
        titles = ("configuration", "baseline", "run", found.move, "95 % interval", "p", "verdict")
        rows = [
            (one.configuration, *gate_figures(one), f"{'' if one.passed else '✗ '}{gate_word(found, one)}")
            for one in changed
        ]
        lines += ["", *_table(titles, rows, ("configuration", "verdict"))]
    if len(found.checks) > len(changed):
        unchanged = counted(len(found.checks) - len(changed), "configurations")
        lines += [""] * (not changed) + [f"{unchanged} with every score as in the baseline."]
    lines += [""] * bool(found.missing)
    lines += [
        f"- {escape_markdown(name)} has no score in this run: {escape_markdown(reason)}"
        for name, reason in found.missing.items()
    ]
    return "\n".join(lines)


def trend_markdown(found: History) -> str:
    """The runs of the same grid on the same data, the latest first, each with its best configuration and the change."""
    trend = found.trend()
    means = [entry.estimate.mean for entry in trend if entry.estimate is not None]
    bars = f": `{sparkline(means)}`" if len(means) > 1 else ""
    titles = ("run", "best configuration", "mean", "95 % interval", "change")
    rows = []
    for entry, earlier in zip(trend, [None, *means], strict=False):
        if (seen := entry.estimate) is None:
            continue
        name = entry.run[:TO_THE_SECOND] + (" (the baseline)" if entry.is_baseline else "")
        change = "" if earlier is None else signed(seen.mean - earlier)
        rows.append((name, entry.configuration or "", number(seen.mean), interval(seen.low, seen.high), change))
    said = f"{found.metric} on the same documents, questions and configurations{bars}"
    return "\n".join([said, "", *_table(titles, reversed(rows), titles[:2])])


def generation_markdown(report: "GenerationReport") -> str:
    """How many questions were kept, why others were dropped, and what it cost."""
    unasked = f"{counted(report.unasked, 'questions')} not asked"
    stopped = [f"Stopped: {escape_markdown(report.stopped)}; {unasked}", ""] if report.stopped else []
    documents, model = counted(report.documents, "documents"), escape_markdown(report.model)
    dropped = [(reason, f"{one.count:,}", one.examples[0]) for reason, one in report.dropped.items()]
    ledger = []
    for one in report.ledger:
        paid = (usage_in_words(one.fresh), cost_in_words(one.fresh.cost))
        ledger.append((one.purpose, *paid, usage_in_words(one.cached), str(one.failed)))
    lines = [
        f"# {report.kept:,} of {counted(report.asked, 'questions')} kept",
        "",
        f"{report.evaluation_type} ground truth for {documents} by {model}",
        "",
        *stopped,
        *_table(("dropped because", "questions", "such as"), dropped, ("dropped because", "such as")),
        *_table(("purpose", "paid", "cost", "from the cache", "failed"), ledger, ("purpose", "paid", "from the cache")),
    ]
    return "\n".join(lines)


def usage_in_words(usage: "ChatUsage") -> str:
    """Such as ``3 calls, 1,200 + 340 tokens``."""
    return f"{counted(usage.calls, 'calls')}, {usage.input_tokens:,} + {usage.output_tokens:,} tokens"
