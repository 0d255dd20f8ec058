"""A run for other tools: TREC's run and qrels files, or its questions with what was found, as JSONL, CSV or Parquet."""

import codecs
import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal, TypedDict, get_args
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, counted, slug, suggestion
from rag_eval.metrics.metric import DEFAULT_ENCODING, split_name
from rag_eval.pipeline.document_steps import StoredDocuments, read_chunks
from rag_eval.pipeline.hits import found_chunks
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.storage.files import scratch_path, writing
from rag_eval.tables import schema_of, table_of
from rag_eval.tokens import count_tokens

Format = Literal["trec", "jsonl", "csv", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)

LONGEST_FILE = 100

ROWS = schema_of(
    "doc_id start end chunk_id place boxes score",
    configuration=pa.string(),
    query_id=pa.string(),
    query=pa.string(),
    unanswerable=pa.bool_(),
    rank=pa.int32(),
    doc_id=pa.string(),
    start=pa.int64(),
    end=pa.int64(),
    chunk_id=pa.string(),
    place=pa.string(),
    boxes=pa.string(),
    score=pa.float64(),
    tokens=pa.int64(),
    text=pa.large_string(),
)
"""What CSV and Parquet have: a row for each passage of each question of each configuration; boxes are JSON."""


class ExportedPassage(TypedDict):
    """A passage that the objective counts: its place, its place on the page, its score and what it costs."""

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
    """A question with what a configuration found; the names of the texts are those of a sample of Ragas."""

    configuration: str
    query_id: str
    user_input: str
    unanswerable: bool
    metadata: dict[str, Any]
    retrieved_contexts: list[str]
    reference_contexts: list[str]
    passages: list[ExportedPassage]


@dataclass(frozen=True)
class Exported:
    """The files that were written, and sentences about what they do not tell."""

    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, write: Callable[[IO[bytes]], None]) -> None:
        """Write a file whole, or not at all."""
        with scratch_path(path.parent) as scratch, writing(path):
            with scratch.open("wb") as file:
                write(file)
            os.replace(scratch, path)
        self.files.append(path)

    def write_lines(self, path: Path, lines: Iterable[str]) -> None:
        self.write(path, lambda file: file.writelines(f"{line}\n".encode() for line in lines))


def export_run(workspace: Workspace, outcome: BenchmarkOutcome, to: str, folder: Path) -> Exported:
    """Write a run into a folder, in one of ``FORMATS``.

    TREC's files have every hit that was kept; the others what the objective of the run counts: the first k passages,
    or those within its budget of tokens. Raises ``ConfigurationError`` on another format, and ``ArtifactError`` where
    tables of the run are gone or the folder cannot be written to.
    """
    if to not in FORMATS:
        hint = f"{suggestion(to, FORMATS)}: {choices(FORMATS, to)}"
        raise ConfigurationError(f"there is no format {to!r}{hint}")
    if not outcome.configurations:
        raise ConfigurationError(f"every configuration of {outcome.run} failed: there is nothing to export")
    done = Exported()
    if to == "trec":
        _write_trec(workspace, outcome, folder, done)
        return done
    if split_name(outcome.ranking_metric)[1].kind == "min":
        told = f"{outcome.ranking_metric} counts another number of hits for each question"
        raise ConfigurationError(f"{told}: run with another objective to export what is counted")
    questions = (row for one in outcome.ranked() for row in asked(workspace, outcome, one))
    done.write(folder / f"passages.{to}", lambda file: _WRITERS[to](file, questions))
    return done


def asked(workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome) -> Iterator[AskedQuestion]:
    """Yield each question of a run with the passages of a configuration, as far as the objective counts them."""
    truth, reader = outcome.inputs.truth, _PassageReader(workspace, outcome, one)
    found = _by_query(workspace.read_table(one.returned))
    answers = _by_query(workspace.read_table(truth.answers))
    for query in workspace.read_table(truth.queries).to_pylist():
        passages = reader.counted(found.get(query["query_id"], []))
        yield {
            "configuration": one.name,
            "query_id": query["query_id"],
            "user_input": query["text"],
            "unanswerable": query["unanswerable"],
            "metadata": json.loads(query["metadata"]),
            "retrieved_contexts": [text for _, text in passages],
            "reference_contexts": [row["text"] or row["chunk_id"] for row in answers.get(query["query_id"], [])],
            "passages": [passage for passage, _ in passages],
        }


