"""A benchmark from a YAML or TOML file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rag_eval import sample
from rag_eval.benchmark.config import MAX_CONFIGURATIONS, SECTIONS, BenchmarkConfig
from rag_eval.errors import ConfigurationError, Faults, preview
from rag_eval.parts.registry import read_grids
from rag_eval.parts.settings import Place, reason_of, unknown_key

MAX_BYTES = 2**18
MAX_VALUES = 100_000
"""How many values a file may hold, those that aliases repeat included."""

QUOTED_CHARACTERS = 200
LARGEST_INTEGER = 2**63 - 1
YAML_SUFFIXES = (".yaml", ".yml")
TOML_SUFFIX = ".toml"

_BAD_SCALAR = "a number has thousands of digits, or a date is on no calendar: write it otherwise"


def read_mapping(path: Path) -> dict[Any, Any]:
    """What a YAML or TOML file holds, by its suffix.

    Raises ``ConfigurationError``, naming file and line where there is one, on a file that is missing, too large, not
    UTF-8, not well-formed or not a mapping, on a key that stands twice, and on aliases that hold themselves or that
    make more than ``MAX_VALUES`` values.
    """
    suffix = path.suffix.lower()
    if suffix not in (*YAML_SUFFIXES, TOML_SUFFIX):
        raise ConfigurationError(f"{path.name} is neither YAML nor TOML: name it .yaml, .yml or .toml")
    text = _read_text(path)
    try:
        data = _parse_toml(text) if suffix == TOML_SUFFIX else _parse_yaml(text)
        if data is None:
            raise _Unreadable("the file is empty: give at least corpus, ground_truth and chunkers")
        if not isinstance(data, dict):
            raise _Unreadable("expected keys and values, such as corpus: docs")
        _check_scalars(data)
    except _Unreadable as error:
        raise ConfigurationError(f"{path.name}{', ' if error.line else ': '}{error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path.name}: lists and mappings are nested too deeply to be read") from None
    return data


class _Unreadable(Exception):
    """Why a text cannot be used, and in which line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.line = line


def _read_text(path: Path) -> str:
    shown = preview(str(path), QUOTED_CHARACTERS)
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise ConfigurationError(f"there is no file {shown}: check the path")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be read ({error.strerror}): give a file that can be") from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"{path.name} has more than {MAX_BYTES:,} bytes: that is no benchmark")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path.name}, line {line}: byte {content[error.start]:#04x} is not UTF-8: save the file as UTF-8"
        ) from None


def _parse_toml(text: str) -> object:
    try:
        return tomllib.loads(text) or None
    except tomllib.TOMLDecodeError as error:
        raise _Unreadable(f"not TOML: {error}") from None
    except ValueError:
        raise _Unreadable(_BAD_SCALAR) from None


def _parse_yaml(text: str) -> object:
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Unreadable(f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Unreadable(f"not YAML: the character {chr(error.character)!r} is not allowed", line) from None
    except ValueError:
        raise _Unreadable(_BAD_SCALAR) from None


def _count_values(node: yaml.Node, counts: dict[int, int | None]) -> int:
    """How many values there are at and below a node, aliases written out; refuses keys that stand twice.

    Counted before anything is made of the nodes: merge keys repeat what they name, and that may double at every level.
    """
    if id(node) in counts:
        known = counts[id(node)]
        if known is None:
            raise _Unreadable("an alias stands for what it is part of: write the values out", node.start_mark.line + 1)
        return known
    counts[id(node)] = None
    if isinstance(node, yaml.MappingNode):
        _refuse_duplicates(node)
        total = 1 + sum(_count_values(part, counts) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        total = 1 + sum(_count_values(item, counts) for item in node.value)
    else:
        total = 1
    if total > MAX_VALUES:
        raise _Unreadable(f"more than {MAX_VALUES:,} values, aliases written out", node.start_mark.line + 1)
    counts[id(node)] = total
    return total


def _refuse_duplicates(node: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if (key.tag, key.value) in lines:
            first = lines[key.tag, key.value]
            raise _Unreadable(f"the key {preview(key.value)} stands twice, first in line {first}", line)
        lines[key.tag, key.value] = line


def _check_scalars(data: object) -> None:
    """Refuse what no setting can be and JSON, in which settings are stored, cannot hold."""
    for value in _scalars(data):
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _Unreadable(f"{preview(value)} has half a surrogate pair: write the character itself") from None
        if isinstance(value, int) and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise _Unreadable("a whole number has more than 64 bits: give a smaller one")


def _scalars(data: object) -> Iterator[object]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from _scalars(value)
    elif isinstance(data, list):
        for item in data:
            yield from _scalars(item)
    else:
        yield data


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
        return list(dict.fromkeys(part for grid in grids for part in grid.parts(faults)))
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


def chosen_benchmark(
    file: Path | None,
    corpus: Path | None = None,
    truth: Path | None = None,
    glob: str | None = None,
    langsmith_dataset: str | None = None,
) -> BenchmarkConfig:
    """The benchmark of a file, or the sample's, with what is given in the place of what it says.

    Raises ``ConfigurationError`` on a file that cannot be used, on an empty name of a dataset, and when the sample's
    documents are to be scored against other truth, or the reverse.
    """
    if file is None and (corpus is None) != (truth is None):
        raise ConfigurationError("corpus and truth go together unless a benchmark file has the other: give both")
    if langsmith_dataset is not None and not langsmith_dataset.strip():
        raise ConfigurationError("the dataset to publish to has no name: give that of a LangSmith dataset")
    chosen = load_config(file or sample.BENCHMARK)
    given: dict[str, Path | str | None] = {
        "corpus": corpus and corpus.absolute(),
        "ground_truth": truth and truth.absolute(),
        "glob": glob,
        "langsmith_dataset": langsmith_dataset,
    }
    return chosen.model_copy(update={key: value for key, value in given.items() if value is not None})
