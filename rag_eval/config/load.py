"""A benchmark from a YAML or TOML file."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rag_eval.config.benchmark import MAX_CONFIGURATIONS, BenchmarkConfig
from rag_eval.config.grid import read_grids, unknown_key
from rag_eval.config.places import Place, reason_of
from rag_eval.config.reading import read_mapping
from rag_eval.config.registry import SECTIONS

LISTS = ("retrieval", "k", "metrics")
PATHS = ("corpus", "ground_truth")


def load_config(path: str | Path) -> BenchmarkConfig:
    """The benchmark that a file describes; relative paths in it start at its folder.

    A part is a name (``markdown``) or a mapping with ``type`` and settings; a list in a setting is a grid. Where a list
    is expected, a single value will do. Raises ``ConfigurationError`` on the first thing that is wrong: which file,
    where in it, what was expected.
    """
    path = Path(path)
    data = read_mapping(path)
    root = Place(path.name)
    allowed = list(BenchmarkConfig.model_fields)
    for key in data:
        if key not in allowed:
            raise unknown_key(root, key, "a benchmark", allowed)
    settings = {key: _read(key, value, root.key(key), path.absolute().parent) for key, value in data.items()}
    try:
        return BenchmarkConfig.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise _place_of(first["loc"], root, data).fault(reason_of(first)) from None


def _read(key: str, value: object, place: Place, folder: Path) -> object:
    """The value of a top-level key: parts made, single values listed, paths resolved."""
    if key in SECTIONS:
        grids = read_grids(value, place, SECTIONS[key])
        size = sum(grid.size for grid in grids)
        if size > MAX_CONFIGURATIONS:
            raise place.fault(f"the grid has {size:,} {key}: at most {MAX_CONFIGURATIONS:,} are compared at once")
        return list(dict.fromkeys(component for grid in grids for component in grid.components()))
    if key in LISTS:
        return value if isinstance(value, list) else [value]
    if key in PATHS and isinstance(value, str) and value:
        return str(folder / value)
    return value


def _place_of(steps: tuple[int | str, ...], root: Place, data: dict[Any, Any]) -> Place:
    """Where an error of pydantic's stands in the file, in which a single value may stand for a list."""
    if not steps:
        return root
    key, *inside = steps
    place = root.key(key)
    for step in inside if isinstance(data.get(key), list) else []:
        place = place.item(int(step))
    return place
