"""Combine, rescale and convert evaluators, and list all built-in ones."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rag_eval.errors import ConfigurationError, EvaluatorError, as_sentence
from rag_eval.experiments.callables import evaluator, named_evaluators
from rag_eval.experiments.evaluators import PLAIN_EVALUATORS
from rag_eval.experiments.results import Row, Score, score_of


class ComposedEvaluator:
    """Base of the evaluators that combine the scores of others."""

    def __init__(self, evaluators: Sequence[object], name: str | None = None) -> None:
        if not evaluators:
            raise ConfigurationError(f"{type(self).__name__} has no evaluators: give at least one")
        self.parts = tuple(named_evaluators(evaluators))
        self.name = name or type(self).__name__
        self.instant = all(part.instant for part in self.parts)

    def evaluate(self, result: object, expected: object, row: Row) -> object:
        """Return the combined score, or an awaitable of it if a part is async."""
        arguments = [(result, expected, row) if part.wants_row else (result, expected) for part in self.parts]
        if any(part.is_async for part in self.parts):
            return self._awaited(arguments)
        scores = [score_of(part.call(*values)) for part, values in zip(self.parts, arguments, strict=True)]
        return self.combined(scores)

    async def _awaited(self, arguments: Sequence[tuple[object, ...]]) -> Score:
        scores = []
        for part, values in zip(self.parts, arguments, strict=True):
            runs_here = part.is_async or part.instant
            value = part.call(*values) if runs_here else await asyncio.to_thread(part.call, *values)
            scores.append(score_of(await value if inspect.isawaitable(value) else value))
        return self.combined(scores)

    def combined(self, scores: Sequence[Score]) -> Score:
        """Return the combined score."""
        raise NotImplementedError


class Weighted(ComposedEvaluator):
    """The weighted mean of other evaluators, Σ weight · score / Σ weight; weights are equal by default."""

    def __init__(
        self, evaluators: Sequence[object], weights: Sequence[float] | None = None, name: str | None = None
    ) -> None:
        super().__init__(evaluators, name)
        self.weights = list(weights) if weights is not None else [1.0] * len(self.parts)
        if len(self.weights) != len(self.parts) or min(self.weights) < 0 or not sum(self.weights) > 0:
            raise ConfigurationError(
                f"weights are {self.weights}: give {len(self.parts)} numbers from 0 up, one for each evaluator"
            )

    def combined(self, scores: Sequence[Score]) -> Score:
        total = sum(weight * score.value for weight, score in zip(self.weights, scores, strict=True))
        named = [f"{part.name} {score.value:.3g}" for part, score in zip(self.parts, scores, strict=True)]
        return Score(total / sum(self.weights), ", ".join(named))


class Normalised(ComposedEvaluator):
    """The score of another evaluator, scaled from ``low`` … ``high`` to 0 … 1 and clipped."""

    def __init__(self, evaluator: object, low: float, high: float, name: str | None = None) -> None:
        super().__init__([evaluator], name)
        self.name = name or self.parts[0].name
        if not low < high:
            raise ConfigurationError(f"the range is {low} to {high}: give the lower end first")
        self.low, self.high = low, high

    def combined(self, scores: Sequence[Score]) -> Score:
        (score,) = scores
        share = (score.value - self.low) / (self.high - self.low)
        return Score(min(1.0, max(0.0, share)), score.explanation, score.passed)


def convert_orq_evaluator(source: object) -> Callable[[object, object, Row], object]:
    """Convert an evaluator written for orq.ai; it may be async.

    Args:
        source: A mapping or an object with ``name`` and one of ``evaluate(output, expected)`` and ``scorer``. A scorer
            takes ``{"data": …, "output": …}``, where data has ``inputs`` and ``expected_output``, and returns
            ``value``, ``explanation`` and ``pass_``, as for orq.ai's own runner.

    Raises:
        ConfigurationError: The source is anything else. Errors of the evaluator become ``EvaluatorError``.
    """
    name, scorer = _field(source, "name"), _field(source, "scorer")
    function = scorer or _field(source, "evaluate")
    if not isinstance(name, str) or not callable(function):
        raise ConfigurationError(
            f"a {type(source).__name__} is not an evaluator of orq.ai: give one with name and scorer, or name and "
            "evaluate"
        )

    def call(result: object, expected: object, row: Row) -> Any:
        if not scorer:
            return function(result, expected)
        inputs = {key: value for key, value in row.items() if key != "output"}
        return scorer({"data": SimpleNamespace(inputs=inputs, expected_output=expected), "output": result})

    @evaluator(name)
    def called(result: object, expected: object, row: Row) -> Score:
        with _as_evaluator_errors():
            answer = call(result, expected, row)
        return _orq_score(answer)

    @evaluator(name)
    async def awaited(result: object, expected: object, row: Row) -> Score:
        with _as_evaluator_errors():
            answer = await call(result, expected, row)
        return _orq_score(answer)

    return awaited if inspect.iscoroutinefunction(function) else called


@contextmanager
def _as_evaluator_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise EvaluatorError(as_sentence(error)) from error


def _orq_score(answer: object) -> Score:
    value = _field(answer, "value")
    passed = next((verdict for key in ("pass_", "pass") if (verdict := _field(answer, key)) is not None), None)
    score = score_of(answer if value is None else value)
    return Score(score.value, _field(answer, "explanation"), passed if passed is not None else score.passed)


def _field(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


EVALUATORS: dict[str, type] = {kind.__name__: kind for kind in (*PLAIN_EVALUATORS, Weighted, Normalised)}
"""The built-in evaluators by name."""
