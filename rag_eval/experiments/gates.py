"""Averages that an experiment must reach."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.choices import choices, suggestion
from rag_eval.errors import ConfigurationError
from rag_eval.experiments.types import ExperimentResult


@dataclass(frozen=True, slots=True)
class Gate:
    """An average by its key, and what it must at least be."""

    key: str
    at_least: float

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Read ``metric=value``; raises ``ConfigurationError`` on anything else."""
        key, sign, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not sign or not key.strip() or not math.isfinite(number):
            raise ConfigurationError(f"{text!r} is no gate: write metric=value, such as ExactMatch=0.8")
        return cls(key.strip(), number)


def check_known(gates: Sequence[Gate], keys: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` on a gate for a score that the experiment will not have."""
    for gate in gates:
        if gate.key not in keys:
            advice = choices(keys, gate.key) if keys else "the experiment has no evaluators"
            meant = suggestion(gate.key, keys)
            raise ConfigurationError(f"there is no average {gate.key!r} to compare{meant}: {advice}")


def below(results: Sequence[ExperimentResult], gates: Sequence[Gate]) -> list[str]:
    """Each average that is below its gate, in a sentence.

    Raises ``ConfigurationError`` when no experiment has an average of that name.
    """
    found: list[str] = []
    for gate in gates:
        averages = [(result.name, result.averages[gate.key]) for result in results if gate.key in result.averages]
        if not averages:
            known = ", ".join(sorted({key for result in results for key in result.averages})) or "none"
            raise ConfigurationError(f"there is no average {gate.key!r} to compare: there are {known}")
        found += [
            f"{name}: {gate.key} is {average.mean:.4f}, below {gate.at_least:g}"
            for name, average in averages
            if average.mean < gate.at_least
        ]
    return found
