"""A run beside an earlier one: what changed, by how much, and how sure that is."""

from rag_eval.benchmark.compare import ComparedConfigurations, RunComparison
from rag_eval.formatting import counted, number, signed
from rag_eval.reports.html import Html, element, scrolling
from rag_eval.reports.wording import be, brackets, significance, typeset
from rag_eval.stats.comparison import Comparison

HEADINGS = {
    "configuration": False,
    "before": True,
    "after": True,
    "difference": False,
    "verdict": False,
    "questions better": True,
    "questions worse": True,
}
"""Of each whether its column is one of numbers."""


def verdict_sentence(compared: RunComparison) -> str:
    """Such as ``Compared with … by span_recall@5, of 12 configurations 1 is better and 2 are worse.``"""
    metric = compared.metrics[0]
    rows = compared.by_metric(metric)
    verdicts = [row.comparison.verdict for row in rows]
    counts = {kind: verdicts.count(kind) for kind in ("better", "worse") if kind in verdicts}
    together = counted(len(rows), "configurations")
    if all(row.comparison.is_same for row in rows):
        found = f"every question scores as before in {together}"
    elif not counts:
        found = f"none of {together} shows a difference"
    else:
        told = [f"{count} {be(count)} {kind}" for kind, count in counts.items()]
        found = f"of {together} {' and '.join(told)}"
    return f"Compared with {compared.before.run} by {metric}, {found}."


def data_sentences(compared: RunComparison) -> list[str]:
    """That the runs were measured on other data, if so."""
    return [f"Not measured on the same data: {'; '.join(compared.differences)}."] if compared.differences else []


def left_out_sentences(compared: RunComparison) -> list[str]:
    """A sentence for each way in which configurations miss their counterpart."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, fates in compared.fates().items():
        alike.setdefault(fates, []).append(name)
    return [f"Left out, {_fates(*fates)}: {'; '.join(names)}." for fates, names in alike.items()]


def verdict(comparison: Comparison) -> str:
    """In words, with how sure it is."""
    return "the same" if comparison.is_same else f"{comparison.verdict}, {significance(comparison)}"


def against_html(compared: RunComparison) -> Html:
    """The comparison by the ranking metric, and below it by the others by which a question changed."""
    first, *others = compared.metrics
    same = [name for name in others if all(row.comparison.is_same for row in compared.by_metric(name))]
    tables = [_table(compared, name) for name in others if name not in same]
    unchanged = [f"Every question scores as before by {', '.join(same)}."] if same else []
    return element(
        "section",
        element("h2", "Before and after", id="against-title"),
        *(element("p", sentence, class_="notice") for sentence in data_sentences(compared)),
        element("p", f"{verdict_sentence(compared)} {counted(compared.queries, 'questions')} in common."),
        _table(compared, first),
        element("details", element("summary", "By the other metrics"), *tables) if tables else None,
        *(element("p", sentence, class_="small") for sentence in (*unchanged, *left_out_sentences(compared))),
        id="against",
        aria_labelledby="against-title",
    )


def _fates(before: str, after: str) -> str:
    if before == after:
        return f"{before} in both runs"
    if "not there" in (before, after):
        here, fate = ("before", before) if after == "not there" else ("after", after)
        return f"only in the run {here}{', where it failed' if fate == 'failed' else ''}"
    return f"failed in the run {'before' if before == 'failed' else 'after'}"


def _table(compared: RunComparison, metric: str) -> Html:
    rows = [_row(row) for row in compared.by_metric(metric)]
    headings = [
        element("th", name, scope="col", class_="number" if is_number else None) for name, is_number in HEADINGS.items()
    ]
    head = element("thead", element("tr", *headings))
    caption = element("caption", f"{metric}; brackets are 95 % intervals, p after Holm's correction")
    return scrolling(element("table", caption, head, element("tbody", *rows)), f"Before and after, by {metric}")


def _row(row: ComparedConfigurations) -> Html:
    found = row.comparison
    beside = max(found.before, found.after)
    interval = "" if found.is_same else brackets(found, with_sign=True, beside=beside)
    return element(
        "tr",
        element("th", row.name, scope="row"),
        element("td", number(found.before, beside), class_="number"),
        element("td", number(found.after, beside), class_="number"),
        element(
            "td",
            element("strong", typeset(signed(found.difference, beside))),
            element("span", f" {interval}", class_="small"),
        ),
        element("td", verdict(found)),
        element("td", str(found.better), class_="number"),
        element("td", str(found.worse), class_="number"),
    )
