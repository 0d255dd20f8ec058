"""The verdict of a run in sentences, which the terminal, Markdown, the page and Prefect show alike."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.filesize import decimal

from rag_eval.formatting import cost_in_words, counted, percent, signed, singular
from rag_eval.metrics.formulas import RecallWithinTokens
from rag_eval.metrics.metric import score_name, split_name
from rag_eval.parts import label
from rag_eval.pipeline.references import digest_of
from rag_eval.reports.contenders import CLOSE, FEWEST_QUESTIONS, HALF, Contender
from rag_eval.reports.strip import USED_UP
from rag_eval.reports.verdict import RunVerdict
from rag_eval.reports.wording import (
    finding,
    leaves_out_zero,
    number_word,
    points,
    probability,
    settings_in_words,
    typeset,
    unit_word,
)
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.stats.comparison import EQUAL_WITHIN, NEAR, too_alike
from rag_eval.stats.intervals import Estimate

HARDLY_WORTH = 2_000
"""More questions than these to tell two configurations apart are hardly worth it."""

TRIVIAL_SHARE = 0.5
"""A context that is this share of all text finds much of the truth whatever the search does."""

MOST_NAMED = 3


@dataclass(frozen=True)
class VerdictWords:
    """A verdict in sentences, empty where there is nothing to say.

    ``made_of`` has the settings behind the name of what to ship or take, ``search`` how much of a grid was evaluated;
    ``notes`` are reasons to trust the verdict less, and what was left out.
    """

    headline: str
    made_of: str
    how_sure: str
    search: str
    cheaper: str
    change: str
    notes: list[str]

    @property
    def sections(self) -> dict[str, str]:
        """The sentences below the headline, by their heads."""
        told = {
            "How sure": self.how_sure,
            "What was searched": self.search,
            "What is cheaper": self.cheaper,
            "What would change this": self.change,
        }
        return {head: sentence for head, sentence in told.items() if sentence}

    def __str__(self) -> str:
        return " ".join([f"{self.headline}.", *self.sections.values(), *self.notes])


def words_of(verdict: RunVerdict) -> VerdictWords:
    """Return the sentences of a verdict."""
    return VerdictWords(
        headline=_headline(verdict),
        made_of=_made_of(verdict),
        how_sure=_how_sure(verdict),
        search=search_words(verdict.outcome),
        cheaper=_cheaper(verdict),
        change=" ".join(_changes(verdict)),
        notes=[*_notes(verdict)],
    )


def _headline(verdict: RunVerdict) -> str:
    if not verdict.contenders:
        return "No configuration finished"
    first, count, tied = verdict.contenders[0], len(verdict.contenders), len(verdict.tied)
    is_recall = split_name(verdict.objective)[0] == RecallWithinTokens.label
    by = f"For {verdict.budget:,} tokens of context" if verdict.budget and is_recall else f"By {verdict.objective}"
    among = f"the {count:,} configurations"
    return {
        "ship": f"{by}, ship {first.name}",
        "tied": f"{by}, these questions cannot tell {among if tied == count else f'{tied:,} of {among}'} apart",
        "alone": f"{first.name} was measured alone",
        "too few questions": f"{counted(verdict.questions, 'questions')} cannot tell which one to recommend",
        "poor": f"None of {among} reaches half of {verdict.objective}",
    }[verdict.kind]


def _made_of(verdict: RunVerdict) -> str:
    if verdict.kind not in ("ship", "alone", "tied"):
        return ""
    one = verdict.named(verdict.cheapest) if verdict.kind == "tied" else verdict.contenders[0]
    return f"{one.name}: {settings_in_words(one.outcome)}" if one else ""


def _how_sure(verdict: RunVerdict) -> str:
    placed = [one.placed for one in verdict.contenders if one.placed]
    if not placed:
        return ""
    first, others, named = placed[0], len(placed) - 1, 0
    about = f"over {counted(verdict.questions, 'questions')} about {counted(verdict.documents, 'documents')}"
    said = f"{first.name} {finding(verdict.objective, first.estimate)}, {about}"
    if not others:
        return f"{said}."
    chance, rival = "", next(iter(too_alike(placed)), None)
    if rival is not None and rival.against_best is not None:
        if rival.against_best.is_same:
            return f"{said}; every question scores the same with all {others + 1:,}."
        few = counted(rival.against_best.better + rival.against_best.worse, "questions")
        # Differences so few are never significant: the one that is named is among the tied, and counted once.
        chance, named = f"; {rival.name} differs from it on {few}, too few to say which is better", 1
    elif first.probability is not None:
        near = _margin_in_words(verdict, NEAR, "half a point")
        chance = f"; it is the best of the {others + 1:,}, or within {near} of it, with a probability of "
        chance += probability(first.probability)
        # One that differs more from the others is more often first, and more often last, with a lower mean.
        likely = max(placed[1:], key=lambda one: one.probability or 0.0)
        if round(100 * (likely.probability or 0.0)) > round(100 * first.probability):
            chance += f" ({likely.name}, whose mean is no higher, has {probability(likely.probability or 0.0)})"
    rest = _others(others - named, len(verdict.tied) - 1 - named)
    return f"{said}{chance}." if not rest else f"{said}{chance}{',' if chance else ';'} and {rest}."


def _others(count: int, tied: int) -> str:
    """Say how many of the others cannot be told apart from the first; empty where there are none."""
    if tied:
        which = "the other" if count == 1 else f"{number_word(tied)} {'other' if tied == 1 else 'others'}"
        return f"{which} cannot be told apart from it"
    return "" if not count else "the other is worse" if count == 1 else f"all {count:,} others are worse"


def _cheaper(verdict: RunVerdict) -> str:
    cheap = verdict.named(verdict.cheapest)
    if cheap is None:
        return ""
    first, is_tied = verdict.contenders[0], verdict.kind == "tied"
    near = _margin_in_words(verdict, CLOSE, "1 point")
    if cheap.name == first.name:
        also = f"Take {first.name}: it is" if is_tied else "It is"
        if len(verdict.close) > 1:
            return f"{also} also the cheapest of the {len(verdict.close):,} that come within {near} of it."
        leaner = [one for one in verdict.contenders[1:] if one.price(first) < first.price(first)]
        if not leaner:
            return f"{also} also the cheapest of all."
        return f"{also} the cheapest within {near}; {leaner[0].name}, cheaper, is next at {_gap(verdict, leaner[0])}."
    most = "" if verdict.margin is None or not verdict.is_share else f"at most {100 * verdict.margin:.1f} points"
    gap = _gap(verdict, cheap) + (f", {most} worse" if most and verdict.kind != "ship" else "")
    begins, whose = (f"Take {cheap.name}", "the first") if is_tied else (f"Cheaper: {cheap.name}", "it")
    told = f"{begins}, within {near} of {whose} ({gap}): {_costs(cheap, first)}."
    if verdict.kind != "ship":
        return told
    if not most:
        return f"{told} Ship the first if {verdict.objective} matters most, the cheaper one if its price does."
    return f"{told} Ship the first if points matter most; the cheaper one gives up {most}."


def _costs(cheap: Contender, first: Contender) -> str:
    """Say what the cheaper one saves, and what it costs more."""
    saved = [part for part in first.parts if part not in cheap.parts]
    added = [f"an {part}" if part[0] in "aeiou" else f"a {part}" for part in cheap.parts if part not in first.parts]
    is_system = "system" in cheap.parts
    less = [f"it needs no {' and no '.join(saved)}"] if saved and not is_system else []
    more = [f"it needs {' and '.join(added)}"] if added else []
    usual, unmeasured = _figures(first), {"index"} if is_system else set()
    unmeasured |= set() if cheap.slower_than(first) else {"ms a search"}
    for unit, (size, written) in _figures(cheap).items():
        other, other_written = usual[unit]
        # Figures that are written the same save nothing to a reader.
        if unit not in unmeasured and size is not None and other is not None and written != other_written:
            (less if size < other else more).append(f"{written} {unit} instead of {other_written}")
    return (", ".join(less) or "it costs the same") + (f"; but {', '.join(more)}" if more else "")


def _figures(one: Contender) -> dict[str, tuple[float | None, str]]:
    """Return what a configuration costs by unit: the figure, and how it is written."""
    latency, size = one.outcome.latency_ms, one.index_bytes
    return {
        "tokens a question": (one.tokens, f"{one.tokens or 0:,.0f}"),
        "texts to embed": (one.texts, f"{one.texts or 0:,}"),
        "ms a search": (latency, f"{latency or 0:.2f}"),
        "index": (size, decimal(size) if size else "no"),
    }


def _gap(verdict: RunVerdict, one: Contender) -> str:
    """Say how far one is from the first, such as ``−0.6 points [−2.6, +1.4]``, no surer than the test is."""
    if not verdict.is_share:
        return typeset(signed(one.difference, one.mean))
    low, high = one.difference_interval
    ends = "" if low is None else f" [{points(low)}, {points(high)}]"
    unsure = ", not significant after correction" if one.among_best and leaves_out_zero(low, high) else ""
    return f"{points(one.difference)} points{ends}{unsure}"


def _margin_in_words(verdict: RunVerdict, margin: float, written: str) -> str:
    """Write a margin: of a share of half and more in points, else in per cent of the first's mean."""
    is_small = abs(verdict.contenders[0].mean) < HALF
    return written if verdict.is_share and not is_small else f"{100 * margin * (2 if is_small else 1):g} %"


