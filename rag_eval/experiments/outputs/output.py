"""The protocol of an output: it is told of the start of an experiment, of every sample, and of the end."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.types import ExperimentResult, ItemError, ItemResult, score_key


@dataclass(frozen=True, slots=True)
class Plan:
    """What is about to run; ``total`` is None where the number of samples is not known beforehand."""

    name: str
    tasks: list[str]
    evaluators: list[str]
    total: int | None

    @property
    def keys(self) -> list[str]:
        """The keys of the scores, in order."""
        return [score_key(self.tasks, task, evaluator) for task in self.tasks for evaluator in self.evaluators]

    @property
    def places(self) -> list[str]:
        """The places where a call may fail, in order: each task, and each evaluator of its results."""
        after = [None, *self.evaluators]
        return [ItemError(task, evaluator, "").place for task in self.tasks for evaluator in after]

    def check(self) -> None:
        """Raise ``ConfigurationError`` when two scores have one key, as ``a`` / ``b/c`` and ``a/b`` / ``c`` would."""
        for key, count in Counter(self.keys).items():
            if count > 1:
                raise ConfigurationError(f"two scores are called {key!r}: name a task or an evaluator without the /")


class Output(Protocol):
    """An output of an experiment."""

    name: str

    def started(self, plan: Plan) -> None:
        """Begin; called once, before the first sample."""
        ...

    def sample(self, item: ItemResult) -> None:
        """Take a finished sample; must be quick, since the experiment waits."""
        ...

    def finished(self, result: ExperimentResult) -> str | None:
        """Take the result and return where it is, or None; raises ``RagEvalError`` when it cannot be written."""
        ...

    def stopped(self) -> None:
        """End early, after an error or when the user stops the experiment."""
        ...


class QuietOutput:
    """An output that does nothing: the base of outputs that need only some of the calls."""

    name = "quiet"

    def started(self, plan: Plan) -> None:
        """Do nothing."""

    def sample(self, item: ItemResult) -> None:
        """Do nothing."""

    def finished(self, result: ExperimentResult) -> str | None:
        """Return nothing."""
        return None

    def stopped(self) -> None:
        """Do nothing."""
