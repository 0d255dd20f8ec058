"""Figures and phrases of the reports."""

from collections.abc import Sequence

from rag_eval.formatting import interval, p_value
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.stats.bootstrap import Estimate
from rag_eval.stats.comparison import Comparison

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def finding(metric: str, estimate: Estimate) -> str:
    """Such as ``finds 73.9 % [64.2, 82.5] of the relevant text in the first five hits``."""
    column, cut = split_name(metric)
    known, value = metric_of(metric), with_interval(metric, estimate)
    if not known.meaning or column != known.label or cut.hits is None:
        return f"has {metric} {value}"
    return f"{known.meaning.format(value)} in the first {'hit' if cut.hits == 1 else f'{number_word(cut.hits)} hits'}"


def with_interval(metric: str, estimate: Estimate) -> str:
    """Such as ``73.9 % [64.2, 82.5]``; without an interval where there is none."""
    if estimate.low is None or estimate.high is None:
        return figure(metric, estimate.mean)
    low, high = (figure(metric, end).removesuffix(" %") for end in (estimate.low, estimate.high))
    return f"{figure(metric, estimate.mean)} [{low}, {high}]"


def figure(metric: str, value: float) -> str:
    """A share as a percentage, a count as it is."""
    return f"{100 * value:.1f} %" if metric_of(metric).measures == "share" else f"{value:,.0f}"


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


def byte_size(size: int) -> str:
    """Such as ``1.4 MB``."""
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} B"