def _changes(verdict: RunVerdict) -> Iterator[str]:
    """Say what would change the verdict: other budgets, documents left out, more questions."""
    kind, needed = verdict.kind, verdict.questions_needed
    if kind == "alone":
        yield "Measure it beside another configuration to learn whether it is good."
    elif kind == "too few questions":
        yield f"Ask {FEWEST_QUESTIONS} or more, about as many documents as you can."
    elif kind == "poor":
        yield "Allow a larger budget, or try what could find most of the rest."
    if kind not in ("ship", "tied"):
        return
    yield from _other_budgets(verdict)
    if verdict.deciding_documents:
        yield f"Without {' or without '.join(verdict.deciding_documents)} another comes first."
    if needed and len(verdict.tied) > 1:
        worth = ", which is hardly worth it" if needed > HARDLY_WORTH else ""
        apart = f"{verdict.contenders[0].name} and {verdict.contenders[1].name}"
        yield f"To tell {apart} apart takes about {counted(needed, 'questions')}{worth}."
    elif kind == "tied":
        yield "Ask more questions, about more documents, to tell them apart."


def _other_budgets(verdict: RunVerdict) -> Iterator[str]:
    """Name the nearest budgets, below and above, at which another is surely better than the first."""
    strip, name = verdict.strip, verdict.contenders[0].name
    if strip is None or verdict.objective != score_name(strip.metric, "tokens", verdict.budget or 0):
        return
    here, means = strip.budgets.index(verdict.cut.size), strip.means[name]
    # Where its own hits are used up nothing is known of it.
    lost = [mean is not None and name not in among for mean, among in zip(means, strip.among, strict=True)]
    below = next((at for at in range(here, -1, -1) if lost[at]), None)
    above = next((at for at in range(here, len(lost)) if lost[at]), None)
    told = [
        f"{side} about {strip.budgets[at]:,} tokens {strip.first[at]} is better"
        for side, at in (("below", below), ("above", above))
        if at is not None
    ]
    if told:
        sentence = ", and ".join(told)
        yield f"{sentence[0].upper()}{sentence[1:]}."
    elif known := [at for at, mean in zip(strip.budgets, means, strict=True) if mean is not None]:
        yield f"At no budget from {known[0]:,} to {known[-1]:,} tokens is another surely better."


