"""The identity of an experiment: its name and the code of its tasks and evaluators."""

import functools
import hashlib
import types
from collections.abc import Iterable, Iterator
from typing import Any

from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.naming import Named

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
        if isinstance(call, functools.partial):
            return ["partial", self.of(call.func), self._values(call.args), self._values(sorted(call.keywords.items()))]
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
        yield self._values(call.__defaults__ or ())
        yield self._values(cell.cell_contents for cell in call.__closure__ or () if _is_filled(cell))
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

    def _values(self, values: Iterable[Any]) -> list[Any]:
        return [self._value(value) for value in values]

    def _value(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return _stable(value)
        is_code = isinstance(value, types.FunctionType | types.MethodType | functools.partial)
        return self.of(value) if is_code else type(value).__qualname__


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
    return repr(value)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading is the question
    except ValueError:
        return False
    return True
