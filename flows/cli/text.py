"""Text that fits a terminal and does nothing to it."""

from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: nothing in it steers the terminal, is markup, or becomes an emoji; it is not wrapped."""
    console.print(Text(visible(text), style=style or ""), soft_wrap=True)


def visible(text: str) -> str:
    """The text with every character that would steer a terminal written as its escape."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def cut_in_the_middle(text: str, cells: int) -> str:
    """The text if it fits into so many cells, else its beginning and its end around an ellipsis."""
    return _cut(text, cells, (cells - 1) // 2)


@lru_cache(maxsize=16)
def told_apart(texts: tuple[str, ...], cells: int) -> dict[str, str]:
    """Each text as it is shown in so many cells: all are cut at the same place, where most stay different.

    That is the middle, or as near to it as can be.
    """
    middle = (cells - 1) // 2
    shown: dict[str, str] = {}
    for tail in sorted(range(max(cells, 1)), key=lambda tail: abs(tail - middle)):
        cut = {text: _cut(text, cells, tail) for text in texts}
        if not shown or len(set(cut.values())) > len(set(shown.values())):
            shown = cut
        if len(set(shown.values())) == len(shown):
            break
    return shown


def _cut(text: str, cells: int, tail: int) -> str:
    """The text in so many cells: if it does not fit, its beginning, an ellipsis, and ``tail`` cells of its end."""
    if cell_len(text) <= cells:
        return text
    if cells < 3:
        return set_cell_size(text, max(cells, 0))
    start = len(text)
    while cell_len(text[start - 1 :]) <= tail:
        start -= 1
    return f"{set_cell_size(text, cells - 1 - cell_len(text[start:]))}…{text[start:]}"
