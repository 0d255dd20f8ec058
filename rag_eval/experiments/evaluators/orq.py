"""Evaluators written for orq.ai's runner, used as they are."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
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

    data_point = _data_point()

    @evaluator(name)
    def converted(result: Any, expected: Any, row: Row) -> Score | Awaitable[Score]:
        inputs = {key: value for key, value in row.items() if key != "output"}
        found = scorer({"data": data_point(inputs=inputs, expected_output=expected), "output": result})
        return _later(found) if inspect.isawaitable(found) else _score(found)

    return converted


async def _later(found: Awaitable[Any]) -> Score:
    return _score(await found)


def _score(found: Any) -> Score:
    value = _part(found, "value")
    passed = next((one for key in ("pass_", "pass") if (one := _part(found, key)) is not None), None)
    inner = score_of(found if value is None else value)
    return Score(inner.value, _part(found, "explanation"), passed if passed is not None else inner.passed)


def _data_point() -> Callable[..., Any]:
    """What makes a data point: the runner's own kind where it is installed."""
    made: Callable[..., Any] = SimpleNamespace
    with suppress(ImportError):
        from evaluatorq import DataPoint

        made = DataPoint
    return made


def _part(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
