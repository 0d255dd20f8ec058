"""The native ground-truth format, JSON lines: reading, writing, and rewriting only the lines that changed.

Writing is whole or not at all, in the order given, and what is written is read back the same. Files are written in
version 1 of the format; in version 2 where the truth has groups or origins.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

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
VERSIONS = (1, 2)
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class ParsedLine(Generic[Line]):
    """A line that is not empty: its number, what it holds if it has the shape of a query, and all its faults."""

    number: int
    record: Line | None
    truth: Truth | None
    """The truth of a line that has no fault by itself."""
    faults: list[str]
    query: str | None
    """The question, as far as the line tells one."""


def read_token_level(path: str | Path, documents: CorpusDocuments | None = None) -> list[TokenLevelGroundTruth]:
    """Read the spans of a file, in its order; raises ``GroundTruthError`` naming the file, the line and the query.

    Spans that are quoted, or given by their page, need the ``documents``: ``corpus.by_id`` gives them.
    """
    return cast("list[TokenLevelGroundTruth]", _sound(read_truth_text(path), path, TokenLevelLine, Quotes(documents)))


def read_chunk_level(path: str | Path) -> list[ChunkLevelGroundTruth]:
    """Read the ids of a file, in its order; raises ``GroundTruthError`` naming the file, the line and the query."""
    return cast("list[ChunkLevelGroundTruth]", _sound(read_truth_text(path), path, ChunkLevelLine, Quotes(None)))


def read_truth_text(path: str | Path, what: str = "ground-truth file") -> str:
    """Read a file, ``what`` in errors, without its byte-order mark; raises ``GroundTruthError`` when it cannot be."""
    path = Path(path)
    try:
        kind = kind_of(path)
        if kind == "folder":
            raise GroundTruthError(f"{str(path)!r} is a folder: give the {what} in it")
        if kind is None:
            raise GroundTruthError(f"the {what} {str(path)!r} is not there: check the path")
        return read_text(path).removeprefix(BYTE_ORDER_MARK)
    except CorpusError as error:
        raise GroundTruthError(str(error)) from None


def _is_list(text: str) -> bool:
    if not text.lstrip().startswith("["):
        return False
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def truth_lines(text: str, kind: type[Line], quotes: Quotes) -> Iterator[ParsedLine[Line]]:
    """Parse every line of a file but its header and the empty ones, with all that is wrong with each by itself.

    Spans without numbers are placed by ``quotes``. A header that does not fit is a line without a record, and so is a
    file that is one JSON list.
    """
    if _is_list(text):
        fault = "the file is one JSON list: write its objects one a line, without brackets and commas around them"
        yield ParsedLine(1, None, None, [fault], None)
        return
    lines: dict[str, int] = {}
    is_first, version = True, 2
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        was_first, is_first = is_first, False
        data: object = None
        try:
            data = parsed_line(line)
            if isinstance(data, dict) and "format" in data:
                version = _checked_version(data, kind.evaluation_type, was_first)
                continue
            record = kind.model_validate(quotes.placed(data))
        except (ValueError, RecursionError, RagEvalError) as error:
            query = data.get("query") if isinstance(data, dict) else None
            yield ParsedLine(number, None, None, line_faults(error), query if isinstance(query, str) else None)
            continue
        truth, faults = record.read()
        if version == 1 and record.has_groups:
            faults.append(
                "it has alternatives or an origin, which version 1 of the format does not know: "
                'write "version": 2 in the first line'
            )
        if record.query_id in lines:
            faults.append(f"its id is in line {lines[record.query_id]} too: remove one, or give each its own id")
        lines.setdefault(record.query_id, number)
        yield ParsedLine(number, record, truth, faults, record.query)


def _checked_version(data: JsonObject, evaluation_type: EvaluationType, is_first: bool) -> int:
    if not is_first:
        raise GroundTruthError("the line that names the format comes before all queries: remove this one")
    header = Header.model_validate(data)
    if header.version not in VERSIONS:
        known = " or ".join(map(str, VERSIONS))
        raise GroundTruthError(f"this is version {header.version} of the format, which is not known: use {known}")
    found = header.format.removeprefix("rag-eval/")
    if found != evaluation_type:
        raise GroundTruthError(
            f"this is {found} ground truth and the evaluation is {evaluation_type}: use the one that fits the other"
        )
    return header.version


def _sound(text: str, path: str | Path, kind: type[Line], quotes: Quotes) -> list[Truth]:
    """Return the truth of a file's text; raises ``GroundTruthError`` with the first fault, and without any query."""
    lines = list(truth_lines(text, kind, quotes))
    faults = [(line, fault) for line in lines for fault in line.faults]
    if faults:
        line, fault = faults[0]
        place = f"line {line.number}"
        if line.record is not None:
            place += f", {query_name(line.record.query_id, line.record.query)}"
        elif line.query is not None:
            place += f", {preview(line.query)}"
        more = f"{len(faults) - 1} more; " if len(faults) > 1 else ""
        advice = "rag-eval truth check lists all that is wrong with the file"
        raise GroundTruthError(f"{path}, {place}: {fault}; {more}{advice}")
    truth = [line.truth for line in lines if line.truth is not None]
    if not truth:
        raise GroundTruthError(f"{path} holds no query: write one a line")
    return truth


