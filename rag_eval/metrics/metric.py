"""Define metrics: their properties, their cuts and how their names are written.

A name has a base and a cut: ``span_recall``, ``span_recall@5`` (the first five hits), ``span_recall@2000tokens`` (the
first whole hits within 2,000 tokens), ``chroma_iou@min``. A metric at token budgets only has its budget as a plain
number: ``recall_within_tokens@2000``. Names parse and print the same.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics import METRIC
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId, EvaluationType

T = TypeVar("T")
Counts = NDArray[np.int64]
Values = NDArray[np.float64]

CutKind = Literal["hits", "tokens", "min", "all"]
Input = Literal["hits", "tokens", "chunks", "judged"]
"""What a formula reads: the hits, the tokens of their texts, the chunks that touch the truth (instead of the hits), all
judged text (instead of the truth)."""
Bounds = Literal["both", "above", "neither"]
"""Which values, with unjudged text irrelevant or relevant, bound the value under complete truth."""
LARGEST_CUT = 2**31 - 1
"""Largest number that the column ``size`` of a scores table can hold."""

DEFAULT_ENCODING = "cl100k_base"
"""Tokenizer that counts budgets and costs."""

_CUT = r"@(?P<cut>min|(?P<size>[1-9][0-9]*)(?P<tokens>tokens)?)"
_NAME = re.compile(rf"(?P<base>[a-z][a-z0-9_]*)({_CUT})?")
_ANY_NAME = re.compile(rf"(?P<column>.+?)({_CUT})?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a ranking counts.

    ``hits`` counts the first ``size`` hits; ``tokens`` counts hits best first, whole, as long as their texts together
    have no more than ``size`` tokens; ``min`` counts as many hits as there are chunks that touch the truth, at most 20;
    ``all`` counts every hit. The last two have size 0.
    """

    kind: CutKind = "all"
    size: int = 0

    @property
    def hits(self) -> int | None:
        """The number of hits; None if the cut has none."""
        return self.size if self.kind == "hits" else None

    def written(self, number: CutKind = "hits") -> str:
        """Return the suffix of a name, such as ``@5``; the kind ``number`` is written as a plain number."""
        if self.kind in ("all", "min"):
            return "" if self.kind == "all" else "@min"
        return f"@{self.size}" if self.kind == number else f"@{self.size}{self.kind}"


ALL, MIN = Cut("all"), Cut("min")
MAX_MIN_K = 20
"""Maximum number of hits for the cut ``min``."""

Depth = int | Literal["min"] | Cut | None
"""A cut as people write it: a number, ``"min"``, None for all hits, or the cut itself."""


def check_cut(k: object, where: str) -> None:
    """Raise ``ConfigurationError``, naming ``where``, unless k is a whole number of 1 to 2³¹ - 1, or not given."""
    if k is None or (isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= LARGEST_CUT):
        return
    raise ConfigurationError(f"{where} has k = {k!r}: use a whole number of 1 to {LARGEST_CUT}, or None for all hits")


class _Named(Protocol):
    @property
    def name(self) -> str:
        """The key of the metric in every result; by default the name of the class."""
        return type(self).__name__


@runtime_checkable
class ChunkLevelMetric(_Named, Protocol):
    """Scores one query from chunk ids."""

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId]) -> float:
        """Return the score of what was retrieved, best first, against the relevant chunks."""


@runtime_checkable
class TokenLevelMetric(_Named, Protocol):
    """Scores one query from character spans."""

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """Return the score of what was retrieved, best first, against the relevant spans."""


AnyTokenLevelMetric = TokenLevelMetric | type[TokenLevelMetric] | str | Callable[..., float]
"""A token-level metric, its class, a name, a ``module:Name``, or a function of retrieved and relevant spans."""
AnyChunkLevelMetric = ChunkLevelMetric | type[ChunkLevelMetric] | str | Callable[..., float]
"""The same at chunk level."""


