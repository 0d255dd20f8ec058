"""Figures and phrases of the reports."""

import math
from collections.abc import Mapping, Sequence

from rag_eval.config.models import SECTIONS
from rag_eval.formatting import interval, number, p_value, percent
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.parts import PartRecord
from rag_eval.parts.definition import shown
from rag_eval.results.outcome import ConfigurationOutcome
from rag_eval.stats.comparison import Comparison
from rag_eval.stats.intervals import Estimate

LESS_STRICT = "the interval of one pair is less strict, and may leave out 0 where the test shows no difference"
"""Why an interval and what the test says may seem to differ: Holm's correction, and few units that differ."""

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def significance(comparison: Comparison) -> str:
    """Such as ``p = 0.012`` or ``p < 0.001``, after Holm's correction."""
    written = p_value(comparison.p_adjusted)
    return f"p < {written[1:]}" if written.startswith("<") else f"p = {written}"


def tested(comparison: Comparison) -> str:
    """What the corrected test says of a difference, with its p; ``the same`` where every query scores the same."""
    return "the same" if comparison.is_same else f"{comparison.verdict}, {significance(comparison)}"


def brackets(estimate: Estimate | Comparison, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """The interval, such as ``[0.588, 0.862]``; empty where there is none."""
    written = interval(estimate.low, estimate.high, with_sign=with_sign, beside=beside)
    return "" if estimate.low is None else f"[{typeset(written).replace('…', ', ')}]"


def leaves_out_zero(low: float | None, high: float | None) -> bool:
    """Whether the interval of a difference lies on one side of 0, which alone does not make the difference sure."""
    return low is not None and high is not None and not low <= 0 <= high


def typeset(figures: str) -> str:
    """Figures with a minus sign in place of the hyphen."""
    return figures.replace("-", "−")


def unit_word(estimate: Estimate) -> str:
    """What was resampled: ``questions`` or ``documents``."""
    return "questions" if estimate.unit == "queries" else "documents"


def number_word(count: int) -> str:
    """The number in letters, up to twelve."""
    return _NUMBERS[count - 1] if 1 <= count <= len(_NUMBERS) else f"{count:,}"


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


def probability(value: float) -> str:
    """A probability in per cent, without decimals; near certainty is bounded: ``over 99 %``, ``under 1 %``."""
    return "over 99 %" if value > 0.99 else "under 1 %" if value < 0.01 else percent(value)


def finding(metric: str, estimate: Estimate) -> str:
    """Such as ``finds 73.9 % [64.2, 82.5] of the relevant text in the first five hits``.

    A share is a percentage, a count as it is; without an interval where there is none.
    """
    (column, cut), known = split_name(metric), metric_of(metric)
    is_share, beside = known.measures == "share", math.inf if known.measures == "tokens" else estimate.mean
    mean, low, high = (
        None if value is None else f"{100 * value:.1f}" if is_share else number(value, beside)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    value = f"{mean}{' %' * is_share}{'' if low is None else f' [{low}, {high}]'}"
    if not known.meaning or column != known.label:
        return f"has {metric} {value}"
    found = known.meaning.format(value)
    if cut.hits is None:
        return f"{found} in {cut.size:,} tokens" if cut.kind == "tokens" else found
    return f"{found} in the first {'hit' if cut.hits == 1 else f'{number_word(cut.hits)} hits'}"


def settings_in_words(one: ConfigurationOutcome) -> str:
    """What stands behind the name of a configuration, such as ``chunker markdown (max_chunk_size 1000) · …``.

    The parts that the name tells, each with the settings that its label has, and how long the chunks came out.
    """
    record = one.configuration
    had = [(section, section.of(record)) for section in SECTIONS.values()]
    told = [f"{at.field} {_part_in_words(part)}" for at, part in had if part is not None and part.label != at.plain]
    chunks = one.chunks
    lengths = f"chunks of {chunks.shortest:,} to {chunks.longest:,} characters"
    return " · ".join([*told, *([lengths] if chunks.count and record.system is None else [])])


def _part_in_words(part: PartRecord) -> str:
    # A record does not say which settings its label has: they are those whose name or value is in it.
    words = f"/{_parted(part.label.removeprefix(part.type))}/"
    told = [
        f"{name} {_setting(value)}"
        for name, value in part.settings.items()
        if f"/{name}/" in words or (not isinstance(value, dict | list) and f"/{_parted(shown(value))}/" in words)
    ]
    return f"{part.type} ({', '.join(told)})" if told else part.label


def _parted(words: str) -> str:
    return words.strip().replace(" ", "/").replace("=", "/")


def _setting(value: object) -> str:
    """A setting in words; a part within a part is its type with all its settings."""
    if isinstance(value, Mapping) and "type" in value:
        own = [f"{name} {_setting(one)}" for name, one in value.items() if name != "type" and one not in (None, [])]
        return f"{value['type']} ({', '.join(own)})" if own else str(value["type"])
    if isinstance(value, list):
        return " + ".join(map(_setting, value))
    return shown(value)
