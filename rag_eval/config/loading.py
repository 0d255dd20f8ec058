"""Load a benchmark from a YAML file, and write the JSON schema (draft 2020-12) of such files for editors."""

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
from rag_eval.parts.kinds import Schema, read_grids
from rag_eval.parts.objects import is_reference
from rag_eval.parts.part_schemas import kind_schema, one_or_more, own_schemas
from rag_eval.parts.part_settings import Place, reason_of, unknown_key

MAX_BYTES = 2**18
QUOTED_CHARACTERS = 200
LARGEST_INTEGER = 2**63 - 1
LISTS = ("k", "notify")


def read_yaml(path: Path) -> tuple[dict[Any, Any], dict[str, int]]:
    """Return the mapping in a YAML file, and the line of each value by its path, such as ``chunkers[0].type``.

    Raises ``ConfigurationError`` with file and line if the file is missing, too large, or not a mapping in plain YAML.
    """
    name, content = path.name, _read_bytes(path)
    try:
        loader = yaml.SafeLoader(content.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is None:
            raise ConfigurationError(f"{name}: the file is empty: give at least corpus, ground_truth and chunkers")
        lines: dict[str, int] = {}
        _note_lines(node, Place(name), lines, set())
        data = loader.construct_document(node)
        _check_scalars(data, name)
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ConfigurationError(
            f"{name}, line {line}: byte {byte:#04x} is not UTF-8: save the file as UTF-8"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigurationError(f"{where}: invalid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = content.decode("utf-8-sig").count("\n", 0, error.position) + 1
        raise ConfigurationError(
            f"{name}, line {line}: invalid YAML: the character {chr(error.character)!r} is not allowed"
        ) from None
    except ValueError:
        raise ConfigurationError(f"{name}: a number has too many digits or a date does not exist: correct it") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: lists and mappings are nested too deeply: flatten them") from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{name}: expected keys and values, such as corpus: docs")
    return data, lines


def _read_bytes(path: Path) -> bytes:
    shown = preview(str(path), QUOTED_CHARACTERS)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ConfigurationError(f"{shown} is not a benchmark file: its name must end in .yaml or .yml")
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            raise ConfigurationError(f"there is no file {shown}: check the path")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {shown} ({error.strerror}): check the path and its permissions"
        ) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"{path.name} has more than {MAX_BYTES:,} bytes: give a benchmark file")
    return content


