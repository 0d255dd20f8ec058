"""A metric as LangSmith's ``evaluate`` runs it; apart from the metrics because it imports langsmith, which is heavy."""

from collections.abc import Callable
from typing import NotRequired, TypedDict

from langsmith.evaluation.evaluator import DynamicRunEvaluator
from langsmith.schemas import Example, Run


class Feedback(TypedDict):
    """What an evaluator gives; without a score ``comment`` says why, and ``extra`` marks an error for LangSmith."""

    key: str
    score: float | None
    comment: NotRequired[str]
    extra: NotRequired[dict[str, bool]]


Score = Callable[[Run, Example | None], Feedback]


class LangSmithEvaluator(DynamicRunEvaluator):
    """Runs and is traced like a function given to ``evaluate``, and knows the key of its feedback.

    LangSmith reads the key of a plain function from literals in its source; a computed one it does not find, and
    progress and errors would go by the function's name.
    """

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
        """The one key, for LangSmith's progress and for the feedback of an evaluation that raised."""
        return [self._name]

    def __call__(self, run: Run, example: Example | None = None) -> Feedback:  # type: ignore[override]
        """The feedback on a run, as plain data; nothing is traced."""
        return self._score(run, example)
