"""How experiments are run where the call does not say: ``[tool.rag-eval.experiment]`` or a ``rag-eval.toml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, StrictInt, ValidationError

from rag_eval.errors import ConfigurationError
from rag_eval.parts.settings import Settings
from rag_eval.services.orq import OrqSettings, ProjectSettings


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
    found = ProjectSettings.find(folder)
    return ExperimentSettings() if found is None else found.checked(ExperimentSettings)
