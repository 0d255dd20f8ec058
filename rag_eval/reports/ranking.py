"""Define the ranking of a run: one set of rows and columns that the terminal, Markdown, the page and Prefect render.

To add a column, add a ``RankingColumn`` to ``_columns``: each medium that it names shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import floor, inf
from typing import Literal, get_args

from rich.filesize import decimal

from rag_eval.formatting import counted, number, signed
from rag_eval.metrics.formulas import TokensRetrieved
from rag_eval.metrics.metric import higher_is_better, metric_of, split_name
from rag_eval.reports.verdict import Contender, contenders_of
from rag_eval.reports.wording import brackets, points, probability, typeset, unit_word
from rag_eval.results.outcome import BenchmarkOutcome

Medium = Literal["terminal", "wide", "markdown", "html", "prefect"]
CellValue = float | str | None

WIDE: frozenset[Medium] = frozenset({"wide"})
"""Columns that a terminal shows if it is wide enough."""
EVERYWHERE: frozenset[Medium] = frozenset(get_args(Medium)) - WIDE
DOCUMENTS: frozenset[Medium] = frozenset({"markdown", "html"})


@dataclass(frozen=True)
class RankingColumn:
    """A column of the ranking.

    Attributes:
        title: Its heading.
        value: What a row is sorted by and what machines get; None is written as ``missing``.
        write: How a number is written.
        detail: What follows the value in documents.
        explanation: What a tooltip says.
        media: Where it is shown.
        kind: What it holds.
        optional: Whether it is left out if every value is None or 0.
    """

    title: str
    value: Callable[[Contender], CellValue]
    write: Callable[[float], str] = str
    detail: Callable[[Contender], str] = lambda row: ""
    explanation: str = ""
    media: frozenset[Medium] = EVERYWHERE
    kind: Literal["place", "name", "score", "verdict", "number"] = "number"
    optional: bool = False
    missing: str = "–"

    @property
    def is_context(self) -> bool:
        """Whether the column holds the tokens of a question's context."""
        return split_name(self.title)[0] == TokensRetrieved.label

    @property
    def heading(self) -> str:
        return "tokens a question" if self.is_context else self.title

    def text(self, row: Contender) -> str:
        value = self.value(row)
        return value if isinstance(value, str) else self.missing if value is None else self.write(value)


