"""Where something stands in a settings file, and what is wrong there, in words."""

from dataclasses import dataclass, replace
from datetime import date, time
from typing import TYPE_CHECKING

from rag_eval.errors import PREVIEW_CHARACTERS, ConfigurationError, preview

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

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
    """A file and a path in it, such as ``chunkers[1].chunk_size``."""

    file: str
    path: str = ""

    def key(self, name: object) -> "Place":
        """The place of a key's value."""
        text = str(name)
        shown = text if text.isidentifier() and len(text) <= PREVIEW_CHARACTERS else preview(text)
        return replace(self, path=f"{self.path}.{shown}" if self.path else shown)

    def item(self, number: int) -> "Place":
        """The place of an item of a list."""
        return replace(self, path=f"{self.path}[{number}]")

    def fault(self, reason: str) -> ConfigurationError:
        """The error that something is wrong here."""
        return ConfigurationError(f"{self.file}, {self.path}: {reason}" if self.path else f"{self.file}: {reason}")


def describe(value: object) -> str:
    """A value for a message, cut to size."""
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
    """What pydantic found, in our words: what was expected and what stands there."""
    context = {key: _trimmed(value) for key, value in error.get("ctx", {}).items()}
    if error["type"] == "missing":
        return "it is missing: give a value"
    if error["type"] == "too_short":
        return EMPTY_GRID
    if error["type"] == "value_error":
        return str(context["error"])
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return error["msg"]
    return f"expected {expected.format(**context)}, found {describe(error['input'])}"


def _trimmed(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit
