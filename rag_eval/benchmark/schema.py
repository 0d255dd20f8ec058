"""JSON schemas (draft 2020-12): of a benchmark file, for editors, and of ``summary.json``, for other programs."""

from collections.abc import Iterable
from typing import get_origin

from rag_eval.benchmark.config import MAX_CONFIGURATIONS, SECTIONS, BenchmarkConfig
from rag_eval.benchmark.objective import METRICS
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.truth_sources import sources_schema
from rag_eval.parts.kinds import Schema, kind_schema, one_or_more, own_schemas


def benchmark_schema() -> Schema:
    """Return the schema of what ``load_config`` reads, grids, bare names and single values included."""
    definitions: dict[str, Schema] = {}
    plain = BenchmarkConfig.model_json_schema()["properties"]
    properties: dict[str, Schema] = {}
    for key, field in BenchmarkConfig.model_fields.items():
        described = {"description": field.description}
        if key == "ground_truth":
            properties[key] = described | sources_schema()
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
        "then": {"properties": {"metrics": _metrics(METRICS["chunk-level"])}},
        "else": {"properties": {"metrics": _metrics(METRICS["token-level"])}},
        "$defs": definitions,
    }


def _metrics(known: Iterable[str]) -> Schema:
    names = list(known)
    written = rf"^({'|'.join(names)})(\([^()@]+\))?(@min)?$"
    named = [{"enum": names}, {"type": "string", "pattern": written}]
    return one_or_more({"anyOf": [*named, *own_schemas()]}, {"uniqueItems": True})


DESCRIPTIONS = {
    "key": "The key of the work, under which its record is kept.",
    "near": "The least similarity of a copy: 1 - edits / length of the longer.",
    "schema_version": "The version of this format.",
    "run": "The name of the run and of its folder; names sort by time.",
    "started": "When the run began.",
    "seconds": "How long it took; of a stage, how long the run waited for it.",
    "versions": "Python and the packages that can change a number.",
    "corpus": "The folder of documents as it was.",
    "ground_truth": "Where the ground truth came from, as it was.",
    "config": "What was asked for.",
    "documents": "How many documents there are.",
    "answerable": "How many queries are scored.",
    "unanswerable": "How many queries are declared unanswerable; they are outside the averages.",
    "copied_questions": "How many questions have spans with copies in the corpus that count as found.",
    "copied_spans": "How many spans have such copies.",
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
    "indexes": "The vector indexes, one for each shard that has its own; none for BM25.",
    "hits": "The hits of every query, by rank.",
    "scores": "The score of every query by every metric.",
    "latency_ms": "The mean time of a query in search and reranking, in milliseconds; null without queries.",
    "tokens": "How many tokens models read; null where a part does not tell.",
    "cost": "What models charged, in US dollars; null where a part does not tell.",
    "reason": "Why it failed, in one sentence.",
    "is_outage": "Whether a service did not answer, so that another try may succeed.",
    "work": "Whether the stage was computed, reused from earlier, or failed.",
    "effort": "What the stage took when it was computed, in this run or an earlier one.",
    "fresh": "How many units had to be done.",
    "total": "How many units there are.",
    "unit": "What is counted.",
    "query_seconds": "The part of the time that grows with the queries.",
    "skipped": "How many pieces of the chunker have no sure place in their document and were left out.",
    "unplaced": "How many answers of a whole system have no place in the documents.",
    "recall": "What share of the exact nearest an approximate search found, on a sample; null where it is exact.",
    "fallbacks": "How often what was to be made could not be, and what it was to be made of stands in its place.",
    "searches": "What was searched; null: the questions as asked, in all documents.",
    "allowed": "The documents that the filters of the searches leave; null: all.",
    "passages": "What was returned, scored and paid for; null: the hits.",
    "made": "When it was made.",
    "count": "How many chunks there are.",
    "mean": "Their mean length in characters.",
    "shortest": "The shortest, in characters.",
    "longest": "The longest, in characters.",
    "digest": "The sha256 that it is known by.",
    "checksum": "The sha256 of the files of the index.",
    "folder": "Where the folder was.",
    "glob": "Which files of the folder are documents.",
    "path": "Where the file was; null where it is not one file.",
    "source": "The digest of what outside the workspace it was read from; null where it was made from what is in it.",
    "uri": "Where it is, relative to the workspace.",
    "rows": "How many rows it has.",
    "size": "Its size in bytes.",
    "truth": "The ground truth.",
    "ks": "How many hits count.",
    "depth": "How many hits are fetched.",
    "candidates": "How many hits are fetched at least, and reranked.",
    "evaluation_type": "What is scored: spans (token-level), or chunk ids (chunk-level).",
    "kind": "What kind of part it is.",
    "type": "The name of the part, or where its class is.",
    "label": "What the part is called in tables.",
    "settings": "The settings of the part.",
    "remote": "Whether the part uses a service.",
    "answers": "The spans or chunk ids that answer the queries.",
    "search": "How the run chose what to evaluate of its grid; null: all of it was evaluated.",
    "strategy": "How the grid was searched.",
    "objective": "What configurations are ranked by.",
    "excluded": "What each configuration that was left out finds at most.",
    "estimated": "About what each configuration that was left out finds.",
    "unbounded": "Why nothing is certain of a configuration that was left out.",
    "gap": "How much better one that was left out may be; null where none has a bound.",
    "open": "Those that may still be the best, with what each finds at most; the limit ended the search before.",
    "is_stopped": "Whether the limit on the cost ended the search.",
    "full_tokens": "How many tokens the whole grid would take.",
    "full_cost": "What the whole grid would cost, in US dollars; null where a price is not known.",
    "notes": "Reasons to trust it less.",
} | {one.field: one.description for one in SECTIONS.values()}
"""What each field of the outcome means; a field of a setting has its description where it is declared."""

OVERRIDES = {
    "BenchmarkInputs.documents": "The documents.",
    "BenchmarkInputs.metrics": "What is measured, at every k unless it names a cut.",
    "TruthRef.queries": "Every query.",
    "Effort.seconds": "How long it took.",
    "SearchRecord.configurations": "How many configurations the grid has.",
    "SearchRecord.holdout": "How the best on the documents that were searched does on the others; null where all were.",
    "Holdout.name": "The configuration that is best on the questions searched.",
    "Holdout.found": "What it finds there, by the objective.",
    "Holdout.questions": "How many these are.",
    "Holdout.held_out": "What it finds on the questions held out.",
    "Holdout.held_out_questions": "How many these are.",
    "Holdout.held_out_documents": "How many documents these are about.",
}
"""Where a name means something else in one model."""


def summary_schema() -> Schema:
    """Return the schema of what a run keeps of itself.

    Its version rises whenever a program that reads the file could be misled: a field is gone or means something else.
    """
    schema = BenchmarkOutcome.model_json_schema(mode="serialization")
    for model, definition in [("", schema), *schema["$defs"].items()]:
        for name, field in definition.get("properties", {}).items():
            told = OVERRIDES.get(f"{model}.{name}", DESCRIPTIONS.get(name))
            field["description"] = (
                BenchmarkConfig.model_fields[name].description if model == "BenchmarkRecord" else told
            )
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The summary of a run of rag-eval"}
    return title | {key: value for key, value in schema.items() if key != "title"}
