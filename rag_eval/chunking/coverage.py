"""What of a text its chunks leave out."""

from collections.abc import Iterable

from rag_eval.chunking.base import Cut


def uncovered_stretches(text: str, cuts: Iterable[Cut]) -> list[Cut]:
    """The stretches of the text outside all cuts, in order."""
    stretches = []
    covered = 0
    for start, end in sorted(cuts):
        if start > covered:
            stretches.append((covered, start))
        covered = max(covered, end)
    if covered < len(text):
        stretches.append((covered, len(text)))
    return stretches


def uncovered_characters(text: str, cuts: Iterable[Cut]) -> int:
    """How many characters outside all cuts are not whitespace."""
    return sum(count_characters(text[start:end]) for start, end in uncovered_stretches(text, cuts))


def count_characters(text: str) -> int:
    """How many characters are not whitespace."""
    return sum(map(len, text.split()))
