"""How experiments are run where the call does not say: ``[tool.rag-eval.experiment]`` or a ``rag-eval.toml``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt, ValidationError

from rag_eval.errors import ConfigurationError
from rag_eval.parts import Address, Settings

FILE = "rag-eval.toml"


class OrqSettings(Settings):
    """Where orq.ai is, and how long a request may take."""

    endpoint: Address = "https://my.orq.ai"
    timeout: float = Field(default=30.0, gt=0, description="Seconds a request may take.")


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


def load_settings(folder: Path | None = None) -> ExperimentSettings:
    """The settings of the nearest ``rag-eval.toml`` or ``pyproject.toml`` from the folder upwards; else the defaults.

    Raises ``ConfigurationError`` with the file and the key when one cannot be used.
    """
    start = (folder or Path.cwd()).absolute()
    for place in (start, *start.parents):
        for name, keys in ((FILE, ("experiment",)), ("pyproject.toml", ("tool", "rag-eval", "experiment"))):
            found = _table(place / name, keys)
            if found is not None:
                return _checked(place / name, keys, found)
    return ExperimentSettings()


def _table(path: Path, keys: tuple[str, ...]) -> Any | None:
    if not path.is_file():
        return None
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _checked(path: Path, keys: tuple[str, ...], table: Any) -> ExperimentSettings:
    try:
        settings = ExperimentSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((*keys, *map(str, first["loc"])))
        known = ", ".join(ExperimentSettings.model_fields)
        hint = f"the keys are {known}" if first["type"] == "extra_forbidden" else first["msg"].lower()
        raise ConfigurationError(f"{str(path)!r}, {where}: {hint}") from None
    places = {key: path.parent / getattr(settings, key) for key in ("output_dir", "workspace")}
    return settings.model_copy(update=places)
