"""Figures and phrases of the reports."""

from collections.abc import Sequence

from rag_eval.formatting import interval, p_value
from rag_eval.stats.bootstrap import Estimate
from rag_eval.stats.comparison import Comparison

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def significance(comparison: Comparison) -> str:
    """Such as ``p = 0.012`` or ``p < 0.001``, after Holm's correction."""
    written = p_value(comparison.p_adjusted)
    return f"p < {written[1:]}" if written.startswith("<") else f"p = {written}"


def brackets(estimate: Estimate | Comparison, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """The interval, such as ``[0.588, 0.862]``; empty where there is none."""
    written = interval(estimate.low, estimate.high, with_sign=with_sign, beside=beside)
    return "" if estimate.low is None else f"[{typeset(written).replace('…', ', ')}]"


def typeset(figures: str) -> str:
    """Figures with a minus sign in place of the hyphen."""
    return figures.replace("-", "−")


def unit_word(estimate: Estimate) -> str:
    """What was resampled: ``questions`` or ``documents``."""
    return "questions" if estimate.unit == "queries" else "documents"


def number_word(number: int) -> str:
    """The number in letters, up to twelve."""
    return _NUMBERS[number - 1] if 1 <= number <= len(_NUMBERS) else f"{number:,}"


def listed(names: Sequence[str]) -> str:
    """Such as ``a``, ``a and b`` or ``a; b and c``: names may have commas."""
    *others, last = names
    return f"{'; '.join(others)} and {last}" if others else last


def be(number: int) -> str:
    """``is`` for one, ``are`` for others."""
    return "is" if number == 1 else "are"
