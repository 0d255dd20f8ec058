"""A run beside an earlier one, or the baseline, in words: what changed, by how much, and how sure that is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from rag_eval.distribution import PRODUCT
from rag_eval.formatting import counted, interval, number, p_value, signed, visible
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.verdict_words import words_of
from rag_eval.reports.wording import be, brackets, tested, typeset
from rag_eval.results.compare import ComparedConfigurations, RunComparison
from rag_eval.results.gate import Gate, GateCheck, changed_settings, counterpart

UNJUDGED = "The gate could not be judged"


class ChangeText(NamedTuple):
    """One configuration before and after, in writing."""

    before: str
    after: str
    difference: str
    interval: str
    verdict: str


def change_text(row: ComparedConfigurations) -> ChangeText:
    """Write the change of a configuration: all figures with the same number of decimals, the verdict with its p."""
    found = row.comparison
    largest = max(found.before, found.after)
    return ChangeText(
        number(found.before, largest),
        number(found.after, largest),
        typeset(signed(found.difference, largest)),
        "" if found.is_same else brackets(found, with_sign=True, beside=largest),
        tested(found),
    )


def gate_figures(check: GateCheck) -> list[str]:
    """Baseline, run, drop, its interval and p of a check, all figures with the same number of decimals."""
    largest = max(check.before, check.after)
    means = [number(value, largest) for value in (check.before, check.after, check.drop)]
    return [*means, interval(check.low, check.high, beside=largest), p_value(check.p)]


def gate_word(gate: Gate, check: GateCheck) -> str:
    """``ok``, ``inconclusive``, or what a configuration that fails did."""
    if not check.passed:
        return gate.moved
    return "inconclusive" if check.unsure else "ok"


def gate_warnings(gate: Gate) -> list[str]:
    """What to know before the verdict is trusted, a sentence each."""
    warnings = [f"{difference}." for difference in gate.differences] + [gate.warning] * bool(gate.warning)
    few = f"With so few {gate.unit} no {gate.move} can be significant, so none can fail the gate."
    return warnings if gate.can_fail else [*warnings, few]


def check_sentence(gate: Gate, check: GateCheck) -> str:
    """Such as ``span_recall@5 went from 0.880 to 0.830, a drop of 0.050 (95 % interval …, p 0.004): dropped``."""
    if not check.changed:
        return f"{gate.metric} has every score as in the baseline"
    before, after, moved, within, p = gate_figures(check)
    told = f"a {gate.move} of {moved} (95 % interval {within}, p {p})"
    return f"{gate.metric} went from {before} to {after}, {told}: {gate_word(gate, check)}"


def gate_faults(gate: Gate) -> dict[str, str]:
    """Why each configuration that fails the gate does, by its name."""
    failed = {one.configuration: check_sentence(gate, one) for one in gate.checks if not one.passed}
    return failed | {name: f"no score in this run: {reason}" for name, reason in gate.missing.items()}


def gate_junit(gate: Gate | Exception) -> bytes:
    """The gate as a JUnit report: a test case for each configuration, and the terms as properties.

    One that could not be judged is a single case with the error, so that CI has a report of every outcome.
    """
    if isinstance(gate, Exception):
        return _junit(UNJUDGED, {}, [("gate", "error", "error", str(gate))])
    faults, checks = gate_faults(gate), {one.configuration: check_sentence(gate, one) for one in gate.checks}
    terms = {"metric": gate.metric, "max_drop": f"{gate.max_drop:g}", "baseline": gate.baseline, "run": gate.run}
    kinds = {name: "missing" if name in gate.missing else gate.move for name in faults}
    cases = [
        (name, "failure", kinds[name], faults[name]) if name in faults else (name, "system-out", "", checks[name])
        for name in checks | gate.missing
    ]
    return _junit(gate.terms, terms, cases, gate_warnings(gate))


def _junit(
    title: str, terms: Mapping[str, str], cases: Sequence[tuple[str, str, str, str]], warnings: Sequence[str] = ()
) -> bytes:
    """A suite of cases, each with its name, the tag of what came of it, its type and its text."""
    tags = [tag for _, tag, _, _ in cases]
    counts = {"tests": str(len(cases)), "failures": str(tags.count("failure")), "errors": str(tags.count("error"))}
    suites = ElementTree.Element("testsuites", {"name": f"{PRODUCT} gate", **counts, "time": "0"})
    own = {"name": visible(title), **counts, "time": "0", "skipped": "0"}
    suite = ElementTree.SubElement(suites, "testsuite", own)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (*terms.items(), *(("warning", one) for one in warnings)):
        ElementTree.SubElement(properties, "property", {"name": name, "value": visible(value)})
    for name, tag, kind, text in cases:
        named = {"classname": f"{PRODUCT}.gate", "name": visible(name), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", named)
        if tag == "system-out":
            ElementTree.SubElement(case, tag).text = visible(text)
        else:
            ElementTree.SubElement(case, tag, {"type": kind, "message": visible(text)})
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def gate_annotations(gate: Gate | Exception) -> list[str]:
    """Workflow commands of GitHub that show the verdict beside a commit; no text in them can begin another."""
    if isinstance(gate, Exception):
        told = [("error", f"{PRODUCT} gate", f"{UNJUDGED}: {gate}")]
    else:
        told = [("error", name, fault) for name, fault in gate_faults(gate).items()]
        told += [("warning", one.configuration, check_sentence(gate, one)) for one in gate.checks if one.unsure]
        told += [("warning", f"{PRODUCT} gate", warning) for warning in gate_warnings(gate)]
        told.append(("notice", f"{PRODUCT} gate", gate.verdict))
    return [f"::{kind} title={_property(visible(title))}::{_message(visible(text))}" for kind, title, text in told]


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def verdict_sentence(compared: RunComparison) -> str:
    """Such as ``Compared with … by span_recall@5, of 12 configurations 1 is better and 2 are worse.``"""
    metric = compared.metrics[0]
    rows = compared.by_metric(metric)
    verdicts = [row.comparison.verdict for row in rows]
    counts = {kind: verdicts.count(kind) for kind in ("better", "worse") if kind in verdicts}
    together = counted(len(rows), "configurations")
    if not changed_in(compared, metric):
        found = f"every question scores as before in {together}"
    elif not counts:
        found = f"none of {together} shows a difference"
    else:
        told = [f"{count} {be(count)} {kind}" for kind, count in counts.items()]
        found = f"of {together} {' and '.join(told)}"
    return f"Compared with {compared.before.run} by {metric}, {found}."


def recommendation_sentence(compared: RunComparison, before: RunVerdict, after: RunVerdict) -> str:
    """Whether another configuration is recommended than in the run before, and how the two changed."""
    metric = compared.metrics[0]
    old, new = (one.shipped if one.kind == "ship" else None for one in (before, after))
    if old is None or new is None:
        if new is not None:
            return f"{new} is recommended; the run before recommended none."
        lost = "Neither run recommends a configuration" if old is None else f"{old} is no longer recommended"
        headline = words_of(after).headline
        return f"{lost}: {headline[0].lower()}{headline[1:]}."
    if old == new:
        return f"The recommendation stays {new}."
    rows = {name: row for row in compared.by_metric(metric) for name in (row.before, row.after)}
    by = [before.objective, after.objective]
    told = [f"the objective is {by[1]} instead of {by[0]}"] if by[0] != by[1] else []
    for name in (old, new):
        if name in rows:
            change = change_text(rows[name])
            told.append(f"{name} went from {change.before} to {change.after} ({change.verdict})")
        else:
            told.append(f"{name} is in one of the runs only")
    return f"The recommendation changed from {old} to {new}: {'; '.join(told)}."


def data_sentences(compared: RunComparison) -> list[str]:
    """A warning where the runs were measured on different data."""
    return [f"Not measured on the same data: {'; '.join(compared.differences)}."] if compared.differences else []


def changed_metrics(compared: RunComparison) -> list[str]:
    """The metrics after the first by which some question scores differently."""
    return [metric for metric in compared.metrics[1:] if changed_in(compared, metric)]


def changed_in(compared: RunComparison, metric: str) -> list[ComparedConfigurations]:
    """The configurations in which some question scores differently by a metric."""
    return [row for row in compared.by_metric(metric) if not row.comparison.is_same]


def left_out_sentences(compared: RunComparison) -> list[str]:
    """A sentence for each way in which configurations miss their counterpart, and how to compare those that changed."""
    alike: dict[tuple[str, str], list[str]] = {}
    changed: dict[str, list[str]] = {}
    runs = compared.before, compared.after
    for name, presence in compared.unpaired().items():
        alike.setdefault(presence, []).append(name)
        if presence == ("scored", "not there") and (other := counterpart(*runs, name)):
            changed.setdefault(changed_settings(*runs, name, other), []).append(f"{name}={other}")
    told = [f"Left out, {_presence(*presence)}: {'; '.join(names)}." for presence, names in alike.items()]
    for settings, pairs in changed.items():
        whose = f"{counted(len(pairs), 'configurations')} of the run before {be(len(pairs))} in the run after"
        command = f"rag-eval compare {compared.before.run} {compared.after.run} --configuration '{pairs[0]}'"
        told.append(f"{whose} with {settings}: {command} compares the {'first pair' if pairs[1:] else 'two'}.")
    return told


def _presence(before: str, after: str) -> str:
    if before == after:
        return f"{before} in both runs"
    if "not there" in (before, after):
        here, fate = ("before", before) if after == "not there" else ("after", after)
        return f"only in the run {here}{', where it failed' if fate == 'failed' else ''}"
    return f"failed in the run {'before' if before == 'failed' else 'after'}"
