"""Read and write the ground-truth format, JSON lines, and rewrite only changed lines."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

from rag_eval.errors import CorpusError, GroundTruthError, RagEvalError, preview
from rag_eval.ground_truth.quotes import CorpusDocuments, Quotes
from rag_eval.ground_truth.records import (
    ChunkLevelLine,
    Header,
    JsonObject,
    TokenLevelLine,
    chunk_level_outputs,
    line_faults,
    parsed_line,
    query_name,
    token_level_outputs,
)
from rag_eval.storage.files import kind_of, read_text, write_atomically
from rag_eval.types.evidence import JUDGED, ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

Line = TypeVar("Line", TokenLevelLine, ChunkLevelLine)
Truth = TokenLevelGroundTruth | ChunkLevelGroundTruth
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class ParsedLine(Generic[Line]):
    """A line with a query, or with faults; ``record`` is None if it does not have the shape of a query."""

    number: int
    record: Line | None
    truth: Truth | None
    faults: list[str]
    query: str | None


AnyLine = ParsedLine[TokenLevelLine] | ParsedLine[ChunkLevelLine]


def read_truth(path: str | Path, level: EvaluationType, documents: CorpusDocuments | None = None) -> list[Truth]:
    """Read a file of this level; raise like ``read_token_level``."""
    return _checked(read_truth_text(path), path, level, Quotes(documents))


def read_token_level(path: str | Path, documents: CorpusDocuments | None = None) -> list[TokenLevelGroundTruth]:
    """Read a file of spans.

    Args:
        path: The file.
        documents: Returns the documents by id, such as ``corpus.by_id``: needed for spans without offsets.

    Raises:
        GroundTruthError: If the file cannot be read; names the line and the query.
    """
    return cast("list[TokenLevelGroundTruth]", read_truth(path, "token-level", documents))


def read_chunk_level(path: str | Path) -> list[ChunkLevelGroundTruth]:
    """Read a file of chunk ids; raise ``GroundTruthError``, naming the line and the query, if it cannot be read."""
    return cast("list[ChunkLevelGroundTruth]", read_truth(path, "chunk-level"))


def read_truth_text(path: str | Path, what: str = "ground-truth file") -> str:
    """Read a file, called ``what`` in errors, without its byte-order mark; raise ``GroundTruthError`` if it fails."""
    path = Path(path)
    try:
        kind = kind_of(path)
        if kind == "folder":
            raise GroundTruthError(f"{str(path)!r} is a folder: give the {what} in it")
        if kind is None:
            raise GroundTruthError(f"the {what} {str(path)!r} does not exist: check the path")
        return read_text(path).removeprefix(BYTE_ORDER_MARK)
    except CorpusError as error:
        raise GroundTruthError(str(error)) from None


def _is_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def truth_lines(text: str, kind: type[Line], quotes: Quotes) -> Iterator[ParsedLine[Line]]:
    """Parse the queries of a file, with all faults of each line; ``quotes`` finds spans without offsets.

    A wrong header counts as a line without a record, and so does a file that is one JSON list.
    """
    if text.lstrip().startswith("[") and _is_list(text):
        fault = "the file is one JSON list: write its objects one a line, without brackets and commas around them"
        yield ParsedLine(1, None, None, [fault], None)
        return
    first_lines: dict[str, int] = {}
    is_first = True
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        was_first, is_first = is_first, False
        data: object = None
        try:
            data = parsed_line(line)
            if isinstance(data, dict) and "format" in data:
                _check_header(data, kind.evaluation_type, was_first)
                continue
            record = kind.model_validate(quotes.placed(data))
        except (ValueError, RecursionError, RagEvalError) as error:
            query = data.get("query") if isinstance(data, dict) else None
            yield ParsedLine(number, None, None, line_faults(error), query if isinstance(query, str) else None)
            continue
        truth, faults = record.read()
        if (first := first_lines.setdefault(record.query_id, number)) != number:
            faults.append(f"its id is in line {first} too: remove one, or give each its own id")
        yield ParsedLine(number, record, truth, faults, record.query)


def all_lines(text: str, level: EvaluationType, quotes: Quotes) -> Sequence[AnyLine]:
    """Parse the queries of a file of this level like ``truth_lines``."""
    if level == "token-level":
        return list(truth_lines(text, TokenLevelLine, quotes))
    return list(truth_lines(text, ChunkLevelLine, quotes))


def _check_header(data: JsonObject, evaluation_type: EvaluationType, is_first: bool) -> None:
    if not is_first:
        raise GroundTruthError("the line that names the format must come first: remove this one")
    level = Header.model_validate(data).format.removeprefix("rag-eval/")
    if level != evaluation_type:
        raise GroundTruthError(
            f"this is {level} ground truth and the evaluation is {evaluation_type}: use the one that fits the other"
        )


def _checked(text: str, path: str | Path, level: EvaluationType, quotes: Quotes) -> list[Truth]:
    """Return the ground truth in a text; raise ``GroundTruthError`` with the first fault."""
    lines = all_lines(text, level, quotes)
    faults = [(line, fault) for line in lines for fault in line.faults]
    if faults:
        line, fault = faults[0]
        place = f"line {line.number}"
        if line.record is not None:
            place += f", {query_name(line.record.query_id, line.record.query)}"
        elif line.query is not None:
            place += f", {preview(line.query)}"
        more = f"{len(faults) - 1} more; " if len(faults) > 1 else ""
        advice = "rag-eval truth check lists everything that is wrong with the file"
        raise GroundTruthError(f"{path}, {place}: {fault}; {more}{advice}")
    truth = [line.truth for line in lines if line.truth is not None]
    if not truth:
        raise GroundTruthError(f"{path} has no queries: write one per line")
    return truth


def truth_type(text: str) -> EvaluationType:
    """Return the evaluation type of a text, by its header or first query; token-level if neither tells."""
    for line in text.split("\n"):
        try:
            data = parsed_line(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            is_chunk_level = data.get("format") == "rag-eval/chunk-level" or "relevant_chunk_ids" in data
            return "chunk-level" if is_chunk_level else "token-level"
    return "token-level"


def write_truth(path: str | Path, truth: Iterable[Truth]) -> EvaluationType:
    """Write ground truth atomically, and return its evaluation type.

    Raises:
        GroundTruthError: If the ground truth could not be read back unchanged.
        ArtifactError: If the file cannot be written.
    """
    items = list(truth)
    _write(path, items, truth_text(items), Quotes(None))
    return _level_of(items)


def write_token_level(path: str | Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth like ``write_truth``."""
    write_truth(path, truth)


