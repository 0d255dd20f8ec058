"""The native ground-truth format, version 1: JSON lines in UTF-8, one query a line.

::

    {"format": "rag-eval/token-level", "version": 1}
    {"query": "…", "relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 9, "text": "…"}]}
    {"query": "…", "relevant_spans": [], "unanswerable": true, "metadata": {"difficulty": "hard"}}

    {"format": "rag-eval/chunk-level", "version": 1}
    {"query": "…", "relevant_chunk_ids": ["chunk_…"], "metadata": {"chunker": "…"}}

The first line names the format; a file without it is read as version 1. ``id`` may be given, else it is made from
the query's text. ``start`` and ``end`` are half-open code-point offsets into the document as read, and ``text`` is
what stands there. A query without spans or chunk ids must be declared ``unanswerable``. ``metadata.chunker`` is the
name of the chunker that chunk ids were made with. Empty lines are passed over.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.files import read_text, write_atomically
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, generate_query_id
from rag_eval.types.span import CharacterSpan

VERSION = 1
T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Header(_Strict):
    format: Literal["rag-eval/token-level", "rag-eval/chunk-level"]
    version: Literal[1]


class _Record(_Strict):
    id: str | None = None
    query: str
    unanswerable: bool = False
    metadata: dict[str, object] = {}

    def checked_query(self, answers: int, kind: str) -> Query:
        if not self.query.strip():
            raise GroundTruthError("the query is empty: write the question")
        if not answers and not self.unanswerable:
            raise GroundTruthError(
                f'{preview(self.query)} has no relevant {kind}: add them, or declare it with "unanswerable": true'
            )
        return Query(QueryId(self.id or generate_query_id(self.query)), QueryText(self.query), self.metadata)


class _Span(_Strict):
    doc_id: str
    start: int
    end: int
    text: str


class _TokenLevelRecord(_Record):
    relevant_spans: list[_Span]

    def ground_truth(self) -> TokenLevelGroundTruth:
        query = self.checked_query(len(self.relevant_spans), "spans")
        spans = [CharacterSpan(DocumentId(s.doc_id), s.start, s.end, s.text) for s in self.relevant_spans]
        return TokenLevelGroundTruth(query, spans, self.unanswerable)


class _ChunkLevelRecord(_Record):
    relevant_chunk_ids: list[str]

    def ground_truth(self) -> ChunkLevelGroundTruth:
        query = self.checked_query(len(self.relevant_chunk_ids), "chunk ids")
        return ChunkLevelGroundTruth(query, [ChunkId(name) for name in self.relevant_chunk_ids], self.unanswerable)


def read_token_level(path: Path) -> list[TokenLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file and the line."""
    return _read(path, "token-level", lambda data: _TokenLevelRecord.model_validate(data).ground_truth())


def read_chunk_level(path: Path) -> list[ChunkLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file and the line."""
    return _read(path, "chunk-level", lambda data: _ChunkLevelRecord.model_validate(data).ground_truth())


def write_token_level(path: Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all."""
    _write(
        path,
        "token-level",
        truth,
        lambda item: {
            "relevant_spans": [
                {"doc_id": span.doc_id, "start": span.start, "end": span.end, "text": span.text}
                for span in item.relevant_spans
            ]
        },
    )


def write_chunk_level(path: Path, truth: Iterable[ChunkLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all."""
    _write(path, "chunk-level", truth, lambda item: {"relevant_chunk_ids": list(item.relevant_chunk_ids)})


def _read(path: Path, evaluation_type: EvaluationType, parse: Callable[[object], T]) -> list[T]:
    if not path.is_file():
        raise GroundTruthError(f"the ground-truth file {str(path)!r} is not there: check the path")
    truth: list[T] = []
    lines: dict[QueryId, int] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if isinstance(data, dict) and "format" in data:
                _check_header(data, evaluation_type)
                continue
            found = parse(data)
        except (ValueError, RagEvalError) as error:
            raise GroundTruthError(f"{path}, line {number}: {_reason(error)}") from None
        if found.query.id in lines:
            raise GroundTruthError(
                f"{path}, line {number}: the query id {found.query.id} stands in line {lines[found.query.id]} too: "
                "remove one, or give each its own id"
            )
        lines[found.query.id] = number
        truth.append(found)
    if not truth:
        raise GroundTruthError(f"{path} holds no query: write one a line")
    return truth


def _check_header(data: object, evaluation_type: EvaluationType) -> None:
    found = _Header.model_validate(data).format.removeprefix("rag-eval/")
    if found != evaluation_type:
        raise GroundTruthError(
            f"this is {found} ground truth and the evaluation is {evaluation_type}: use the one that fits the other"
        )


def _write(
    path: Path, evaluation_type: EvaluationType, truth: Iterable[T], answers: Callable[[T], dict[str, object]]
) -> None:
    records: list[dict[str, object]] = [{"format": f"rag-eval/{evaluation_type}", "version": VERSION}]
    for item in truth:
        record: dict[str, object] = {"id": item.query.id, "query": item.query.text} | answers(item)
        if item.unanswerable:
            record["unanswerable"] = True
        if item.query.metadata:
            record["metadata"] = dict(item.query.metadata)
        records.append(record)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_atomically(path, text.encode("utf-8"))


def _reason(error: ValueError | RagEvalError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        return f"{place}: {first['msg']}"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.colno}); write one JSON object a line"
    return str(error)
