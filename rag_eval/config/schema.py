"""The JSON schema of a benchmark file, for editors: ``python -m rag_eval.config.schema`` writes it anew."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_origin

from rag_eval.config.benchmark import MAX_CONFIGURATIONS, BenchmarkConfig
from rag_eval.config.metrics import METRICS
from rag_eval.config.registry import SECTIONS, Kind, members_of
from rag_eval.config.settings import Component

SCHEMA_FILE = Path(__file__).parent / "benchmark.schema.json"

Schema = dict[str, Any]


def benchmark_schema() -> Schema:
    """The schema (draft 2020-12) of what ``load_config`` reads, grids, bare names and single values included."""
    definitions: dict[str, Schema] = {}
    plain = BenchmarkConfig.model_json_schema()["properties"]
    properties: dict[str, Schema] = {}
    for key, field in BenchmarkConfig.model_fields.items():
        described = {"description": field.description}
        if key in SECTIONS:
            properties[key] = described | one_or_more(_kind(SECTIONS[key], definitions))
        elif get_origin(field.annotation) is list:
            properties[key] = described | one_or_more(plain[key]["items"], {"uniqueItems": key != "retrieval"})
        else:
            properties[key] = described | _bare(plain[key])
    for path in ("corpus", "ground_truth"):
        properties[path] = {"description": properties[path]["description"], "type": "string", "minLength": 1}
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
        "additionalProperties": False,
        "if": chunk_level,
        "then": {"properties": {"metrics": _metrics(METRICS["chunk-level"])}},
        "else": {"properties": {"metrics": _metrics(METRICS["token-level"])}},
        "$defs": definitions,
    }


def one_or_more(item: Schema, more: Schema | None = None) -> Schema:
    """An item, or a list of at least one."""
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1} | (more or {})]}


def _kind(kind: Kind, definitions: dict[str, Schema]) -> Schema:
    """A reference to the schema of any member of a kind, which is added to the definitions."""
    if kind.name not in definitions:
        definitions[kind.name] = {}  # keeps its place before those of its members
        settings = []
        for name, member in kind.members.items():
            definitions[f"{kind.name}.{name}"] = _component(name, member, definitions)
            settings.append(_reference(f"{kind.name}.{name}"))
        bare = [name for name, member in kind.members.items() if not _required(member)]
        definitions[kind.name] = {"anyOf": [{"enum": bare, "description": "With its default settings."}, *settings]}
    return _reference(kind.name)


def _component(name: str, member: type[Component], definitions: dict[str, Schema]) -> Schema:
    plain = member.model_json_schema()["properties"]
    properties: dict[str, Schema] = {"type": {"const": name}}
    for key, field in member.model_fields.items():
        if key == "type":
            continue
        members = members_of(field.annotation)
        item = _kind(Kind(key, members), definitions) if members else _bare(plain[key])
        described = {"description": field.description}
        if field.default is not None and not field.is_required():
            default = field.get_default()
            described["default"] = default.type if isinstance(default, Component) else plain[key]["default"]
        properties[key] = described | one_or_more(item)
    return {
        "description": (member.__doc__ or "").replace("``", ""),
        "type": "object",
        "properties": properties,
        "required": ["type", *_required(member)],
        "additionalProperties": False,
    }


def _required(member: type[Component]) -> list[str]:
    return [key for key, field in member.model_fields.items() if field.is_required()]


def _metrics(known: Iterable[str]) -> Schema:
    names = list(known)
    written = rf"^({'|'.join(names)})(\([^()@]+\))?(@min)?$"
    return one_or_more({"anyOf": [{"enum": names}, {"type": "string", "pattern": written}]}, {"uniqueItems": True})


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in ("title", "description", "default")}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(benchmark_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
