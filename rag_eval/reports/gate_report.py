"""Describe the gate in words: its rows and warnings, and its report for Markdown, JUnit and GitHub Actions."""

from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from rag_eval.distribution import PRODUCT
from rag_eval.formatting import counted, escape_markdown, interval, number, p_value, visible
from rag_eval.reports.wording import markdown_table
from rag_eval.results.gate import Gate, GateCheck

NOT_TESTED = "The gate could not be tested"


def gate_figures(check: GateCheck) -> list[str]:
    """Write baseline, run, drop, its interval and p, all with the same number of decimals.

    The p is that of the test that decided: of the certified one for FAIL, else of the sensitive one.
    """
    largest = max(check.before, check.after)
    means = [number(value, largest) for value in (check.before, check.after, check.drop)]
    p = check.p_certified if check.answer == "FAIL" else check.p_suspected
    return [*means, interval(check.low, check.high, beside=largest), p_value(p)]


def gate_warnings(gate: Gate) -> list[str]:
    """Return reasons to trust the verdict less."""
    return [f"{difference}." for difference in gate.differences] + [gate.warning] * bool(gate.warning)


def gate_notes(gate: Gate) -> list[str]:
    """Return what the gate can certify, and on what that rests; nothing if it had nothing to test."""
    return [gate.power, gate.assumption] if gate.checks else []


def check_sentence(gate: Gate, check: GateCheck) -> str:
    """Write such as ``FAIL: span_recall@5 went from 0.880 to 0.830, a drop of 0.050 (95 % interval …, p 0.004)``."""
    if not check.changed:
        return f"PASS: {gate.metric}: every query scores as in the baseline"
    before, after, moved, ends, p = gate_figures(check)
    change = f"a {gate.move} of {moved} (95 % interval {ends}, p {p})"
    return f"{check.answer}: {gate.metric} went from {before} to {after}, {change}"


@dataclass(frozen=True)
class GateCase:
    """A configuration of the gate, as CI shows it."""

    name: str
    state: Literal["passed", "failure", "error"]
    kind: str
    text: str
    annotation: Literal["error", "warning", ""]


def gate_cases(gate: Gate | Exception) -> list[GateCase]:
    """Return a case for each configuration; a gate that could not be tested is a single case with the error."""
    if isinstance(gate, Exception):
        return [GateCase("gate", "error", "error", str(gate), "error")]
    return [_check_case(gate, check) for check in gate.checks] + [
        GateCase(name, "failure", "missing", f"FAIL: no score in this run: {reason}", "error")
        for name, reason in gate.missing.items()
    ]


def _check_case(gate: Gate, check: GateCheck) -> GateCase:
    fails = check.answer == "FAIL" or (check.answer == "WARN" and gate.fail_on_warn)
    kind = gate.move if check.answer == "FAIL" else check.answer.lower()
    annotation: Literal["error", "warning", ""] = "error" if fails else "warning" if check.answer == "WARN" else ""
    text = check_sentence(gate, check)
    return GateCase(check.configuration, "failure" if fails else "passed", kind, text, annotation)


def gate_junit(gate: Gate | Exception) -> bytes:
    """Return a JUnit report with a test case for each configuration and the terms as properties."""
    cases, properties = gate_cases(gate), list[tuple[str, str]]()
    if not isinstance(gate, Exception):
        properties = [("answer", gate.answer), ("verdict", gate.verdict), ("metric", gate.metric)]
        properties += [("max_drop", f"{gate.max_drop:g}"), ("baseline", gate.baseline), ("run", gate.run)]
        properties += [("warning", warning) for warning in gate_warnings(gate)]
        properties += [("note", note) for note in gate_notes(gate)]
    states = [case.state for case in cases]
    counts = {"tests": len(cases), "failures": states.count("failure"), "errors": states.count("error"), "time": 0}
    totals = {name: str(count) for name, count in counts.items()}
    title = NOT_TESTED if isinstance(gate, Exception) else visible(gate.terms)
    suites = ElementTree.Element("testsuites", {"name": f"{PRODUCT} gate", **totals})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": title, **totals, "skipped": "0"})
    listed = ElementTree.SubElement(suite, "properties")
    for name, value in properties:
        ElementTree.SubElement(listed, "property", {"name": name, "value": visible(value)})
    for case in cases:
        attributes = {"classname": f"{PRODUCT}.gate", "name": visible(case.name), "time": "0"}
        element = ElementTree.SubElement(suite, "testcase", attributes)
        if case.state == "passed":
            ElementTree.SubElement(element, "system-out").text = visible(case.text)
        else:
            ElementTree.SubElement(element, case.state, {"type": case.kind, "message": visible(case.text)})
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def gate_annotations(gate: Gate | Exception) -> list[str]:
    """Return GitHub workflow commands that show the verdict beside a commit; texts cannot start other commands."""
    title = f"{PRODUCT} gate"
    if isinstance(gate, Exception):
        annotations = [("error", title, f"{NOT_TESTED}: {gate}")]
    else:
        annotations = [(case.annotation, case.name, case.text) for case in gate_cases(gate) if case.annotation]
        annotations += [("warning", title, warning) for warning in gate_warnings(gate)]
        annotations += [("notice", title, note) for note in gate_notes(gate)]
        annotations.append(("notice", title, gate.verdict))
    return [f"::{kind} title={_property(visible(name))}::{_message(visible(text))}" for kind, name, text in annotations]


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def gate_markdown(gate: Gate | Exception) -> str:
    """Return the verdict, and a row for every configuration in which a query scores differently."""
    if isinstance(gate, Exception):
        return f"**{NOT_TESTED}**: {escape_markdown(str(gate))}"
    lines = [f"**{gate.verdict}**", "", f"Compared with {gate.baseline}: {gate.terms}."]
    lines += [f"Warning: {escape_markdown(warning)}" for warning in gate_warnings(gate)]
    changed = [check for check in gate.checks if check.changed]
    if changed:
        titles = ("configuration", "baseline", "run", gate.move, "95 % interval", "p", "verdict")
        rows = [(check.configuration, *gate_figures(check), check.answer) for check in changed]
        lines += ["", *markdown_table(titles, rows, ("configuration", "verdict"))]
    if same := len(gate.checks) - len(changed):
        lines += ["", f"Every query scores as in the baseline in {counted(same, 'configurations')}."]
    if gate.missing:
        lines.append("")
    for name, reason in gate.missing.items():
        lines.append(f"- {escape_markdown(name)} has no score in this run: {escape_markdown(reason)}")
    if notes := gate_notes(gate):
        lines += ["", " ".join(map(escape_markdown, notes))]
    return "\n".join(lines)
