"""Whether a result equals, contains or matches a text, or is valid JSON."""

import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.types import Score


def text_of(value: Any, what: str) -> str:
    """A value as text, numbers and bools as they are written; raises ``ConfigurationError`` on others."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise ConfigurationError(
        f"the {what} is a {type(value).__name__} and not a text: return a text, or use another one"
    )


@dataclass(frozen=True)
class ExactMatch:
    """1 when the result equals the expected output, else 0; ``ignore_case`` and ``strip`` make texts less strict."""

    ignore_case: bool = False
    strip: bool = False
    name: str = "ExactMatch"
    instant: ClassVar[bool] = True

    def evaluate(self, result: Any, expected: Any) -> bool:
        """Whether they are equal."""
        return bool(self._plain(result) == self._plain(expected))

    def _plain(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        value = value.strip() if self.strip else value
        return value.casefold() if self.ignore_case else value


@dataclass(frozen=True)
class Contains:
    """1 when the result contains ``text``, by default the expected output, else 0."""

    text: str | None = None
    ignore_case: bool = False
    name: str = "Contains"
    instant: ClassVar[bool] = True

    def evaluate(self, result: Any, expected: Any) -> bool:
        """Whether it is in there; raises ``ConfigurationError`` on what is no text."""
        whole = text_of(result, "result")
        part = self.text if self.text is not None else text_of(expected, "expected output")
        return part.casefold() in whole.casefold() if self.ignore_case else part in whole


@dataclass(frozen=True)
class Regex:
    """1 when ``pattern`` is found in the result (``whole``: when it matches all of it), else 0."""

    pattern: str
    whole: bool = False
    name: str = "Regex"
    _compiled: "re.Pattern[str]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_compiled", re.compile(self.pattern))
        except re.error as error:
            raise ConfigurationError(f"the pattern {self.pattern!r} is no regular expression: {error}") from None

    def evaluate(self, result: Any, expected: Any) -> Score:
        """Whether it is found, and what."""
        found = (self._compiled.fullmatch if self.whole else self._compiled.search)(text_of(result, "result"))
        return Score(float(found is not None), found.group()[:200] if found else None, found is not None)


@dataclass(frozen=True)
class JsonValid:
    """1 when the result is JSON, and of ``schema`` (a pydantic model, or any type) where one is given; else 0."""

    schema: Any = None
    name: str = "JsonValid"
    instant: ClassVar[bool] = True

    def evaluate(self, result: Any, expected: Any) -> Score:
        """Whether it is, and why not; a result that is no text is checked as it is."""
        try:
            value = json.loads(result) if isinstance(result, str | bytes) else result
        except ValueError as error:
            return Score(0.0, f"not JSON: {error}", passed=False)
        if self.schema is None:
            return Score(1.0, passed=True)
        try:
            TypeAdapter(self.schema).validate_python(value)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            return Score(0.0, f"{'.'.join(map(str, first['loc'])) or 'the value'}: {first['msg']}", passed=False)
        return Score(1.0, passed=True)
