"""An experiment: its tasks and evaluators as named callables, of whatever kind, and the identity of their code."""

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
class Named:
    """A callable with its name; ``wants_row`` says that an evaluator asks for the whole row.

    One that is ``instant`` takes linear time and waits for nothing: it needs no thread. ``bounds`` are the ends of the
    range of an evaluator's scores, where it says so.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    wants_row: bool = False
    instant: bool = False
    bounds: tuple[float, float] | None = None


@overload
def task(given: F) -> F: ...
@overload
def task(given: str) -> Callable[[F], F]: ...
def task(given: F | str) -> F | Callable[[F], F]:
    """Name a task or an evaluator: ``@task("summary")``, ``@evaluator("brief")``; else the function's name is its own.

    A task takes the row; one with several parameters takes the fields of the row that they name, as
    ``lambda input, output: …`` does. An evaluator takes ``(result, expected)`` or ``(result, expected, row)``.
    """
    if not isinstance(given, str):
        return given

    def decorate(function: F) -> F:
        setattr(function, _NAME, given)
        return function

    return decorate


evaluator = task


def named_tasks(tasks: Sequence[Any]) -> list[Named]:
    """The tasks, each to be called with the row; raises ``ConfigurationError`` on what is none, or on equal names."""
    found = _named("task", tasks, _task)
    if not found:
        raise ConfigurationError("an experiment has no tasks: give at least one callable that takes a row")
    return found


def named_evaluators(evaluators: Sequence[Any]) -> list[Named]:
    """The evaluators: functions, objects with ``evaluate``, classes that need no argument, or ``module:Name``.

    With settings, that is a mapping with the ``module:Name`` as its ``type``. Raises ``ConfigurationError`` on anything
    else, or on equal names.
    """
    return _named("evaluator", evaluators, _evaluator)


def _named(kind: str, given: Any, name: Callable[[Any, int], Named]) -> list[Named]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{kind}s is a {type(given).__name__}: give a list of callables")
    found = [name(one, place) for place, one in enumerate(given, 1)]
    for called, count in Counter(one.name for one in found).items():
        if count > 1:
            raise ConfigurationError(f"two {kind}s are called {called!r}: name one of them with @{kind}(…)")
    return found


def _task(given: Any, place: int) -> Named:
    if not callable(given):
        raise ConfigurationError(f"task {place} is a {type(given).__name__}: give a callable that takes a row")
    fields = [one for one in _parameters(given) if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    several = len([one for one in fields if one.default is one.empty]) > 1
    call = functools.partial(_with_fields, given, {one.name: one.default for one in fields}) if several else given
    return Named(_name(given, f"task-{place}"), call, _is_async(given))


def _with_fields(task: Callable[..., Any], wanted: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """Call a task with the fields of a row that its parameters name; ``row`` is the row itself."""
    fields = {"row": row} | dict(row)
    for name, default in wanted.items():
        if name not in fields and default is inspect.Parameter.empty:
            raise DataError(
                f"the row has no {name!r}, which the task asks for: its fields are {', '.join(map(str, row))}"
            )
    return task(**{name: fields[name] for name in wanted if name in fields})


def _evaluator(given: Any, place: int) -> Named:
    written = {"type": given} if isinstance(given, str) else given
    if isinstance(written, Mapping) and is_reference(written.get("type")):
        settings = {key: value for key, value in written.items() if key != "type"}
        given, _ = load(written["type"], settings, Path.cwd())
    made = given
    if isinstance(given, type):
        try:
            made = given()
        except TypeError as error:
            raise ConfigurationError(
                f"the evaluator {given.__name__} needs settings ({error}): make one, {given.__name__}(…)"
            ) from None
    if hasattr(made, "calculate"):
        from rag_eval.experiments.evaluators import MetricEvaluator

        made = MetricEvaluator(made)
    call = getattr(made, "evaluate", made)
    if not callable(call):
        raise ConfigurationError(
            f"evaluator {place} is a {type(made).__name__}: give a callable that takes (result, expected)"
        )
    name, bounds = _name(made, f"evaluator-{place}"), getattr(made, "bounds", None)
    try:
        low, high = (-math.inf, math.inf) if bounds is None else map(float, bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low < high:
        raise ConfigurationError(f"the bounds of {name} are {bounds!r}: give two numbers, the lower first, as (1, 5)")
    positional = [one for one in _parameters(call) if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    wants_row = len([one for one in positional if one.default is one.empty or one.name == "row"]) >= 3
    return Named(
        name, call, _is_async(call), wants_row, getattr(made, "instant", False), None if bounds is None else (low, high)
    )


def _name(given: Any, unnamed: str) -> str:
    inner = given
    while isinstance(inner, functools.partial):
        inner = inner.func
    for source in (given, inner):
        for key in (_NAME, "name", "__name__"):
            found = getattr(source, key, None)
            if isinstance(found, str) and found and found != "<lambda>":
                return found
    return unnamed if inspect.isroutine(inner) else type(inner).__name__


def _is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004  # an object's method


def _parameters(call: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return []


class Experiment:
    """Data, tasks and evaluators under a name, to be run by ``evaluatorq(…)`` or ``await experiment(…)``.

    ``total`` is None where the number of rows is not known beforehand. Raises ``ConfigurationError`` on tasks or
    evaluators that cannot be used, and on two scores of one name, as ``a`` / ``b/c`` and ``a/b`` / ``c`` would have.
    """

    def __init__(self, name: str, data: Any, tasks: Sequence[Any], evaluators: Sequence[Any] = ()) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError("an experiment has no name: give one as its first argument")
        self.name, self.data = name, data
        self.tasks: list[Named] = named_tasks(tasks)
        self.evaluators: list[Named] = named_evaluators(evaluators)
        self.total = len(data) if isinstance(data, list | tuple) else None
        pairs = [(task.name, one) for task in self.tasks for one in self.evaluators]
        self.scales = {score_key(self.tasks, task, one.name): one.bounds for task, one in pairs}
        """The bounds of the scores by their keys, in order."""
        for key, count in Counter(
            [task.name for task in self.tasks] + [f"{task}/{one.name}" for task, one in pairs]
        ).items():
            if count > 1:
                raise ConfigurationError(f"two scores are called {key!r}: name a task or an evaluator without the /")


def fingerprint(name: str, tasks: list[Named], evaluators: list[Named]) -> str:
    """The same for the same experiment; another as soon as the code of a task or an evaluator is another."""
    code = live_digest(*((one.name, one.call) for one in (*tasks, *evaluators)), is_reused=False)
    return data_sha256([name, len(tasks), code])
