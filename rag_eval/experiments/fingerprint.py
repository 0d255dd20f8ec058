"""What tells one experiment from another: its name, its callables by their code, and where it was written."""

import functools
import hashlib
import types
from collections.abc import Iterable
from typing import Any

from rag_eval.experiments.encoding import encode
from rag_eval.experiments.naming import Named

_PLAIN = (str, bytes, int, float, bool, type(None), tuple, frozenset)


def fingerprint(name: str, tasks: list[Named], evaluators: list[Named]) -> str:
    """The same for the same experiment; another as soon as the code of a task or an evaluator is another.

    What a function calls is not looked at: an interrupted run is continued after an edit there.
    """
    parts = [[one.name, _code_of(one.call)] for one in (*tasks, *evaluators)]
    return hashlib.sha256(encode([name, len(tasks), parts])).hexdigest()


def _code_of(call: Any) -> list[Any]:
    if isinstance(call, functools.partial):
        return ["partial", _code_of(call.func), _values(call.args), _values(sorted(call.keywords.items()))]
    if isinstance(call, types.MethodType):
        return ["method", _code_of(call.__func__), _object(call.__self__)]
    if isinstance(call, types.FunctionType):
        cells = [cell.cell_contents for cell in call.__closure__ or () if _is_filled(cell)]
        return ["function", _code(call.__code__), _values(call.__defaults__ or ()), _values(cells)]
    return ["object", _object(call)]


def _object(value: Any) -> list[Any]:
    call = getattr(type(value), "__call__", None)  # noqa: B004  # its code, not whether it has one
    code = _code(call.__code__) if isinstance(call, types.FunctionType) else None
    # The plain representation holds an address, which is another in every process.
    shown = repr(value)
    settings = None if " at 0x" in shown else shown
    parts = [_code_of(part.call) for part in getattr(value, "parts", ()) if isinstance(part, Named)]
    return [f"{type(value).__module__}.{type(value).__qualname__}", settings, code, parts]


def _code(code: types.CodeType) -> list[Any]:
    constants = [
        _code(one) if isinstance(one, types.CodeType) else repr(one)
        for one in code.co_consts
        if one is not code.co_name
    ]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _values(values: Iterable[Any]) -> list[Any]:
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return repr(value)
    # What a closure holds may change while it runs, and is known by its kind alone.
    return _code_of(value) if isinstance(value, types.FunctionType | types.MethodType) else type(value).__qualname__


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading is the question
    except ValueError:
        return False
    return True
