"""Figures and phrases of the reports."""

import math
from collections.abc import Mapping, Sequence

from rag_eval.config.models import SECTIONS
from rag_eval.formatting import cost_in_words, counted, interval, number, p_value, percent, singular
from rag_eval.metrics.metric import metric_of, split_name
from rag_eval.parts import PartRecord, label
from rag_eval.parts.definition import shown
from rag_eval.pipeline.references import digest_of
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.comparison import EQUAL_WITHIN, Comparison
from rag_eval.stats.estimates import Estimate

TRIVIAL_SHARE = 0.5
"""A context that is this share of all text finds much of the truth whatever the search does."""

MOST_NAMED = 3

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


def copies_note(outcome: BenchmarkOutcome) -> list[str]:
    """A sentence on the spans of the truth whose copies count, where there are any."""
    if not outcome.copied_spans:
        return []
    spans, questions = counted(outcome.copied_spans, "relevant spans"), counted(outcome.copied_questions, "questions")
    verb = "occurs" if outcome.copied_spans == 1 else "occur"
    return [f"{spans} of {questions} {verb} elsewhere too, and a copy counts as found; copies: off counts none."]


def search_words(outcome: BenchmarkOutcome) -> str:
    """How much of a grid was evaluated and what is certain of the rest; empty where all was, or by another metric."""
    found = outcome.search
    if found is None or found.objective != outcome.ranking_metric:
        return ""
    done = len(outcome.configurations)
    part = f" ({percent(found.tokens / found.full_tokens)})" if found.full_tokens else ""
    spent = f"{found.tokens:,} of {found.full_tokens:,} tokens{part} were embedded"
    spent += f", {cost_in_words(found.cost)} of {cost_in_words(found.full_cost)}" if found.full_cost else ""
    held = found.holdout
    judged = ""
    if held is not None:
        judged = (
            f" {held.name}, the best on {held.questions:,} questions ({held.found:.3f}), has {held.held_out:.3f} on "
            f"{held.held_out_questions:,} about {held.held_out_documents:,} documents that were held out."
        )
    if found.strategy == "full":
        return judged.strip()
    told = f"a guide chose {done:,} of {found.configurations:,} configurations; what the others find is estimated"
    return f"Estimated: {told}. {spent}.{judged}"


def cautions(outcome: BenchmarkOutcome, estimate: Estimate) -> list[str]:
    """A sentence for each reason to trust the ranking less, given the estimate of the best."""
    found = []
    if estimate.units == 1:
        found.append("One question says nothing about others: ask more.")
    elif estimate.unit == "queries":
        found.append("The questions are about so few documents that all this holds for these documents only.")
    # Where all that was resampled has the same mean, every resample has it, however few there are.
    if estimate.low is not None and estimate.high is not None and estimate.high - estimate.low <= EQUAL_WITHIN:
        every = f"Every {singular(unit_word(estimate))} scores the same"
        found.append(f"{every}: the interval has no width, and says nothing of how sure that is.")
    # Where the hits are so many of the chunks, every search finds nearly everything.
    parted = [one for one in outcome.configurations if one.configuration.system is None]
    k, counts = split_name(outcome.ranking_metric)[1].hits, [one.chunks.count for one in parted]
    concerned = [count for count in counts if k is not None and k >= TRIVIAL_SHARE * count]
    if concerned:
        whose = f" (in {len(concerned)} of {len(counts)} configurations)" * (len(concerned) < len(counts))
        little = f"k = {k} of {counted(min(counts), 'chunks')} says little{whose}"
        found.append(f"{little}: use more documents, smaller chunks or a smaller k.")
    # Chunkers that cut these documents alike make one and the same contestant.
    by_chunks: dict[str, dict[str, None]] = {}
    for one in parted:
        by_chunks.setdefault(digest_of(one.chunk_tables), {})[label(one.configuration.chunker)] = None
    same = [f"{other} cuts the same as {first}" for first, *others in by_chunks.values() for other in others]
    rest = [f"so do {len(same) - MOST_NAMED} more"] if len(same) > MOST_NAMED else []
    return found + ([f"{'; '.join(same[:MOST_NAMED] + rest)}: leave one of them out."] if same else [])
