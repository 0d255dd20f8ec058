"""Where something stands in a settings file, and what is wrong there, in words."""

import json
import re
from dataclasses import dataclass, replace
from datetime import date, time
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictStr, StringConstraints, WithJsonSchema

from rag_eval.errors import PREVIEW_CHARACTERS, ConfigurationError, preview

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# What reads as one word wherever it stands in a label.
_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]+")


class Settings(BaseModel):
    """Validated settings: frozen, with no key that is not declared, and never quoted in an error, for secrets' sake."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Component(Settings):
    """A part of a configuration, chosen by its ``type``; ``label`` tells it from every other with other settings."""

    running: ClassVar[tuple[str, ...]] = ()
    """The settings that decide how the work goes and never what comes out: no part of a cache key."""

    searching: ClassVar[tuple[str, ...]] = ()
    """The settings that decide what is found in an index, and not the index."""

    always_shown: ClassVar[tuple[str, ...]] = ()
    """The settings that the label holds even where they are the default."""

    type: str

    @property
    def label(self) -> str:
        """The type, the settings that are always shown, and every other that is not the default."""
        sizes = "/".join(shown(getattr(self, name)) for name in self.always_shown)
        others = [
            f"{name}={shown(getattr(self, name))}"
            for name, field in type(self).model_fields.items()
            if name != "type" and name not in self.always_shown and getattr(self, name) != field.default
        ]
        return " ".join([self.type, *([sizes] if sizes else []), *others])

    def without(self, aspect: Literal["running", "searching"]) -> Self:
        """The same with every setting of this aspect at its default, in the parts inside it too."""
        settled: dict[str, object] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in getattr(self, aspect):
                settled[name] = field.default
            elif isinstance(value, Component):
                settled[name] = value.without(aspect)
        return self.model_copy(update=settled)

    @property
    def identity(self) -> str | None:
        """What beside the settings decides the result, such as the version of a model; None where nothing does."""
        return None

    @property
    def remote(self) -> bool:
        """Whether it uses the network."""
        return False

    def check(self) -> None:
        """Raise ``ConfigurationError`` on settings that contradict each other; loads nothing and asks no service."""


def shown(value: object) -> str:
    """A setting in a label: different values are written differently, and nothing in one can be taken for an end."""
    if isinstance(value, Component):
        return f"({value.label})"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def check_address(address: str) -> str:
    """The address; raises ``ValueError``, without quoting it, unless it is http(s) with host, port and path alone."""
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
"""Where a service answers; it holds no credentials."""

Name = Annotated[StrictStr, StringConstraints(min_length=1)]
"""Text that is not empty."""


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
