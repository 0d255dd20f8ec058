"""Figures and phrases of the reports."""

from collections.abc import Sequence

from rich.filesize import decimal

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


def points(difference: float | None) -> str:
    """A difference of shares in points, with sign and one decimal, such as ``−0.6``; a dash without one."""
    if difference is None:
        return "–"
    written = f"{100 * difference:+.1f}"
    return typeset(written) if written.strip("+-0.") else "0.0"


def share(value: float) -> str:
    """A share in per cent without decimals, such as ``59 %``."""
    return f"{100 * value:.0f} %"


def probability(value: float) -> str:
    """A probability in per cent, without decimals; near certainty is bounded: ``over 99 %``, ``under 1 %``."""
    return "over 99 %" if value > 0.99 else "under 1 %" if value < 0.01 else share(value)


def in_bytes(size: int) -> str:
    """A size such as ``4.2 MB``."""
    return decimal(size)
