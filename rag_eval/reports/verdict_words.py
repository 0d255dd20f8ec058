"""Write the sentences about a run, which the page, Markdown, the terminal and Prefect show."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from rich.filesize import decimal

from rag_eval.formatting import cost_in_words, counted, number, percent, singular
from rag_eval.metrics.formulas import RecallWithinTokens
from rag_eval.metrics.metric import higher_is_better, score_name, split_name
from rag_eval.parts import label
from rag_eval.pipeline.references import digest_of
from rag_eval.reports.strip import USED_UP
from rag_eval.reports.verdict import CLOSE, FEWEST_QUESTIONS, Contender, RunVerdict
from rag_eval.reports.wording import finding, leaves_out_zero, listed, number_word, probability, typeset, unit_word
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.comparison import EQUAL_WITHIN, NEAR, margin_at, too_alike
from rag_eval.stats.intervals import Estimate

HARDLY_WORTH = 2_000
"""Number of further questions above which separating two configurations is hardly worth it."""

TRIVIAL_SHARE = 0.5
"""If the hits are this share of all chunks, every search finds nearly everything."""

MOST_NAMED = 3


@dataclass(frozen=True)
class VerdictWords:
    """A verdict in sentences; a field is empty if there is nothing to say.

    ``search`` says how much of a grid was evaluated. ``notes`` are caveats and omissions.
    """

    headline: str
    how_sure: str
    search: str
    cheaper: str
    engine: str
    change: str
    notes: list[str]

    @property
    def sections(self) -> dict[str, str]:
        """The sentences below the headline, by their headings."""
        sections = {
            "How sure": self.how_sure,
            "What was searched": self.search,
            "What is cheaper": self.cheaper,
            "What runs it": self.engine,
            "What would change this": self.change,
        }
        return {head: text for head, text in sections.items() if text}

    def __str__(self) -> str:
        return " ".join([f"{self.headline}.", *self.sections.values(), *self.notes])


def words_of(verdict: RunVerdict) -> VerdictWords:
    """Return the sentences of a verdict."""
    return VerdictWords(
        headline=_headline(verdict),
        how_sure=" ".join(_how_sure(verdict)),
        search=search_words(verdict.outcome),
        cheaper=" ".join(_cheaper(verdict)),
        engine=" ".join(_engine(verdict)),
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
    few = f"{counted(verdict.questions, 'questions')} {'is' if verdict.questions == 1 else 'are'}"
    return {
        "ship": f"{by}, ship {first.name}",
        "tied": f"{by}, these questions cannot separate {among if tied == count else f'{tied:,} of {among}'}",
        "alone": f"{first.name} was measured alone",
        "too few questions": f"{few} too few to recommend a configuration",
        "poor": f"None of {among} reaches half of {verdict.objective}",
    }[verdict.kind]


def _how_sure(verdict: RunVerdict) -> Iterator[str]:
    placed = [contender.placed for contender in verdict.contenders if contender.placed]
    if not placed:
        return
    first, others, tied = placed[0], len(placed) - 1, len(verdict.tied) - 1
    data = f"{counted(verdict.questions, 'questions')} about {counted(verdict.documents, 'documents')}"
    yield f"{first.name} {finding(verdict.objective, first.estimate)} ({data})."
    rival = next(iter(too_alike(placed)), None)
    if rival is not None and rival.against_best is not None:
        if rival.against_best.is_same:
            yield f"Every question scores the same with all {len(placed):,} configurations."
            return
        few = counted(rival.against_best.better + rival.against_best.worse, "questions")
        yield f"{rival.name} scores differently on {few}, too few for a significant difference."
        others, tied = others - 1, tied - 1
    elif first.probability is not None and others:
        near, chance = _margin_in_words(verdict, NEAR), probability(first.probability)
        yield f"It is the best of the {len(placed):,}, or within {near} of the best, with a probability of {chance}."
    yield from _others_in_words(others, tied, len(placed) - 1)


def _others_in_words(others: int, tied: int, compared: int) -> Iterator[str]:
    """Say how many others are tied with the first, after correction for this many comparisons."""
    if tied:
        every = "the other" if others == 1 else f"all {others:,} others"
        which = every if tied == others else f"{number_word(tied)} of the {others:,} others"
        after = f" after correction for {compared:,} comparisons" * (compared > 1)
        yield f"The difference from {which} is not significant{after}."
    elif others:
        yield "The other is significantly worse." if others == 1 else f"All {others:,} others are significantly worse."


def _cheaper(verdict: RunVerdict) -> Iterator[str]:
    cheap = verdict.named(verdict.cheapest)
    if cheap is None:
        return
    first, is_tied = verdict.contenders[0], verdict.kind == "tied"
    if cheap.name == first.name:
        yield from _first_is_cheapest(verdict, f"Take {first.name}: it is" if is_tied else "It is")
        return
    yield f"{'Take' if is_tied else 'Cheaper:'} {cheap.name}. It is {_gap(verdict, cheap)}."
    yield from _costs(cheap, first)
    if verdict.margin is not None and verdict.is_share:
        yield f"It gives up at most {100 * verdict.margin:.1f} points."
    if verdict.kind == "ship":
        yield f"Ship the first if {verdict.objective} matters most, and the cheaper one if its price does."


def _first_is_cheapest(verdict: RunVerdict, take: str) -> Iterator[str]:
    first, near = verdict.contenders[0], _margin_in_words(verdict, CLOSE)
    leaner = [contender for contender in verdict.contenders[1:] if contender.price(first) < first.price(first)]
    if len(verdict.close) > 1:
        yield f"{take} also the cheapest of the {len(verdict.close):,} within {near} of the best."
    elif not leaner:
        yield f"{take} also the cheapest of all."
    else:
        yield f"{take} the cheapest within {near} of the best."
        yield f"{leaner[0].name} is cheaper and {_gap(verdict, leaner[0])}."


def _engine(verdict: RunVerdict) -> Iterator[str]:
    """Say what runs the recommended search, and if nothing does, name the best that an engine runs."""
    chosen, best = verdict.recommended, verdict.runnable
    if chosen is None:
        return
    if chosen.engine is not None:
        yield f"{chosen.engine} runs the search of {chosen.name} as it is."
        return
    yield f"Only the reference search of rag-eval runs {chosen.name}."
    if best is None:
        yield "No other configuration runs in an engine as it is either: add one, such as retrieval: {type: lancedb}."
        return
    gap = f", {_gap(verdict, best)}" * (best is not verdict.contenders[0])
    yield f"The best that an engine runs as it is: {best.name} ({best.engine}){gap}."


def _costs(cheap: Contender, first: Contender) -> Iterator[str]:
    """Say what the cheaper one saves, and what it costs more."""
    saved = [] if "system" in cheap.parts else [f"no {part}" for part in first.parts if part not in cheap.parts]
    added = [f"{'an' if part == 'embedder' else 'a'} {part}" for part in cheap.parts if part not in first.parts]
    for text, is_less in _different_figures(cheap, first):
        (saved if is_less else added).append(text)
    yield f"It needs {', '.join(saved)}." if saved else "It costs the same."
    if added:
        yield f"But it needs {', '.join(added)}."


def _different_figures(cheap: Contender, first: Contender) -> Iterator[tuple[str, bool]]:
    """Yield the costs that differ between two configurations, and whether the first one's is lower."""
    figures, usual = _figures(cheap), _figures(first)
    if "system" in cheap.parts:
        del figures["index"]  # not measured
    if not cheap.slower_than(first):
        del figures["ms a search"]
    for unit, (size, written) in figures.items():
        other, other_written = usual[unit]
        # Figures that look the same when written save the reader nothing.
        if size is not None and other is not None and written != other_written:
            yield f"{written} {unit} instead of {other_written}", size < other


