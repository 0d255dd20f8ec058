"""Format numbers, counts and suggestions for messages and reports."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from html import escape


def counted(number: int, plural: str) -> str:
    """Return a number and its noun: ``counted(1, "queries")`` is ``1 query``."""
    return f"{number:,} {plural if number != 1 else singular(plural)}"


def singular(plural: str) -> str:
    """Return the singular of a regular English plural."""
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def slug(text: str, longest: int) -> str:
    """Return a text as part of a name or an address, of ``a-z``, ``0-9`` and ``-``. It may be empty."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:longest].rstrip("-")


def number(value: float, beside: float = 0.0, sign: str = "") -> str:
    """Format a score with three decimals, and a count (10 or more, or shown ``beside`` one) without decimals."""
    digits = 3 if max(abs(value), abs(beside)) < 10 else 0
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"  # adding 0 turns -0 into 0


def signed(value: float, beside: float = 0.0) -> str:
    """Format a difference like ``number``, with its sign, or with ± if it rounds to 0."""
    text = number(value, beside, "+")
    return text if text.strip("+0.") else f"±{text[1:]}"


def interval(low: float | None, high: float | None, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """Format both ends of an interval with the same decimals. Return a dash if there is no interval."""
    if low is None or high is None:
        return "–"
    write = signed if with_sign else number
    widest = max(abs(low), abs(high), abs(beside))
    return f"{write(low, widest)}…{write(high, widest)}"


def percent(value: float, decimals: int = 0) -> str:
    """Format a share: ``percent(0.59)`` is ``59 %``."""
    return f"{100 * value:.{decimals}f} %"


def p_value(p: float) -> str:
    """Format a p-value with three decimals, or as ``<0.001``."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def cost_in_words(cost: float | None) -> str:
    """Format US dollars with four decimals. None, without known prices, is ``unknown``."""
    return "unknown" if cost is None else f"${cost:,.4f}"


MINUTE = 60.0


def asked(answerable: int, unanswerable: int) -> str:
    """Describe how many questions there are, and how many of them have an answer and are scored."""
    total = counted(answerable + unanswerable, "questions")
    return f"{total}, of which {answerable:,} have an answer" if unanswerable else total


def basis(questions: int, units: int, unit: str, whose: str = "") -> str:
    """Describe the sample behind a test: the answerable questions and the documents they are about."""
    about = counted(units, "documents") if unit == "documents" else "too few documents to generalise to others"
    return f"{counted(questions, 'questions')} with an answer{whose}, about {about}"


MOST = 8
"""Number of names that a message lists."""

MOST_COMPARED = 100
"""Number of characters of a wrong name that are compared with the allowed names."""


def choices(allowed: Iterable[str], written: object = "", separator: str = ", ") -> str:
    """Return ``use one of`` with the allowed names; if there are many, those closest to what was written.

    Args:
        allowed: The names to choose from.
        written: What was written instead of one of them.
        separator: What separates the names, for names that contain commas.
    """
    names = list(allowed)
    if len(names) <= MOST:
        return f"use one of {separator.join(names)}"
    text = str(written)[:MOST_COMPARED].lower()
    if text:
        names.sort(key=lambda name: -SequenceMatcher(None, text, name.lower()).ratio())
    return f"use one of {separator.join(names[: MOST - 2])} or {len(names) - MOST + 2} others"


def suggestion(written: object, allowed: Iterable[str]) -> str:
    """Return ``(did you mean …?)`` with the closest allowed name, or an empty text if none is close."""
    name = closest(str(written), allowed)
    return f" (did you mean {name}?)" if name is not None else ""


def closest(written: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that is most similar to what was written, or None if none is close."""
    return next(iter(get_close_matches(written[:MOST_COMPARED], allowed, n=1)), None)


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown, on one line: it cannot start a cell, a tag, a link, an entity or code."""
    return " ".join(re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", text).split())


def visible(text: str) -> str:
    """Escape the characters that would control a terminal or are invalid in XML."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def html_table(titles: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table for a notebook, with all texts escaped and four decimals."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{_html_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape("" if value is None else str(value))
