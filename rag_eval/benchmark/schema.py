"""The JSON schema of ``summary.json``, for other programs; ``python -m rag_eval.benchmark.schema`` writes it.

The version rises whenever a program that reads the file could be misled: a field that is gone or means something else.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_origin

from rag_eval.benchmark.component import Component
from rag_eval.benchmark.config import MAX_CONFIGURATIONS, METRICS, BenchmarkConfig
from rag_eval.benchmark.config_grid import SECTIONS, Kind, members_of
from rag_eval.benchmark.outcome import BenchmarkOutcome

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


SUMMARY_SCHEMA_FILE = Path(__file__).parent / "summary.schema.json"

DESCRIPTIONS = {
    "schema_version": "The version of this format.",
    "run": "The name of the run and of its folder; names sort by time.",
    "started": "When the run began.",
    "seconds": "How long it took; of a stage, how long the run waited for it.",
    "versions": "Python and the packages that can change a number.",
    "corpus": "The folder of documents as it was.",
    "ground_truth": "The ground-truth file as it was.",
    "config": "What was asked for.",
    "documents": "How many documents there are.",
    "answerable": "How many queries are scored.",
    "unanswerable": "How many queries are declared unanswerable; they are outside the averages.",
    "inputs": "What all configurations share, by reference.",
    "configurations": "What each configuration found, in the order asked for.",
    "failures": "The configurations that failed, by name.",
    "stages": "The work done, by stage.",
    "name": "The name of the configuration.",
    "configuration": "The parts of the configuration and their settings.",
    "metrics": "The mean over the answerable queries, by metric and cut, such as span_recall@5.",
    "queries": "How many queries the means are over.",
    "chunks": "Statistics of the chunks.",
    "chunk_tables": "The chunks, by shard.",
    "hits_by_stage": "The hits of every stage of the retrieval.",
    "index": "The vector index; null for BM25.",
    "hits": "The hits of every query, by rank.",
    "scores": "The score of every query by every metric.",
    "latency_ms": "The mean time of a query in search and reranking, in milliseconds; null without queries.",
    "tokens": "How many tokens models read; null where a part does not tell.",
    "cost": "What models charged, in US dollars; null where a part does not tell.",
    "reason": "Why it failed, in one sentence.",
    "work": "Whether the stage was computed, reused from earlier, or failed.",
    "effort": "What the stage took when it was computed, in this run or an earlier one.",
    "fresh": "How many units had to be done.",
    "total": "How many units there are.",
    "unit": "What is counted.",
    "query_seconds": "The part of the time that grows with the queries.",
    "made": "When it was made.",
    "count": "How many chunks there are.",
    "mean": "Their mean length in characters.",
    "shortest": "The shortest, in characters.",
    "longest": "The longest, in characters.",
    "digest": "The sha256 that it is known by.",
    "checksum": "The sha256 of the files of the index.",
    "folder": "Where the folder was.",
    "glob": "Which files of the folder are documents.",
    "path": "Where the file was.",
    "uri": "Where it is, relative to the workspace.",
    "rows": "How many rows it has.",
    "size": "Its size in bytes.",
    "truth": "The ground truth.",
    "ks": "How many hits count.",
    "depth": "How many candidates are fetched.",
    "evaluation_type": "What is scored: spans (token-level), or chunk ids (chunk-level).",
    "answers": "The spans or chunk ids that answer the queries.",
}
"""What each field of the outcome means; a field of a setting has its description where it is declared."""

OVERRIDES = {
    "BenchmarkInputs.documents": "The documents.",
    "BenchmarkInputs.metrics": "What is measured, without a number of hits.",
    "TruthRef.queries": "Every query.",
    "Effort.seconds": "How long it took.",
}
"""Where a name means something else in one model."""


def summary_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of what a run keeps of itself."""
    schema = BenchmarkOutcome.model_json_schema(mode="serialization")
    for model, definition in [("", schema), *schema["$defs"].items()]:
        for name, field in definition.get("properties", {}).items():
            described = OVERRIDES.get(f"{model}.{name}", DESCRIPTIONS.get(name))
            if described is not None and not model.endswith(("Config", "Configuration")):
                field["description"] = described
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The summary of a run of rag-eval"}
    return title | {key: value for key, value in schema.items() if key != "title"}


def summary_schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(summary_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    SUMMARY_SCHEMA_FILE.write_text(summary_schema_text(), encoding="utf-8")
