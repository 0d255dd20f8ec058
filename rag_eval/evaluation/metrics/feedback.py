"""How a run and its example become one piece of LangSmith feedback."""

import copy
import math
import re
from abc import ABC, abstractmethod
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, Generic, TypedDict, TypeVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.base import check_cut
from rag_eval.publishing.langsmith_records import is_unanswerable
from rag_eval.types.ids import EvaluationType

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

    from rag_eval.evaluation.metrics.evaluator import MetricEvaluator

Item = TypeVar("Item")

ERROR_CHARACTERS = 300
_CUT = re.compile(r"@([1-9][0-9]*)$")


class _Named(TypedDict):
    key: str
    score: float | None


class Feedback(_Named, total=False):
    """What an evaluator gives back: ``comment`` and ``extra`` say why there is no score.

    ``extra`` is ``{"error": True}``, LangSmith's own mark, when something is wrong.
    """

    comment: str
    extra: dict[str, bool]


class LangSmithMetric(ABC, Generic[Item]):
    """What ``Metrics`` and ``TokenLevelMetrics`` share; derive from one of these.

    ``needs_ground_truth`` says that an example without ground truth is recorded without a score; otherwise
    ``calculate`` is called with an empty list.
    """

    level: ClassVar[EvaluationType]
    truth_keys: ClassVar[tuple[str, ...]]
    needs_ground_truth: ClassVar[bool] = False

    @abstractmethod
    def calculate(self, retrieved: list[Item], ground_truth: list[Item], /) -> float:
        """The score of one query."""

    @abstractmethod
    def _retrieved(self, run: "Run") -> list[Item]: ...

    @abstractmethod
    def _ground_truth(self, example: "Example | None") -> list[Item]: ...

    def to_langsmith_evaluator(self, metric_name: str | None = None, k: int | None = None) -> "MetricEvaluator":
        """An evaluator for LangSmith's ``evaluate``; called with (run, example) it gives the feedback.

        Its name is ``metric_name``, or the class's name, with ``@k`` appended unless it is there. Without k a name
        that ends in ``@5`` cuts at 5, any other counts all that was retrieved.
        Raises ``ConfigurationError`` when k is not a whole number of 1 or more, or the name says another.
        """
        # Imported here: langsmith is heavy, and nothing else of a metric needs it.
        from rag_eval.evaluation.metrics.evaluator import MetricEvaluator

        name, cut = name_and_cut(type(self).__name__ if metric_name is None else metric_name, k)

        def score(run: "Run", example: "Example | None" = None) -> Feedback:
            return self._feedback(name, cut, run, example)

        return MetricEvaluator(name, score)

    def _feedback(self, name: str, k: int | None, run: "Run", example: "Example | None") -> Feedback:
        if isinstance(run.error, str) and run.error:
            return _not_scored(name, f"not scored, the run failed: {preview(run.error, ERROR_CHARACTERS)}")
        truth = self._ground_truth(example)
        if not truth and is_unanswerable(example):
            return {"key": name, "score": None, "comment": "not scored, the query is declared unanswerable"}
        if not truth and self.needs_ground_truth:
            return _not_scored(
                name,
                f"not scored, the example has no {self.level} ground truth ({', '.join(self.truth_keys)}): "
                "add it, or declare the example unanswerable",
            )
        value = self.calculate(self._as_returned(run)[:k], truth)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{type(self).__name__}.calculate gave {preview(repr(value))} for {name}: return a finite number"
            )
        return {"key": name, "score": float(value)}

    def _as_returned(self, run: "Run") -> list[Item]:
        """What was retrieved; a target's list is shown to the extraction as a list first, then as it was recorded."""
        outputs = run.outputs
        # LangSmith records a list as {"output": [...]}; an extraction may be written for the one or for the other.
        if isinstance(outputs, dict) and outputs.keys() == {"output"} and isinstance(outputs["output"], list):
            returned = copy.copy(run)
            returned.outputs = outputs["output"]  # type: ignore[assignment]  # what the target returned
            try:
                retrieved = self._retrieved(returned)
            except (AttributeError, KeyError, TypeError):
                retrieved = []
            if retrieved:
                return retrieved
        return self._retrieved(run)


def name_and_cut(name: str, k: int | None) -> tuple[str, int | None]:
    """The name with ``@k`` at its end, and the cut it states.

    Raises ``ConfigurationError`` when k is not a whole number of 1 or more, and when the name states another cut.
    """
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a metric has the name {name!r}: use a text such as 'recall'")
    check_cut(k, name)
    stated = _CUT.search(name)
    if stated is None:
        return (name, None) if k is None else (f"{name}@{k}", k)
    cut = int(stated[1])
    if k not in (None, cut):
        raise ConfigurationError(f"the metric {name!r} is asked for at k = {k}: leave out @{cut}, or use k = {cut}")
    return name, cut


def _not_scored(name: str, comment: str) -> Feedback:
    return {"key": name, "score": None, "comment": comment, "extra": {"error": True}}
