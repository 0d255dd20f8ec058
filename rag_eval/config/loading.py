"""A benchmark from a YAML or TOML file, and the JSON schema (draft 2020-12) of such a file, for editors."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import ValidationError

from rag_eval import sample
from rag_eval.config.models import LONGEST_NAME, MAX_CONFIGURATIONS, SECTIONS, BenchmarkConfig
from rag_eval.config.objective import METRICS
from rag_eval.config.sweep_settings import Search
from rag_eval.config.truth_sources import read_sources, sources_schema
from rag_eval.documents.reading import LOADER
from rag_eval.errors import ConfigurationError, Faults, preview
from rag_eval.formatting import choices, slug, suggestion
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.metrics import METRIC
from rag_eval.parts.kinds import Schema, kind_schema, one_or_more, own_schemas, read_grids
from rag_eval.parts.objects import is_reference
from rag_eval.parts.part_settings import Place, reason_of, unknown_key

MAX_BYTES = 2**18
MAX_VALUES = 100_000
"""How many values a file may hold, those that aliases repeat included."""

QUOTED_CHARACTERS = 200
LARGEST_INTEGER = 2**63 - 1
YAML_SUFFIXES = (".yaml", ".yml")
TOML_SUFFIX = ".toml"


def read_mapping(path: Path) -> dict[Any, Any]:
    """Return what a YAML or TOML file holds, by its suffix.

    Raises ``ConfigurationError``, naming file and line where there is one, on a file that is missing, too large, not
    UTF-8, not well-formed or not a mapping, on a key that stands twice, and on aliases that hold themselves or that
    make more than ``MAX_VALUES`` values.
    """
    suffix, name = path.suffix.lower(), path.name
    if suffix not in (*YAML_SUFFIXES, TOML_SUFFIX):
        raise ConfigurationError(f"{name} is neither YAML nor TOML: name it .yaml, .yml or .toml")
    content = _read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
        data = (tomllib.loads(text) or None) if suffix == TOML_SUFFIX else _parse_yaml(text, name)
        _check_scalars(data, name)
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ConfigurationError(
            f"{name}, line {line}: byte {byte:#04x} is not UTF-8: save the file as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from None
    except ValueError:
        raise ConfigurationError(
            f"{name}: a number has thousands of digits, or a date is on no calendar: write it otherwise"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{name}: lists and mappings are nested too deeply to be read") from None
    if data is None:
        raise ConfigurationError(f"{name}: the file is empty: give at least corpus, ground_truth and chunkers")
    if not isinstance(data, dict):
        raise ConfigurationError(f"{name}: expected keys and values, such as corpus: docs")
    return data


def _read_bytes(path: Path) -> bytes:
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
    return content


def _parse_yaml(text: str, name: str) -> object:
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, name, {})
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigurationError(f"{where}: not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        where = f"{name}, line {text.count(chr(10), 0, error.position) + 1}"
        raise ConfigurationError(f"{where}: not YAML: the character {chr(error.character)!r} is not allowed") from None


def _count_values(node: yaml.Node, name: str, counts: dict[int, int | None]) -> int:
    """Count the values at and below a node, aliases written out; refuse keys that stand twice.

    Counted before anything is made of the nodes: merge keys repeat what they name, and that may double at every level.
    """
    where = f"{name}, line {node.start_mark.line + 1}"
    if id(node) in counts:
        known = counts[id(node)]
        if known is None:
            raise ConfigurationError(f"{where}: an alias stands for what it is part of: write the values out")
        return known
    counts[id(node)] = None
    inside = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        inside = [part for pair in node.value for part in pair]
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line, known = key.start_mark.line + 1, lines.get((key.tag, key.value))
            if known is not None:
                told = f"the key {preview(key.value)} stands twice, first in line {known}"
                raise ConfigurationError(f"{name}, line {line}: {told}")
            lines[key.tag, key.value] = line
    total = 1 + sum(_count_values(one, name, counts) for one in inside)
    if total > MAX_VALUES:
        raise ConfigurationError(f"{where}: more than {MAX_VALUES:,} values, aliases written out")
    counts[id(node)] = total
    return total


def _check_scalars(data: object, name: str) -> None:
    """Refuse what no setting can be and JSON, in which settings are stored, cannot hold."""
    if isinstance(data, dict | list):
        for inside in (*data, *data.values()) if isinstance(data, dict) else data:
            _check_scalars(inside, name)
    elif isinstance(data, str) and not data.isascii():
        try:
            data.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"{name}: {preview(data)} has half a surrogate pair: write the character itself"
            ) from None
    elif isinstance(data, int) and not -LARGEST_INTEGER <= data <= LARGEST_INTEGER:
        raise ConfigurationError(f"{name}: a whole number has more than 64 bits: give a smaller one")


LISTS = ("k", "notify")


def load_config(path: str | Path) -> BenchmarkConfig:
    """Return the benchmark that a file describes; relative paths in it start at its folder.

    A part is a name (``markdown``) or a mapping with ``type`` and settings; a list in a setting is a grid. Where a list
    is expected, a single value will do. Raises ``ConfigurationError`` on the first thing that is wrong: which file,
    where in it, what was expected; everything else that is wrong stands in its notes.
    """
    path = Path(path)
    data = read_mapping(path)
    root = Place(path.name, folder=path.absolute().parent)
    allowed = list(BenchmarkConfig.model_fields)
    settings: dict[str, Any] = {}
    faults = Faults()
    for key, value in data.items():
        with faults.noted():
            if key not in allowed:
                raise unknown_key(root, key, "a benchmark", allowed)
            settings[key] = _read_value(key, value, root.key(key), faults)
    if settings.get("metrics") == [] != data["metrics"]:  # all of them are faulty, which is noted
        del settings["metrics"]
    try:
        config = BenchmarkConfig.model_validate(settings)
    except ValidationError as error:
        for fault in error.errors():
            # A section that lacks its faulty parts, and a default that waits for a sound setting, are no mistakes.
            is_noted = bool(fault["loc"]) and fault["loc"][0] in (*SECTIONS, "ground_truth") and fault["loc"][0] in data
            if not is_noted and fault["type"] != "default_factory_not_called":
                steps = fault["loc"]  # in the file a single value may stand for a list
                inside = steps if steps and isinstance(data.get(steps[0]), list) else steps[:1]
                faults.add(root.inside(inside).fault(reason_of(fault)))
    faults.raise_any()
    return config


def _read_value(key: str, value: Any, place: Place, faults: Faults) -> Any:
    """Return the value of a key for the model: parts from their grids, single values in lists, paths of the file."""
    if key in SECTIONS:
        return _read_parts(key, value, place, faults)
    if key == "metrics":
        if not isinstance(value, list):
            return _read_metric(value, place, faults)
        return [metric for number, one in enumerate(value) for metric in _read_metric(one, place.item(number), faults)]
    if key in LISTS:
        return value if isinstance(value, list) else [value]
    if key == "ground_truth":
        return read_sources(value, place)
    if key == "loaders" and isinstance(value, dict):
        return {str(name): LOADER.make(given, place.key(name)) for name, given in value.items()}
    if key == "corpus" and isinstance(value, str) and value:
        return str(place.folder / value)
    return value


def _read_parts(key: str, value: Any, place: Place, faults: Faults) -> list[Any]:
    """Return the parts of a section, each once."""
    if SECTIONS[key].beside and value == []:
        return []
    grids = read_grids(value, place, SECTIONS[key].kind, faults)
    size = sum(grid.size for grid in grids)
    if size > MAX_CONFIGURATIONS:
        raise place.fault(f"the grid has {size:,} {key}: at most {MAX_CONFIGURATIONS:,} are compared at once")
    return list(dict.fromkeys(part for grid in grids for part in grid.parts(faults)))


def _read_metric(value: Any, place: Place, faults: Faults) -> list[Any]:
    """Return the metrics of one entry: a name as it is, a ``module:Name`` with its settings as a grid."""
    if isinstance(value, str) and not is_reference(value):
        return [value]
    with faults.noted():
        return [metric for grid in read_grids(value, place, METRIC, faults) for metric in grid.parts(faults)]
    return []


def project_name(config: BenchmarkConfig, file: Path | None) -> str:
    """Return what a benchmark is called on a server; raise ``ConfigurationError`` where nothing names it."""
    if not config.name:
        name = preview((file or sample.BENCHMARK).name)
        raise ConfigurationError(f"{name} cannot be called by its file: give it a name:, such as docs")
    return config.name


def chosen_benchmark(
    file: Path | None,
    corpus: Path | None = None,
    truth: Path | None = None,
    glob: str | list[str] | None = None,
    langsmith_dataset: str | None = None,
    search: str | None = None,
    holdout: float | None = None,
) -> BenchmarkConfig:
    """Return the benchmark of a file, or the sample's, with some of its settings replaced.

    It is called by its file, or its folder if that is ``benchmark``, unless it has a name or these no letter and no
    digit of ASCII.
    Raises ``ConfigurationError`` on a file that cannot be used, on an empty name of a dataset, and when the sample's
    documents are to be scored against other truth, or the reverse.
    """
    if file is None and (corpus is None) != (truth is None):
        raise ConfigurationError("corpus and truth go together unless a benchmark file has the other: give both")
    if langsmith_dataset is not None and not langsmith_dataset.strip():
        raise ConfigurationError("the dataset to publish to has no name: give that of a LangSmith dataset")
    if search is not None and search not in get_args(Search):
        known = get_args(Search)
        raise ConfigurationError(f"there is no search {preview(search)}{suggestion(search, known)}: {choices(known)}")
    chosen, path = load_config(file or sample.BENCHMARK), (file or sample.BENCHMARK).absolute()
    given: dict[str, Any] = {
        "name": chosen.name or slug(path.parent.name if path.stem == "benchmark" else path.stem, LONGEST_NAME) or None,
        "corpus": corpus and corpus.absolute(),
        "ground_truth": truth and [FileTruth(truth.absolute())],
        "glob": (glob[0] if isinstance(glob, list) and len(glob) == 1 else glob) or None,
        "langsmith_dataset": langsmith_dataset,
        "search": search,
        "holdout": holdout,
    }
    return chosen.model_copy(update={key: value for key, value in given.items() if value is not None})


def benchmark_schema() -> Schema:
    """Return the schema of what ``load_config`` reads, grids, bare names and single values included."""
    model = BenchmarkConfig.model_json_schema()
    plain, definitions = model["properties"], model["$defs"]
    properties: dict[str, Schema] = {}
    for key, field in BenchmarkConfig.model_fields.items():
        described = {"description": field.description}
        if key == "ground_truth":
            properties[key] = described | sources_schema()
        elif key == "loaders":
            properties[key] = described | {"type": "object", "additionalProperties": kind_schema(LOADER)}
        elif key in SECTIONS:
            properties[key] = described | one_or_more(kind_schema(SECTIONS[key].kind, definitions))
        elif get_origin(field.annotation) is list:
            properties[key] = described | one_or_more(plain[key]["items"], {"uniqueItems": True})
        else:
            bare = {
                name: value for name, value in plain[key].items() if name not in ("title", "description", "default")
            }
            properties[key] = described | bare
    properties["corpus"] = {"description": properties["corpus"]["description"], "type": "string", "minLength": 1}
    properties["metrics"] = {"description": properties["metrics"]["description"]}
    chunk_level = {"properties": {"evaluation_type": {"const": "chunk-level"}}, "required": ["evaluation_type"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A benchmark of rag-eval",
        "description": (
            "Documents, the truth about them, and the ways to compare. A list in a setting of a chunker, embedder, "
            f"store or reranker is a grid: every combination is run, at most {MAX_CONFIGURATIONS:,} in all."
        ),
        "type": "object",
        "properties": properties,
        "required": [key for key, field in BenchmarkConfig.model_fields.items() if field.is_required()],
        "anyOf": [{"required": ["chunkers"]}, {"required": ["system"]}],
        "additionalProperties": False,
        "if": chunk_level,
        "then": {"properties": {"metrics": _metrics_schema(METRICS["chunk-level"])}},
        "else": {"properties": {"metrics": _metrics_schema(METRICS["token-level"])}},
        "$defs": definitions,
    }


def _metrics_schema(known: Iterable[str]) -> Schema:
    names = list(known)
    written = rf"^({'|'.join(names)})(\([^()@]+\))?(@min)?$"
    named = [{"enum": names}, {"type": "string", "pattern": written}]
    return one_or_more({"anyOf": [*named, *own_schemas()]}, {"uniqueItems": True})
