"""Where the configurations of a benchmark are evaluated, by name; no part of any cache key."""

from importlib.util import find_spec

from rag_eval.choices import choices, suggestion
from rag_eval.errors import ConfigurationError, preview

THREADS = "threads"
NEEDED = {THREADS: None, "processes": None, "dask": "prefect_dask", "ray": "prefect_ray"}
"""The task runners, each with the package it needs besides; the extra that brings it has the runner's name."""


def check_runner(name: str) -> None:
    """Raise ``ConfigurationError`` when there is no such runner, or what it needs is not installed."""
    if name not in NEEDED:
        raise ConfigurationError(
            f"there is no runner {preview(name)}{suggestion(name, NEEDED)}: {choices(NEEDED, name)}"
        )
    package = NEEDED[name]
    if package is not None and find_spec(package) is None:
        raise ConfigurationError(f"the runner {name} is not installed: pip install 'rag-eval[{name}]'")
