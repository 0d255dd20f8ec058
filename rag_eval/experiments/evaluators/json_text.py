"""Whether a result is JSON of a kind."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from rag_eval.experiments.types import Score


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
