"""The ranking of a run: one set of rows and columns that the terminal, Markdown, the page and Prefect render.

To add a column, add a ``RankingColumn`` to ``_columns``: each medium that it names shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import pyarrow as pa
from rich.filesize import decimal

from rag_eval.formatting import counted, html_table, number, signed
from rag_eval.metrics.formulas import TokensRetrieved
from rag_eval.metrics.metric import higher_is_better, metric_of, split_name
from rag_eval.reports.contenders import Contender, contenders_of
from rag_eval.reports.wording import brackets, number_word, points, probability, typeset, unit_word
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.stats.intervals import FEWEST_SURE
from rag_eval.tables import ResultTable

if TYPE_CHECKING:
    import polars

Medium = Literal["terminal", "wide", "markdown", "html", "prefect"]
CellValue = float | str | None
Value = TypeVar("Value", float, str)

WIDE: frozenset[Medium] = frozenset({"wide"})
"""A terminal shows these columns too where it is wide enough."""
EVERYWHERE: frozenset[Medium] = frozenset(get_args(Medium)) - WIDE
DOCUMENTS: frozenset[Medium] = frozenset({"markdown", "html"})
"""The media with room for details."""


@dataclass(frozen=True)
class RankingColumn:
    """A column: its title, the value of a row, how a value is written, and in which media it is shown.

    ``value`` is what a reader sorts by and what machines get; where it is None, ``missing`` is written. ``detail``
    follows the value where there is room. A column that is ``optional`` is left out where every value is None or 0.
    """

    title: str
    value: Callable[[Contender], CellValue]
    write: Callable[[Any], str] = str  # of the type that value returns
    detail: Callable[[Contender], str] = lambda row: ""
    explanation: str = ""
    media: frozenset[Medium] = EVERYWHERE
    kind: Literal["place", "name", "score", "verdict", "number"] = "number"
    optional: bool = False
    missing: str = "–"

    @property
    def is_context(self) -> bool:
        """Whether it is what the context of a question costs."""
        return split_name(self.title)[0] == TokensRetrieved.label

    @property
    def heading(self) -> str:
        return "tokens a question" if self.is_context else self.title

    def text(self, row: Contender) -> str:
        value = self.value(row)
        return self.missing if value is None else self.write(value)


@dataclass(frozen=True)
class ConfigurationRanking:
    """The configurations of a run, best first, and the columns that describe them."""

    metric: str
    rows: list[Contender]
    columns: list[RankingColumn]

    @classmethod
    def of(cls, outcome: BenchmarkOutcome, contenders: Sequence[Contender] | None = None) -> "ConfigurationRanking":
        """Return the ranking by the outcome's metric, of contenders that are tested, or else of means alone."""
        rows = [*(contenders_of(outcome) if contenders is None else contenders)]
        columns = _columns(outcome, rows)
        return cls(
            outcome.ranking_metric, rows, [one for one in columns if not one.optional or any(map(one.value, rows))]
        )

    def to_polars(self) -> "polars.DataFrame":
        """Return a row for each configuration, best first, as a polars frame."""
        return self._table().to_polars()

    def to_pandas(self) -> Any:
        """Return a row for each configuration as a pandas frame; raises ``ConfigurationError`` without pandas."""
        return self._table().to_pandas()

    def _table(self) -> ResultTable:
        return ResultTable(pa.table({one.title: [one.value(row) for row in self.rows] for one in self.columns}))

    def _repr_html_(self) -> str:
        columns = self.shown_in("html")
        return html_table([one.title for one in columns], [[one.text(row) for one in columns] for row in self.rows])

    def shown_in(self, *media: Medium) -> list[RankingColumn]:
        """Return the columns that one of the media shows, in order."""
        return [column for column in self.columns if column.media.intersection(media)]

    def records(self) -> list[dict[str, str | float]]:
        """Return the rows as Prefect shows them: values by the titles of their columns, numbers to four decimals."""

        def cell(value: CellValue) -> str | float:
            return "" if value is None else round(value, 4) if isinstance(value, float) else value

        return [{column.title: cell(column.value(row)) for column in self.shown_in("prefect")} for row in self.rows]

    @property
    def grouped(self) -> list[tuple[int, Contender]]:
        """The rows with their numbers from 0: those that may be the best, then those that are worse."""
        return sorted(enumerate(self.rows), key=lambda row: row[1].placed is not None and not row[1].among_best)

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share, which is written in per cent."""
        return metric_of(self.metric).measures == "share"

    @property
    def order(self) -> str:
        """How the rows are sorted by the metric, as a heading says it."""
        return "descending" if higher_is_better(self.metric) else "ascending"

    @property
    def scale(self) -> tuple[float, float]:
        """The range of the bars that draw the intervals: of a share from a full tenth to 1, else all there is."""
        tested = [row for row in self.rows if row.placed is not None]
        lows, ends = (
            [row.mean if row.interval[end] is None else row.interval[end] or 0.0 for row in tested] for end in (0, 1)
        )
        if self.is_share:
            return min(0.9, floor(10 * min(lows, default=0.0)) / 10), 1.0
        return min(0.0, *lows, 0.0), max(0.0, *ends, 0.0) or 1.0

    def tick(self, value: float, decimals: int = 0) -> str:
        """Write a value of the metric on a scale: of a share in per cent."""
        return f"{100 * value:.{decimals}f}" if self.is_share else number(value)

    def apart(self, difference: float) -> str:
        """Write a difference by the metric: of a share in points."""
        return points(difference) if self.is_share else typeset(signed(difference))

    @property
    def mark_meaning(self) -> str:
        """What ``≈`` says of a configuration; empty where none has it."""
        if not any(row.may_be_best for row in self.rows):
            return ""
        compared = len(self.rows) - 1
        corrected = f" corrected for {compared:,} comparisons" * (compared > 1)
        return f"not distinguishable from the first on these questions, by a paired test{corrected}"

    @property
    def note(self) -> str:
        """How the intervals and the differences were computed; empty where there are none."""
        if not self.rows or self.rows[0].placed is None:
            return ""
        first = self.rows[0].placed.estimate
        units = counted(first.units, unit_word(first))
        narrow = f", slightly too narrow for fewer than {number_word(FEWEST_SURE)}" * (first.units < FEWEST_SURE)
        interval = (
            f"Intervals are 95 % bootstrap intervals over {units}{narrow}."
            if first.low is not None
            else f"There are no intervals: {units} cannot be resampled."
        )
        if len(self.rows) == 1:
            return interval
        return f"{interval} Differences are tested on the same {counted(first.n, 'questions')}, with Holm's correction."


def _columns(outcome: BenchmarkOutcome, rows: Sequence[Contender]) -> list[RankingColumn]:
    metric, beside = outcome.ranking_metric, outcome.beside
    # The metrics beside the objective are shown everywhere, at other numbers of hits in Prefect only.
    others = [name for name in outcome.measured if name != metric and name not in beside]
    is_tested = any(row.placed is not None for row in rows)
    return [
        RankingColumn("#", lambda row: row.place, kind="place"),
        RankingColumn("configuration", lambda row: row.name, kind="name"),
        _metric_column(metric, rows, kind="score"),
        *(_test_columns(max((row.mean for row in rows), default=0.0)) if is_tested else []),
        *(_metric_column(name, rows) for name in beside),
        *(_metric_column(name, rows, media=frozenset({"prefect"})) for name in others),
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


def _metric_column(
    name: str,
    rows: Sequence[Contender],
    kind: Literal["score", "number"] = "number",
    media: frozenset[Medium] = EVERYWHERE,
) -> RankingColumn:
    # Tokens are whole, however few.
    most = (
        inf if metric_of(name).measures == "tokens" else max((row.outcome.metrics[name] for row in rows), default=0.0)
    )
    return RankingColumn(
        name,
        lambda row: row.outcome.metrics[name],
        lambda value: number(value, most),
        _interval if kind == "score" else lambda row: "",
        kind=kind,
        media=media,
    )


def _interval(row: Contender) -> str:
    return brackets(row.placed.estimate) if row.placed else ""


def _test_columns(most: float) -> list[RankingColumn]:
    return [
        RankingColumn("95 % interval", _interval, media=WIDE),
        RankingColumn(
            "best with",
            lambda row: row.probability,
            probability,
            explanation="Probability of being the best, or within half a point of the best",
            media=DOCUMENTS - {"html"} | WIDE,
        ),
        RankingColumn(
            "against the best",
            lambda row: row.placed.against_best.difference if row.placed and row.placed.against_best else None,
            lambda value: typeset(signed(value, most)),
            lambda row: row.verdict,
            media=DOCUMENTS,
            kind="verdict",
            missing="",
        ),
    ]


_COST_COLUMNS = [
    RankingColumn(title, value, write, explanation=explanation, media=DOCUMENTS | WIDE, optional=True)
    for title, value, write, explanation in [
        (
            "latency ms",
            lambda row: row.outcome.latency_ms,
            "{:.2f}".format,
            "Mean time to search and rerank for one question, after a warm-up; embedding it is not included",
        ),
        ("cost $", lambda row: row.outcome.cost, "{:.4f}".format, "What models charged when the work was done"),
        (
            "tokens read",
            lambda row: row.outcome.tokens,
            "{:,}".format,
            "Tokens that models read of the chunks and questions, kept vectors included",
        ),
        ("index", lambda row: row.index_bytes or None, decimal, "Size of the vectors and their index on disk"),
    ]
]
