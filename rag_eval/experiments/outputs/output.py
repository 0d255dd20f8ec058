"""Where the results of an experiment go: any number of outputs, each told of the start, every sample, and the end."""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.types import ExperimentResult, ItemError, ItemResult, score_key


@dataclass(frozen=True, slots=True)
class Plan:
    """What is about to be run; ``total`` where it is known beforehand."""

    name: str
    tasks: list[str]
    evaluators: list[str]
    total: int | None

    @property
    def keys(self) -> list[str]:
        """What the scores are called, in order."""
        return [score_key(self.tasks, task, evaluator) for task in self.tasks for evaluator in self.evaluators]

    @property
    def places(self) -> list[str]:
        """Where something may fail, in order: each task, and each evaluator of its results."""
        after = [None, *self.evaluators]
        return [ItemError(task, evaluator, "").place for task in self.tasks for evaluator in after]

    def check(self) -> None:
        """Raise ``ConfigurationError`` when two scores have one key, as ``a`` / ``b/c`` and ``a/b`` / ``c`` would."""
        for key, count in Counter(self.keys).items():
            if count > 1:
                raise ConfigurationError(f"two scores are called {key!r}: name a task or an evaluator without the /")


class Output(Protocol):
    """An output; ``finished`` gives back where the results are, None where that is nowhere to be named."""

    name: str

    def started(self, plan: Plan) -> None:
        """The experiment begins."""
        ...

    def sample(self, item: ItemResult) -> None:
        """A sample is finished; quick, since the experiment waits."""
        ...

    def finished(self, result: ExperimentResult) -> str | None:
        """All is done; raises ``RagEvalError`` when the results cannot be put there."""
        ...

    def stopped(self) -> None:
        """The experiment ended early, by an error or by the user."""
        ...


class QuietOutput:
    """An output that does nothing: the base of those that care for a part."""

    name = "quiet"

    def started(self, plan: Plan) -> None:
        """Nothing."""

    def sample(self, item: ItemResult) -> None:
        """Nothing."""

    def finished(self, result: ExperimentResult) -> str | None:
        """Nothing."""
        return None

    def stopped(self) -> None:
        """Nothing."""
