"""Sources of ground truth in a benchmark file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from rag_eval.errors import ConfigurationError, Faults, preview, sentences
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.parts import Kind, as_data, settings_of
from rag_eval.parts.kinds import Schema
from rag_eval.parts.part_schemas import kind_schema, one_or_more, own_schemas
from rag_eval.parts.part_settings import Place, unknown_key, value_in_words

TRUTH_SOURCE = Kind(
    "truth-source",
    {
        "file": "rag_eval.ground_truth.sources:FileTruth",
        "langsmith": "rag_eval.services.langsmith_truth:LangSmithTruth",
        "generate": "rag_eval.generation.growing:GeneratedTruth",
    },
    foreign="rag_eval.ground_truth.sources:ForeignTruth",
)

FORMS = "the path of a file, {langsmith: name}, {generate: {model: …}}, or {type: …} with settings"


def read_sources(value: object, place: Place | None = None) -> list[Any]:
    """Read the value of ``ground_truth``: a source, or a list of sources to join.

    A source is the path of a file, a type with its first setting such as ``{langsmith: name}``, a type with all of them
    such as ``{generate: {model: …}}``, ``{type: …, …}``, or a part. Raises ``ConfigurationError`` with all mistakes.
    """
    where = place or Place()
    if value == []:
        raise where.fault(f"the list is empty: give {FORMS}")
    faults, sources = Faults(), list[Any]()
    listed = value if isinstance(value, list | tuple) else [value]
    for number, item in enumerate(listed):
        with faults.noted():
            sources.append(_read_source(item, where.item(number) if listed is value else where))
    faults.raise_any()
    for number, source in enumerate(sources):
        if source in sources[:number]:
            raise where.fault(f"{source.title} is listed twice: remove one")
    files = [source.file for source in sources if getattr(source, "grows", False)]
    if len(set(files)) < len(files):
        raise where.fault("two sources write the same file: give each its own file")
    return sources


def _read_source(value: object, place: Place) -> Any:
    if isinstance(value, str | Path):
        if not str(value) or "\0" in str(value):
            raise place.fault(f"expected a path, found the text {preview(str(value))}")
        return FileTruth(place.folder / value if place.file else Path(value))
    if value is None or isinstance(value, int | float | list | tuple):
        raise place.fault(f"expected {FORMS}, found {value_in_words(value)}")
    if not isinstance(value, Mapping):
        try:
            return TRUTH_SOURCE.take(value)
        except ConfigurationError as error:
            raise place.fault(str(error)) from None
    written: dict[Any, Any] = dict(value)
    if "type" not in written and len(written) == 1:
        (name, given), *_ = written.items()
        if name not in TRUTH_SOURCE.types:
            raise unknown_key(place, name, "a truth source", ["type", *TRUTH_SOURCE.types])
        place = place.key(name)
        first = next(iter(settings_of(TRUTH_SOURCE.load(name))))
        written = {"type": name} | (dict(given) if isinstance(given, Mapping) else {first: given})
    return TRUTH_SOURCE.make(written, place)


def _checked(value: object) -> list[Any]:
    try:
        return read_sources(value)
    except ConfigurationError as error:
        raise ValueError("; ".join(sentences(error))) from None


def _as_data(sources: list[Any]) -> Any:
    is_file = len(sources) == 1 and isinstance(sources[0], FileTruth)
    return str(sources[0].path) if is_file else list(map(as_data, sources))


TruthSources = Annotated[
    list[Any],
    PlainValidator(_checked),
    PlainSerializer(_as_data),
    WithJsonSchema({"title": "ground truth"}),  # sources_schema describes it, which imports every source
]
"""The sources of a benchmark. A single file is dumped as its path."""


def sources_schema() -> Schema:
    """Return the JSON schema of the value of ``ground_truth``."""
    _, own = own_schemas()  # a plain text is a file
    forms: list[Schema] = [{"title": "file", "type": "string", "minLength": 1}, own]
    for typed in kind_schema(TRUTH_SOURCE)["anyOf"][1 : 1 + len(TRUTH_SOURCE.types)]:
        name, (first, *_) = typed["title"], [key for key in typed["properties"] if key != "type"]
        bare = {key: setting for key, setting in typed["properties"].items() if key != "type"}
        required = [key for key in typed["required"] if key != "type"]
        settings: list[Schema] = [typed | {"properties": bare, "required": required}]
        if required in ([], [first]):
            settings.append(typed["properties"][first])
        short = {"type": "object", "properties": {name: {"anyOf": settings}}, "required": [name]}
        forms += [typed, short | {"additionalProperties": False}]
    return one_or_more({"anyOf": forms})
