"""Text that fits a terminal and does nothing to it."""

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
    if cell_len(text) <= cells:
        return text
    if cells < 3:
        return set_cell_size(text, max(cells, 0))
    start = len(text)
    while cell_len(text[start - 1 :]) <= (cells - 1) // 2:
        start -= 1
    return f"{set_cell_size(text, cells - 1 - cell_len(text[start:]))}…{text[start:]}"
