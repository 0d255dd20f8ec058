"""Define the evaluator for LangSmith's ``evaluate``, in a module of its own because it imports langsmith."""

from collections.abc import Callable
from typing import NotRequired, TypedDict

from langsmith.evaluation.evaluator import DynamicRunEvaluator
from langsmith.schemas import Example, Run


class Feedback(TypedDict):
    """The feedback of an evaluator. Without a score, ``comment`` says why, and ``extra`` marks an error."""

    key: str
    score: float | None
    comment: NotRequired[str]
    extra: NotRequired[dict[str, bool]]


Score = Callable[[Run, Example | None], Feedback]


class LangSmithEvaluator(DynamicRunEvaluator):
    """An evaluator that states the key of its feedback, which LangSmith otherwise looks for in the source code."""

    def __init__(self, name: str, score: Score) -> None:
        score.__name__ = name
        super().__init__(score)  # type: ignore[arg-type]  # a TypedDict is the dict it takes
        self._score = score

    @property
    def name(self) -> str:
        """The key of the feedback, such as ``recall@5``."""
        return self._name

    @property
    def feedback_keys(self) -> list[str]:
        """The feedback keys, which LangSmith also uses if the metric raises."""
        return [self._name]

    def __call__(self, run: Run, example: Example | None = None) -> Feedback:  # type: ignore[override]
        """Return the feedback on a run, without tracing anything."""
        return self._score(run, example)