@dataclass(frozen=True)
class RetrievalMetric(ABC):
    """A built-in metric at the cut ``k``: one formula for one query and for tables, and its properties.

    k is a number, ``"min"``, a ``Cut``, or None for all hits. Raises ``ConfigurationError`` on a cut that the metric
    does not support.

    Attributes:
        label: The name without cut.
        only_rises: Whether further hits never lower the value.
        bounds: Which bounds hold under complete truth: see ``rag_eval.metrics.formulas.Unjudged``.
        measures: What a value is: a share in [0, 1], a number of tokens, or any number.
        meaning: A sentence about a mean, with ``{}`` for its value; empty if only the name describes it.
        empty: The value if the divisor is 0.
        number: The unit of a plain number after the @.
    """

    label: ClassVar[str]
    levels: ClassVar[tuple[EvaluationType, ...]] = ()
    higher_is_better: ClassVar[bool] = True
    only_rises: ClassVar[bool] = False
    bounds: ClassVar[Bounds] = "neither"
    measures: ClassVar[Literal["share", "tokens", "number"]] = "share"
    meaning: ClassVar[str] = ""
    empty: ClassVar[float] = 0.0
    cuts: ClassVar[frozenset[CutKind]] = frozenset({"all", "hits", "tokens"})
    number: ClassVar[CutKind] = "hits"
    reads: ClassVar[frozenset[Input]] = frozenset({"hits"})
    k: Depth = None

    @classmethod
    @abstractmethod
    def score(cls, hits: Any, cut: Cut) -> Values:
        """Return the value of every query of a ``SpanCoverage`` at a cut."""

    @classmethod
    def check(cls, cut: Cut) -> None:
        """Raise ``ConfigurationError`` when the metric does not support this cut."""
        if cut.kind in ("hits", "tokens"):
            check_cut(cut.size, cls.label)
        if cut.kind in cls.cuts:
            return
        written = cut.written(cls.number)
        if cls.cuts == {"all"}:
            raise ConfigurationError(f"{cls.label} has no cut: leave out {written}")
        if cls.cuts == {"tokens"}:
            raise ConfigurationError(f"{cls.label} needs a budget of tokens, such as {cls.label}@2000")
        raise ConfigurationError(f"{cls.label} has no {written}: use a number, or one of Chroma's metrics")

    def __post_init__(self) -> None:
        self.check(self.cut)

    @abstractmethod
    def calculate_many(self, cases: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Values:
        """Return the metric for several queries, each with what was retrieved, best first, and what is relevant."""

    @property
    def cut(self) -> Cut:
        """How much of a ranking this metric reads."""
        if isinstance(self.k, Cut):
            return self.k
        return ALL if self.k is None else MIN if self.k == "min" else Cut(self.number, self.k)

    @property
    def name(self) -> str:
        """The full name, such as ``span_recall@5``."""
        return str(MetricName(self.label, self.cut))


class OwnMetric(RetrievalMetric, ABC):
    """A user's metric, of which tables have only the name."""

    measures = "number"


class _OwnCost(OwnMetric, ABC):
    higher_is_better = False


LOWER_IS_BETTER = "(lower is better)"
"""Suffix before the cut in the name of a user's metric that should be low."""


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric and its cut; ``str`` returns what ``parse`` reads."""

    base: str
    cut: Cut = ALL

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> "MetricName":
        """Parse a full name of any metric; raises ``ConfigurationError`` when the text is not a name."""
        if _NAME.fullmatch(text) is None:
            raise ConfigurationError(
                f"{preview(text)} is not a metric's name: write it like span_recall, span_recall@5 or chroma_iou@min"
            )
        return cls(*split_name(text))

    @property
    def metric(self) -> type[RetrievalMetric]:
        """The class of the metric."""
        return metric_of(self.base)

    @property
    def needs_chunks(self) -> bool:
        """Whether the metric needs all chunks of the corpus, besides hits and truth."""
        return "chunks" in self.metric.reads or self.cut == MIN

    @property
    def needs_tokens(self) -> bool:
        """Whether the tokens of the hits' texts have to be counted."""
        return self.cut.kind == "tokens" or "tokens" in self.metric.reads

    def __str__(self) -> str:
        return score_name(self.base, self.cut.kind, self.cut.size)


@lru_cache(maxsize=1024)
def score_name(metric: str, cut: CutKind, size: int) -> str:
    """Return the full name of a row of a scores table, such as ``span_recall@5``."""
    return metric + Cut(cut, size).written(metric_of(metric).number)


@lru_cache(maxsize=1024)
def split_name(text: str) -> tuple[str, Cut]:
    """Split a full name of any metric into the column ``metric`` of a scores table, and the cut."""
    match = _ANY_NAME.fullmatch(text)
    if match is None or match["cut"] is None:
        return text, ALL
    if match["cut"] == "min":
        return match["column"], MIN
    kind: CutKind = "tokens" if match["tokens"] else metric_of(match["column"]).number
    return match["column"], Cut(kind, int(match["size"]))


@lru_cache(maxsize=1024)
def metric_of(name: str) -> type[RetrievalMetric]:
    """Return the class of the metric with this name; for a user's metric, a class that knows its direction."""
    base = re.split("[(@]", name, maxsplit=1)[0]
    if base not in METRIC.types:
        return _OwnCost if LOWER_IS_BETTER in name else OwnMetric
    metric: type[RetrievalMetric] = METRIC.load(base)
    return metric


@cache
def metric_names(level: EvaluationType) -> tuple[str, ...]:
    """Return the built-in metrics of an evaluation type."""
    return tuple(name for name in METRIC.types if level in metric_of(name).levels)


@lru_cache(maxsize=1024)
def higher_is_better(name: str) -> bool:
    """Return whether higher values of the metric with this name are better."""
    return metric_of(name).higher_is_better


def needed(value: T | None, metric: str, what: str) -> T:
    """Return the value; raises ``ConfigurationError`` if it is None."""
    if value is None:
        raise ConfigurationError(f"the metric {metric} needs the {what} of the corpus: give {what}=…")
    return value


def refuse_repeated(names: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` when two metrics have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(f"two metrics have the name {name!r}: rename or remove one")
        seen.add(name)


@lru_cache(maxsize=1024)
def parse_metric_name(text: str, level: EvaluationType) -> MetricName:
    """Parse the name of a metric of a level; raises ``ConfigurationError`` on others, and on a wrong cut."""
    name, known = MetricName.parse(text), metric_names(level)
    if name.base not in known:
        hint = suggestion(name.base, known)
        raise ConfigurationError(f"there is no metric {name.base!r} here{hint}: {choices(known, name.base)}")
    name.metric.check(name.cut)
    return name


@dataclass(frozen=True, slots=True)
class MetricAtCut:
    """A user's metric, with the name and cut of its scores."""

    metric: Any
    name: MetricName

    @property
    def cut(self) -> Cut:
        """How much of a ranking it reads."""
        return self.name.cut

    def __str__(self) -> str:
        return str(self.name)


Asked = MetricName | MetricAtCut
"""A metric at a cut: a built-in metric by name, or a user's metric as an object."""


def largest_budget(metrics: Iterable[Asked]) -> int:
    """Return the largest budget in tokens, or 0 if there is none."""
    return max((metric.cut.size for metric in metrics if metric.cut.kind == "tokens"), default=0)


def largest_hits(metrics: Iterable[Asked]) -> int:
    """Return the largest number of hits, or 1 if there is none."""
    return max((metric.cut.size for metric in metrics if metric.cut.kind == "hits"), default=1)


def at_cuts(metric: str | Any, ks: Sequence[int], level: EvaluationType) -> list[Asked]:
    """Return a metric, by name or as an object, at its own cut or at each of ``ks``; raises ``ConfigurationError``."""
    name = parse_metric_name(metric, level) if isinstance(metric, str) else MetricName(*split_name(column_of(metric)))
    names = [name]
    if name.cut == ALL and "hits" in name.metric.cuts:
        if not ks:
            raise ConfigurationError(f"{name} needs a number of hits: give at least one k in ks")
        names = [replace(name, cut=Cut("hits", k)) for k in ks]
    # A subclass of a built-in metric may calculate differently.
    if isinstance(metric, str) or type(metric) is name.metric:
        return [*names]
    if name.cut == MIN:
        raise ConfigurationError(
            f"{name} uses @min, which only Chroma's metrics have: give a number of hits, such as @5"
        )
    return [MetricAtCut(metric, name) for name in names]


def column_of(metric: Any) -> str:
    """Return the name of an object's scores, marked if lower is better; raises ``ConfigurationError``."""
    name = str(metric.name)
    if isinstance(metric, RetrievalMetric):
        return name
    if not issubclass(metric_of(name), OwnMetric):
        raise ConfigurationError(f"{name} is the name of a built-in metric: rename yours")
    return name if getattr(metric, "higher_is_better", True) is not False else f"{name}{LOWER_IS_BETTER}"


def requested_metrics(metrics: Sequence[Any], ks: Sequence[int], level: EvaluationType) -> list[Asked]:
    """Return the metrics, names or objects, each at its own cut or else at each of ``ks``.

    Raises ``ConfigurationError`` on a metric or k that cannot be used or is listed twice.
    """
    for k in ks:
        check_cut(k, "ks")
    names: list[Asked] = []
    for metric in metrics:
        if isinstance(metric, MetricName):
            metric.metric.check(metric.cut)
        names += [metric] if isinstance(metric, MetricName | MetricAtCut) else at_cuts(metric, ks, level)
    for entries in ([str(name) for name in names], list(ks)):
        if len(set(entries)) < len(entries):
            raise ConfigurationError(f"{entries} contains an entry twice: list each metric and each k once")
    return names


def built_in_metric(text: str, level: EvaluationType) -> Any:
    """Return the built-in metric of that name; raises ``ConfigurationError`` when there is none of this level."""
    name = parse_metric_name(text, level)
    return name.metric(name.cut)
