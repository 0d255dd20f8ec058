"""A benchmark from a YAML or TOML file."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rag_eval.config.benchmark import MAX_CONFIGURATIONS, BenchmarkConfig
from rag_eval.config.grid import read_grids, unknown_key
from rag_eval.config.places import Place, reason_of
from rag_eval.config.reading import read_mapping
from rag_eval.config.registry import SECTIONS
from rag_eval.faults import Faults

LISTS = ("retrieval", "k", "metrics")
PATHS = ("corpus", "ground_truth")


def load_config(path: str | Path) -> BenchmarkConfig:
    """The benchmark that a file describes; relative paths in it start at its folder.

    A part is a name (``markdown``) or a mapping with ``type`` and settings; a list in a setting is a grid. Where a list
    is expected, a single value will do. Raises ``ConfigurationError`` on the first thing that is wrong: which file,
    where in it, what was expected; everything else that is wrong stands in its notes.
    """
    path = Path(path)
    data = read_mapping(path)
    root = Place(path.name)
    allowed = list(BenchmarkConfig.model_fields)
    settings, faults = {}, Faults()
    for key, value in data.items():
        with faults.noted():
            if key not in allowed:
                raise unknown_key(root, key, "a benchmark", allowed)
            settings[key] = _read(key, value, root.key(key), path.absolute().parent, faults)
    try:
        config = BenchmarkConfig.model_validate(settings)
    except ValidationError as error:
        for fault in error.errors():
            # A section that lacks its faulty parts, and a default that waits for a sound setting, are no mistakes.
            is_noted = bool(fault["loc"]) and fault["loc"][0] in SECTIONS and fault["loc"][0] in data
            if not is_noted and fault["type"] != "default_factory_not_called":
                faults.add(_place_of(fault["loc"], root, data).fault(reason_of(fault)))
    faults.raise_any()
    return config


def _read(key: str, value: object, place: Place, folder: Path, faults: Faults) -> object:
    """The value of a top-level key: parts made, single values listed, paths resolved."""
    if key in SECTIONS:
        grids = read_grids(value, place, SECTIONS[key], faults)
        size = sum(grid.size for grid in grids)
        if size > MAX_CONFIGURATIONS:
            raise place.fault(f"the grid has {size:,} {key}: at most {MAX_CONFIGURATIONS:,} are compared at once")
        return list(dict.fromkeys(component for grid in grids for component in grid.components(faults)))
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
