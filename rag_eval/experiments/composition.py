"""Evaluators made of others: composed of them, or written for orq.ai; and the list of all that are built in."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from rag_eval.errors import ConfigurationError, EvaluatorError, as_sentence
from rag_eval.experiments.callables import NamedCall, evaluator, named_evaluators
from rag_eval.experiments.evaluators import PLAIN_EVALUATORS
from rag_eval.experiments.results import Row, Score, score_of


def _passes(score: Score) -> bool:
    return score.passed if score.passed is not None else score.value >= 1.0


def _told(parts: Sequence[NamedCall], scores: Sequence[Score]) -> str:
    return ", ".join(f"{part.name} {score.value:.3g}" for part, score in zip(parts, scores, strict=True))


class _Composed:
    def __init__(self, evaluators: Sequence[Any], name: str | None = None) -> None:
        if not evaluators:
            raise ConfigurationError(f"{type(self).__name__} has no evaluators: give at least one")
        self.parts = tuple(named_evaluators(evaluators))
        self.name = name or type(self).__name__
        self.instant = all(part.instant for part in self.parts)

    def __repr__(self) -> str:
        settings = {key: value for key, value in vars(self).items() if key not in ("parts", "instant")}
        return f"{type(self).__name__}({[part.name for part in self.parts]}, {settings})"

    def evaluate(self, result: Any, expected: Any, row: Row) -> Score | Awaitable[Score]:
        """The score that the parts' scores make; to be awaited where a part is async."""
        given: list[Any] = []
        try:
            for part in self.parts:
                given.append(part.call(result, expected, row) if part.wants_row else part.call(result, expected))
        except BaseException:
            _close(given)
            raise
        if any(map(inspect.isawaitable, given)):
            return self._later(given)
        return self.combined([score_of(one) for one in given])

    async def _later(self, given: list[Any]) -> Score:
        scores = []
        try:
            for one in given:
                scores.append(score_of(await one if inspect.isawaitable(one) else one))
        finally:
            _close(given)
        return self.combined(scores)

    def combined(self, scores: Sequence[Score]) -> Score:
        """The score of the whole."""
        raise NotImplementedError


def _close(given: Sequence[Any]) -> None:
    """End what will not be awaited, of which Python would complain."""
    for one in given:
        if inspect.iscoroutine(one):
            one.close()


class Weighted(_Composed):
    """The weighted mean of other evaluators: Σ weight · score / Σ weight; ``weights`` are by default equal."""

    def __init__(
        self, evaluators: Sequence[Any], weights: Sequence[float] | None = None, name: str | None = None
    ) -> None:
        super().__init__(evaluators, name)
        self.weights = list(weights) if weights is not None else [1.0] * len(self.parts)
        if len(self.weights) != len(self.parts) or min(self.weights) < 0 or not sum(self.weights) > 0:
            raise ConfigurationError(f"weights are {self.weights}: give one from 0 up for each of {len(self.parts)}")

    def combined(self, scores: Sequence[Score]) -> Score:
        total = sum(weight * score.value for weight, score in zip(self.weights, scores, strict=True))
        return Score(total / sum(self.weights), _told(self.parts, scores))


class AllOf(_Composed):
    """Passes (1) when every evaluator does: says so itself or, where it does not say, scores 1 or more."""

    _joined: Callable[[Iterable[bool]], bool] = all

    def combined(self, scores: Sequence[Score]) -> Score:
        passed = self._joined(map(_passes, scores))
        return Score(float(passed), _told(self.parts, scores), passed)


class AnyOf(AllOf):
    """Passes (1) when at least one evaluator does: says so itself or, where it does not say, scores 1 or more."""

    _joined: Callable[[Iterable[bool]], bool] = any


class Threshold(_Composed):
    """The score of another evaluator, which passes from ``at_least`` up."""

    def __init__(self, evaluator: Any, at_least: float, name: str | None = None) -> None:
        super().__init__([evaluator], name or named_evaluators([evaluator])[0].name)
        self.at_least = at_least

    def combined(self, scores: Sequence[Score]) -> Score:
        (score,) = scores
        return Score(score.value, score.explanation, score.value >= self.at_least)


class Normalised(_Composed):
    """The score of another evaluator moved from ``low`` … ``high`` to 0 … 1, and cut there."""

    def __init__(self, evaluator: Any, low: float, high: float, name: str | None = None) -> None:
        super().__init__([evaluator], name or named_evaluators([evaluator])[0].name)
        if not low < high:
            raise ConfigurationError(f"the range is {low} to {high}: give the lower end first")
        self.low, self.high = low, high

    def combined(self, scores: Sequence[Score]) -> Score:
        """(score - low) / (high - low), between 0 and 1."""
        (score,) = scores
        share = (score.value - self.low) / (self.high - self.low)
        return Score(min(1.0, max(0.0, share)), score.explanation, score.passed)


def convert_orq_evaluator(given: Any) -> Callable[[Any, Any, Row], Any]:
    """An evaluator of orq.ai, sync or async: a mapping or an object with ``name`` and ``scorer`` or ``evaluate``.

    ``evaluate`` is called with (output, expected). A scorer is called as orq.ai's runner calls it, with
    ``{"data": …, "output": result}``, where data has ``inputs`` and ``expected_output``, and returns ``value``,
    ``explanation`` and ``pass_``. What fails is an ``EvaluatorError``, from the error. Raises ``ConfigurationError`` on
    anything else.
    """
    name, scorer, evaluate = (_part(given, key) for key in ("name", "scorer", "evaluate"))
    if not isinstance(name, str) or not callable(scorer or evaluate):
        raise ConfigurationError(
            f"a {type(given).__name__} is no evaluator of orq.ai: give one with name and scorer, or name and evaluate"
        )
    data_point: Callable[..., Any] = SimpleNamespace
    with suppress(ImportError):  # the runner's own kind where it is installed
        from evaluatorq import DataPoint

        data_point = DataPoint

    @evaluator(name)
    def converted(result: Any, expected: Any, row: Row) -> Score | Awaitable[Score]:
        with _as_evaluator_error():
            if not scorer:
                found = evaluate(result, expected)
            else:
                inputs = {key: value for key, value in row.items() if key != "output"}
                found = scorer({"data": data_point(inputs=inputs, expected_output=expected), "output": result})
            return _later(found) if inspect.isawaitable(found) else _score(found)

    return converted


from_orq = convert_orq_evaluator


@contextmanager
def _as_evaluator_error() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise EvaluatorError(as_sentence(error)) from error


async def _later(found: Awaitable[Any]) -> Score:
    with _as_evaluator_error():
        return _score(await found)


def _score(found: Any) -> Score:
    value = _part(found, "value")
    passed = next((one for key in ("pass_", "pass") if (one := _part(found, key)) is not None), None)
    inner = score_of(found if value is None else value)
    return Score(inner.value, _part(found, "explanation"), passed if passed is not None else inner.passed)


def _part(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


_COMPOSED = (Weighted, AllOf, AnyOf, Threshold, Normalised)
EVALUATORS: dict[str, type] = {kind.__name__: kind for kind in (*PLAIN_EVALUATORS, *_COMPOSED)}
"""The built-in evaluators, by the name under which they are listed."""
