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
    """Write baseline, run, drop, its interval and p, all with the same number of decimals."""
    largest = max(check.before, check.after)
    means = [number(value, largest) for value in (check.before, check.after, check.drop)]
    return [*means, interval(check.low, check.high, beside=largest), p_value(check.p)]


def gate_word(gate: Gate, check: GateCheck) -> str:
    """Return ``ok``, ``inconclusive``, or a word for what a failing configuration did."""
    if not check.passed:
        return gate.moved
    return "inconclusive" if check.unsure else "ok"


def gate_warnings(gate: Gate) -> list[str]:
    """Return reasons to be cautious about the verdict."""
    warnings = [f"{difference}." for difference in gate.differences] + [gate.warning] * bool(gate.warning)
    if not gate.can_fail:
        warnings.append(f"With so few {gate.unit} no {gate.move} can be significant, so none can fail the gate.")
    return warnings


def check_sentence(gate: Gate, check: GateCheck) -> str:
    """Write such as ``span_recall@5 went from 0.880 to 0.830, a drop of 0.050 (95 % interval …, p 0.004): dropped``."""
    if not check.changed:
        return f"{gate.metric}: every query scores as in the baseline"
    before, after, moved, ends, p = gate_figures(check)
    change = f"a {gate.move} of {moved} (95 % interval {ends}, p {p})"
    return f"{gate.metric} went from {before} to {after}, {change}: {gate_word(gate, check)}"


@dataclass(frozen=True)
class GateCase:
    """A configuration of the gate, as CI shows it."""

    name: str
    state: Literal["passed", "failure", "error"]
    kind: str
    text: str


def gate_cases(gate: Gate | Exception) -> list[GateCase]:
    """Return a case for each configuration; a gate that could not be tested is a single case with the error."""
    if isinstance(gate, Exception):
        return [GateCase("gate", "error", "error", str(gate))]
    checks = [
        GateCase(check.configuration, "passed" if check.passed else "failure", gate.move, check_sentence(gate, check))
        for check in gate.checks
    ]
    missing = [
        GateCase(name, "failure", "missing", f"no score in this run: {reason}") for name, reason in gate.missing.items()
    ]
    return checks + missing


def gate_junit(gate: Gate | Exception) -> bytes:
    """Return a JUnit report with a test case for each configuration and the terms as properties."""
    cases, properties = gate_cases(gate), list[tuple[str, str]]()
    if not isinstance(gate, Exception):
        properties = [("metric", gate.metric), ("max_drop", f"{gate.max_drop:g}"), ("baseline", gate.baseline)]
        properties += [("run", gate.run), *(("warning", warning) for warning in gate_warnings(gate))]
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
        annotations = [("error", case.name, case.text) for case in gate_cases(gate) if case.state == "failure"]
        unsure = [check for check in gate.checks if check.unsure]
        annotations += [("warning", check.configuration, check_sentence(gate, check)) for check in unsure]
        annotations += [("warning", title, warning) for warning in gate_warnings(gate)]
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
        rows = []
        for check in changed:
            mark = "" if check.passed else "✗ "
            rows.append((check.configuration, *gate_figures(check), f"{mark}{gate_word(gate, check)}"))
        lines += ["", *markdown_table(titles, rows, ("configuration", "verdict"))]
    if same := len(gate.checks) - len(changed):
        lines += ["", f"Every query scores as in the baseline in {counted(same, 'configurations')}."]
    if gate.missing:
        lines.append("")
    for name, reason in gate.missing.items():
        lines.append(f"- {escape_markdown(name)} has no score in this run: {escape_markdown(reason)}")
    return "\n".join(lines)
