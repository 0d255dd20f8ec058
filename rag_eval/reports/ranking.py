"""The ranking of a run: one set of rows and columns that the terminal, Markdown, the page and Prefect render.

To add a column, add a ``RankingColumn`` to ``ConfigurationRanking.of``: each medium that it names shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import floor, inf
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from rich.filesize import decimal

from rag_eval.formatting import counted, html_table, number, signed
from rag_eval.metrics.metric import higher_is_better, metric_of, split_name
from rag_eval.metrics.span_metrics import TokensRetrieved
from rag_eval.reports.wording import (
    LESS_STRICT,
    brackets,
    leaves_out_zero,
    number_word,
    points,
    probability,
    significance,
    typeset,
    unit_word,
)
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.stats.comparison import Placed, place_labels
from rag_eval.stats.estimates import FEWEST_SURE
from rag_eval.tables import ResultTable

if TYPE_CHECKING:
    import polars

Medium = Literal["terminal", "wide", "markdown", "html", "prefect"]
CellValue = float | str | None

WIDE: frozenset[Medium] = frozenset({"wide"})
"""A terminal shows these columns too where it is wide enough."""
EVERYWHERE: frozenset[Medium] = frozenset(get_args(Medium)) - WIDE
DOCUMENTS: frozenset[Medium] = frozenset({"markdown", "html"})
"""The media with room for details."""


@dataclass(frozen=True)
class RankingRow:
    """A configuration in the ranking: its place, its outcome, and how it compares with the best, where that is known.

    A place that several share is marked, such as ``=1``.
    """

    place: str
    outcome: ConfigurationOutcome
    placed: Placed | None = None

    @property
    def may_be_best(self) -> bool:
        """Whether it is not the best, but cannot be told apart from it."""
        return self.placed is not None and self.placed.among_best and self.placed.against_best is not None

    @property
    def is_apart_alone(self) -> bool:
        """Whether the interval of its difference leaves out 0, and the corrected test does not tell it apart."""
        beside = self.placed.against_best if self.placed else None
        return self.may_be_best and beside is not None and leaves_out_zero(beside.low, beside.high)

    @property
    def verdict(self) -> str:
        """``best``, ``the same`` on every question, ``indistinguishable``, or ``worse`` with its p-value."""
        if self.placed is None:
            return ""
        comparison = self.placed.against_best
        if comparison is None:
            return "best"
        if comparison.is_same:
            return "the same"
        return "indistinguishable" if self.placed.among_best else f"worse, {significance(comparison)}"


@dataclass(frozen=True)
class RankingColumn:
    """A column: its title, the value of a row, how a value is written, and in which media it is shown.

    ``value`` is what a reader sorts by and what machines get; where it is None, ``missing`` is written. ``detail``
    follows the value where there is room. A column that is ``optional`` is left out where every value is None or 0.
    """

    title: str
    value: Callable[[RankingRow], CellValue]
    write: Callable[[Any], str] = str
    detail: Callable[[RankingRow], str] = lambda row: ""
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

    def text(self, row: RankingRow) -> str:
        value = self.value(row)
        return self.missing if value is None else self.write(value)


@dataclass(frozen=True)
class ConfigurationRanking:
    """The configurations of a run, best first, and the columns that describe them."""

    metric: str
    rows: list[RankingRow]
    columns: list[RankingColumn]

    def to_polars(self) -> "polars.DataFrame":
        """Return a row for each configuration, best first, as a polars frame."""
        return self._table().to_polars()

    def to_pandas(self) -> Any:
        """Return a row for each configuration as a pandas frame; raises ``ConfigurationError`` without pandas."""
        return self._table().to_pandas()

    def _table(self) -> ResultTable:
        return ResultTable(pa.table({one.title: [one.value(row) for row in self.rows] for one in self.columns}))

    def _repr_html_(self) -> str:
        columns = [one for one in self.columns if "html" in one.media]
        return html_table([one.title for one in columns], [[one.text(row) for one in columns] for row in self.rows])

    @classmethod
    def of(cls, outcome: BenchmarkOutcome, placed: Sequence[Placed] = ()) -> "ConfigurationRanking":
        """The ranking by the outcome's metric; ``placed`` says how sure each place is, in the same order."""
        ranked = outcome.ranked() if outcome.configurations else []
        metric = outcome.ranking_metric
        places = place_labels([one.metrics[metric] for one in ranked])
        known: Sequence[Placed | None] = placed or [None] * len(ranked)
        rows = [RankingRow(*row) for row in zip(places, ranked, known, strict=True)]
        most = max((one.metrics[metric] for one in ranked), default=0.0)
        interval_column = RankingColumn(
            "95 % interval", lambda row: brackets(row.placed.estimate) if row.placed else None, media=WIDE
        )
        best_column = RankingColumn(
            "best with",
            lambda row: row.placed.probability if row.placed else None,
            probability,
            explanation="Probability of being the best, or within half a point of the best",
            media=DOCUMENTS - {"html"} | WIDE,
        )
        against_best = RankingColumn(
            "against the best",
            lambda row: row.placed.against_best.difference if row.placed and row.placed.against_best else None,
            lambda value: typeset(signed(value, most)),
            lambda row: row.verdict,
            media=DOCUMENTS,
            kind="verdict",
            missing="",
        )
        # The metrics beside the objective are shown everywhere, at other numbers of hits in Prefect only.
        others = [name for name in outcome.measured if name != metric]
        beside = outcome.beside
        columns = [
            RankingColumn("#", lambda row: row.place, kind="place"),
            RankingColumn("configuration", lambda row: row.outcome.name, kind="name"),
            _metric_column(
                metric,
                rows,
                kind="score",
                detail=lambda row: "" if row.placed is None else brackets(row.placed.estimate),
            ),
            *([interval_column, best_column, against_best] if placed else []),
            *(_metric_column(name, rows) for name in beside),
            *(_metric_column(name, rows, media=frozenset({"prefect"})) for name in others if name not in beside),
            *COST_COLUMNS,
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
        return cls(metric, rows, [one for one in columns if not one.optional or any(map(one.value, rows))])

    def shown_in(self, *media: Medium) -> list[RankingColumn]:
        """The columns that one of the media shows, in order."""
        return [column for column in self.columns if column.media.intersection(media)]

    def records(self) -> list[dict[str, str | float]]:
        """The rows as Prefect shows them: values by the titles of their columns, numbers to four decimals."""
        columns = self.shown_in("prefect")
        rows = [{column.title: column.value(row) for column in columns} for row in self.rows]
        return [
            {
                title: "" if value is None else round(value, 4) if isinstance(value, float) else value
                for title, value in values.items()
            }
            for values in rows
        ]

    @property
    def grouped(self) -> list[tuple[int, RankingRow]]:
        """The rows with their numbers from 0: those that may be the best, then those that are worse."""
        return sorted(enumerate(self.rows), key=lambda one: bool(one[1].placed and not one[1].placed.among_best))

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
        estimates = [row.placed.estimate for row in self.rows if row.placed is not None]
        lows = [estimate.mean if estimate.low is None else estimate.low for estimate in estimates]
        ends = [estimate.mean if estimate.high is None else estimate.high for estimate in estimates]
        if self.is_share:
            return min(0.9, floor(10 * min(lows, default=0.0)) / 10), 1.0
        return min(0.0, *lows, 0.0), max(0.0, *ends, 0.0) or 1.0

    def tick(self, value: float, decimals: int = 0) -> str:
        """A value of the metric on a scale: of a share in per cent."""
        return f"{100 * value:.{decimals}f}" if self.is_share else number(value)

    def apart(self, difference: float) -> str:
        """A difference by the metric: of a share in points."""
        return points(difference) if self.is_share else typeset(signed(difference))

    @property
    def mark_meaning(self) -> str:
        """What ``≈`` says of a configuration; empty where none has it."""
        if not any(row.may_be_best for row in self.rows):
            return ""
        compared = len(self.rows) - 1
        corrected = f" corrected for {compared:,} comparisons" * (compared > 1)
        told = f"not distinguishable from the first on these questions, by a paired test{corrected}"
        return f"{told}{self._less_strict}"

    @property
    def _less_strict(self) -> str:
        return f"; {LESS_STRICT}" * any(row.is_apart_alone for row in self.rows)

    @property
    def groups_note(self) -> str:
        """That the groups are apart, where a place stands above a better one for it; else empty."""
        for (place, row), (after, worse) in pairwise(self.grouped):
            if place > after:
                return f"The two groups are apart, so that #{row.place}≈ stands above #{worse.place}."
        return ""

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
        tested = f"Differences are tested on the same {counted(first.n, 'questions')}, with Holm's correction"
        odds = [round(100 * (row.placed.probability or 0.0)) for row in self.rows if row.placed]
        is_uneven = any(after > before for before, after in pairwise(odds))
        told = (
            " The order is that of the means; what differs more from the others is more often the best, and the worst."
        )
        return f"{interval} {tested}{self._less_strict}.{told * is_uneven}"


_cost_column = partial(RankingColumn, media=DOCUMENTS | WIDE, optional=True)
COST_COLUMNS = (
    _cost_column(
        "latency ms",
        lambda row: row.outcome.latency_ms,
        "{:.2f}".format,
        explanation="Mean time to search and rerank for one question, after a warm-up; embedding it is not included",
    ),
    _cost_column(
        "cost $",
        lambda row: row.outcome.cost,
        "{:.4f}".format,
        explanation="What models charged when the work was done",
    ),
    _cost_column(
        "tokens read",
        lambda row: row.outcome.tokens,
        "{:,}".format,
        explanation="Tokens that models read of the chunks and questions, kept vectors included",
    ),
    _cost_column(
        "index",
        lambda row: sum(index.size for index in row.outcome.indexes) if row.outcome.indexes else None,
        decimal,
        explanation="Size of the vectors and their index on disk",
    ),
)


def _metric_column(name: str, rows: Sequence[RankingRow], **options: Any) -> RankingColumn:
    # Tokens are whole, however few.
    is_count = metric_of(name).measures == "tokens"
    most = inf if is_count else max((row.outcome.metrics[name] for row in rows), default=0.0)
    return RankingColumn(name, lambda row: row.outcome.metrics[name], lambda value: number(value, most), **options)
