"""Numbers, counts and names to choose from, as messages and reports write them."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from html import escape


def counted(number: int, plural: str) -> str:
    """A number and its noun: ``counted(1, "queries")`` is "1 query"."""
    return f"{number:,} {plural if number != 1 else singular(plural)}"


def slug(text: str, longest: int) -> str:
    """A text as a part of names and addresses: ``a-z``, ``0-9`` and ``-`` in between; empty where nothing is left."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:longest].rstrip("-")


def singular(plural: str) -> str:
    """The singular of a regular English plural."""
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def number(value: float, beside: float = 0.0, sign: str = "") -> str:
    """A score with three decimals; a count of tokens, which is 10 or more or stands ``beside`` one, without."""
    digits = 3 if max(abs(value), abs(beside)) < 10 else 0
    # Adding 0 makes a zero of a minus zero.
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"


def signed(value: float, beside: float = 0.0) -> str:
    """A difference with its sign, as ``number`` writes it; ± where nothing is left of it."""
    written = number(value, beside, "+")
    return written if written.strip("+0.") else f"±{written[1:]}"


def interval(low: float | None, high: float | None, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """Both ends, written alike, or a dash when there is no interval."""
    if low is None or high is None:
        return "–"
    write = signed if with_sign else number
    widest = max(abs(low), abs(high), abs(beside))
    return f"{write(low, widest)}…{write(high, widest)}"


def percent(value: float, decimals: int = 0) -> str:
    """A share in per cent, such as ``59 %``."""
    return f"{100 * value:.{decimals}f} %"


def p_value(p: float) -> str:
    """A p-value with as many digits as matter."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def cost_in_words(cost: float | None) -> str:
    """US dollars, to a hundredth of a cent; ``unknown`` without prices."""
    return "unknown" if cost is None else f"${cost:,.4f}"


MINUTE = 60.0


def time_in_short(seconds: float) -> str:
    """A time in at most four cells, such as ``42s``, ``12m`` or ``3h``."""
    if seconds < MINUTE:
        return f"{min(round(seconds), 59)}s"
    return f"{seconds / MINUTE:.0f}m" if seconds < 100 * MINUTE else f"{seconds / MINUTE**2:.0f}h"


def asked(answerable: int, unanswerable: int) -> str:
    """How many questions there are: those with an answer are scored, those that are declared to have none are not."""
    every = counted(answerable + unanswerable, "questions")
    return f"{every}, of which {answerable:,} have an answer" if unanswerable else every


def basis(questions: int, units: int, unit: str, whose: str = "") -> str:
    """What a test rests on: questions that have an answer (in both runs, say), about so many documents."""
    told = f"{counted(questions, 'questions')} with an answer{whose}"
    about = counted(units, "documents") if unit == "documents" else "so few documents that it holds for these only"
    return f"{told}, about {about}"


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
    close = closest(str(written), allowed)
    return f" (did you mean {close}?)" if close is not None else ""


def closest(written: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that is most like what was written; None if none is close."""
    return next(iter(get_close_matches(written[:MOST_COMPARED], allowed, n=1)), None)


def escape_markdown(text: str) -> str:
    """Escape text for Markdown: it stays text on one line, and starts no cell, tag, link, entity or code."""
    for character in "\\`*_{}[]<>|#~&":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def visible(text: str) -> str:
    """Escape every character that would control a terminal, and that XML cannot hold."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def html_table(titles: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table for a notebook; every title and value is escaped, and numbers have four digits."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{_html_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape("" if value is None else str(value))
