"""Figures and phrases that the reports share."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from rag_eval.config.models import SECTIONS
from rag_eval.formatting import escape_markdown, interval, number, p_value, percent
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.parts import PartRecord
from rag_eval.parts.definition import shown
from rag_eval.results.outcome import ConfigurationOutcome
from rag_eval.stats.comparison import Comparison
from rag_eval.stats.intervals import Estimate

LESS_STRICT = (
    "the interval of one pair is not corrected, and may leave out 0 where the corrected test is not significant"
)
"""Why an interval and the test may seem to differ: Holm's correction, and few units that differ."""

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def significance(comparison: Comparison) -> str:
    """Write the p-value after Holm's correction, such as ``p = 0.012`` or ``p < 0.001``."""
    written = p_value(comparison.p_adjusted)
    return f"p < {written[1:]}" if written.startswith("<") else f"p = {written}"


def tested(comparison: Comparison) -> str:
    """Write what the corrected test says of a difference, with its p; ``the same`` if every query scores the same."""
    return "the same" if comparison.is_same else f"{comparison.verdict}, {significance(comparison)}"


def brackets(estimate: Estimate | Comparison, *, with_sign: bool = False, beside: float = 0.0) -> str:
    """Write an interval, such as ``[0.588, 0.862]``; empty if there is none."""
    written = interval(estimate.low, estimate.high, with_sign=with_sign, beside=beside)
    return "" if estimate.low is None else f"[{typeset(written).replace('…', ', ')}]"


def leaves_out_zero(low: float | None, high: float | None) -> bool:
    """Return whether the interval of a difference lies on one side of 0."""
    return low is not None and high is not None and not low <= 0 <= high


def typeset(figures: str) -> str:
    """Replace hyphens by minus signs."""
    return figures.replace("-", "−")


def unit_word(estimate: Estimate) -> str:
    """Name what was resampled: ``questions`` or ``documents``."""
    return "questions" if estimate.unit == "queries" else "documents"


def number_word(count: int) -> str:
    """Write a number in letters, up to twelve."""
    return _NUMBERS[count - 1] if 1 <= count <= len(_NUMBERS) else f"{count:,}"


def listed(names: Sequence[str]) -> str:
    """Join names, which may have commas: ``a``, ``a and b`` or ``a; b and c``."""
    *others, last = names
    return f"{'; '.join(others)} and {last}" if others else last


def points(difference: float | None) -> str:
    """Write a difference of shares in points, with sign and one decimal, such as ``−0.6``; a dash for None."""
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
    """Return the lines of a table and an empty line; the columns named in ``text`` are aligned left, others right."""
    head = [titles, ["---" if title in text else "---:" for title in titles]]
    return [*(f"| {' | '.join(map(escape_markdown, cells))} |" for cells in (*head, *rows)), ""]


def finding(metric: str, estimate: Estimate) -> str:
    """Write a mean in words, such as ``finds 73.9 % [64.2, 82.5] of the relevant text in the first five hits``."""
    (column, cut), known = split_name(metric), metric_of(metric)
    is_share, beside = known.measures == "share", math.inf if known.measures == "tokens" else estimate.mean
    mean, low, high = (
        None if value is None else f"{100 * value:.1f}" if is_share else number(value, beside)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    value = f"{mean}{' %' * is_share}{'' if low is None else f' [{low}, {high}]'}"
    if not known.meaning or column != known.label:
        return f"has {metric} {value}"
    meaning = known.meaning.format(value)
    if cut.hits is None:
        return f"{meaning} in {cut.size:,} tokens" if cut.kind == "tokens" else meaning
    return f"{meaning} in the first {'hit' if cut.hits == 1 else f'{number_word(cut.hits)} hits'}"


def settings_in_words(configuration: ConfigurationOutcome) -> str:
    """Spell out the name of a configuration, such as ``chunker markdown (max_chunk_size 1000) · retrieval hybrid``."""
    record, chunks = configuration.configuration, configuration.chunks
    parts = [(section, section.of(record)) for section in SECTIONS.values()]
    words = [
        f"{section.field} {_part_in_words(part)}" for section, part in parts if part and part.label != section.plain
    ]
    if chunks.count and record.system is None:
        words.append(f"chunks of {chunks.shortest:,} to {chunks.longest:,} characters")
    return " · ".join(words)


def _part_in_words(part: PartRecord) -> str:
    # A record does not say which settings its label has: they are those whose name or value is in it.
    label = f"/{_slashed(part.label.removeprefix(part.type))}/"
    settings = [
        f"{name} {_setting(value)}"
        for name, value in part.settings.items()
        if f"/{name}/" in label or (not isinstance(value, dict | list) and f"/{_slashed(shown(value))}/" in label)
    ]
    return f"{part.type} ({', '.join(settings)})" if settings else part.label


def _slashed(words: str) -> str:
    return re.sub("[ =]", "/", words.strip())


def _setting(value: object) -> str:
    """Write a setting; a part within a part is its type with all its settings."""
    if isinstance(value, Mapping) and "type" in value:
        inner = [
            f"{name} {_setting(item)}" for name, item in value.items() if name != "type" and item not in (None, [])
        ]
        return f"{value['type']} ({', '.join(inner)})" if inner else str(value["type"])
    return " + ".join(map(_setting, value)) if isinstance(value, list) else shown(value)
