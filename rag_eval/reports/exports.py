"""Export a run: TREC run and qrels files, or questions with the passages found as JSON lines."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, counted, slug, suggestion
from rag_eval.metrics.metric import DEFAULT_ENCODING, split_name
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.hits import found_chunks
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.storage.files import scratch_path, writing
from rag_eval.tokens import count_tokens

FORMATS = ("trec", "jsonl")
LONGEST_FILE = 100


class ExportedPassage(TypedDict):
    """A passage that the objective counts."""

    rank: int
    doc_id: str | None
    start: int | None
    end: int | None
    chunk_id: str | None
    place: str | None
    boxes: list[list[float]]
    score: float | None
    tokens: int


class AskedQuestion(TypedDict):
    """A question with the passages of a configuration; the keys are those of a Ragas sample."""

    configuration: str
    query_id: str
    user_input: str
    unanswerable: bool
    metadata: dict[str, object]
    retrieved_contexts: list[str]
    reference_contexts: list[str]
    passages: list[ExportedPassage]


Row = dict[str, Any]
"""A row of a table of hits or passages, by column name."""


@dataclass(frozen=True)
class Exported:
    """The written files, and sentences about what they leave out."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, lines: Iterable[str]) -> None:
        """Write a file atomically."""
        with scratch_path(path.parent) as scratch, writing(path):
            with scratch.open("wb") as file:
                file.writelines(f"{line}\n".encode() for line in lines)
            os.replace(scratch, path)
        self.files.append(path)


def export_run(workspace: Workspace, outcome: BenchmarkOutcome, to: str, folder: Path) -> Exported:
    """Write a run into a folder.

    Args:
        workspace: Where the run is.
        outcome: The run.
        to: One of ``FORMATS``. TREC files contain every hit of a chunk-level run; JSON lines contain the passages that
            the objective counts: the first k, or those within its token budget.
        folder: Where the files go.

    Raises:
        ConfigurationError: The format is unknown, or there is nothing to export.
        ArtifactError: Tables of the run are missing, or the folder cannot be written to.
    """
    if to not in FORMATS:
        raise ConfigurationError(f"there is no format {to!r}{suggestion(to, FORMATS)}: {choices(FORMATS, to)}")
    if not outcome.configurations:
        raise ConfigurationError(f"every configuration of {outcome.run} failed: there is nothing to export")
    if to == "trec":
        if outcome.inputs.evaluation_type == "token-level":
            raise ConfigurationError(
                f"TREC files rate chunks, but the ground truth of {outcome.run} is spans: export jsonl"
            )
        return _write_trec(workspace, outcome, folder)
    if split_name(outcome.ranking_metric)[1].kind == "min":
        reason = f"{outcome.ranking_metric} counts another number of hits for each question"
        raise ConfigurationError(f"{reason}, so there is no fixed cut to export: run with another objective")
    exported = Exported()
    questions = (row for configuration in outcome.ranked() for row in asked(workspace, outcome, configuration))
    exported.write(folder / "passages.jsonl", (json.dumps(question, ensure_ascii=False) for question in questions))
    return exported


def asked(
    workspace: Workspace, outcome: BenchmarkOutcome, configuration: ConfigurationOutcome
) -> Iterator[AskedQuestion]:
    """Yield each question of a run with a configuration's passages that the objective counts."""
    truth, reader = outcome.inputs.truth, _PassageReader(workspace, outcome, configuration)
    returned = _by_query(workspace.read_table(configuration.returned))
    answers = _by_query(workspace.read_table(truth.answers))
    for query in workspace.read_table(truth.queries).to_pylist():
        rows = reader.counted(returned.get(query["query_id"], []))
        yield {
            "configuration": configuration.name,
            "query_id": query["query_id"],
            "user_input": query["text"],
            "unanswerable": query["unanswerable"],
            "metadata": json.loads(query["metadata"]),
            "retrieved_contexts": [row["text"] for row in rows],
            "reference_contexts": [row["text"] or row["chunk_id"] for row in answers.get(query["query_id"], [])],
            "passages": [reader.passage(row) for row in rows],
        }


def _by_query(table: pa.Table) -> dict[str, list[Row]]:
    """Return the rows of each query, in their order."""
    columns = [name for name in table.schema.names if name not in ("hit_ranks", "variant", "stage")]
    rows = sorted(table.select(columns).to_pylist(), key=itemgetter("query_id"))
    return {query_id: list(group) for query_id, group in groupby(rows, key=itemgetter("query_id"))}


