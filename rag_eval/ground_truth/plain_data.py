"""Read queries and ground truth from plain data: records, dataset examples, and polars, pandas or Arrow frames.

A record is a line of a ground-truth file; a dataset example has its keys in ``inputs`` and ``outputs``. A frame has a
row for each query, span (``query``, ``doc_id``, ``start``, ``end``, ``text``) or chunk id (``query``, ``chunk_id``);
its other columns are metadata of the query.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

import polars as pl

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.ground_truth.quotes import NAMES, CorpusDocuments, Quotes
from rag_eval.ground_truth.records import ChunkLevelLine, JsonObject, TokenLevelLine, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType, QueryId, QueryText, generate_query_id

_SPAN = {"doc_id", "start", "end", "text", "origin"}
_RECORD = {*TokenLevelLine.model_fields, *ChunkLevelLine.model_fields}
_ID = ("id", "query_id")
_CAMEL_CASE = {
    "relevantSpans": "relevant_spans",
    "relevantChunkIds": "relevant_chunk_ids",
}  # the keys of dataset examples


def _rows(given: Any) -> tuple[Iterable[Any], bool]:
    """Return the rows of a frame as records without missing values, or the input; and whether it is a frame."""
    if not hasattr(given, "__arrow_c_stream__"):
        return given, False
    rows = pl.DataFrame(given).to_dicts()
    # A column of integers with missing values comes from pandas as floats, with NaN.
    return [
        {key: _whole(value) for key, value in row.items() if value is not None and value == value} for row in rows
    ], True


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def queries_from(given: Any) -> list[Query]:
    """Return the unique queries of a frame, of records or of texts; raise ``GroundTruthError`` on other rows."""
    queries: dict[str, Query] = {}
    rows, is_frame = _rows(given)
    for row in rows:
        if isinstance(row, str | Query):
            query = Query.from_text(row) if isinstance(row, str) else row
        else:
            record = _record(row, is_frame)
            text = record.get("query")
            if not isinstance(text, str):
                raise GroundTruthError(f"a row has no query: {preview(repr(row))}; give a column query")
            query = Query(record.get("id") or generate_query_id(text), QueryText(text), record.get("metadata") or {})
        queries.setdefault(query.id, query)
    return list(queries.values())


def read_queries(path: str | Path) -> list[Query]:
    """Read the unique questions of a file: text with one a line, CSV, or JSON lines.

    Columns and keys other than ``query`` and ``id`` are metadata. Raises ``GroundTruthError`` if the file cannot be
    read or has no question.
    """
    path = Path(path)
    text = read_truth_text(path, "file of questions")
    kind = path.suffix.lower()
    try:
        queries = queries_from([_record(row, of_frame=True) for row in _question_rows(text, kind)])
    except (ValueError, TypeError, RecursionError, csv.Error) as error:
        raise GroundTruthError(f"{str(path)!r} is not {kind[1:]} with a query in each row: {error}") from None
    except GroundTruthError as error:
        raise GroundTruthError(f"{str(path)!r}: {error}") from None
    if not queries:
        raise GroundTruthError(f"{str(path)!r} has no questions: write one per line")
    return queries


def _question_rows(text: str, kind: str) -> list[JsonObject]:
    if kind == ".csv":
        table = csv.DictReader(io.StringIO(text, newline=""), strict=True, restkey="", restval="")
        return [{key: value for key, value in row.items() if value} for row in table]
    if kind not in (".json", ".jsonl", ".ndjson"):
        return [{"query": line.strip()} for line in text.splitlines() if line.strip()]
    lines = (line for line in text.split("\n") if line.strip())
    items = parsed_line(text) if kind == ".json" else map(parsed_line, lines)
    return [{"query": item} if isinstance(item, str) else dict(item) for item in items]


@overload
def truth_from(
    given: Any, level: Literal["token-level"], documents: CorpusDocuments | None = None
) -> list[TokenLevelGroundTruth]: ...


@overload
def truth_from(
    given: Any, level: Literal["chunk-level"], documents: CorpusDocuments | None = None
) -> list[ChunkLevelGroundTruth]: ...


def truth_from(given: Any, level: EvaluationType, documents: CorpusDocuments | None = None) -> list[Any]:
    """Read ground truth from a frame, or from a list of ground truth, records or examples.

    Args:
        given: The frame or list; items of another type are returned unchanged.
        level: The evaluation type.
        documents: Returns the documents by id, such as ``corpus.by_id``: needed for spans without offsets.

    Raises:
        GroundTruthError: If an item cannot be read; names its number.
    """
    rows, is_frame = _rows(given)
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise GroundTruthError(f"the ground truth is {preview(repr(rows))}: give a list, a data frame or a file")
    quotes = Quotes(documents)
    items = _joined(rows) if is_frame else rows
    return [_read(item, number, level, is_frame, quotes) for number, item in enumerate(items)]


def _read(item: Any, number: int, level: EvaluationType, of_frame: bool, quotes: Quotes) -> Any:
    is_example = all(hasattr(item, name) for name in ("inputs", "outputs", "metadata"))
    if is_example:
        item = {"inputs": item.inputs, "outputs": item.outputs, "metadata": item.metadata}
    if not isinstance(item, Mapping):
        return item
    kind: type[TokenLevelLine | ChunkLevelLine] = TokenLevelLine if level == "token-level" else ChunkLevelLine
    try:
        truth, faults = kind.model_validate(quotes.placed(_record(item, of_frame))).read()
    except (ValueError, RecursionError, RagEvalError) as error:
        truth, faults = None, line_faults(error)
    if faults:
        raise GroundTruthError(f"item {number} of the ground truth, {preview(repr(dict(item)))}: {faults[0]}")
    return truth


def _record(item: Mapping[str, Any], of_frame: bool) -> JsonObject:
    """Return a record with the keys of a line of a ground-truth file."""
    record = dict(item)
    if "inputs" in record:
        outputs = {_CAMEL_CASE.get(key, key): value for key, value in (record.get("outputs") or {}).items()}
        metadata = {**(outputs.pop("metadata", None) or {}), **(record.get("metadata") or {})}
        unanswerable = bool(metadata.pop("unanswerable", False) or outputs.pop("unanswerable", False))
        record = {**record["inputs"], **outputs, "metadata": metadata, "unanswerable": unanswerable}
    query_id = next((record.pop(key) for key in _ID if key in record), None)
    if query_id is not None:
        record["id"] = QueryId(str(query_id))
    if of_frame:
        extra = {key: record.pop(key) for key in list(record) if key not in {*_RECORD, *_SPAN, "chunk_id"}}
        record["metadata"] = {**(record.get("metadata") or {}), **extra}
    return record


def _joined(rows: Iterable[JsonObject]) -> list[JsonObject]:
    """Join the rows of one query, if each row has a span or a chunk id."""
    rows = list(rows)
    if not any({"doc_id", "chunk_id"} & row.keys() for row in rows):
        return rows
    joined: dict[object, JsonObject] = {}
    for row in rows:
        # With offsets, columns of these names are metadata.
        names = _SPAN if "start" in row else {*_SPAN, *NAMES}
        query = {key: value for key, value in row.items() if key not in names and key != "chunk_id"}
        key = next((row[key] for key in _ID if key in row), row.get("query"))
        record = joined.setdefault(key, query)
        if span := {key: value for key, value in row.items() if key in names}:
            record.setdefault("relevant_spans", []).append(span)
        if "chunk_id" in row:
            record.setdefault("relevant_chunk_ids", []).append(row["chunk_id"])
    return list(joined.values())
