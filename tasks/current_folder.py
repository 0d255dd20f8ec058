"""Treat the current folder as data: Prefect reads no settings from it, and deployed runs import nothing from it.

Prefect reads ``.env``, ``prefect.toml`` and ``pyproject.toml`` of the current folder. They may come from anybody, and
they can name the API, another profiles file, or a logging configuration that calls any function.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.settings.base import PrefectBaseSettings

OPT_IN = "RAG_EVAL_PREFECT_SETTINGS_HERE"
"""Environment variable that, set to 1, lets Prefect read settings in the current folder."""

SETTINGS = "prefect.settings.models.root"
"""Module that imports all settings classes; Prefect uses none of them before it is imported."""


def reads_settings_here() -> bool:
    """Return whether the user lets Prefect read settings in the current folder."""
    return os.environ.get(OPT_IN) == "1"


def ignore_settings_here() -> None:
    """Keep Prefect in this process from reading settings in its current folder, now and later.

    Call it before or after Prefect is imported; it does not import Prefect. It does nothing if
    ``RAG_EVAL_PREFECT_SETTINGS_HERE`` is 1.
    """
    if reads_settings_here():
        return
    if SETTINGS in sys.modules:
        _remove_file_sources()
    elif not any(isinstance(finder, _SettingsFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SettingsFinder())


def enter_project_folder() -> None:
    """Change to the folder that the pull step of a deployment named; do nothing in other runs."""
    from rag_eval.parts.code import PROJECT_FOLDER

    folder = os.environ.pop(PROJECT_FOLDER, None)
    if folder is not None:
        ignore_settings_here()
        os.environ["PYTHONSAFEPATH"] = "1"  # for the processes of task runners, which start in this folder
        os.chdir(folder)


def profiles_path() -> Path:
    """Return the file of the user's Prefect profiles, found as Prefect does but not in the current folder."""
    profiles, home = os.environ.get("PREFECT_PROFILES_PATH"), os.environ.get("PREFECT_HOME")
    if profiles or home:
        return Path(profiles or Path(str(home), "profiles.toml")).expanduser()
    path = Path.home() / ".prefect" / "profiles.toml"
    prefect = None if path.exists() else find_spec("prefect")
    return path if prefect is None else Path(str(prefect.origin)).with_name("settings") / path.name


class _SettingsFinder(MetaPathFinder):
    """Finds the module of Prefect's settings, once, to change them between their import and their first use."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != SETTINGS:
            return None
        # A new list: other threads may be looking through the old one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _SettingsLoader(name, spec.origin)
        return spec


class _SettingsLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _remove_file_sources()


def _remove_file_sources() -> None:
    """Leave the environment and the user's profile as the only sources of Prefect's settings."""
    sources, base = (import_module(f"prefect.settings.{name}") for name in ("sources", "base"))
    sources.TomlConfigSettingsSourceBase._read_files = lambda *args, **kwargs: {}
    sources._get_profiles_path = profiles_path  # type: ignore[attr-defined]  # Prefect's reads the files too
    for settings in _subclasses(base.PrefectBaseSettings):
        settings.model_config["env_file"] = None


def _subclasses(settings: "type[PrefectBaseSettings]") -> "Iterator[type[PrefectBaseSettings]]":
    for subclass in settings.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