def _notes(verdict: RunVerdict) -> Iterator[str]:
    outcome = verdict.outcome
    if verdict.contenders and verdict.contenders[0].placed:
        yield from cautions(outcome, verdict.contenders[0].placed.estimate)
        yield from _ended(verdict)
        yield from copies_note(outcome)
        yield from (f"{note[:1].upper()}{note[1:]}." for note in (outcome.search.notes if outcome.search else ()))
    yield from outcome.notes
    if outcome.failures:
        yield f"{counted(len(outcome.failures), 'configurations')} failed."


def _ended(verdict: RunVerdict) -> Iterator[str]:
    ended = [(one.name, one.ended) for one in verdict.contenders if one.ended is not None and one.ended > USED_UP]
    if ended:
        low, high = (percent(pick(share for _, share in ended)) for pick in (min, max))
        shares = f"{low} of the questions" if low == high else f"{low} to {high} of the questions"
        names = ", ".join(name for name, _ in ended[:MOST_NAMED])
        more = f" and {len(ended) - MOST_NAMED:,} more" * (len(ended) > MOST_NAMED)
        yield f"The hits of {shares} end before {verdict.budget:,} tokens with {names}{more}."


def copies_note(outcome: BenchmarkOutcome) -> Iterator[str]:
    """Say how many spans of the ground truth have copies that count."""
    if outcome.copied_spans:
        spans = counted(outcome.copied_spans, "relevant spans")
        questions, verb = (
            counted(outcome.copied_questions, "questions"),
            "occurs" if outcome.copied_spans == 1 else "occur",
        )
        yield f"{spans} of {questions} {verb} elsewhere too, and a copy counts as found; copies: off counts none."