def _by_query(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each query, in their order."""
    wanted = [name for name in table.schema.names if name not in ("hit_ranks", "variant", "stage")]
    rows = sorted(table.select(wanted).to_pylist(), key=itemgetter("query_id"))
    return {query_id: list(group) for query_id, group in groupby(rows, key=itemgetter("query_id"))}


class _PassageReader:
    """Reads the passages of a configuration that the objective of a run counts, with their texts."""

    def __init__(self, workspace: Workspace, outcome: BenchmarkOutcome, one: ConfigurationOutcome) -> None:
        self._cut, self._is_merged = split_name(outcome.ranking_metric)[1], one.passages is not None
        found = workspace.read_table(one.returned)
        shards = [workspace.read_table(shard) for shard in outcome.inputs.documents]
        self._documents = StoredDocuments(shards, found.column("doc_id").unique().drop_null(), workspace)
        self._chunks: dict[tuple[str, int], str] = {}
        if outcome.inputs.evaluation_type == "chunk-level" and one.chunk_tables:
            chunks = found_chunks([workspace.read_table(shard) for shard in one.chunk_tables], found)
            columns = (chunks.column(name).to_pylist() for name in ("doc_id", "ordinal", "content"))
            self._chunks = {(doc_id, ordinal): content for doc_id, ordinal, content in zip(*columns, strict=True)}

    def counted(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[ExportedPassage, str]]:
        """Return the passages that the cut counts; merged, those that touch are one, at the rank of the first."""
        spent, counted = 0, list[dict[str, Any]]()
        for row in sorted(rows, key=itemgetter("rank")):
            near = [one for one in counted if self._is_merged and _touch(one, row)]
            joined = dict(row)
            for one in near:
                joined |= {"rank": min(joined["rank"], one["rank"])}
                joined |= {"start": min(joined["start"], one["start"]), "end": max(joined["end"], one["end"])}
            joined["text"] = self._text(joined)
            joined["tokens"] = count_tokens(joined["text"], DEFAULT_ENCODING)
            spent += joined["tokens"] - sum(one["tokens"] for one in near)
            cut = self._cut
            if (cut.kind == "hits" and row["rank"] > cut.size) or (cut.kind == "tokens" and spent > cut.size):
                break
            counted = [*(one for one in counted if one not in near), joined]
        return [(self._passage(row), row["text"]) for row in sorted(counted, key=itemgetter("rank"))]

    def _passage(self, row: Mapping[str, Any]) -> ExportedPassage:
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

    def _text(self, row: Mapping[str, Any]) -> str:
        """Return the text of a hit or passage: its own, the slice at its place, or that of its chunk."""
        if row["text"] is not None:
            return str(row["text"])
        if row["start"] is not None:
            return self._documents[row["doc_id"]].content[row["start"] : row["end"]]
        return self._chunks.get((row["doc_id"], row["ordinal"]), "")


def _touch(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two passages, of which each has its place, overlap or touch."""
    return bool(one["doc_id"] == other["doc_id"] and one["start"] <= other["end"] and other["start"] <= one["end"])


def _write_jsonl(file: IO[bytes], questions: Iterator[AskedQuestion]) -> None:
    for question in questions:
        file.write(f"{json.dumps(question, ensure_ascii=False)}\n".encode())


def _rows(question: AskedQuestion) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a question in a flat table; one without a passage has none."""
    asked_as = question["configuration"], question["query_id"], question["user_input"], question["unanswerable"]
    for passage, text in zip(question["passages"], question["retrieved_contexts"], strict=True):
        boxes = json.dumps(passage["boxes"]) if passage["boxes"] else None
        yield (*asked_as, *{**passage, "boxes": boxes}.values(), text)


def _write_csv(file: IO[bytes], questions: Iterator[AskedQuestion]) -> None:
    lines = csv.writer(codecs.getwriter("utf-8")(file))
    lines.writerow(ROWS.names)
    for question in questions:
        lines.writerows([*map(_harmless, row)] for row in _rows(question))


def _harmless(cell: object) -> object:
    """Return a text that a spreadsheet would run as a formula with an apostrophe before it, which makes it text."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _write_parquet(file: IO[bytes], questions: Iterator[AskedQuestion]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, ROWS) as writer:
        for _, group in groupby(questions, key=itemgetter("configuration")):
            writer.write_table(table_of(ROWS, [row for question in group for row in _rows(question)]))


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}


