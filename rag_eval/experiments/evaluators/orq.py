"""Evaluators written for orq.ai's runner, used as they are."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.naming import evaluator
from rag_eval.experiments.scoring import score_of
from rag_eval.experiments.types import Row, Score


def from_orq(given: Any) -> Callable[[Any, Any, Row], Any]:
    """The evaluator in a mapping or an object with ``name`` and ``scorer``, called as orq.ai's runner calls it.

    A scorer is given ``{"data": …, "output": result}``, where data has ``inputs`` and ``expected_output``, and returns
    ``value``, ``explanation`` and ``pass_``. Raises ``ConfigurationError`` on anything else.
    """
    name, scorer = _part(given, "name"), _part(given, "scorer")
    if not isinstance(name, str) or not callable(scorer):
        raise ConfigurationError(f"a {type(given).__name__} is no evaluator of orq.ai: give one with name and scorer")

    @evaluator(name)
    async def converted(result: Any, expected: Any, row: Row) -> Score:
        found = scorer({"data": _data_point(expected, row), "output": result})
        found = await found if inspect.isawaitable(found) else found
        value = _part(found, "value")
        passed = next((one for key in ("pass_", "pass") if (one := _part(found, key)) is not None), None)
        inner = score_of(found if value is None else value)
        return Score(inner.value, _part(found, "explanation"), passed if passed is not None else inner.passed)

    return converted


def _data_point(expected: Any, row: Row) -> Any:
    inputs = {key: value for key, value in row.items() if key != "output"}
    try:
        from evaluatorq import DataPoint
    except ImportError:
        from types import SimpleNamespace

        return SimpleNamespace(inputs=inputs, expected_output=expected)
    return DataPoint(inputs=inputs, expected_output=expected)


def _part(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
