"""Name objects in memory, and compute digests of their code and state."""

import functools
import hashlib
import re
import types
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath

from rag_eval.storage.files import data_sha256

_PLAIN = (str, bytes, int, float, complex, bool, type(None), PurePath, re.Pattern, Enum)
_SIZES = ("chunk_size", "chunk_overlap", "max_chunk_size", "tokens_per_chunk", "size", "overlap")


def object_name(source: object) -> str:
    """Name an object by its class and settings, or a function by its module and name.

    Sizes are written out, and a digest stands for the other settings:
    ``TokenChunker(chunk_size=400, chunk_overlap=0, settings=1f0c9a7e)``.
    """
    if isinstance(source, functools.partial):
        bound = [repr(value) for value in source.args] + [f"{key}={value!r}" for key, value in source.keywords.items()]
        return f"{object_name(source.func)}({', '.join(bound)})"
    owner = getattr(source, "__self__", None)
    if owner is not None and hasattr(owner, "__dict__") and hasattr(source, "__name__"):
        return f"{object_name(owner)}.{source.__name__}"
    if hasattr(source, "__qualname__"):
        module = getattr(source, "__module__", None)
        return f"{module}.{source.__qualname__}" if module else str(source.__qualname__)
    settings = {key.lstrip("_"): value for key, value in sorted(getattr(source, "__dict__", {}).items())}
    shown = [f"{key}={settings.pop(key)}" for key in _SIZES if isinstance(settings.get(key), int | float)]
    described = [f"{key}={text}" for key, value in settings.items() if (text := _describe(value))]
    if described:
        shown.append(f"settings={hashlib.sha256('; '.join(described).encode('utf-8', 'replace')).hexdigest()[:8]}")
    return f"{type(source).__name__}({', '.join(shown)})"


def _describe(value: object) -> str:
    """Return a setting as text that is the same in every process."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text or isinstance(value, set | frozenset) else text


def live_identity(source: object) -> str:
    """Return the ``identity`` of an object, or else the digest of its code and state.

    For an object with a ``name``, the name stands for its state: objects of one class and name are interchangeable.
    """
    stated, name = getattr(source, "identity", None), getattr(source, "name", None)
    if isinstance(stated, str):
        return stated
    is_named = isinstance(name, str) and bool(name) and not isinstance(source, type)
    return data_sha256([name, live_digest(type(source))] if is_named else [object_name(source), live_digest(source)])


def live_digest(*objects: object, is_reused: bool = True) -> str:
    """Return the digest of the code and state of objects; it changes whenever an object would behave differently.

    The code includes the functions, classes and plain constants of the module that it uses, recursively. State that
    cannot be compared, such as a connection, makes the digest unique, so that no result is reused. Without
    ``is_reused``, for results that only an interrupted run reads, such state counts as its type, and so does mutable
    state, such as lists.
    """
    live = _Live(is_reused)
    return data_sha256([live.of(value) for value in objects])


class _Live:
    """Converts objects to plain data, each object once."""

    def __init__(self, is_reused: bool) -> None:
        self._is_reused = is_reused
        self._seen: dict[int, object] = {}  # keeps the objects alive, so that no id is reused

    def of(self, value: object) -> object:
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if not self._is_reused and isinstance(value, list | set | Mapping):
            return type(value).__name__  # a run may change its content
        if isinstance(value, list | tuple):
            return [type(value).__name__, *map(self.of, value)]
        if isinstance(value, set | frozenset):
            return [type(value).__name__, *sorted(map(repr, value))]
        if isinstance(value, Mapping):
            return {repr(key): self.of(inner) for key, inner in value.items()}
        if id(value) in self._seen:
            return "again"
        self._seen[id(value)] = value
        return self._described(value)

    def _described(self, value: object) -> list[object]:
        if isinstance(value, functools.partial):
            return ["partial", self.of(value.func), self.of(value.args), self.of(tuple(value.keywords.items()))]
        if isinstance(value, types.MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, types.FunctionType):
            return ["function", *self._function(value)]
        if isinstance(value, type):
            return ["class", *self._class(value)]
        if isinstance(value, types.BuiltinFunctionType | types.ModuleType):
            return ["built in", value.__name__]
        return ["object", self.of(type(value)), self._state(value)]

    def _function(self, call: types.FunctionType) -> Iterator[object]:
        yield f"{call.__module__}.{call.__qualname__}"
        yield _code(call.__code__)
        yield self.of(call.__defaults__ or ())
        yield self.of(tuple((call.__kwdefaults__ or {}).items()))
        yield [self.of(cell.cell_contents) for cell in call.__closure__ or () if _is_filled(cell)]
        for name in sorted(_names(call.__code__) & call.__globals__.keys()):
            used = call.__globals__[name]
            is_of_module = getattr(used, "__module__", None) == call.__module__
            is_constant = isinstance(used, (*_PLAIN, tuple, frozenset))
            if is_constant or (isinstance(used, types.FunctionType | type) and is_of_module):
                yield [name, self.of(used)]

    def _class(self, kind: type) -> Iterator[object]:
        """Yield the methods of a class and of its bases in the same module."""
        yield f"{kind.__module__}.{kind.__qualname__}"
        for base in kind.__mro__:
            if base.__module__ == kind.__module__ != "builtins":
                for member in vars(base).values():
                    method = getattr(member, "fget", None) or getattr(member, "__func__", member)
                    if isinstance(method, types.FunctionType):
                        yield self.of(method)

    def _state(self, value: object) -> object:
        stated = getattr(value, "identity", None)
        if isinstance(stated, str):
            return stated
        if is_dataclass(value):
            return {item.name: self.of(getattr(value, item.name)) for item in fields(value)}
        is_plain = type(value).__module__.partition(".")[0] not in _UNCOMPARABLE
        if hasattr(value, "__dict__") and is_plain:
            return {name: self.of(inner) for name, inner in vars(value).items()}
        shown = repr(value)
        if is_plain and " at 0x" not in shown:
            return shown
        return f"unknown {uuid.uuid4().hex}" if self._is_reused else "unknown"


_UNCOMPARABLE = frozenset({"_io", "_socket", "_ssl", "_thread", "asyncio", "httpx", "openai", "socket", "ssl"})


def _code(code: types.CodeType) -> list[object]:
    constants = [
        _code(constant) if isinstance(constant, types.CodeType) else _stable(constant)
        for constant in code.co_consts
        if constant is not code.co_name
    ]
    return [code.co_code.hex(), constants, list(code.co_names)]


def _stable(value: object) -> object:
    """Return a constant as text that is the same in every process, unlike the order of a set."""
    if isinstance(value, tuple | frozenset):
        items = [str(_stable(item)) for item in value]
        return [type(value).__name__, *(sorted(items) if isinstance(value, frozenset) else items)]
    return repr(value)


def _names(code: types.CodeType) -> set[str]:
    return {*code.co_names}.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # an empty cell raises
    except ValueError:
        return False
    return True
