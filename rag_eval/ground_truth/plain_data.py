"""Queries and ground truth given as plain data: records, dataset examples, and data frames of polars, pandas or Arrow.

A record is a line of a ground-truth file: ``{"query": …, "relevant_spans": [{"doc_id", "start", "end", "text"}]}`` or
``{"query": …, "relevant_chunk_ids": […]}``; a dataset example has them as ``inputs`` and ``outputs``. A frame has a row
for each query, or for each span (``query``, ``doc_id``, ``start``, ``end``, ``text``) or chunk id (``query``,
``chunk_id``). camelCase is read too; columns of a frame that are none of these are metadata of the query.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from math import isnan
from pathlib import Path
from typing import Any, Literal, overload

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.ground_truth.quotes import NAMES, CorpusDocuments, Quotes
from rag_eval.ground_truth.records import ChunkLevelLine, JsonObject, TokenLevelLine, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType, QueryId, QueryText, generate_query_id

_SPAN = {"doc_id": "doc_id", "docId": "doc_id", "start": "start", "end": "end", "text": "text", "origin": "origin"}
_QUOTED = _SPAN | {name: name for name in NAMES}
_CHUNK = ("chunk_id", "chunkId")
_MISSING = ("NAType", "NaTType")
_ID = ("id", "query_id", "queryId")
_CAMEL_CASE = {"relevantSpans": "relevant_spans", "relevantChunkIds": "relevant_chunk_ids"}  # in dataset examples
_OWN = {
    "query",
    "unanswerable",
    "metadata",
    "relevant_spans",
    "relevantSpans",
    "relevant_chunk_ids",
    "relevantChunkIds",
}


def is_frame(given: object) -> bool:
    """Whether an object is a data frame of polars or pandas, or an Arrow table."""
    return any(hasattr(given, name) for name in ("to_dicts", "to_pylist")) or hasattr(given, "iterrows")


def frame_rows(frame: Any) -> list[JsonObject]:
    """Return the rows of a frame of polars, pandas or Arrow as records, without what is missing in them."""
    if hasattr(frame, "to_dicts"):
        rows = frame.to_dicts()
    else:
        rows = frame.to_pylist() if hasattr(frame, "to_pylist") else frame.to_dict("records")
    # pandas has NaN and values of its own for what is missing, and numbers of numpy.
    return [{key: _plain(value) for key, value in row.items() if _is_there(value)} for row in rows]


def _is_there(value: Any) -> bool:
    is_missing = value is None or type(value).__name__ in _MISSING
    return not is_missing and not (isinstance(value, float) and isnan(value))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.tolist() if hasattr(value, "tolist") else value


def queries_from(given: Any) -> list[Query]:
    """Return the queries of a frame with a column ``query``, of records, or of texts, each once.

    Raises ``GroundTruthError`` on a row without a query.
    """
    found: dict[str, Query] = {}
    for row in frame_rows(given) if is_frame(given) else given:
        if isinstance(row, str | Query):
            query = Query.from_text(row) if isinstance(row, str) else row
        else:
            record = _record(row, is_frame(given))
            text = record.get("query")
            if not isinstance(text, str):
                raise GroundTruthError(f"a row has no query: {preview(repr(row))}; give a column query")
            query = Query(record.get("id") or generate_query_id(text), QueryText(text), record.get("metadata") or {})
        found.setdefault(query.id, query)
    return list(found.values())


def read_queries(path: str | Path) -> list[Query]:
    """Return the questions of a file, each once: of a text file one a line, of CSV and JSON lines by their ``query``.

    Columns of CSV and keys of JSON lines that are neither ``query`` nor ``id`` are metadata. Raises
    ``GroundTruthError`` when the file cannot be read, or has none.
    """
    path = Path(path)
    text = read_truth_text(path, "file of questions")
    kind = path.suffix.lower()
    try:
        if kind == ".csv":
            given = [{key: value for key, value in row.items() if value} for row in _table_rows(text)]
        elif kind in (".json", ".jsonl", ".ndjson"):
            written = [text] if kind == ".json" else text.split("\n")
            lines = [parsed_line(line) for line in written if line.strip()]
            asked = lines[0] if kind == ".json" else lines
            given = [{"query": one} if isinstance(one, str) else dict(one) for one in asked]
        else:
            given = [{"query": line.strip()} for line in text.splitlines() if line.strip()]
        found = queries_from([_record(one, of_frame=True) for one in given])
    except (ValueError, TypeError, RecursionError, csv.Error) as error:
        raise GroundTruthError(f"{str(path)!r} is not {kind[1:]} with a query in each row: {error}") from None
    except GroundTruthError as error:
        raise GroundTruthError(f"{str(path)!r}: {error}") from None
    if not found:
        raise GroundTruthError(f"{str(path)!r} holds no question: write one a line")
    return found


def _table_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True, restkey="", restval=""))


@overload
def truth_from(
    given: Any, level: Literal["token-level"], documents: CorpusDocuments | None = None
) -> list[TokenLevelGroundTruth]: ...


@overload
def truth_from(
    given: Any, level: Literal["chunk-level"], documents: CorpusDocuments | None = None
) -> list[ChunkLevelGroundTruth]: ...


def truth_from(given: Any, level: EvaluationType, documents: CorpusDocuments | None = None) -> list[Any]:
    """Return ground truth of one level from a frame, or from items that are ground truth, records or examples.

    Spans that are quoted, or given by their page, need the ``documents``, which ``corpus.by_id`` gives. Items of
    another kind are left as they are, for the evaluation to refuse.
    Raises ``GroundTruthError``, with the number of the item, when one cannot be read.
    """
    rows = _joined(frame_rows(given)) if is_frame(given) else given
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise GroundTruthError(f"the ground truth is {preview(repr(rows))}: give a list, a data frame or a file")
    quotes = Quotes(documents)
    return [_read(item, number, level, is_frame(given), quotes) for number, item in enumerate(rows)]


def _read(item: Any, number: int, level: EvaluationType, of_frame: bool, quotes: Quotes) -> Any:
    is_example = all(hasattr(item, name) for name in ("inputs", "outputs", "metadata"))
    if is_example:
        item = {"inputs": item.inputs, "outputs": item.outputs, "metadata": item.metadata}
    if not isinstance(item, Mapping):
        return item
    try:
        read, faults = (
            (TokenLevelLine if level == "token-level" else ChunkLevelLine)
            .model_validate(quotes.placed(_record(item, of_frame)))
            .read()
        )
    except (ValueError, RecursionError, RagEvalError) as error:
        read, faults = None, line_faults(error)
    if faults:
        raise GroundTruthError(f"item {number} of the ground truth, {preview(repr(dict(item)))}: {faults[0]}")
    return read


def _record(item: Mapping[str, Any], of_frame: bool) -> JsonObject:
    """Return a record in the keys of a line of a ground-truth file."""
    record = dict(item)
    if "inputs" in record:
        outputs = {_CAMEL_CASE.get(key, key): value for key, value in (record.get("outputs") or {}).items()}
        metadata = {**(outputs.pop("metadata", None) or {}), **(record.get("metadata") or {})}
        unanswerable = bool(metadata.pop("unanswerable", False) or outputs.pop("unanswerable", False))
        record = {**record["inputs"], **outputs, "metadata": metadata, "unanswerable": unanswerable}
    named = next((record.pop(key) for key in _ID if key in record), None)
    if named is not None:
        record["id"] = QueryId(str(named))
    if of_frame:
        known = {*_OWN, *_SPAN, *_CHUNK, "id", "chunk_ids", "alternatives", "origins"}
        extra = {key: record.pop(key) for key in list(record) if key not in known}
        record["metadata"] = {**(record.get("metadata") or {}), **extra}
    return record


def _joined(rows: list[JsonObject]) -> list[JsonObject]:
    """Return a record for each query of rows that have a span or a chunk id each; other rows as they are."""
    if not any({"doc_id", "docId", *_CHUNK} & row.keys() for row in rows):
        return rows
    joined: dict[Any, JsonObject] = {}
    for row in rows:
        # Beside numbers, columns of these names are somebody's own.
        names = _SPAN if "start" in row else _QUOTED
        query = {key: value for key, value in row.items() if key not in names and key not in _CHUNK}
        key = next((row[key] for key in _ID if key in row), row.get("query"))
        record = joined.setdefault(key, query)
        span = {names[key]: value for key, value in row.items() if key in names}
        if span:
            record.setdefault("relevant_spans", []).append(span)
        record_ids = [row[key] for key in _CHUNK if key in row]
        if record_ids:
            record.setdefault("relevant_chunk_ids", []).extend(record_ids)
    return list(joined.values())
