"""Run experiments in a Python file: their settings, and the session of the command or flow that runs the file.

Settings are in ``[tool.rag-eval.experiment]`` of ``pyproject.toml``, or in ``[experiment]`` of ``rag-eval.toml``.
"""

import runpy
import sys
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, StrictInt, ValidationError

from rag_eval.errors import ConfigurationError, ExperimentError, RagEvalError
from rag_eval.experiments.engine import begin_with_user_code, message_of
from rag_eval.experiments.results import ExperimentResult, OutputHandler
from rag_eval.parts.part_settings import Settings
from rag_eval.services.orq import OrqSettings

OWN_FILE = "rag-eval.toml"
PROJECT_FILES = {OWN_FILE: ("experiment",), "pyproject.toml": ("tool", "rag-eval", "experiment")}
"""The files that may hold the settings of experiments, and the keys of their tables."""


class ExperimentSettings(Settings):
    """The settings of experiments."""

    output_dir: Path = Field(default=Path("evaluations"), description="Folder for results.")
    concurrency: StrictInt = Field(default=5, ge=1, description="Maximum number of concurrent calls.")
    timeout: float | None = Field(default=None, gt=0, description="Timeout of a call in seconds.")
    retries: StrictInt = Field(default=0, ge=0, description="Number of retries of a failed call.")
    orq: OrqSettings = OrqSettings()

    def updated(self, overrides: Mapping[str, object]) -> "ExperimentSettings":
        """Return the settings with the overrides that are not None; raises ``ConfigurationError``."""
        values = {key: value for key, value in overrides.items() if value is not None}
        try:
            return ExperimentSettings.model_validate(self.model_dump() | values)
        except ValidationError as error:
            raise ConfigurationError(_problem(error)) from None


def _problem(error: ValidationError, *keys: str) -> str:
    """Return the first problem and its place in the file."""
    first = error.errors()[0]
    where = ".".join((*keys, *map(str, first["loc"])))
    known = OrqSettings if first["loc"][:1] == ("orq",) else ExperimentSettings
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key: the keys are {', '.join(known.model_fields)}"
    return f"{where}: {first['msg'].lower()}"


def load_settings() -> ExperimentSettings:
    """Return the settings of the nearest of ``PROJECT_FILES`` in this folder or above, or the defaults.

    Raises:
        ConfigurationError: The file or a setting cannot be used.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name, keys in PROJECT_FILES.items():
            path = folder / name
            table = _table(path, keys) if path.is_file() else None
            if table is None:
                continue
            try:
                settings = ExperimentSettings.model_validate(table)
            except ValidationError as error:
                raise ConfigurationError(f"{str(path)!r}, {_problem(error, *keys)}") from None
            if "output_dir" in settings.model_fields_set and folder != here:
                settings = settings.model_copy(update={"output_dir": folder / settings.output_dir})
            return settings
    return ExperimentSettings()


def _table(path: Path, keys: Sequence[str]) -> object:
    try:
        table: object = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    if table is None and path.name == OWN_FILE:
        raise ConfigurationError(f"{str(path)!r} has no [experiment] table: put the settings below that line")
    return table


@dataclass
class Session:
    """Settings that override those of the calls, and the results of the experiments.

    ``outputs`` replace all others. With ``is_quiet``, nothing is printed. Without ``raises``, a failed experiment does
    not stop the file.
    """

    concurrency: int | None = None
    output_dir: Path | None = None
    outputs: Sequence[OutputHandler] | None = None
    is_quiet: bool = False
    raises: bool = True
    results: list[ExperimentResult] = field(default_factory=list)


_sessions: list[Session] = []
"""Sessions of the process, because a file may start its own threads and loops."""


def current_session() -> Session:
    """Return the innermost session, or an empty one."""
    return _sessions[-1] if _sessions else Session()


def run_file(path: Path, session: Session) -> list[ExperimentResult]:
    """Run a file as a script and return the results of its experiments; raises ``ExperimentError``."""
    if not path.is_file():
        raise ExperimentError(f"the file {str(path)!r} is missing: give a Python file that runs an experiment")
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)  # as Python does for a script
    _sessions.append(session)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except RagEvalError:
        raise
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise ExperimentError(f"{str(path)!r} exited with code {leaving.code}") from None
    except Exception as error:
        begin_with_user_code(error)
        raise ExperimentError(f"{str(path)!r}{_line(path, error)}: {message_of(error)}") from error
    finally:
        _sessions.remove(session)
        sys.path.remove(folder)
    if not session.results:
        raise ExperimentError(f"{str(path)!r} runs no experiment: call evaluatorq(…) in it, or await experiment(…)")
    return session.results


def _line(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {frames[-1].lineno}" if frames else ""
