"""Names to choose from, in an error message."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MOST = 8
"""How many names a message lists; of more, those nearest to what was written."""

MOST_COMPARED = 100
"""How many characters of what was written are compared: more are no name, and would take long."""


def choices(allowed: Iterable[str], written: object = "", separator: str = ", ") -> str:
    """``use one of`` the names; where they are many, the nearest to what was written and how many others there are.

    ``separator`` is for names that have commas.
    """
    names = list(allowed)
    if len(names) <= MOST:
        return f"use one of {separator.join(names)}"
    text = str(written)[:MOST_COMPARED].lower()
    nearest = sorted(names, key=lambda name: -SequenceMatcher(None, text, name.lower()).ratio())[: MOST - 2]
    shown = nearest if text else names[: MOST - 2]
    return f"use one of {separator.join(shown)} or {len(names) - len(shown)} others"


def suggestion(written: object, allowed: Iterable[str]) -> str:
    """A question whether one of the allowed names was meant; empty if none is close."""
    close = get_close_matches(str(written)[:MOST_COMPARED], allowed, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
