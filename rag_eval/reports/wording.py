"""Format figures and phrases that the reports share."""

import math
from collections.abc import Collection, Iterable, Sequence

from rag_eval.formatting import escape_markdown, interval, number, p_value, percent
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.stats.comparison import Comparison
from rag_eval.stats.intervals import Estimate

LESS_STRICT = (
    "the interval of one pair is not corrected, and may exclude 0 although the corrected test is not significant"
)
"""Why an interval and the test can seem to disagree: Holm's correction, and few units that differ."""

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def significance(comparison: Comparison) -> str:
    """Write the p-value after Holm's correction, such as ``p = 0.012`` or ``p < 0.001``."""
    written = p_value(comparison.p_adjusted)
    return f"p < {written[1:]}" if written.startswith("<") else f"p = {written}"


def tested(comparison: Comparison) -> str:
    """Describe the result of the corrected test with its p, or ``the same`` if every query scores the same."""
    return "the same" if comparison.is_same else f"{comparison.verdict}, {significance(comparison)}"


def brackets(estimate: Estimate | Comparison, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """Write an interval, such as ``[0.588, 0.862]``; empty if there is none."""
    written = interval(estimate.low, estimate.high, with_sign=with_sign, beside=beside)
    return "" if estimate.low is None else f"[{typeset(written).replace('…', ', ')}]"


def with_interval(estimate: Estimate) -> str:
    """Write a share with its interval, such as ``12.0 % [9.1, 14.9]``."""
    if estimate.low is None or estimate.high is None:
        return percent(estimate.mean, 1)
    return f"{percent(estimate.mean, 1)} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def leaves_out_zero(low: float | None, high: float | None) -> bool:
    """Return whether the interval of a difference excludes 0."""
    return low is not None and high is not None and not low <= 0 <= high


def typeset(figures: str) -> str:
    """Replace hyphens by minus signs."""
    return figures.replace("-", "−")


def unit_word(estimate: Estimate) -> str:
    """Name the resampled unit: ``questions`` or ``documents``."""
    return "questions" if estimate.unit == "queries" else "documents"


def number_word(count: int) -> str:
    """Write a number up to twelve in words."""
    return _NUMBERS[count - 1] if 1 <= count <= len(_NUMBERS) else f"{count:,}"


def listed(names: Sequence[str]) -> str:
    """Join names, which may have commas: ``a``, ``a and b`` or ``a; b and c``."""
    *others, last = names
    return f"{'; '.join(others)} and {last}" if others else last


def points(difference: float | None) -> str:
    """Format a difference of shares in points, with sign and one decimal, such as ``−0.6``; a dash for None."""
    if difference is None:
        return "–"
    written = f"{100 * difference:+.1f}"
    return typeset(written) if written.strip("+-0.") else "0.0"


def probability(value: float) -> str:
    """Write a probability in per cent; near certainty it is bounded: ``over 99 %``, ``under 1 %``."""
    return "over 99 %" if value > 0.99 else "under 1 %" if value < 0.01 else percent(value)


def markdown_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], text: Collection[str] = ("configuration",)
) -> list[str]:
    """Return the lines of a table and an empty line; columns named in ``text`` are aligned left, others right."""
    head = [titles, ["---" if title in text else "---:" for title in titles]]
    return [*(f"| {' | '.join(map(escape_markdown, cells))} |" for cells in (*head, *rows)), ""]


def finding(metric: str, estimate: Estimate) -> str:
    """Write a mean in words, such as ``finds 73.9 % [64.2, 82.5] of the relevant text in the first five hits``."""
    (column, cut), known = split_name(metric), metric_of(metric)
    is_share, beside = known.measures == "share", math.inf if known.measures == "tokens" else estimate.mean

    def written(value: float) -> str:
        return f"{100 * value:.1f}" if is_share else number(value, beside)

    value = f"{written(estimate.mean)}{' %' * is_share}"
    if estimate.low is not None and estimate.high is not None:
        value += f" [{written(estimate.low)}, {written(estimate.high)}]"
    if not known.meaning or column != known.label:
        return f"has {metric} {value}"
    meaning = known.meaning.format(value)
    if cut.hits is None:
        return f"{meaning} in {cut.size:,} tokens" if cut.kind == "tokens" else meaning
    return f"{meaning} in the first {'hit' if cut.hits == 1 else f'{number_word(cut.hits)} hits'}"