def truth_type(text: str) -> EvaluationType:
    """Tell the type of ground truth that a file's text holds, by its header or first query; else token-level."""
    for line in text.split("\n"):
        try:
            data = parsed_line(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            has_ids = not data.keys().isdisjoint(("relevant_chunk_ids", "relevantChunkIds", "chunk_ids"))
            is_chunk_level = data.get("format") == "rag-eval/chunk-level" or has_ids
            return "chunk-level" if is_chunk_level else "token-level"
    return "token-level"


def write_token_level(path: str | Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all.

    Raises ``GroundTruthError`` when it would not be read back the same, ``ArtifactError`` when it cannot be written.
    """
    _write(path, list(truth), TokenLevelLine)


def write_chunk_level(path: str | Path, truth: Iterable[ChunkLevelGroundTruth]) -> None:
    """Write ground truth as ``write_token_level`` does."""
    _write(path, list(truth), ChunkLevelLine)


def write_truth(path: str | Path, truth: Sequence[Truth]) -> EvaluationType:
    """Write ground truth of either type as ``write_token_level`` does, and return its type."""
    _write(path, truth, form := _form(truth))
    return form.evaluation_type


def _form(truth: Sequence[Truth]) -> type[TokenLevelLine | ChunkLevelLine]:
    return ChunkLevelLine if truth and isinstance(truth[0], ChunkLevelGroundTruth) else TokenLevelLine


def rewrite_truth(path: str | Path, truth: Iterable[Truth], documents: CorpusDocuments | None = None) -> None:
    """Write to a file what became of its ground truth, in the same order.

    The line of a query whose answers are as they were stays byte for byte, and so does what is no query, but for the
    version of the format where groups need another. A query that the truth no longer has is left out, and new ones
    come at the end. Raises as ``write_token_level`` does, and when the file cannot be read.
    """
    items = list(truth)
    by_id = {item.query.id: item for item in items}
    before = read_text(Path(path))
    kind, quotes = cast("Any", _form(items)), Quotes(documents)
    old = {line.number: line.truth for line in truth_lines(before.removeprefix(BYTE_ORDER_MARK), kind, quotes)}
    lines, is_grouped = [], any(item.alternatives or item.origins for item in items)
    for number, line in enumerate(before.split("\n"), start=1):
        was = old.get(number)
        now = by_id.get(was.query.id) if was is not None else None
        # In a file without faults, what has no truth and is not empty is the header.
        is_header = was is None and bool(line.strip())
        if is_header and is_grouped and parsed_line(line.removeprefix(BYTE_ORDER_MARK)).get("version") == 1:
            lines.append(changed_line(line, {"version": 2}, {}))
        elif was is None or (now is not None and _outputs(now) == _outputs(was) and _judged(now) == _judged(was)):
            lines.append(line)
        elif now is not None:
            lines.append(changed_line(line, _outputs(now), _judged(now)))
    known = {was.query.id for was in old.values() if was is not None}
    if new := [_line(item) for item in items if item.query.id not in known]:
        lines = [*(lines if lines[-1] else lines[:-1]), *new, ""]
    _write(path, items, kind, "\n".join(lines), quotes)


def changed_line(line: str, changes: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Replace some keys of a query's line (None removes one), and some of its metadata; the rest stays as it was."""
    data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    if metadata:
        changes = {**changes, "metadata": _replaced(data.get("metadata", {}), metadata) or None}
    ending = "\r" if line.endswith("\r") else ""
    return json.dumps(_replaced(data, changes), ensure_ascii=False, allow_nan=False) + ending


def placed_line(line: str, quotes: Quotes) -> str:
    """Return a query's line with numbers in its spans; raises as ``parsed_line`` and ``Quotes.placed`` do."""
    data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    placed = quotes.placed(data)
    return line if placed == data else changed_line(line, placed, {})


def header_line(evaluation_type: EvaluationType, version: int = 1) -> str:
    """Return the line that names the format, without its line end."""
    return json.dumps({"format": f"rag-eval/{evaluation_type}", "version": version})


def _replaced(data: Mapping[str, Any], changes: Mapping[str, Any]) -> JsonObject:
    merged = {**data, **changes}
    return {key: value for key, value in merged.items() if key not in changes or value is not None}


def _outputs(item: Truth) -> Mapping[str, Any]:
    return token_level_outputs(item) if isinstance(item, TokenLevelGroundTruth) else chunk_level_outputs(item)


def _judged(item: Truth) -> JsonObject:
    return {JUDGED: item.query.metadata.get(JUDGED)}


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
    """Return the text of a file of this ground truth, of which there is at least one query."""
    version = 2 if any(item.alternatives or item.origins for item in truth) else 1
    return "\n".join([header_line(_form(truth).evaluation_type, version), *map(_line, truth), ""])


def _write(
    path: str | Path, items: Sequence[Truth], kind: Any, text: str | None = None, quotes: Quotes | None = None
) -> None:
    """Write the items as a new file, or as the text that they were given."""
    if text is None:
        text = truth_text(items) if items else f"{header_line(kind.evaluation_type)}\n"
    sound = _sound(text.removeprefix(BYTE_ORDER_MARK), path, kind, quotes or Quotes(None))
    for item, read in zip(items, sound, strict=True):
        if read != item:
            raise GroundTruthError(
                f"{query_name(item.query.id, item.query.text)} would not be read back the same: "
                "use strings as keys of its metadata, and lists rather than tuples"
            )
    write_atomically(Path(path), text.encode("utf-8"))