def write_chunk_level(path: str | Path, truth: Iterable[ChunkLevelGroundTruth]) -> None:
    """Write ground truth like ``write_truth``."""
    write_truth(path, truth)


def _level_of(truth: Sequence[Truth]) -> EvaluationType:
    return "chunk-level" if truth and isinstance(truth[0], ChunkLevelGroundTruth) else "token-level"


def rewrite_truth(path: str | Path, truth: Iterable[Truth], documents: CorpusDocuments | None = None) -> None:
    """Update a file to changed ground truth; lines of queries with unchanged answers stay as they are.

    Queries that are no longer in the ground truth are removed, and new ones are added at the end. Raises like
    ``write_truth``.
    """
    items, quotes = list(truth), Quotes(documents)
    left = {item.query.id: item for item in items}
    text = read_text(Path(path))
    parsed = all_lines(text.removeprefix(BYTE_ORDER_MARK), _level_of(items), quotes)
    old = {line.number: line.truth for line in parsed}
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        was = old.get(number)
        now = left.pop(was.query.id, None) if was is not None else None
        if was is None or (now is not None and _changes(now) == _changes(was)):
            lines.append(line)
        elif now is not None:
            lines.append(changed_line(line, *_changes(now)))
    if left:
        lines = [*(lines if lines[-1] else lines[:-1]), *map(_line, left.values()), ""]
    _write(path, items, "\n".join(lines), quotes)


def changed_line(line: str, changes: Mapping[str, object], metadata: Mapping[str, object]) -> str:
    """Replace some keys of a query's line, and some of its metadata; None removes a key."""
    data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    if metadata:
        changes = {**changes, "metadata": _replaced(data.get("metadata", {}), metadata) or None}
    ending = "\r" if line.endswith("\r") else ""
    return json.dumps(_replaced(data, changes), ensure_ascii=False, allow_nan=False) + ending


def placed_line(line: str, quotes: Quotes) -> str:
    """Return a query's line with offsets in its spans; raises like ``parsed_line`` and ``Quotes.placed``."""
    data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    placed = quotes.placed(data)
    return line if placed == data else changed_line(line, placed, {})


def header_line(evaluation_type: EvaluationType) -> str:
    """Return the line that names the format, without its line end."""
    return json.dumps({"format": f"rag-eval/{evaluation_type}", "version": 1})


def _replaced(data: Mapping[str, object], changes: Mapping[str, object]) -> JsonObject:
    return {key: value for key, value in {**data, **changes}.items() if key not in changes or value is not None}


def _outputs(item: Truth) -> JsonObject:
    return token_level_outputs(item) if isinstance(item, TokenLevelGroundTruth) else chunk_level_outputs(item)


def _changes(item: Truth) -> tuple[JsonObject, JsonObject]:
    """Return the changes in the line of a query: its answers, and the judgements in its metadata."""
    return _outputs(item), {JUDGED: item.query.metadata.get(JUDGED)}


def _line(item: Truth) -> str:
    record: dict[str, object] = {"id": item.query.id, "query": item.query.text, **_outputs(item)}
    if item.unanswerable:
        record["unanswerable"] = True
    if item.query.metadata:
        record["metadata"] = dict(item.query.metadata)
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        name = query_name(item.query.id, item.query.text)
        raise GroundTruthError(f"{name} cannot be kept as JSON: {error}") from None


def truth_text(truth: Sequence[Truth]) -> str:
    """Return ground truth as the text of a file."""
    return "\n".join([header_line(_level_of(truth)), *map(_line, truth), ""])


def _write(path: str | Path, items: Sequence[Truth], text: str, quotes: Quotes) -> None:
    """Write a text, after checking that reading it returns the same items."""
    read = _checked(text.removeprefix(BYTE_ORDER_MARK), path, _level_of(items), quotes)
    for item, same in zip(items, read, strict=True):
        if same != item:
            raise GroundTruthError(
                f"{query_name(item.query.id, item.query.text)} could not be read back unchanged: "
                "use strings as keys of its metadata, and lists rather than tuples"
            )
    write_atomically(Path(path), text.encode("utf-8"))