def _note_lines(node: yaml.Node, place: Place, lines: dict[str, int], seen: set[int]) -> None:
    """Note the line of every value below a node; refuse aliases, and keys that occur twice in a mapping."""
    if id(node) in seen:  # a few hundred bytes of aliases can stand for billions of values
        raise ConfigurationError(f"{place.file}, {place.path}: aliases are not supported: repeat the values instead")
    seen.add(id(node))
    inside = []
    if isinstance(node, yaml.SequenceNode):
        inside = [(place.item(number), item, item) for number, item in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        inside = [(place.key(key.value), key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    for within, named, value in inside:
        line = named.start_mark.line + 1
        if within.path in lines:
            first = lines[within.path]
            raise ConfigurationError(
                f"{place.file}, line {line}: the key {preview(named.value)} is already in line {first}: remove one"
            )
        lines[within.path] = line
        _note_lines(value, within, lines, seen)


def _check_scalars(data: object, name: str) -> None:
    """Refuse values that settings cannot hold: half surrogate pairs, and integers beyond 64 bits."""
    if isinstance(data, dict | list):
        for inside in (*data, *data.values()) if isinstance(data, dict) else data:
            _check_scalars(inside, name)
    elif isinstance(data, str) and any("\ud800" <= character <= "\udfff" for character in data):
        raise ConfigurationError(f"{name}: {preview(data)} has half a surrogate pair: write the character itself")
    elif isinstance(data, int) and not -LARGEST_INTEGER <= data <= LARGEST_INTEGER:
        raise ConfigurationError(f"{name}: an integer has more than 64 bits: give a smaller one")


def load_config(path: str | Path) -> BenchmarkConfig:
    """Load the benchmark in a YAML file; relative paths in it start at its folder.

    A part is a name (``markdown``) or a mapping of ``type`` and settings; a list in a setting is a grid. A single value
    may stand for a list of one.

    Raises:
        ConfigurationError: The file is invalid. The message has the file, the path in it, and the line; further
            mistakes are in its notes.
    """
    path = Path(path)
    data, lines = read_yaml(path)
    root = Place(path.name, folder=path.absolute().parent, lines=lines)
    allowed = list(BenchmarkConfig.model_fields)
    settings: dict[str, Any] = {}
    faults = Faults()
    for key, value in data.items():
        with faults.noted():
            if key not in allowed:
                raise unknown_key(root, key, "a benchmark", allowed)
            settings[key] = _read_value(key, value, root.key(key), faults)
    if settings.get("metrics") == [] != data["metrics"]:  # if all parts are invalid, that is already noted
        del settings["metrics"]
    try:
        config = BenchmarkConfig.model_validate(settings)
    except ValidationError as error:
        has_faults = bool(faults)
        for fault in error.errors():
            steps = fault["loc"]
            # These follow from other mistakes: sections without invalid parts, and defaults of an invalid setting.
            is_noted = steps[0] in data and steps[0] in (*SECTIONS, "ground_truth") if steps else has_faults
            if not is_noted and fault["type"] != "default_factory_not_called":
                # A single value in the file may stand for a list.
                inside = steps if steps and isinstance(data.get(steps[0]), list) else steps[:1]
                faults.add(root.inside(inside).fault(reason_of(fault)))
    faults.raise_any()
    return config


def _read_value(key: str, value: Any, place: Place, faults: Faults) -> Any:
    """Prepare the value of a key for the model: parts from their grids, single values as lists, resolved paths."""
    if key in SECTIONS:
        return _read_parts(key, value, place, faults)
    if key == "metrics":
        return [metric for item, at in _listed(value, place) for metric in _read_metric(item, at, faults)]
    if key in LISTS:
        return value if isinstance(value, list) else [value]
    if key == "ground_truth":
        return read_sources(value, place)
    if key == "loaders" and isinstance(value, dict):
        return {str(name): LOADER.make(loader, place.key(name)) for name, loader in value.items()}
    if key == "corpus" and isinstance(value, str) and value:
        return str(place.folder / value)
    return value


def _listed(value: object, place: Place) -> list[tuple[object, Place]]:
    """Return the entries of a list, or a single value as the only entry, each with its place."""
    if not isinstance(value, list):
        return [(value, place)]
    return [(item, place.item(number)) for number, item in enumerate(value)]


def _read_parts(key: str, value: Any, place: Place, faults: Faults) -> list[Any]:
    """Return the distinct parts of a section."""
    if SECTIONS[key].beside and value == []:
        return []
    grids = read_grids(value, place, SECTIONS[key].kind, faults)
    size = sum(grid.size for grid in grids)
    if size > MAX_CONFIGURATIONS:
        raise place.fault(f"the grid has {size:,} {key}: reduce it to at most {MAX_CONFIGURATIONS:,}")
    return list(dict.fromkeys(part for grid in grids for part in grid.parts(faults)))


def _read_metric(value: Any, place: Place, faults: Faults) -> list[Any]:
    """Return the metrics of an entry: a name unchanged, or a ``module:Name`` with its settings as a grid."""
    if isinstance(value, str) and not is_reference(value):
        return [value]
    with faults.noted():
        return [metric for grid in read_grids(value, place, METRIC, faults) for metric in grid.parts(faults)]
    return []


def project_name(config: BenchmarkConfig, file: Path | None) -> str:
    """Return the name of a benchmark on a server; raise ``ConfigurationError`` if it has none."""
    if not config.name:
        name = preview((file or sample.BENCHMARK).name)
        raise ConfigurationError(f"{name} needs a name of letters or digits: add for example name: docs")
    return config.name


def chosen_benchmark(
    file: Path | None,
    corpus: Path | None = None,
    truth: Path | None = None,
    glob: str | list[str] | None = None,
    langsmith_dataset: str | None = None,
    search: str | None = None,
) -> BenchmarkConfig:
    """Return the benchmark of a file, or the sample, with some settings replaced.

    Without a ``name:`` it is named after the file, or after its folder if the file is ``benchmark.yaml``. Raises
    ``ConfigurationError`` for a file or a setting that cannot be used.
    """
    if file is None and (corpus is None) != (truth is None):
        raise ConfigurationError("--corpus and --truth belong together without a benchmark file: give both")
    if langsmith_dataset is not None and not langsmith_dataset.strip():
        raise ConfigurationError("--publish needs the name of a LangSmith dataset, which is empty")
    known = get_args(Search)
    if search is not None and search not in known:
        raise ConfigurationError(f"there is no search {preview(search)}{suggestion(search, known)}: {choices(known)}")
    path = file or sample.BENCHMARK
    chosen = load_config(path)
    if isinstance(glob, list) and len(glob) == 1:
        (glob,) = glob
    replaced: dict[str, Any] = {
        "name": chosen.name or _name_after(path.absolute()),
        "corpus": corpus and corpus.absolute(),
        "ground_truth": truth and [FileTruth(truth.absolute())],
        "glob": glob,
        "langsmith_dataset": langsmith_dataset,
        "search": search,
    }
    return chosen.model_copy(update={key: value for key, value in replaced.items() if value})


def _name_after(path: Path) -> str:
    return slug(path.parent.name if path.stem == "benchmark" else path.stem, LONGEST_NAME)


def benchmark_schema() -> Schema:
    """Return the JSON schema of benchmark files, including grids, bare names and single values."""
    plain = BenchmarkConfig.model_json_schema()["properties"]
    properties: dict[str, Schema] = {}
    definitions: dict[str, Schema] = {}
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
            "Documents, ground truth, and the configurations to compare. A list in a setting of a part is a grid: "
            f"every combination is evaluated, at most {MAX_CONFIGURATIONS:,} in all."
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
    written = rf"^({'|'.join(names)})(@min)?$"
    named = [{"enum": names}, {"type": "string", "pattern": written}]
    return one_or_more({"anyOf": [*named, *own_schemas()]}, {"uniqueItems": True})
