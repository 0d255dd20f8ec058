"""The configurations in a verdict: what each finds by the objective, what it costs, and which is cheaper."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rich.filesize import decimal

from rag_eval.results.outcome import ConfigurationOutcome

ABOUT_THE_SAME = 0.05
"""Tokens or texts that differ by this share or less are no reason to choose one for its price."""

LATENCY_NOISE, LATENCY_STEP = 4.0, 1.0
"""Latencies are told apart where one is so many times the other, and so many milliseconds longer: the same search timed
again on a busy machine differs by less."""

Part = Literal["embedder", "reranker", "service", "system"]


@dataclass(frozen=True)
class Contender:
    """A configuration in the verdict: what it finds by the objective, against the first, and what it costs.

    ``low`` and ``high`` are the 95 % interval of its mean; None with one unit. ``difference`` is its mean minus the
    first's, in the direction of better, with its interval; 0 and None for the first itself. ``probability`` is that of
    being the best, or within 0.005 of it (1 %, of a mean below ½), on other such documents; None where too few
    questions differ. ``among_best`` says that it cannot be told apart from the first. ``ended`` is the share of the
    questions whose hits ended before the budget: it may find more with more hits; None where there is no budget.
    ``tokens`` are those of its context for a question; ``texts`` what was to be embedded, ``index_bytes`` what the
    vectors take on disk (0: none), ``latency_ms`` the time of a search, ``cost`` what models charged in US dollars,
    ``chunks`` how many there are: None where that is not known. ``parts`` are what it needs beside a search by words.
    """

    name: str
    mean: float
    low: float | None
    high: float | None
    difference: float
    difference_low: float | None
    difference_high: float | None
    probability: float | None
    among_best: bool
    ended: float | None
    tokens: float | None
    texts: int | None
    index_bytes: int
    latency_ms: float | None
    cost: float | None
    chunks: int
    parts: list[Part]


def price(one: Contender, first: Contender) -> tuple[float, ...]:
    """What makes one cheaper than another: fewer moving parts, then tokens, texts to embed, latency.

    Tokens and texts as a share of the first's, about the same being the same. A latency counts beyond its noise.
    """
    shares = [
        float("inf") if value is None else value / (usual or 1)
        for value, usual in ((one.tokens, first.tokens), (one.texts, first.texts))
    ]
    sizes = [1.0 if abs(share - 1) <= ABOUT_THE_SAME else share for share in shares]
    # What a whole system runs is not known: it is never the cheaper one.
    return ("system" in one.parts, len(one.parts), *sizes, slower(one.latency_ms, first.latency_ms))


def slower(own: float | None, other: float | None) -> int:
    """1 where a search takes longer than another beyond the noise, -1 where the other does, else 0."""
    if own is None or other is None or abs(own - other) < LATENCY_STEP:
        return 0
    return 1 if own > LATENCY_NOISE * other else -1 if other > LATENCY_NOISE * own else 0


def parts_of(one: ConfigurationOutcome) -> list[Part]:
    """What has to run beside a search by words."""
    record = one.configuration
    asks = [part for part in (record.context, record.queries, record.system) if part is not None]
    records = [part for part in (record.embedder, record.store, record.reranker, *asks) if part is not None]
    found: list[Part] = ["embedder"] if record.embedder is not None else []
    found += ["reranker"] if record.reranker is not None and record.reranker.type != "none" else []
    found += ["service"] if any(part.remote for part in records) else []
    found += ["system"] if record.system is not None else []
    return found


def costs(cheap: Contender, first: Contender) -> str:
    """What the cheaper one spares, and what it costs more, in words."""
    spared = [part for part in first.parts if part not in cheap.parts]
    added = [part for part in cheap.parts if part not in first.parts]
    told = [f"it needs no {' and no '.join(spared)}"] if spared and "system" not in cheap.parts else []
    more = [f"it needs {' and '.join(f'an {one}' if one[0] in 'aeiou' else f'a {one}' for one in added)}"] * bool(added)
    measured: list[tuple[float | None, float | None, Callable[[Any], str], str]] = [
        (cheap.tokens, first.tokens, "{:,.0f}".format, "tokens a question"),
        (cheap.texts, first.texts, "{:,}".format, "texts to embed"),
    ]
    if slower(cheap.latency_ms, first.latency_ms):
        measured.append((cheap.latency_ms, first.latency_ms, "{:.2f}".format, "ms a search"))
    if "system" not in cheap.parts:
        measured.append((cheap.index_bytes, first.index_bytes, lambda size: decimal(size) if size else "no", "index"))
    for own, other, write, what in measured:
        # Figures that are written the same are no saving to a reader.
        if own is not None and other is not None and write(own) != write(other):
            (told if own < other else more).append(f"{write(own)} {what} instead of {write(other)}")
    return (", ".join(told) or "it costs the same") + (f"; but {', '.join(more)}" if more else "")