def _write_trec(workspace: Workspace, outcome: BenchmarkOutcome, folder: Path, done: Exported) -> None:
    """A run file a configuration, and qrels: one for all at chunk level, at token level one for each.

    At token level a chunk is relevant to a question when it touches evidence, so that other chunks have other qrels.
    """
    is_placed = outcome.inputs.evaluation_type == "token-level"
    answers = workspace.read_table(outcome.inputs.truth.answers)
    if not is_placed:
        pairs = sorted({(row["query_id"], row["chunk_id"]) for row in answers.to_pylist()})
        done.write_lines(folder / "qrels.txt", (f"{_word(query)} 0 {_word(unit)} 1" for query, unit in pairs))
        if answers.num_rows > len({(row["query_id"], row["group"]) for row in answers.to_pylist()}):
            done.notes.append("Alternatives are separate relevant chunks in qrels.txt, and one group in rag-eval.")
    else:
        done.notes.append(
            "A chunk that touches evidence is relevant there: the numbers are not those of spans, and only comparable "
            "between configurations of the same chunks."
        )
    names = _file_names([one.name for one in outcome.configurations])
    known = set(answers.column("query_id").to_pylist())
    left_out: list[int] = []
    for one, name in zip(outcome.configurations, names, strict=True):
        found = workspace.read_table(one.returned)
        ranked = {query: hits for query, hits in _by_query(found).items() if query in known}
        lines, repeated = _run_lines(ranked, name, is_placed)
        done.write_lines(folder / f"{name}.run", lines)
        left_out += [repeated] * bool(repeated)
        if is_placed:
            done.write_lines(folder / f"{name}.qrels", _qrels(workspace, one, answers, found))
    if left_out:
        whose = counted(len(left_out), "configurations")
        done.notes.append(
            f"A passage counts once: {counted(sum(left_out), 'further hits')} in one that a question has already, such "
            f"as a section, are left out, in {whose}."
        )


def _file_names(names: Sequence[str]) -> list[str]:
    """Return a name for the files of each configuration; equal ones are numbered."""
    files: list[str] = []
    for name in names:
        plain = slug(name, LONGEST_FILE) or "configuration"
        numbered = chain([plain], (f"{plain}-{number}" for number in count(2)))
        files.append(next(file for file in numbered if file not in files))
    return files


def _word(identifier: str) -> str:
    """An id as one word, which TREC's columns need: blanks, and the sign that marks them, are percent-encoded."""
    return re.sub(r"[\s%\x00-\x1f\x7f]", lambda found: quote(found[0]), identifier)


def _unit(row: Mapping[str, Any], is_placed: bool) -> str:
    if is_placed and row["start"] is not None:
        return _word(f"{row['doc_id']}:{row['start']}-{row['end']}")
    return _word(row["chunk_id"] or f"no-place-{row['rank']}")


def _run_lines(ranked: Mapping[str, Sequence[Mapping[str, Any]]], tag: str, is_placed: bool) -> tuple[list[str], int]:
    """The lines of a run file, and how many hits of a unit that was there before were left out.

    TREC's tools sort by the score, read as a single-precision number, and not by the rank: equal scores are made to
    fall by the least that these tell apart.
    """
    lines, repeated = [], 0
    for query, hits in ranked.items():
        seen: set[str] = set()
        before = np.float32(np.inf)
        for hit in sorted(hits, key=itemgetter("rank")):
            unit, score = _unit(hit, is_placed), hit.get("score")
            if unit in seen:
                repeated += 1
                continue
            seen.add(unit)
            own = np.float32(1 / hit["rank"] if score is None else score)
            before = own if own < before else np.nextafter(before, np.float32(-np.inf))
            lines.append(f"{_word(query)} Q0 {unit} {len(seen)} {before!s} {tag}")
    return lines, repeated


def _qrels(workspace: Workspace, one: ConfigurationOutcome, answers: pa.Table, found: pa.Table) -> Iterator[str]:
    """The chunks that touch evidence; of a system and of larger passages those that were found, and evidence missed."""
    import polars as pl

    truth = pl.DataFrame(answers.select(["query_id", "doc_id", "start", "end"]))
    if one.chunk_tables and one.passages is None:
        chunks = read_chunks(workspace, one.chunk_tables, "token-level")
        units = pl.DataFrame(chunks.select(["doc_id", "start", "end"]))
        near = truth.join(units, on="doc_id", suffix="_unit")
    else:
        units = pl.DataFrame(found.select(["query_id", "doc_id", "start", "end"])).drop_nulls()
        near = truth.join(units, on=["query_id", "doc_id"], suffix="_unit")
    touched = near.filter((pl.col("start_unit") < pl.col("end")) & (pl.col("end_unit") > pl.col("start")))
    missed = truth.join(touched, on=["query_id", "doc_id", "start", "end"], how="anti")
    relevant = pl.concat(
        [
            touched.select("query_id", "doc_id", start="start_unit", end="end_unit"),
            missed.select("query_id", "doc_id", "start", "end"),
        ]
    )
    for row in relevant.unique().sort("query_id", "doc_id", "start", "end").iter_rows(named=True):
        yield f"{_word(row['query_id'])} 0 {_unit(row | {'chunk_id': None, 'rank': 0}, True)} 1"