def _figures(contender: Contender) -> dict[str, tuple[float | None, str]]:
    """Return the costs of a configuration by unit: the figure, and how it is written."""
    latency, size = contender.outcome.latency_ms, contender.index_bytes
    return {
        "tokens a question": (contender.tokens, f"{contender.tokens or 0:,.0f}"),
        "texts to embed": (contender.texts, f"{contender.texts or 0:,}"),
        "ms a search": (latency, f"{latency or 0:.2f}"),
        "index": (size, decimal(size) if size else "no"),
    }


def _gap(verdict: RunVerdict, contender: Contender) -> str:
    """Say how far it is below the first, such as ``0.6 points lower [−1.4, 2.6], not significant after correction``."""
    unit = " points" if verdict.is_share else ""

    def written(value: float) -> str:
        text = f"{-100 * value:.1f}" if verdict.is_share else number(-value, contender.mean)
        return typeset(text if text.strip("-0.") else text.removeprefix("-"))

    low, high = contender.difference_interval
    ends = "" if low is None or high is None else f" [{written(high)}, {written(low)}]"
    corrected = " after correction" * leaves_out_zero(low, high)
    unsure = f", not significant{corrected}" * contender.among_best
    side = "lower" if higher_is_better(verdict.objective) else "higher"
    return f"{written(contender.difference)}{unit} {side}{ends}{unsure}"


