"""Writing the native ground-truth format: whole or not at all, in the order given, so that it is read back the same."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rag_eval.errors import GroundTruthError
from rag_eval.files import read_text, write_atomically
from rag_eval.ground_truth.native import sound_records, truth_lines
from rag_eval.ground_truth.records import VERSION, ChunkLevelRecord, TokenLevelRecord, parsed_line, query_name
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

BYTE_ORDER_MARK = "\ufeff"
T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)


def write_token_level(path: str | Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all.

    Raises ``GroundTruthError`` when it would not be read back the same, ``ArtifactError`` when it cannot be written.
    """
    items = list(truth)
    text = "\n".join([header_line("token-level"), *map(token_level_line, items), ""])
    _check_same(items, [record.ground_truth() for record in sound_records(text, path, TokenLevelRecord)])
    write_atomically(Path(path), text.encode("utf-8"))


def write_chunk_level(path: str | Path, truth: Iterable[ChunkLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all.

    Raises ``GroundTruthError`` when it would not be read back the same, ``ArtifactError`` when it cannot be written.
    """
    items = list(truth)
    text = "\n".join([header_line("chunk-level"), *map(chunk_level_line, items), ""])
    _check_same(items, [record.ground_truth() for record in sound_records(text, path, ChunkLevelRecord)])
    write_atomically(Path(path), text.encode("utf-8"))


def rewrite_token_level(path: str | Path, source: str | Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write what became of the ground truth of the file ``source``, which has the same order.

    The line of a query whose spans are as they were stays byte for byte, and so does what is no query; a query that
    the truth lacks is left out. Raises as ``write_token_level`` does, and when ``source`` cannot be read.
    """
    items = list(truth)
    by_id = {item.query.id: item for item in items}
    before = read_text(Path(source))
    old = {line.number: line.record for line in truth_lines(before.removeprefix(BYTE_ORDER_MARK), TokenLevelRecord)}
    lines = []
    for number, line in enumerate(before.split("\n"), start=1):
        record = old.get(number)
        item = by_id.get(record.query_id) if record is not None else None
        if record is None or (item is not None and item.relevant_spans == record.ground_truth().relevant_spans):
            lines.append(line)
        elif item is not None:
            lines.append(changed_line(line, {"relevant_spans": _spans(item)}, {}))
    text = "\n".join(lines)
    records = sound_records(text.removeprefix(BYTE_ORDER_MARK), path, TokenLevelRecord)
    _check_same(items, [record.ground_truth() for record in records])
    write_atomically(Path(path), text.encode("utf-8"))


def changed_line(line: str, changes: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """A query's line with some keys replaced (removed where None), and some of its metadata; the rest as it was."""
    data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    if metadata:
        changes = {**changes, "metadata": _replaced(data.get("metadata", {}), metadata) or None}
    ending = "\r" if line.endswith("\r") else ""
    return json.dumps(_replaced(data, changes), ensure_ascii=False, allow_nan=False) + ending


def _replaced(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**data, **changes}
    return {key: value for key, value in merged.items() if key not in changes or value is not None}


def header_line(evaluation_type: EvaluationType) -> str:
    """The line that names the format, without its line end."""
    return json.dumps({"format": f"rag-eval/{evaluation_type}", "version": VERSION})


def token_level_line(item: TokenLevelGroundTruth) -> str:
    """One query as a line, without its line end; raises ``GroundTruthError`` on metadata that JSON cannot hold."""
    return _line(item, {"relevant_spans": _spans(item)})


def _spans(item: TokenLevelGroundTruth) -> list[dict[str, Any]]:
    return [{"doc_id": s.doc_id, "start": s.start, "end": s.end, "text": s.text} for s in item.relevant_spans]


def chunk_level_line(item: ChunkLevelGroundTruth) -> str:
    """One query as a line, without its line end; raises ``GroundTruthError`` on metadata that JSON cannot hold."""
    return _line(item, {"relevant_chunk_ids": list(item.relevant_chunk_ids)})


def _line(item: TokenLevelGroundTruth | ChunkLevelGroundTruth, answers: Mapping[str, object]) -> str:
    record: dict[str, object] = {"id": item.query.id, "query": item.query.text, **answers}
    if item.unanswerable:
        record["unanswerable"] = True
    if item.query.metadata:
        record["metadata"] = dict(item.query.metadata)
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GroundTruthError(f"{_name(item)} cannot be kept as JSON: {error}") from None


def _check_same(items: Sequence[T], read_back: Sequence[T]) -> None:
    for item, found in zip(items, read_back, strict=True):
        if found != item:
            raise GroundTruthError(
                f"{_name(item)} would not be read back the same: use strings as keys of its metadata, "
                "and lists rather than tuples"
            )


def _name(item: TokenLevelGroundTruth | ChunkLevelGroundTruth) -> str:
    return query_name(item.query.id, item.query.text)
