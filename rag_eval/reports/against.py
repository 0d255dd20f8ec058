"""Compare a run with an earlier one in words: what changed, by how much, and how certain that is."""

from typing import NamedTuple

from rag_eval.formatting import counted, number, signed
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.verdict_words import words_of
from rag_eval.reports.wording import brackets, tested, typeset
from rag_eval.results.compare import ComparedConfigurations, RunComparison


class ChangeText(NamedTuple):
    """One configuration before and after, as text."""

    before: str
    after: str
    difference: str
    interval: str
    verdict: str


def change_text(row: ComparedConfigurations) -> ChangeText:
    """Describe the change of a configuration; all figures have the same number of decimals."""
    comparison = row.comparison
    largest = max(comparison.before, comparison.after)
    return ChangeText(
        number(comparison.before, largest),
        number(comparison.after, largest),
        typeset(signed(comparison.difference, largest)),
        "" if comparison.is_same else brackets(comparison, with_sign=True, beside=largest),
        tested(comparison),
    )


def verdict_sentence(compared: RunComparison) -> str:
    """Write a sentence such as ``Compared with … by span_recall@5: of 12 configurations 1 is better``."""
    metric = compared.metrics[0]
    rows = compared.by_metric(metric)
    verdicts = [row.comparison.verdict for row in rows]
    counts = {kind: verdicts.count(kind) for kind in ("better", "worse") if kind in verdicts}
    together = counted(len(rows), "configurations")
    if not changed_in(compared, metric):
        result = f"every question scores as before in {together}"
    elif not counts:
        result = f"no change of {together} is significant"
    else:
        parts = [f"{count} {'is' if count == 1 else 'are'} {kind}" for kind, count in counts.items()]
        result = f"of {together} {' and '.join(parts)}"
    return f"Compared with {compared.before.run} by {metric}: {result}."


def recommendation_sentence(compared: RunComparison, before: RunVerdict, after: RunVerdict) -> str:
    """Say whether the recommendation changed since the earlier run, and how the two configurations changed."""
    old, new = before.shipped, after.shipped
    if old is None or new is None:
        if new is not None:
            return f"{new} is recommended; the earlier run recommended none."
        lost = "Neither run recommends a configuration" if old is None else f"{old} is no longer recommended"
        headline = words_of(after).headline
        return f"{lost}: {headline[0].lower()}{headline[1:]}."
    if old == new:
        return f"The recommendation stays {new}."
    rows = {name: row for row in compared.by_metric(compared.metrics[0]) for name in (row.before, row.after)}
    reasons = []
    if before.objective != after.objective:
        reasons.append(f"the objective is {after.objective} instead of {before.objective}")
    for name in (old, new):
        if name in rows:
            change = change_text(rows[name])
            reasons.append(f"{name} went from {change.before} to {change.after} ({change.verdict})")
        else:
            reasons.append(f"{name} is only in one of the runs")
    return f"The recommendation changed from {old} to {new}: {'; '.join(reasons)}."


def data_sentences(compared: RunComparison) -> list[str]:
    """Return a warning if the runs were measured on different data."""
    return [f"Not measured on the same data: {'; '.join(compared.differences)}."] if compared.differences else []


def changed_metrics(compared: RunComparison) -> list[str]:
    """Return the metrics, except the first, by which some question scores differently."""
    return [metric for metric in compared.metrics[1:] if changed_in(compared, metric)]


def changed_in(compared: RunComparison, metric: str) -> list[ComparedConfigurations]:
    """Return the configurations in which some question scores differently by a metric."""
    return [row for row in compared.by_metric(metric) if not row.comparison.is_same]


def other_metrics_sentence(compared: RunComparison) -> list[str]:
    """Say by which metrics after the first configurations differ significantly; empty if there are no others."""
    counts: dict[tuple[str, str], int] = {}
    others = [row for row in compared.rows if row.metric != compared.metrics[0]]
    for row in others:
        if row.comparison.verdict != "no difference shown":
            counts[row.metric, row.comparison.verdict] = counts.get((row.metric, row.comparison.verdict), 0) + 1
    if not others:
        return []
    which = ", ".join(f"{metric} ({count} {verdict})" for (metric, verdict), count in counts.items())
    tested = f"after correction for all {counted(len(others), 'comparisons')}"
    if not which:
        return [f"By the other metrics no difference is significant {tested}."]
    return [f"Significant by other metrics {tested}: {which}. --metric NAME shows one."]


def left_out_sentences(compared: RunComparison) -> list[str]:
    """Name the configurations that were not compared, one sentence for each reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, presence in compared.unpaired().items():
        alike.setdefault(presence, []).append(name)
    sentences = [f"Left out, {_presence(*presence)}: {'; '.join(names)}." for presence, names in alike.items()]
    if {("scored", "not there"), ("not there", "scored")} <= alike.keys():
        runs = f"{compared.before.run} {compared.after.run}"
        sentences.append(f"To compare a pair: rag-eval compare {runs} --configuration BEFORE=AFTER.")
    return sentences


def _presence(before: str, after: str) -> str:
    if before == after:
        return f"{before} in both runs"
    if "not there" in (before, after):
        run, state = ("before", before) if after == "not there" else ("after", after)
        return f"only in the run {run}{', where it failed' if state == 'failed' else ''}"
    return f"failed in the run {'before' if before == 'failed' else 'after'}"
