"""The native token-level ground-truth format, version 1: JSON lines in UTF-8, one query a line.

::

    {"format": "rag-eval/token-level", "version": 1}
    {"query": "…", "relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 9, "text": "…"}]}
    {"query": "…", "relevant_spans": [], "unanswerable": true, "metadata": {"difficulty": "hard"}}

The first line names the format; a file without it is read as version 1. ``id`` may be given, else it is made from
the query's text. ``start`` and ``end`` are half-open code-point offsets into the document as read, and ``text`` is
what stands there. A query without spans must be declared ``unanswerable``. Empty lines are passed over.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval.errors import GroundTruthError, RagEvalError, preview
from rag_eval.files import read_text, write_atomically
from rag_eval.types.ground_truth import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText, generate_query_id
from rag_eval.types.span import CharacterSpan

FORMAT = "rag-eval/token-level"
VERSION = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Header(_Strict):
    format: Literal["rag-eval/token-level"]
    version: Literal[1]


class _Span(_Strict):
    doc_id: str
    start: int
    end: int
    text: str


class _Record(_Strict):
    id: str | None = None
    query: str
    relevant_spans: list[_Span]
    unanswerable: bool = False
    metadata: dict[str, object] = {}

    def ground_truth(self) -> TokenLevelGroundTruth:
        if not self.query.strip():
            raise GroundTruthError("the query is empty: write the question")
        if not self.relevant_spans and not self.unanswerable:
            raise GroundTruthError(
                f'{preview(self.query)} has no relevant spans: add them, or declare it with "unanswerable": true'
            )
        query = Query(QueryId(self.id or generate_query_id(self.query)), QueryText(self.query), self.metadata)
        spans = [CharacterSpan(DocumentId(s.doc_id), s.start, s.end, s.text) for s in self.relevant_spans]
        return TokenLevelGroundTruth(query, spans, self.unanswerable)


def read_token_level(path: Path) -> list[TokenLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file and the line."""
    if not path.is_file():
        raise GroundTruthError(f"the ground-truth file {str(path)!r} is not there: check the path")
    truth: list[TokenLevelGroundTruth] = []
    lines: dict[QueryId, int] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if isinstance(data, dict) and "format" in data:
                _Header.model_validate(data)
                continue
            found = _Record.model_validate(data).ground_truth()
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


def write_token_level(path: Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all."""
    records: list[dict[str, object]] = [{"format": FORMAT, "version": VERSION}]
    for item in truth:
        record: dict[str, object] = {"id": item.query.id, "query": item.query.text}
        record["relevant_spans"] = [
            {"doc_id": s.doc_id, "start": s.start, "end": s.end, "text": s.text} for s in item.relevant_spans
        ]
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
