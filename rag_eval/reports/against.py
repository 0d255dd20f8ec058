"""A run beside an earlier one: what changed, by how much, and how sure that is."""

from collections.abc import Sequence

from rag_eval.reports.html import Html, element, together
from rag_eval.reports.ranking import p_value, signed
from rag_eval.reports.wording import be
from rag_eval.results.compare import ComparedConfigurations, RunComparison
from rag_eval.wording import counted

HEADINGS = ("configuration", "before", "after", "difference", "verdict", "questions better", "worse")


def verdict_sentence(compared: RunComparison) -> str:
    """Such as ``Compared with … by span_recall@5, 1 of 12 configurations is better and 2 are worse.``"""
    metric = compared.metrics[0]
    verdicts = [row.comparison.verdict for row in compared.rows if row.metric == metric]
    better, worse = verdicts.count("better"), verdicts.count("worse")
    of = f"of {counted(len(verdicts), 'configurations')}"
    if not better and not worse:
        found = f"none {of} shows a difference"
    else:
        found = f"{better} {of} {be(better)} better and {worse} {be(worse)} worse"
    return f"Compared with {compared.before.run} by {metric}, {found}."


def against_html(compared: RunComparison) -> Html:
    """The comparison by the ranking metric, and below it by the others."""
    first, *others = compared.metrics
    notes = [f"Not measured on the same data: {'; '.join(compared.differences)}."] if compared.differences else []
    if compared.left_out:
        notes.append(f"Left out: {'; '.join(f'{name}: {fate}' for name, fate in compared.left_out.items())}.")
    return element(
        "section",
        element("h2", "Before and after", id="against-title"),
        *(element("p", note, class_="notice") for note in notes),
        element(
            "p", verdict_sentence(compared), f" {counted(compared.queries, 'questions')} in common.", class_="lead"
        ),
        _table(compared, first),
        element("details", element("summary", "By the other metrics"), *(_titled(compared, name) for name in others))
        if others
        else None,
        id="against",
        aria_labelledby="against-title",
    )


def _titled(compared: RunComparison, metric: str) -> Html:
    return together(element("h3", metric), _table(compared, metric))


def _table(compared: RunComparison, metric: str) -> Html:
    compared_rows = [row for row in compared.rows if row.metric == metric]
    rows = [_row(row) for row in sorted(compared_rows, key=lambda row: -row.comparison.after)]
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in HEADINGS)))
    caption = element("caption", f"{metric}; brackets are 95 % intervals, p after Holm's correction")
    return element("div", element("table", caption, head, element("tbody", *rows)), class_="scroll", tabindex=0)


def _row(row: ComparedConfigurations) -> Html:
    found = row.comparison
    interval = "" if found.low is None or found.high is None else f" [{signed(found.low)}, {signed(found.high)}]"
    name = row.after if row.before == row.after else f"{row.before} → {row.after}"
    cells: Sequence[Html] = [
        element("th", name, scope="row"),
        element("td", f"{found.before:.3f}", class_="number"),
        element("td", f"{found.after:.3f}", class_="number"),
        element("td", element("strong", signed(found.difference)), element("span", interval, class_="small")),
        element("td", found.verdict, element("span", f" {p_value(found)}", class_="small")),
        element("td", str(found.better), class_="number"),
        element("td", str(found.worse), class_="number"),
    ]
    return element("tr", *cells)
