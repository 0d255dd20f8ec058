"""Write results as Markdown: the report of a run, and Prefect's artifacts except the gate's."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rag_eval.formatting import asked, cost_in_words, counted, escape_markdown, interval, number, percent, signed
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.reports.against import change_text, changed_in, data_sentences, left_out_sentences
from rag_eval.reports.report import Report, facts
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.verdict_words import VerdictWords
from rag_eval.reports.why import Why
from rag_eval.reports.wording import markdown_table, points
from rag_eval.results.compare import RunComparison
from rag_eval.results.history import History, sparkline
from rag_eval.results.outcome import BenchmarkOutcome, StepRecord

if TYPE_CHECKING:
    from rag_eval.generation.candidates import GenerationReport
    from rag_eval.llm.cost import ChatUsage

TO_THE_SECOND = len("2026-01-31T12-00-00")


def report_markdown(report: Report) -> str:
    """Return the report of a run: verdict, ranking, reasons, changes since an earlier run, and provenance."""
    outcome, ranking = report.outcome, report.ranking
    lines = _verdict_lines(report.words)
    if ranking.rows:
        columns = ranking.shown_in("markdown")
        rows = [[f"{column.text(row)} {column.detail(row)}".strip() for column in columns] for row in ranking.rows]
        text = [column.title for column in columns if column.kind in ("name", "verdict")]
        lines += [*markdown_table([column.title for column in columns], rows, text), ranking.note, ""]
        lines += [*_strip_lines(report.verdict), *why_lines(report.why)]
    for title, section in (("Questions without an answer", report.no_answer), ("Unjudged", report.unjudged)):
        lines += [f"## {title}", "", *_paragraphs([" ".join(section.sentences)])] if section else []
    if outcome.failures:
        lines += ["## Failed", "", *_bullets(f"{name}: {f.reason}" for name, f in outcome.failures.items()), ""]
    if report.compared:
        lines += ["## Before and after", "", *_paragraphs([" ".join(report.since), *data_sentences(report.compared)])]
        lines += [*_comparison_lines(report.compared), ""]
        lines += _paragraphs([*report.drops, *left_out_sentences(report.compared)])
    lines += ["## Provenance", "", *markdown_table(("", " "), facts(outcome).items(), ("", " "))]
    return "\n".join(lines)


def _verdict_lines(words: VerdictWords) -> list[str]:
    lines = [f"# {escape_markdown(words.headline)}", ""]
    for head, text in words.sections.items():
        lines += [f"**{head}.** {escape_markdown(text)}", ""]
    return lines + [*_bullets(words.notes), ""] * bool(words.notes)


def _paragraphs(sentences: Iterable[str]) -> list[str]:
    return [line for sentence in sentences for line in (escape_markdown(sentence), "")]


def _bullets(sentences: Iterable[str]) -> list[str]:
    return [f"- {escape_markdown(sentence)}" for sentence in sentences]


def why_lines(why: Why) -> list[str]:
    """Return where the first two configurations lose recall and differ, and what to try next."""
    lines = []
    if why.losses:
        names = [*why.losses][:2]
        shares = {part: [why.losses[name][part] for name in names] for part in LOSS_PARTS}
        shares["total"] = [sum(column) for column in zip(*shares.values(), strict=True)]
        rows = [[part, *(percent(share, 1) for share in row)] for part, row in shares.items() if any(row)]
        intro = f"Relevant content that is not in the first {counted(why.k, why.kind)}, by the stage that lost it:"
        lines += ["## Why", "", intro, "", *markdown_table(["lost by", *names], rows, ["lost by"])]
        lines += _paragraphs([why.finding])
    if why.experiments:
        lines += ["## What to try next", "", "Gains are upper bounds on these questions, not forecasts.", ""]
    for number_, experiment in enumerate(why.experiments, 1):
        gain = "" if experiment.gain is None else f" At most {points(experiment.gain)} points."
        text = f"{escape_markdown(experiment.why)}{gain} Cost: {escape_markdown(experiment.cost)}."
        lines.append(f"{number_}. **{escape_markdown(experiment.title)}.** {text} `{experiment.setting}`")
    return lines + [""] * bool(why.experiments)


def _strip_lines(verdict: RunVerdict) -> list[str]:
    """Return the winners by budget; nothing if there is only one configuration."""
    if verdict.strip is None or len(verdict.contenders) < 2:
        return []
    stretches = verdict.strip.stretches()
    rows = [(f"{low:,}–{high:,} tokens" if low < high else f"{low:,} tokens", name) for low, high, name in stretches]
    return markdown_table(("first for a budget of", "configuration"), rows)


def _comparison_lines(compared: RunComparison) -> list[str]:
    """Return all configurations by the ranking metric; by the others, those in which a question changed."""
    first, *others = compared.metrics
    shown = compared.by_metric(first) + [row for metric in others for row in changed_in(compared, metric)]
    rows = []
    for row in shown:
        change = change_text(row)
        rows.append((row.name, row.metric, change.before, change.after, change.difference, change.verdict))
    titles = ("configuration", "metric", "before", "after", "difference", "verdict")
    lines = markdown_table(titles, rows, ("configuration", "metric", "verdict"))
    if unchanged := len(compared.rows) - len(shown):
        lines.append(f"Every question scores as before in {counted(unchanged, 'further comparisons')}.")
    return lines


def ground_truth_markdown(outcome: BenchmarkOutcome, files: Mapping[str, str], scored: str) -> str:
    """Return where the ground truth of a run came from, and what it cost.

    Args:
        outcome: The run.
        files: The files of its sources, by name.
        scored: Where the ground truth is as it was scored: the address on a server, or a path.
    """
    rows = [_step_cells(name, step) for name, step in outcome.steps.items() if "ground truth" in name]
    questions = asked(outcome.answerable, outcome.unanswerable)
    # A page on a server cannot link to a local file.
    where = f"[ground_truth.jsonl]({scored})" if scored.startswith("http") else f"ground_truth.jsonl: `{scored}`"
    lines = [f"# {questions} from {escape_markdown(outcome.ground_truth.name)}", ""]
    lines += markdown_table(("step", "work", "tokens", "cost"), rows, ("step", "work"))
    lines += [f"As this run scored them: {where}", ""]
    lines += [f"- {escape_markdown(title)}: `{path}`" for title, path in files.items()]
    return "\n".join(lines) + "\n"


def _step_cells(name: str, step: StepRecord) -> tuple[str, str, str, str]:
    """Return the name of a step, its state, such as ``computed (3 of 100 documents)``, its tokens and its cost."""
    effort = step.effort
    if effort is None:
        return name, step.state, "–", "–"
    work = f"{step.state} ({effort.fresh:,} of {effort.total:,} {effort.unit})"
    tokens = "–" if effort.tokens is None else f"{effort.tokens:,}"
    return name, step.state if step.state == "cached" else work, tokens, cost_in_words(effort.cost)


def trend_markdown(history: History) -> str:
    """Return the runs of the same grid on the same data, latest first, with the change of the best mean."""
    trend = [(entry, entry.estimate) for entry in history.trend() if entry.estimate is not None]
    means = [estimate.mean for _, estimate in trend]
    bars = f": `{sparkline(means)}`" if len(means) > 1 else ""
    rows = []
    for (entry, estimate), earlier in zip(trend, [None, *means], strict=False):
        name = entry.run[:TO_THE_SECOND] + (" (the baseline)" if entry.is_baseline else "")
        change = "" if earlier is None else signed(estimate.mean - earlier)
        ends = interval(estimate.low, estimate.high)
        rows.append((name, entry.configuration or "", number(estimate.mean), ends, change))
    titles = ("run", "best configuration", "mean", "95 % interval", "change")
    title = f"{history.metric} on the same documents, questions and configurations{bars}"
    return "\n".join([title, "", *markdown_table(titles, reversed(rows), titles[:2])])


def generation_markdown(report: "GenerationReport") -> str:
    """Return how many questions were kept, why others were dropped, and what it cost."""
    unasked = f"{counted(report.unasked, 'questions')} not asked"
    stopped = [f"Stopped: {escape_markdown(report.stopped)}; {unasked}", ""] if report.stopped else []
    documents, model = counted(report.documents, "documents"), escape_markdown(report.model)
    dropped = [(reason, f"{drop.count:,}", drop.examples[0]) for reason, drop in report.dropped.items()]
    ledger = []
    for entry in report.ledger:
        paid = (usage_in_words(entry.fresh), cost_in_words(entry.fresh.cost))
        ledger.append((entry.purpose, *paid, usage_in_words(entry.cached), str(entry.failed)))
    titles = ("purpose", "paid", "cost", "from the cache", "failed")
    lines = [
        f"# {report.kept:,} of {counted(report.asked, 'questions')} kept",
        "",
        f"{report.evaluation_type} ground truth for {documents} by {model}",
        "",
        *stopped,
        *markdown_table(("dropped because", "questions", "such as"), dropped, ("dropped because", "such as")),
        *markdown_table(titles, ledger, ("purpose", "paid", "from the cache")),
    ]
    return "\n".join(lines)


def usage_in_words(usage: "ChatUsage") -> str:
    """Return a text such as ``3 calls, 1,200 + 340 tokens``."""
    return f"{counted(usage.calls, 'calls')}, {usage.input_tokens:,} + {usage.output_tokens:,} tokens"
