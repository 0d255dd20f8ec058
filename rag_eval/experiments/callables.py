"""An experiment: its tasks and evaluators as named callables of any kind, and the digest of their code."""

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from rag_eval.errors import ConfigurationError, DataError
from rag_eval.experiments.results import score_key
from rag_eval.parts.live import live_digest
from rag_eval.parts.objects import is_reference, load
from rag_eval.storage.files import data_sha256

F = TypeVar("F", bound=Callable[..., Any])
_NAME = "experiment_name"


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A task or an evaluator with its name.

    ``wants_row`` says that an evaluator takes the whole row, ``instant`` that it takes linear time, waits for nothing
    and needs no thread. ``bounds`` are the ends of the range of an evaluator's scores, if it states them.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    wants_row: bool = False
    instant: bool = False
    bounds: tuple[float, float] | None = None


@overload
def task(name: F) -> F: ...
@overload
def task(name: str) -> Callable[[F], F]: ...
def task(name: F | str) -> F | Callable[[F], F]:
    """Name a task or an evaluator: ``@task("summary")``, ``@evaluator("brief")``. Default: the function's name.

    A task takes the row; one with several parameters takes the fields of the row that they name, as
    ``lambda input, output: …`` does. An evaluator takes ``(result, expected)`` or ``(result, expected, row)``.
    """
    if not isinstance(name, str):
        return name

    def decorate(function: F) -> F:
        setattr(function, _NAME, name)
        return function

    return decorate


evaluator = task


def named_tasks(tasks: Iterable[object]) -> list[NamedCall]:
    """Return the tasks, each to be called with the row; raises ``ConfigurationError`` on anything else."""
    named = _named("task", tasks, _task)
    if not named:
        raise ConfigurationError("an experiment has no tasks: give at least one callable that takes a row")
    return named


def named_evaluators(evaluators: Iterable[object]) -> list[NamedCall]:
    """Return the evaluators: functions, objects with ``evaluate``, classes without arguments, or ``module:Name``.

    With settings, that is a mapping with the ``module:Name`` as its ``type``. Raises ``ConfigurationError`` on anything
    else, or on equal names.
    """
    return _named("evaluator", evaluators, _evaluator)


def _named(kind: str, values: Iterable[object], read: Callable[[Any, int], NamedCall]) -> list[NamedCall]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{kind}s is a {type(values).__name__}: give a list of callables")
    named = [read(value, number) for number, value in enumerate(values, 1)]
    for name, count in Counter(call.name for call in named).items():
        if count > 1:
            raise ConfigurationError(f"two {kind}s are called {name!r}: name one of them with @{kind}(…)")
    return named


def _task(function: Any, number: int) -> NamedCall:
    if not callable(function):
        raise ConfigurationError(f"task {number} is a {type(function).__name__}: give a callable that takes a row")
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    fields = {parameter.name: parameter.default for parameter in _parameters(function) if parameter.kind in kinds}
    required = [name for name, default in fields.items() if default is inspect.Parameter.empty]
    call = functools.partial(_with_fields, function, fields) if len(required) > 1 else function
    return NamedCall(_name(function, f"task-{number}"), call, _is_async(function))


def _with_fields(task: Callable[..., Any], parameters: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """Call a task with the fields of a row that its parameters name; ``row`` is the row itself."""
    fields = {"row": row} | dict(row)
    for name, default in parameters.items():
        if name not in fields and default is inspect.Parameter.empty:
            raise DataError(
                f"the row has no {name!r}, which the task asks for: its fields are {', '.join(map(str, row))}"
            )
    return task(**{name: fields[name] for name in parameters if name in fields})


def _evaluator(value: Any, number: int) -> NamedCall:
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
    return NamedCall(
        name,
        call,
        _is_async(call),
        wants_row=len(required) >= 3,
        instant=getattr(evaluator, "instant", False),
        bounds=_bounds(name, getattr(evaluator, "bounds", None)),
    )


def _instance(value: Any) -> Any:
    """Return an evaluator from an object, a class, a metric, a ``module:Name``, or a mapping with such a ``type``."""
    record = {"type": value} if isinstance(value, str) else value
    if isinstance(record, Mapping) and is_reference(record.get("type")):
        settings = {key: setting for key, setting in record.items() if key != "type"}
        value, _ = load(record["type"], settings, Path.cwd())
    if isinstance(value, type):
        try:
            value = value()
        except TypeError as error:
            name = getattr(value, "__name__", "")
            raise ConfigurationError(f"the evaluator {name} needs settings ({error}): make one, {name}(…)") from None
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
        raise ConfigurationError(f"the bounds of {name} are {bounds!r}: give two numbers, the lower first, as (1, 5)")
    return low, high


def _name(value: Any, default: str) -> str:
    function = value
    while isinstance(function, functools.partial):
        function = function.func
    for source in (value, function):
        for key in (_NAME, "name", "__name__"):
            name = getattr(source, key, None)
            if isinstance(name, str) and name and name != "<lambda>":
                return name
    return default if inspect.isroutine(function) else type(function).__name__


def _is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004  # an object's method


def _parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return []


class Experiment:
    """Data, tasks and evaluators under a name, to be run by ``evaluatorq(…)`` or ``await experiment(…)``.

    ``total`` is the number of rows, None where it is not known beforehand. Raises ``ConfigurationError`` on tasks or
    evaluators that cannot be used, and on two scores of one name, as ``a`` / ``b/c`` and ``a/b`` / ``c`` would have.
    """

    def __init__(self, name: str, data: Any, tasks: Sequence[Any], evaluators: Sequence[Any] = ()) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError("an experiment has no name: give one as its first argument")
        self.name, self.data = name, data
        self.tasks = named_tasks(tasks)
        self.evaluators = named_evaluators(evaluators)
        self.total = len(data) if isinstance(data, list | tuple) else None
        pairs = [(task.name, evaluator) for task in self.tasks for evaluator in self.evaluators]
        self.scales = {score_key(self.tasks, task, evaluator.name): evaluator.bounds for task, evaluator in pairs}
        """The bounds of the scores by their keys, in order."""
        places = [*(task.name for task in self.tasks), *(f"{task}/{evaluator.name}" for task, evaluator in pairs)]
        for place, count in Counter(places).items():
            if count > 1:
                raise ConfigurationError(f"two scores are called {place!r}: name a task or an evaluator without the /")


def fingerprint(name: str, tasks: Sequence[NamedCall], evaluators: Sequence[NamedCall]) -> str:
    """Return a digest that is the same until the code of a task or an evaluator changes."""
    code = live_digest(*((call.name, call.call) for call in (*tasks, *evaluators)), is_reused=False)
    return data_sha256([name, len(tasks), code])