def search_words(outcome: BenchmarkOutcome) -> str:
    """Say how much of a grid was evaluated; empty where all was, or by another metric."""
    search = outcome.search
    if search is None or search.objective != outcome.ranking_metric:
        return ""
    held = search.holdout
    judged = ""
    if held is not None:
        judged = (
            f" {held.name}, the best on {held.questions:,} questions ({held.found:.3f}), has {held.held_out:.3f} on "
            f"{held.held_out_questions:,} about {held.held_out_documents:,} documents that were held out."
        )
    if search.strategy == "full":
        return judged.strip()
    share = f" ({percent(search.tokens / search.full_tokens)})" if search.full_tokens else ""
    spent = f"{search.tokens:,} of {search.full_tokens:,} tokens{share} were embedded"
    spent += f", {cost_in_words(search.cost)} of {cost_in_words(search.full_cost)}" if search.full_cost else ""
    chosen = f"{len(outcome.configurations):,} of {search.configurations:,} configurations"
    return f"Estimated: a guide chose {chosen}; what the others find is estimated. {spent}.{judged}"


def cautions(outcome: BenchmarkOutcome, estimate: Estimate) -> Iterator[str]:
    """Give each reason to trust the ranking less, from the estimate of the best."""
    if estimate.units == 1:
        yield "One question says nothing about others: ask more."
    elif estimate.unit == "queries":
        yield "The questions are about so few documents that all this holds for these documents only."
    # Where all that was resampled has the same mean, every resample has it, however few there are.
    if estimate.low is not None and estimate.high is not None and estimate.high - estimate.low <= EQUAL_WITHIN:
        every = f"Every {singular(unit_word(estimate))} scores the same"
        yield f"{every}: the interval has no width, and says nothing of how sure that is."
    # Where the hits are so many of the chunks, every search finds nearly everything.
    chunked = [one for one in outcome.configurations if one.configuration.system is None]
    k, counts = split_name(outcome.ranking_metric)[1].hits, [one.chunks.count for one in chunked]
    concerned = sum(k is not None and k >= TRIVIAL_SHARE * count for count in counts)
    if concerned:
        whose = f" (in {concerned} of {len(counts)} configurations)" * (concerned < len(counts))
        little = f"k = {k} of {counted(min(counts), 'chunks')} says little{whose}"
        yield f"{little}: use more documents, smaller chunks or a smaller k."
    # Chunkers that cut these documents alike are one contestant.
    by_chunks: dict[str, dict[str, None]] = {}
    for one in chunked:
        by_chunks.setdefault(digest_of(one.chunk_tables), {})[label(one.configuration.chunker)] = None
    same = [f"{other} cuts the same as {first}" for first, *others in by_chunks.values() for other in others]
    if same:
        rest = [f"so do {len(same) - MOST_NAMED} more"] if len(same) > MOST_NAMED else []
        yield f"{'; '.join(same[:MOST_NAMED] + rest)}: leave one of them out."
