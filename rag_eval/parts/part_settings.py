"""Define settings from outside: common types, their place in a file, and plain error messages."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    PlainValidator,
    SecretStr,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from rag_eval.errors import PREVIEW_CHARACTERS, ConfigurationError, preview
from rag_eval.formatting import choices, suggestion

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Record(BaseModel):
    """Plain data that is stored or printed: frozen, without undeclared keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Settings(BaseModel):
    """Validated settings that are not a part: frozen, without undeclared keys, never quoted in an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def check_address(address: str) -> str:
    """Return an http(s) address of host, port and path; raise ``ValueError``, without quoting it, for any other."""
    form = "expected an address such as http://localhost:8000/v1"
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(form)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"{form} without a user, a query or a fragment: the key is read from the environment")
    return address


Address = Annotated[
    StrictStr,
    AfterValidator(check_address),
    WithJsonSchema({"type": "string", "pattern": "^https?://[^/@?#]+(/[^?#]*)?$"}),
]
"""The address of a service, without credentials."""

Name = Annotated[StrictStr, Field(min_length=1)]
"""Text that is not empty."""


def _check_glob(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(pattern, str) and pattern for pattern in value):
        return list(value)
    raise ValueError(f"expected a pattern such as **/*.md, or a list of them, found {value_in_words(value)}")


_PATTERN = {"type": "string", "minLength": 1}
Glob = Annotated[
    str | list[str],
    PlainValidator(_check_glob),
    WithJsonSchema({"anyOf": [_PATTERN, {"type": "array", "items": _PATTERN, "minItems": 1}]}),
]
"""One or more patterns, of which a file must match one."""

Count = Annotated[StrictInt, Field(ge=1)]
"""A whole number of at least 1."""

Whole = Annotated[StrictInt, Field(ge=0)]
"""A whole number of at least 0."""

OptionalWhole = Annotated[StrictInt | None, Field(ge=0)]
"""A whole number of at least 0, or None."""

OptionalCount = Annotated[StrictInt | None, Field(ge=1)]
"""A whole number of at least 1, or None."""


Secret = Annotated[
    str | SecretStr | None, AfterValidator(lambda secret: SecretStr(secret) if isinstance(secret, str) else secret)
]
"""A key given in Python, hidden from all texts."""


def revealed(secret: str | SecretStr | None) -> str | None:
    """Return the plain text of a key, for its service."""
    return secret.get_secret_value() if isinstance(secret, SecretStr) else secret


def name_or_object(method: str) -> GetPydanticSchema:
    """Mark a setting that is a name or, in Python, an object with this method."""

    def check(value: object, check_name: Callable[[object], object]) -> object:
        if not isinstance(value, str) and hasattr(value, method):
            return value
        if type(value).__module__ != "builtins":
            raise ValueError(f"expected a name or an object with {method}, found {value_in_words(value)}")
        return check_name(value)

    def schema(_: object, handler: Callable[[object], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(check, handler(Name))

    return GetPydanticSchema(schema)


EMPTY_GRID = "an empty grid: give at least one value"

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: the file, its folder, a path such as ``chunkers[1].chunk_size``, and the lines of paths."""

    file: str = ""
    path: str = ""
    folder: Path = field(default_factory=Path.cwd)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def key(self, name: object) -> "Place":
        text = str(name)
        shown = text if text.isidentifier() and len(text) <= PREVIEW_CHARACTERS else preview(text)
        return replace(self, path=f"{self.path}.{shown}" if self.path else shown)

    def item(self, number: int) -> "Place":
        return replace(self, path=f"{self.path}[{number}]")

    def inside(self, steps: Iterable[int | str]) -> "Place":
        """Return the place that pydantic's ``loc`` leads to from here."""
        place = self
        for step in steps:
            place = place.item(step) if isinstance(step, int) else place.key(step)
        return place

    def fault(self, reason: str) -> ConfigurationError:
        line = self.lines.get(self.path)
        path = f"{self.path} (line {line})" if line else self.path
        where = ", ".join(filter(None, (self.file, path)))
        return ConfigurationError(f"{where}: {reason}" if where else reason)


def value_in_words(value: object) -> str:
    """Describe a value in a message, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f"the text {preview(value)}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return "a date or time" if isinstance(value, date | time) else type(value).__name__


def reason_of(error: "ErrorDetails") -> str:
    """Return a pydantic error in plain words: what was expected and what was found."""
    context = {key: _trimmed(value) for key, value in error.get("ctx", {}).items()}
    if error["type"] in ("missing", "missing_argument"):
        return "it is missing: give a value"
    if error["type"] == "too_short":
        return EMPTY_GRID
    if error["type"] == "value_error":
        return str(context["error"])
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return error["msg"]
    return f"expected {expected.format(**context)}, found {value_in_words(error['input'])}"


def _trimmed(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def unknown_key(place: Place, key: object, owner: str, allowed: list[str]) -> ConfigurationError:
    """Return the error for an unknown key; its value is not quoted, because it may be a secret."""
    hint = "" if not str(key).lower().endswith("key") else " (keys of services are read from the environment)"
    meant = suggestion(key, allowed)
    return place.key(key).fault(f"{owner} has no such key{meant}: {choices(allowed, key)}{hint}")
