"""The services of ``deployments/compose.yaml`` as processes of this machine, with its commands and its env files."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deployments"
BIN = Path(sys.executable).parent


def services() -> dict[str, dict[str, Any]]:
    """The services, by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return found


def env_file(name: str) -> dict[str, str]:
    """The settings of an env file."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def command(service: str, **in_place: str) -> list[str]:
    """The command of a service, with words put in the place of others; ``work`` is the folder of the containers."""
    words = [str(word) for word in services()[service]["command"]]
    return [str(BIN / words[0]), *(in_place.get("work", word) if word == "/work" else word for word in words[1:])]


def environment(service: str, **settings: str) -> dict[str, str]:
    """The environment of a service: its env file, and what is different on this machine."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_", "DASK_"))}
    return clean | env_file(services()[service]["env_file"]) | settings
