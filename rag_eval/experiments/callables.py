"""Define experiments: data with named tasks and evaluators, and the digest of their code."""

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

from rag_eval.errors import ConfigurationError, DataError
from rag_eval.experiments.results import Row, score_key
from rag_eval.parts.live import live_digest
from rag_eval.storage.files import data_sha256

F = TypeVar("F", bound=Callable[..., object])
T_contra = TypeVar("T_contra", contravariant=True)
_NAME = "experiment_name"


class Evaluator(Protocol[T_contra]):
    """An evaluator as an object.

    Example:
        class Shorter:
            name = "shorter"

            def evaluate(self, result, expected):
                return len(result) < len(expected)
    """

    @property
    def name(self) -> str:
        """The name of the score."""

    def evaluate(self, result: T_contra, expected: T_contra, /) -> object:
        """Return a number, a bool or a ``Score``; may be async, and may take the row as a third argument."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A task or an evaluator with its name.

    ``wants_row`` marks an evaluator that takes the whole row, and ``instant`` one that is fast enough to run without a
    thread. ``bounds`` is the range of its scores, if known.
    """

    name: str
    call: Callable[..., object]
    is_async: bool
    wants_row: bool = False
    instant: bool = False
    bounds: tuple[float, float] | None = None


@overload
def task(name: F) -> F: ...
@overload
def task(name: str) -> Callable[[F], F]: ...
def task(name: F | str) -> F | Callable[[F], F]:
    """Name a task or an evaluator, as in ``@task("summary")``. The default is the name of the function.

    A task takes the row. With several parameters it takes the columns that they name, as in
    ``lambda input, output: …``. An evaluator takes ``(result, expected)`` or ``(result, expected, row)``.
    """
    if not isinstance(name, str):
        return name

    def decorate(function: F) -> F:
        setattr(function, _NAME, name)
        return function

    return decorate


evaluator = task


def named_tasks(tasks: Iterable[object]) -> list[NamedCall]:
    """Return the tasks as calls that take a row; raises ``ConfigurationError``."""
    named = _named("task", tasks, _task)
    if not named:
        raise ConfigurationError("an experiment has no tasks: give at least one callable that takes a row")
    return named


def named_evaluators(evaluators: Iterable[object]) -> list[NamedCall]:
    """Return functions, objects and classes as evaluators; raises ``ConfigurationError``."""
    return _named("evaluator", evaluators, _evaluator)


def _named(kind: str, values: Iterable[object], read: Callable[[object, int], NamedCall]) -> list[NamedCall]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{kind}s is a {type(values).__name__}: give a list of callables")
    named = [read(value, number) for number, value in enumerate(values, 1)]
    if name := _repeated(call.name for call in named):
        raise ConfigurationError(f"two {kind}s are called {name!r}: name one of them with @{kind}(…)")
    return named


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _task(function: object, number: int) -> NamedCall:
    if not callable(function):
        raise ConfigurationError(f"task {number} is a {type(function).__name__}: give a callable that takes a row")
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    defaults = {parameter.name: parameter.default for parameter in _parameters(function) if parameter.kind in kinds}
    required = [name for name, default in defaults.items() if default is inspect.Parameter.empty]
    call = functools.partial(_call_with_columns, function, defaults) if len(required) > 1 else function
    return NamedCall(_name(function, f"task-{number}"), call, _is_async(function))


def _call_with_columns(task: Callable[..., object], defaults: Mapping[str, object], row: Row) -> object:
    """Call a task with the columns that its parameters name; ``row`` is the row itself."""
    columns = {"row": row, **row}
    for name, default in defaults.items():
        if name not in columns and default is inspect.Parameter.empty:
            raise DataError(f"the row has no column {name!r}, which the task needs: it has {', '.join(map(str, row))}")
    return task(**{name: columns[name] for name in defaults if name in columns})


def _evaluator(value: object, number: int) -> NamedCall:
    evaluator = _instance(value)
    call = getattr(evaluator, "evaluate", evaluator)
    if not callable(call):
        raise ConfigurationError(
            f"evaluator {number} is a {type(evaluator).__name__}: give a callable that takes (result, expected)"
        )
    name = _name(evaluator, f"evaluator-{number}")
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [parameter for parameter in _parameters(call) if parameter.kind in kinds]
    required = [item for item in positional if item.default is inspect.Parameter.empty or item.name == "row"]
    bounds = _bounds(name, getattr(evaluator, "bounds", None))
    return NamedCall(name, call, _is_async(call), len(required) >= 3, getattr(evaluator, "instant", False), bounds)


def _instance(value: Any) -> object:
    """Return an evaluator from an object, a class or a metric."""
    if isinstance(value, type):
        try:
            value = value()
        except TypeError as error:
            name = value.__name__
            raise ConfigurationError(f"the evaluator {name} needs settings ({error}): write {name}(…)") from None
    if hasattr(value, "calculate"):
        from rag_eval.experiments.evaluators import MetricEvaluator

        return MetricEvaluator(value)
    return value


def _bounds(name: str, bounds: Any) -> tuple[float, float] | None:
    if bounds is None:
        return None
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low < high:
        raise ConfigurationError(f"the bounds of {name} are {bounds!r}: give two numbers in order, such as (1, 5)")
    return low, high


def _name(value: object, default: str) -> str:
    function = value
    while isinstance(function, functools.partial):
        function = function.func
    for source in (value, function):
        for key in (_NAME, "name", "__name__"):
            name = getattr(source, key, None)
            if isinstance(name, str) and name and name != "<lambda>":
                return name
    return default if inspect.isroutine(function) else type(function).__name__


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004  # an object's method


def _parameters(call: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return []


class Experiment:
    """Data, tasks and evaluators under a name; run it with ``evaluatorq(…)`` or ``await experiment(…)``.

    ``total`` is the number of rows if it is known in advance.

    Raises:
        ConfigurationError: A task or an evaluator cannot be used, or two scores would have the same name, such as task
            ``a`` with evaluator ``b/c`` and ``a/b`` with ``c``.
    """

    def __init__(self, name: str, data: Any, tasks: Sequence[object], evaluators: Sequence[object] = ()) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError("an experiment has no name: give one as its first argument")
        self.name, self.data = name, data
        self.tasks = named_tasks(tasks)
        self.evaluators = named_evaluators(evaluators)
        self.total = len(data) if isinstance(data, list | tuple) else None
        pairs = [(task.name, evaluator) for task in self.tasks for evaluator in self.evaluators]
        self.scales = {score_key(self.tasks, task, evaluator.name): evaluator.bounds for task, evaluator in pairs}
        places = [*(task.name for task in self.tasks), *(f"{task}/{evaluator.name}" for task, evaluator in pairs)]
        if place := _repeated(places):
            raise ConfigurationError(f"two scores are called {place!r}: rename a task or an evaluator without a /")


def fingerprint(name: str, tasks: Sequence[NamedCall], evaluators: Sequence[NamedCall]) -> str:
    """Return a digest that changes with the code of a task or an evaluator."""
    code = live_digest(*((call.name, call.call) for call in (*tasks, *evaluators)), is_reused=False)
    return data_sha256([name, len(tasks), code])