def _margin_in_words(verdict: RunVerdict, margin: float) -> str:
    """Format a margin at the first's mean; for a share, in points."""
    scaled = margin_at(verdict.contenders[0].mean, margin)
    if not verdict.is_share:
        return number(scaled)
    points = f"{100 * scaled:.2g}"
    return f"{points} point" if points == "1" else f"{points} points"


def _changes(verdict: RunVerdict) -> Iterator[str]:
    """Say what would change the verdict: other budgets, documents left out, more questions."""
    remedies = {
        "alone": "Measure another configuration beside it to learn whether it is good.",
        "too few questions": f"Ask {FEWEST_QUESTIONS} questions or more, about as many documents as you can.",
        "poor": "Allow a larger budget, or try the change with the largest possible gain.",
    }
    if remedy := remedies.get(verdict.kind):
        yield remedy
    if verdict.kind not in ("ship", "tied"):
        return
    yield from _other_budgets(verdict)
    if verdict.deciding_documents:
        yield f"Without {' or without '.join(verdict.deciding_documents)} another configuration comes first."
    needed = verdict.questions_needed
    if needed and len(verdict.tied) > 1:
        worth = ", which is hardly worth it" * (needed > HARDLY_WORTH)
        pair = f"{verdict.contenders[0].name} and {verdict.contenders[1].name}"
        yield f"To separate {pair} takes about {counted(needed, 'questions')}{worth}."
    elif verdict.kind == "tied":
        yield "Ask more questions, about more documents, to separate them."


def _other_budgets(verdict: RunVerdict) -> Iterator[str]:
    """Name the nearest budgets, below and above, at which another is significantly better than the first."""
    strip, name = verdict.strip, verdict.contenders[0].name
    if strip is None or verdict.objective != score_name(strip.metric, "tokens", verdict.budget or 0):
        return
    # Where its own hits are used up, its recall is unknown.
    known = [at for at, mean in enumerate(strip.means[name]) if mean is not None]
    worse = [at for at in known if name not in strip.among[at]]
    here = strip.budgets.index(verdict.cut.size)
    sides = {"Below": worse[: bisect_right(worse, here)][-1:], "Above": worse[bisect_left(worse, here) :][:1]}
    for side, nearest in sides.items():
        for at in nearest:
            yield f"{side} about {strip.budgets[at]:,} tokens, {strip.first[at]} is significantly better."
    if known and not worse:
        low, high = strip.budgets[known[0]], strip.budgets[known[-1]]
        yield f"At no budget from {low:,} to {high:,} tokens is another significantly better."