@dataclass(frozen=True)
class ConfigurationRanking:
    """The configurations of a run, best first, and the columns that describe them."""

    metric: str
    rows: list[Contender]
    columns: list[RankingColumn]

    @classmethod
    def of(cls, outcome: BenchmarkOutcome, contenders: Sequence[Contender] | None = None) -> "ConfigurationRanking":
        """Return the ranking by the outcome's metric, with tested contenders or only means."""
        rows = [*(contenders_of(outcome) if contenders is None else contenders)]
        columns = [column for column in _columns(outcome, rows) if not column.optional or any(map(column.value, rows))]
        return cls(outcome.ranking_metric, rows, columns)

    def shown_in(self, *media: Medium) -> list[RankingColumn]:
        """Return the columns that one of the media shows, in order."""
        return [column for column in self.columns if column.media.intersection(media)]

    def records(self) -> list[dict[str, str | float]]:
        """Return the rows for Prefect: values by column title, numbers to four decimals."""

        def cell(value: CellValue) -> str | float:
            return "" if value is None else round(value, 4) if isinstance(value, float) else value

        return [{column.title: cell(column.value(row)) for column in self.shown_in("prefect")} for row in self.rows]

    @property
    def grouped(self) -> list[tuple[int, Contender]]:
        """The rows numbered from 0: first those that may be the best, then those that are worse."""
        return sorted(enumerate(self.rows), key=lambda row: row[1].placed is not None and not row[1].among_best)

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share, written in per cent."""
        return metric_of(self.metric).measures == "share"

    @property
    def order(self) -> str:
        """The value of ``aria-sort``."""
        return "descending" if higher_is_better(self.metric) else "ascending"

    @property
    def scale(self) -> tuple[float, float]:
        """The range of the bars that draw the intervals: for a share, from a full tenth to 1, else from 0."""
        ends = [end for row in self.rows if row.placed for end in (*row.interval, row.mean) if end is not None]
        if self.is_share:
            return min(0.9, floor(10 * min(ends, default=0.0)) / 10), 1.0
        return min([0.0, *ends]), max([0.0, *ends]) or 1.0

    def tick(self, value: float, decimals: int = 0) -> str:
        """Format a value of the metric on a scale; a share in per cent."""
        return f"{100 * value:.{decimals}f}" if self.is_share else number(value)

    def difference(self, difference: float) -> str:
        """Format a difference by the metric; for a share, in points."""
        return points(difference) if self.is_share else typeset(signed(difference))

    @property
    def mark_meaning(self) -> str:
        """The meaning of ``≈`` for a configuration; empty if none has it."""
        if not any(row.may_be_best for row in self.rows):
            return ""
        compared = len(self.rows) - 1
        corrected = f" after correction for {compared:,} comparisons" * (compared > 1)
        return f"not significantly different from the first on these questions, by a paired test{corrected}"

    @property
    def note(self) -> str:
        """How the intervals and the differences were computed; empty if there are none."""
        if not self.rows or self.rows[0].placed is None:
            return ""
        first = self.rows[0].placed.estimate
        units = counted(first.units, unit_word(first))
        interval = f"Intervals are 95 % confidence intervals over {units}."
        if first.low is None:
            interval = f"There are no intervals over {units}."
        tests = f" Differences are tested on the same {counted(first.n, 'questions')}, with Holm's correction."
        return interval + tests * (len(self.rows) > 1)


def _columns(outcome: BenchmarkOutcome, rows: Sequence[Contender]) -> list[RankingColumn]:
    metric, beside = outcome.ranking_metric, outcome.beside
    # The metrics beside the objective are shown everywhere; at other numbers of hits, only in Prefect.
    others = [name for name in outcome.measured if name != metric and name not in beside]
    is_tested = any(row.placed is not None for row in rows)
    return [
        RankingColumn("#", lambda row: row.place, kind="place"),
        RankingColumn("configuration", lambda row: row.name, kind="name"),
        replace(_metric_column(metric, rows), detail=_interval, kind="score"),
        *(_test_columns(max((row.mean for row in rows), default=0.0)) if is_tested else []),
        *(_metric_column(name, rows) for name in beside),
        *(replace(_metric_column(name, rows), media=frozenset({"prefect"})) for name in others),
        RankingColumn(
            "engine",
            lambda row: row.engine,
            explanation="What runs the search as it is; without one, only the reference search of rag-eval does",
            media=DOCUMENTS,
            optional=True,
        ),
        *_COST_COLUMNS,
        RankingColumn("chunks", lambda row: row.outcome.chunks.count, "{:,}".format),
        RankingColumn(
            "characters",
            lambda row: row.outcome.chunks.mean,
            "{:,.0f}".format,
            lambda row: f"({row.outcome.chunks.shortest:,}–{row.outcome.chunks.longest:,})",
            "Mean length of a chunk, and the lengths of the shortest and the longest",
            media=DOCUMENTS,
        ),
    ]


def _metric_column(name: str, rows: Sequence[Contender]) -> RankingColumn:
    # Tokens are whole numbers, however few.
    is_tokens = metric_of(name).measures == "tokens"
    largest = inf if is_tokens else max((row.outcome.metrics[name] for row in rows), default=0.0)
    return RankingColumn(name, lambda row: row.outcome.metrics[name], lambda value: number(value, largest))


def _interval(row: Contender) -> str:
    return brackets(row.placed.estimate) if row.placed else ""


def _test_columns(largest: float) -> list[RankingColumn]:
    return [
        RankingColumn("95 % interval", _interval, media=WIDE),
        RankingColumn(
            "best with",
            lambda row: row.probability,
            probability,
            explanation="Probability of being the best, or within half a point of the best",
            media=frozenset({"markdown", "wide"}),
        ),
        RankingColumn(
            "against the best",
            lambda row: row.versus.difference if row.versus else None,
            lambda value: typeset(signed(value, largest)),
            lambda row: row.verdict,
            media=DOCUMENTS,
            kind="verdict",
            missing="",
        ),
    ]


def _cost_column(
    title: str, value: Callable[[Contender], CellValue], write: Callable[[float], str], explanation: str
) -> RankingColumn:
    return RankingColumn(title, value, write, explanation=explanation, media=DOCUMENTS | WIDE, optional=True)


_COST_COLUMNS = [
    _cost_column(
        "latency ms",
        lambda row: row.outcome.latency_ms,
        "{:.2f}".format,
        "Mean time to search and rerank for one question, after a warm-up and without embedding the question",
    ),
    _cost_column(
        "cost $", lambda row: row.outcome.cost, "{:.4f}".format, "What models charged when the steps were computed"
    ),
    _cost_column(
        "tokens read",
        lambda row: row.outcome.tokens,
        "{:,}".format,
        "Tokens of the chunks and questions that models read, cached vectors included",
    ),
    _cost_column(
        "index",
        lambda row: row.index_bytes or None,
        lambda size: decimal(int(size)),
        "Size of the vectors and their index on disk",
    ),
]
