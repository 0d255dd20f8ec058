"""What an experiment is about and what it finds: rows, scores, samples, averages, the result, and who is told of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from rag_eval.errors import ConfigurationError

Row = Mapping[str, Any]
"""One sample: ``input``, the expected ``output`` where there is one, and whatever else tasks and evaluators need."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluator found: a finite number, why, and whether that is good enough."""

    value: float
    explanation: str | None = None
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class ItemError:
    """What went wrong with one sample: in a task, or in an evaluator of its result."""

    task: str
    evaluator: str | None
    message: str

    @property
    def place(self) -> str:
        """The task, and the evaluator where it was that."""
        return self.task if self.evaluator is None else f"{self.task}/{self.evaluator}"


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One sample: what each task made of it (None where it failed) and every score that could be given."""

    index: int
    input: Any
    output: Any
    task_results: list[Any]
    scores: dict[str, Score]
    errors: list[ItemError] = field(default_factory=list)
    seconds: float = 0.0
    id: str | None = None
    """The row's own ``id``, where it has one."""


def score_key(tasks: Sequence[object], task: str, evaluator: str) -> str:
    """What a score is called: the evaluator's name, after the task's where there are several."""
    return evaluator if len(tasks) == 1 else f"{task}/{evaluator}"


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of ``n`` scores and its 95 % t-interval, which one score alone does not have.

    ``passed`` is how many passed, of the ``judged`` ones that an evaluator said pass or fail about.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    passed: int = 0
    judged: int = 0


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """A finished experiment; ``results`` stay on disk and are read one by one, in the order of the data."""

    name: str
    run: str
    timestamp: datetime
    tasks: list[str]
    evaluators: list[str]
    results: Sequence[ItemResult]
    averages: dict[str, Average]
    errors: dict[str, int]
    seconds: float
    resumed: int = 0
    """How many samples were finished by an interrupted run before."""
    saved: dict[str, str] = field(default_factory=dict)
    """Where each output put the results, by the output's name."""

    @property
    def total(self) -> int:
        """How many samples there were."""
        return len(self.results)

    @property
    def failed(self) -> int:
        """How many tasks and evaluations failed."""
        return sum(self.errors.values())

    @property
    def failure(self) -> str:
        """What failed, in a sentence."""
        places = ", ".join(f"{place} ({count})" for place, count in list(self.errors.items())[:5])
        return f"{self.name}: {self.failed} of its calls failed, in {places}"

    @property
    def path(self) -> Path | None:
        """The JSON file, where one was written."""
        return Path(self.saved["json"]) if "json" in self.saved else None


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
    """An output of an experiment; derive from it where only some of the calls are of interest."""

    name: str

    def started(self, plan: Plan) -> None:
        """Begin; called once, before the first sample."""
        return

    def sample(self, item: ItemResult) -> None:
        """Take a finished sample; must be quick, since the experiment waits."""
        return

    def finished(self, result: ExperimentResult) -> str | None:
        """Take the result and return where it is, or None; raises ``RagEvalError`` when it cannot be written."""
        return None

    def stopped(self) -> None:
        """End early, after an error or when the user stops the experiment."""
        return
