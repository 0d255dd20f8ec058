"""The first samples of an experiment as a table on a terminal of any width."""

from collections.abc import Iterator
from itertools import islice

from rich.table import Table
from rich.text import Text

from rag_eval.experiments.encoding import encode
from rag_eval.experiments.types import ExperimentResult, ItemResult, score_key

WIDEST_TEXT = 32
NARROWEST_TEXT = 10
WIDEST_TASK = 14
NAMES = ((24, 16), (16, NARROWEST_TEXT), (10, NARROWEST_TEXT))
"""How wide names of evaluators may be, widest first, while so much is left for each text."""
WIDEST_LINE = 22
"""Of a name and its score on one line."""
FRAME = 3
"""What a column takes beside its text."""


def sample_table(result: ExperimentResult, samples: int, width: int) -> Table:
    """A line for each task of each sample, with a column for each evaluator; one for all where they do not fit."""
    several = len(result.tasks) > 1
    task = min(WIDEST_TASK, max(map(len, result.tasks)))
    head = [len("Sample"), *([task] if several else [])]
    for longest, least in NAMES:
        scores = [max(len("failed"), min(len(name), longest)) for name in result.evaluators]
        left = _left(width, [*head, *scores])
        fits = left >= 2 * least or not result.evaluators
        if fits:
            break
    if not fits:
        scores = [min(WIDEST_LINE, max(map(len, result.evaluators)) + len(" failed"))]
        left = _left(width, [*head, *scores])
    each = max(NARROWEST_TEXT, min(WIDEST_TEXT, left // 2))
    table = Table()
    table.add_column("Sample", min_width=len("Sample"))
    if several:
        table.add_column("Task", width=task, no_wrap=True, overflow="ellipsis")
    for title in ("Input", "Output"):
        table.add_column(title, width=each, no_wrap=True, overflow="ellipsis")
    for name, size in zip(result.evaluators if fits else ["Scores"], scores, strict=True):
        table.add_column(Text(name), justify="right", width=size, overflow="fold")
    for item in islice(result.results, samples):
        for cells in _lines(item, result, several=several, fits=fits):
            table.add_row(*map(Text, cells))
    return table


def _left(width: int, taken: list[int]) -> int:
    """How much of a line the two texts may have."""
    return width - sum(taken) - FRAME * (len(taken) + 2) - 1


def _lines(item: ItemResult, result: ExperimentResult, *, several: bool, fits: bool) -> Iterator[list[str]]:
    longest = WIDEST_LINE - len(" failed")
    for place, task in enumerate(result.tasks):
        failed = {error.evaluator: error.message for error in item.errors if error.task == task}
        output = f"✗ {failed[None]}" if None in failed else item.task_results[place]
        head = [str(item.index + 1) if place == 0 else "", *([one_line(task)] if several else [])]
        texts = [one_line(item.input) if place == 0 else "", one_line(output)]
        keys = {name: score_key(result.tasks, task, name) for name in result.evaluators}
        shown = [f"{item.scores[key].value:.2f}" if key in item.scores else "failed" for key in keys.values()]
        if not fits:
            names = (name if len(name) <= longest else name[: longest - 1] + "…" for name in keys)
            shown = ["\n".join(f"{name} {value:>6}" for name, value in zip(names, shown, strict=True))]
        yield [*head, *texts, *shown]


def one_line(value: object) -> str:
    """A value on one line, cut, without what a terminal would obey."""
    text = value if isinstance(value, str) else encode(value).decode()
    line = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * WIDEST_TEXT])
    return line if len(line) <= WIDEST_TEXT and len(text) <= WIDEST_TEXT else line[: WIDEST_TEXT - 1] + "…"