def _notes(verdict: RunVerdict) -> Iterator[str]:
    outcome = verdict.outcome
    if verdict.contenders and verdict.contenders[0].placed:
        yield from cautions(outcome, verdict.contenders[0].placed.estimate)
        yield from _used_up(verdict)
        if outcome.copied_spans:
            spans = counted(outcome.copied_spans, "relevant spans")
            questions = counted(outcome.copied_questions, "questions")
            yield f"Copies of {spans} of {questions} count as found too; copies: off counts none."
        yield from (f"{note[:1].upper()}{note[1:]}." for note in (outcome.search.notes if outcome.search else ()))
    yield from outcome.notes
    if outcome.failures:
        yield f"{counted(len(outcome.failures), 'configurations')} failed."


def _used_up(verdict: RunVerdict) -> Iterator[str]:
    ended = {c.name: c.ended for c in verdict.contenders if c.ended is not None and c.ended > USED_UP}
    if ended:
        low, high = percent(min(ended.values())), percent(max(ended.values()))
        names = "; ".join([*ended][:MOST_NAMED])  # a name may have commas
        more = f" and {len(ended) - MOST_NAMED:,} more" * (len(ended) > MOST_NAMED)
        shares = low if low == high else f"{low} to {high}"
        yield f"The hits of {names}{more} end before {verdict.budget:,} tokens for {shares} of the questions."


def search_words(outcome: BenchmarkOutcome) -> str:
    """Say how much of a grid was evaluated; empty if all of it was, or if it was searched by another metric."""
    search = outcome.search
    if search is None or search.objective != outcome.ranking_metric:
        return ""
    share = f" ({percent(search.tokens / search.full_tokens)})" if search.full_tokens else ""
    cost = f", for {cost_in_words(search.cost)} of {cost_in_words(search.full_cost)}" if search.full_cost else ""
    chosen = f"{len(outcome.configurations):,} of {search.configurations:,} configurations"
    return (
        f"A guide chose {chosen}; the results of the others are estimated. "
        f"{search.tokens:,} of {search.full_tokens:,} tokens{share} were embedded{cost}."
    )


def cautions(outcome: BenchmarkOutcome, estimate: Estimate) -> Iterator[str]:
    """Give each caveat about the ranking, from the estimate of the best."""
    if estimate.units == 1:
        yield "One question says nothing about others: ask more."
    elif estimate.unit == "queries":
        yield "The questions are about so few documents that the result holds for these documents only."
    # Student's interval, of scores that may exceed 1, has no width if every unit has the same mean.
    if estimate.low is not None and estimate.high is not None and estimate.high - estimate.low <= EQUAL_WITHIN:
        unit = singular(unit_word(estimate))
        yield f"Every {unit} scores the same: the interval has no width and says nothing about the uncertainty."
    chunked = [configuration for configuration in outcome.configurations if configuration.configuration.system is None]
    yield from _trivial_cut(split_name(outcome.ranking_metric)[1].hits, [run.chunks.count for run in chunked])
    yield from _same_chunks(chunked)


def _trivial_cut(k: int | None, counts: list[int]) -> Iterator[str]:
    trivial = sum(k is not None and k >= TRIVIAL_SHARE * count for count in counts)
    if trivial:
        which = f" (in {trivial} of {len(counts)} configurations)" * (trivial < len(counts))
        remedy = "use more documents, smaller chunks or a smaller k"
        yield f"k = {k} of {counted(min(counts), 'chunks')} says little{which}: {remedy}."


def _same_chunks(configurations: list[ConfigurationOutcome]) -> Iterator[str]:
    """Name the chunkers that make the same chunks."""
    chunkers: dict[str, dict[str, None]] = {}
    for configuration in configurations:
        names = chunkers.setdefault(digest_of(configuration.chunk_tables), {})
        names[label(configuration.configuration.chunker)] = None
    alike = [f"{listed([*names])} make the same chunks" for names in chunkers.values() if len(names) > 1]
    if alike:
        more = f" So do {len(alike) - MOST_NAMED} more groups." * (len(alike) > MOST_NAMED)
        yield f"{'. '.join(alike[:MOST_NAMED])}: keep one of them.{more}"