class _PassageReader:
    """Reads a configuration's passages that the objective of a run counts, with their texts."""

    def __init__(self, workspace: Workspace, outcome: BenchmarkOutcome, configuration: ConfigurationOutcome) -> None:
        self._cut, self._is_merged = split_name(outcome.ranking_metric)[1], configuration.passages is not None
        returned = workspace.read_table(configuration.returned)
        shards = [workspace.read_table(shard) for shard in outcome.inputs.documents]
        self._documents = StoredDocuments(shards, returned.column("doc_id").unique().drop_null(), workspace)
        self._chunks: dict[tuple[str, int], str] = {}
        if outcome.inputs.evaluation_type == "chunk-level" and configuration.chunk_tables:
            chunks = found_chunks([workspace.read_table(shard) for shard in configuration.chunk_tables], returned)
            rows = chunks.select(["doc_id", "ordinal", "content"]).to_pylist()
            self._chunks = {(row["doc_id"], row["ordinal"]): row["content"] for row in rows}

    def counted(self, rows: Sequence[Row]) -> list[Row]:
        """Return the passages that the cut counts; touching passages merge at the rank of the first."""
        passages: list[Row] = []
        for row in sorted(rows, key=itemgetter("rank")):
            near = [other for other in passages if self._is_merged and _touch(other, row)]
            joined = dict(row)
            for other in near:
                joined |= {name: min(joined[name], other[name]) for name in ("rank", "start")}
                joined["end"] = max(joined["end"], other["end"])
            joined["text"] = self._text(joined)
            joined["tokens"] = count_tokens(joined["text"], DEFAULT_ENCODING)
            more = [*(other for other in passages if other not in near), joined]
            spent = sum(passage["tokens"] for passage in more)
            if {"hits": row["rank"], "tokens": spent}.get(self._cut.kind, 0) > self._cut.size:
                break
            passages = more
        return sorted(passages, key=itemgetter("rank"))

    def passage(self, row: Row) -> ExportedPassage:
        document = None if row["start"] is None else self._documents[row["doc_id"]]
        place = document.place_at(row["start"]) if document else None
        boxes = document.boxes(row["start"], row["end"]) if document and place else []
        return {
            "rank": row["rank"],
            "doc_id": row["doc_id"],
            "start": row["start"],
            "end": row["end"],
            "chunk_id": row["chunk_id"],
            "place": place,
            "boxes": [[page, *(round(edge, 4) for edge in edges)] for page, *edges in boxes],
            "score": row.get("score"),
            "tokens": row["tokens"],
        }

    def _text(self, row: Row) -> str:
        """Return the text of a row: its own, the slice at its place, or the text of its chunk."""
        if row["text"] is not None:
            return str(row["text"])
        if row["start"] is not None:
            return self._documents[row["doc_id"]].content[row["start"] : row["end"]]
        return self._chunks.get((row["doc_id"], row["ordinal"]), "")


def _touch(first: Row, second: Row) -> bool:
    """Return whether two passages with places overlap or touch."""
    is_near: bool = first["start"] <= second["end"] and second["start"] <= first["end"]
    return is_near and first["doc_id"] == second["doc_id"]


def _write_trec(workspace: Workspace, outcome: BenchmarkOutcome, folder: Path) -> Exported:
    """Write a run file for each configuration, and the relevant chunks as ``qrels.txt``."""
    exported = Exported()
    answers = workspace.read_table(outcome.inputs.truth.answers).to_pylist()
    pairs = sorted({(row["query_id"], row["chunk_id"]) for row in answers})
    exported.write(folder / "qrels.txt", (f"{_word(query)} 0 {_word(chunk)} 1" for query, chunk in pairs))
    if len(answers) > len({(row["query_id"], row["group"]) for row in answers}):
        exported.notes.append("Alternatives are separate relevant chunks in qrels.txt, but one group in rag-eval.")
    known, repeated = {query for query, _ in pairs}, list[int]()
    names = _file_names([configuration.name for configuration in outcome.configurations])
    for configuration, name in zip(outcome.configurations, names, strict=True):
        hits = _by_query(workspace.read_table(configuration.returned))
        lines = _run_lines({query: rows for query, rows in hits.items() if query in known}, name)
        exported.write(folder / f"{name}.run", lines)
        repeated.append(sum(len(rows) for query, rows in hits.items() if query in known) - len(lines))
    if any(repeated):
        which = counted(sum(map(bool, repeated)), "configurations")
        exported.notes.append(f"A chunk counts once: {counted(sum(repeated), 'repeated hits')} left out in {which}.")
    return exported


def _file_names(names: Sequence[str]) -> list[str]:
    """Return a file name for each configuration; repeated names are numbered."""
    files: list[str] = []
    for name in names:
        plain = slug(name, LONGEST_FILE) or "configuration"
        numbered = chain([plain], (f"{plain}-{number}" for number in count(2)))
        files.append(next(file for file in numbered if file not in files))
    return files


def _word(identifier: str) -> str:
    """Percent-encode blanks in an id, because TREC columns are separated by blanks."""
    return re.sub(r"[\s%\x00-\x1f\x7f]", lambda match: quote(match[0]), identifier)


def _run_lines(hits: Mapping[str, Sequence[Row]], tag: str) -> list[str]:
    """Return the lines of a run file, without the hits of a chunk that a query has already.

    TREC tools sort by the score, read as a single-precision number, and not by the rank. Equal scores are therefore
    decreased by the smallest difference that such numbers can express.
    """
    lines = []
    for query, rows in hits.items():
        seen: set[str] = set()
        before = np.float32(np.inf)
        for row in sorted(rows, key=itemgetter("rank")):
            chunk = _word(row["chunk_id"] or f"no-place-{row['rank']}")
            if chunk not in seen:
                seen.add(chunk)
                score = np.float32(1 / row["rank"] if row.get("score") is None else row["score"])
                before = score if score < before else np.nextafter(before, np.float32(-np.inf))
                lines.append(f"{_word(query)} Q0 {chunk} {len(seen)} {before!s} {tag}")
    return lines
