"""How experiments are run where the call does not say: by a settings file, and by the session under way.

Settings stand in ``[tool.rag-eval.experiment]`` of a ``pyproject.toml``, or in a ``rag-eval.toml``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt, ValidationError

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.results import ExperimentResult, Output
from rag_eval.parts.part_settings import Settings
from rag_eval.services.posting import OrqSettings


class ExperimentSettings(Settings):
    """The settings of experiments."""

    output_dir: Path = Field(default=Path("evaluations"), description="The folder of the results.")
    concurrency: StrictInt = Field(default=5, ge=1, description="How many calls may be under way at once.")
    timeout: float | None = Field(default=None, gt=0, description="Seconds one call may take.")
    retries: StrictInt = Field(default=0, ge=0, description="How often a failing call is tried again.")
    workspace: Path = Field(default=Path(".rag-eval"), description="Where results wait that could not be sent.")
    orq: OrqSettings = OrqSettings()

    def updated(self, overrides: Mapping[str, Any]) -> "ExperimentSettings":
        """The settings with others in their place; raises ``ConfigurationError`` when one cannot be used."""
        try:
            return ExperimentSettings.model_validate(self.model_dump() | dict(overrides))
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigurationError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


@dataclass
class Session:
    """Settings that stand above the calls' own, and the results of the experiments run meanwhile."""

    concurrency: int | None = None
    output_dir: Path | None = None
    outputs: Sequence[Output] | None = None
    """In place of all others."""
    is_quiet: bool = False
    """Whether nothing is shown on the terminal."""
    raises: bool = True
    """Whether a failing experiment ends the file, or the next one is run."""
    results: list[ExperimentResult] = field(default_factory=list)


_sessions: list[Session] = []


def current_session() -> Session:
    """The session under way, or an empty one."""
    return _sessions[-1] if _sessions else Session()


@contextmanager
def session(opened: Session) -> Iterator[Session]:
    """Run experiments under a session; process-wide, since a file may start threads and loops of its own."""
    _sessions.append(opened)
    try:
        yield opened
    finally:
        _sessions.remove(opened)
