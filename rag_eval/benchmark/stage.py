"""A stage: a function with a name and a version, and the key of what it makes.

The key is the stage's name and version, the digests of its inputs and the identities of its parts, which hold the
versions of the packages that make the result; nothing else: not the time, not the workspace, not the worker. Equal
keys mean equal work.
"""

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_type_hints

from pydantic import BaseModel

from rag_eval.benchmark.references import Made, Reference
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.files import data_sha256
from rag_eval.errors import ConfigurationError
from rag_eval.parts import identity, is_part

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Stage(Generic[P, R]):
    """One step of the pipeline; calling it runs it."""

    name: str
    version: int
    run: Callable[P, R]
    compute: Callable[..., Any] | None = None
    """The same work on tables in memory, which gives them and what they took."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step."""
        return self.run(*args, **kwargs)

    @functools.cached_property
    def result_type(self) -> Any:
        """The type that the function declares to return: a reference, or a list of them."""
        return get_type_hints(self.run)["return"]

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of the work that a call with these arguments is; safe as a file name."""
        call = inspect.signature(self.run).bind(*args, **kwargs)
        call.apply_defaults()
        return f"{self.name}-v{self.version}-{data_sha256(key_part(call.arguments))[:40]}"


def stage(version: int) -> Callable[[Callable[P, R]], Stage[P, R]]:
    """Make a function a stage under its own name; raise the version whenever its result would change.

    The result says when it was made and how long that took, also to whoever uses it again.
    """

    def decorate(function: Callable[P, R]) -> Stage[P, R]:
        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            made, started = datetime.now(UTC), time.perf_counter()
            result = function(*args, **kwargs)
            return _taking(result, made, time.perf_counter() - started)

        return Stage(function.__name__.replace("_", "-"), version, timed)

    return decorate


def _taking(result: R, made: datetime, seconds: float) -> R:
    if isinstance(result, Made):
        return result.taking(made, seconds)
    if isinstance(result, list | tuple):  # shards, which were made together
        items = [_taking(item, made, seconds / len(result)) for item in result]
        return cast("R", items if isinstance(result, list) else tuple(items))
    return result


def key_part(value: object) -> object:
    """Return an argument as plain data for a key; raises ``ConfigurationError`` on what has no digest."""
    if isinstance(value, Reference):
        return {"digest": value.digest}
    if is_part(value):
        return identity(value)
    if isinstance(value, BaseModel):
        parts = type(value).model_fields.keys() - Made.model_fields.keys()
        return {"type": type(value).__name__} | {name: key_part(getattr(value, name)) for name in parts}
    if isinstance(value, Mapping):
        return {str(name): key_part(part) for name, part in value.items() if not isinstance(part, Workspace)}
    if isinstance(value, list | tuple):
        return [key_part(part) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(getattr(value, "name", None), str):
        return identity(value)
    raise ConfigurationError(f"a {type(value).__name__} cannot be part of a cache key: pass a reference or a setting")
