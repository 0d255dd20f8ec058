"""Tasks and evaluators as named callables, whatever kind of callable they are."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from rag_eval.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])
_NAME = "experiment_name"


@dataclass(frozen=True, slots=True)
class Named:
    """A callable with its name; ``wants_row`` says that an evaluator asks for the whole row.

    One that is ``instant`` takes linear time and waits for nothing: it needs no thread.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    wants_row: bool = False
    instant: bool = False


@overload
def task(given: F) -> F: ...
@overload
def task(given: str) -> Callable[[F], F]: ...
def task(given: F | str) -> F | Callable[[F], F]:
    """Name a task: ``@task("summary")``, or ``@task`` for the function's own name."""
    return _named(given)


@overload
def evaluator(given: F) -> F: ...
@overload
def evaluator(given: str) -> Callable[[F], F]: ...
def evaluator(given: F | str) -> F | Callable[[F], F]:
    """Make any function ``(result, expected)`` or ``(result, expected, row)`` an evaluator, under a name of its own."""
    return _named(given)


def _named(given: F | str) -> F | Callable[[F], F]:
    if not isinstance(given, str):
        setattr(given, _NAME, given.__name__)
        return given

    def decorate(function: F) -> F:
        setattr(function, _NAME, given)
        return function

    return decorate


def named_tasks(tasks: Sequence[Any]) -> list[Named]:
    """The tasks, each a callable that takes the row; raises ``ConfigurationError`` on any other, or on equal names."""
    given = _listed("tasks", tasks)
    return _distinct("task", [_task(one, place) for place, one in enumerate(given, 1)])


def named_evaluators(evaluators: Sequence[Any]) -> list[Named]:
    """The evaluators: functions, objects with ``evaluate``, or classes that need no argument.

    Raises ``ConfigurationError`` on anything else, or on equal names.
    """
    given = _listed("evaluators", evaluators)
    return _distinct("evaluator", [_evaluator(one, place) for place, one in enumerate(given, 1)])


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what} is a {type(given).__name__}: give a list of callables")
    listed = list(given)
    if what == "tasks" and not listed:
        raise ConfigurationError("an experiment has no tasks: give at least one callable that takes a row")
    return listed


def _task(given: Any, place: int) -> Named:
    if not callable(given):
        raise ConfigurationError(f"task {place} is a {type(given).__name__}: give a callable that takes a row")
    return Named(_name(given, f"task-{place}"), given, _is_async(given))


def _evaluator(given: Any, place: int) -> Named:
    made = given
    if isinstance(given, type):
        try:
            made = given()
        except TypeError as error:
            raise ConfigurationError(
                f"the evaluator {given.__name__} needs settings ({error}): make one, {given.__name__}(…)"
            ) from None
    if hasattr(made, "calculate"):
        from rag_eval.experiments.evaluators.comparison import MetricEvaluator

        made = MetricEvaluator(made)
    call = getattr(made, "evaluate", made)
    if not callable(call):
        raise ConfigurationError(
            f"evaluator {place} is a {type(made).__name__}: give a callable that takes (result, expected)"
        )
    return Named(
        _name(made, f"evaluator-{place}"), call, _is_async(call), _wants_row(call), getattr(made, "instant", False)
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


def _wants_row(call: Any) -> bool:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len([one for one in positional if one.default is one.empty or one.name == "row"]) >= 3


def _distinct(kind: str, named: list[Named]) -> list[Named]:
    names = [one.name for one in named]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two {kind}s are called {name!r}: name one of them with @{kind}(…)")
    return named
