"""An experiment: its tasks and evaluators as named callables, of whatever kind, and the identity of their code."""

import functools
import hashlib
import inspect
import math
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar, overload

from rag_eval.errors import ConfigurationError, DataError
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import score_key

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
    """The evaluators: functions, objects with ``evaluate``, or classes that need no argument.

    Raises ``ConfigurationError`` on anything else, or on equal names.
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


_PLAIN = (str, bytes, int, float, bool, type(None), tuple, frozenset)


def fingerprint(name: str, tasks: list[Named], evaluators: list[Named]) -> str:
    """The same for the same experiment; another as soon as the code of a task or an evaluator is another.

    To the code belong the functions, classes and plain constants of its own module that it uses, and what those use.
    Further modules, and lists and objects, whose content may change while it runs, are not looked at.
    """
    parts = [[one.name, _Code().of(one.call)] for one in (*tasks, *evaluators)]
    return hashlib.sha256(encode([name, len(tasks), parts])).hexdigest()


class _Code:
    """The code of one callable as plain data, everything in it once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, call: Any) -> list[Any]:
        if isinstance(call, functools.partial) and call.func is _with_fields:
            return self.of(call.args[0])
        if isinstance(call, functools.partial):
            named = chain.from_iterable(sorted(call.keywords.items()))
            return ["partial", self.of(call.func), *self._values(chain(call.args, named))]
        if isinstance(call, types.MethodType):
            return ["method", self.of(call.__func__), self._object(call.__self__)]
        if isinstance(call, types.FunctionType):
            return ["function", *self._function(call)]
        return ["object", self._object(call)]

    def _function(self, call: types.FunctionType) -> Iterator[Any]:
        if id(call) in self._seen:
            return
        self._seen.add(id(call))
        yield _code(call.__code__)
        yield [*self._values(call.__defaults__ or ())]
        yield [*self._values(_contents(call.__closure__ or ()))]
        for name in sorted(_names(call.__code__) & call.__globals__.keys()):
            used = call.__globals__[name]
            if isinstance(used, _PLAIN):
                yield [name, _stable(used)]
            elif isinstance(used, types.FunctionType | type) and used.__module__ == call.__module__:
                yield [name, self._type(used) if isinstance(used, type) else self.of(used)]

    def _object(self, value: Any) -> list[Any]:
        # The plain representation holds an address, which is another in every process.
        shown = repr(value)
        settings = None if " at 0x" in shown else shown
        parts = [self.of(part.call) for part in getattr(value, "parts", ()) if isinstance(part, Named)]
        return [settings, self._type(type(value)), parts]

    def _type(self, kind: type) -> list[Any]:
        """The methods of a class and of those of its module that it derives from."""
        told: list[Any] = [f"{kind.__module__}.{kind.__qualname__}"]
        if id(kind) not in self._seen:
            self._seen.add(id(kind))
            bases = [base for base in kind.__mro__ if base.__module__ == kind.__module__ != "builtins"]
            methods = [getattr(found, "__func__", found) for base in bases for found in vars(base).values()]
            told += [self.of(method) for method in methods if isinstance(method, types.FunctionType)]
        return told

    def _values(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, _PLAIN):
                yield _stable(value)
            elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
                yield self.of(value)
            else:
                yield type(value).__qualname__


def _code(code: types.CodeType) -> list[Any]:
    constants = [
        _code(one) if isinstance(one, types.CodeType) else _stable(one)
        for one in code.co_consts
        if one is not code.co_name
    ]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return {*code.co_names}.union(*inner)


def _stable(value: Any) -> Any:
    """A plain value as text that is the same in every process: the order of a set is not."""
    if isinstance(value, tuple | frozenset):
        parts = [str(_stable(part)) for part in value]
        return [type(value).__name__, *(sorted(parts) if isinstance(value, frozenset) else parts)]
    return repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__


def _contents(cells: Iterable[types.CellType]) -> Iterator[Any]:
    for cell in cells:
        with suppress(ValueError):  # nothing was assigned to it yet
            yield cell.cell_contents
