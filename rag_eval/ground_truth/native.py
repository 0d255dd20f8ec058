"""The native ground-truth format, version 1: JSON lines in UTF-8, one query a line.

::

    {"format": "rag-eval/token-level", "version": 1}
    {"query": "…", "relevant_spans": [{"doc_id": "a.md", "start": 0, "end": 9, "text": "…"}]}
    {"query": "…", "relevant_spans": [], "unanswerable": true, "metadata": {"difficulty": "hard"}}

    {"format": "rag-eval/chunk-level", "version": 1}
    {"query": "…", "relevant_chunk_ids": ["chunk_…"], "metadata": {"chunker": "…"}}

The first line names the format; a file without it is read as version 1. ``id`` may be given, else it is made from
the query's text. ``start`` and ``end`` are half-open code-point offsets into the document as read, and ``text`` is
what stands there. A query without spans or chunk ids must be declared ``unanswerable``; it may leave them out.
``metadata.chunker`` is the name of the chunker that chunk ids were made with. Empty lines are passed over, and so is
a byte-order mark at the start of the file. A key may stand once in an object, and NaN is not a number here.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rag_eval.errors import CorpusError, GroundTruthError, RagEvalError, preview
from rag_eval.files import read_text, write_atomically
from rag_eval.tables import metadata_to_json
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType, QueryId, QueryText, encode_utf8, generate_query_id
from rag_eval.types.span import CharacterSpan

VERSION = 1
T = TypeVar("T", TokenLevelGroundTruth, ChunkLevelGroundTruth)


def _encodable(text: str) -> str:
    encode_utf8(text)
    return text


_Text = Annotated[str, AfterValidator(_encodable)]
_Offset = Annotated[int, Field(lt=2**63)]  # what a table can hold


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Header(_Strict):
    format: Literal["rag-eval/token-level", "rag-eval/chunk-level"]
    version: int


class _Record(_Strict):
    id: Annotated[str, Field(min_length=1), AfterValidator(_encodable)] | None = None
    query: _Text
    unanswerable: bool = False
    metadata: dict[str, object] = {}

    def checked_query(self, answers: int, kind: str) -> Query:
        if not self.query.strip():
            raise GroundTruthError("the query is empty: write the question")
        if not answers and not self.unanswerable:
            raise GroundTruthError(
                f'{preview(self.query)} has no relevant {kind}: add them, or declare it with "unanswerable": true'
            )
        metadata_to_json(self.metadata, preview(self.query))
        return Query(QueryId(self.id or generate_query_id(self.query)), QueryText(self.query), self.metadata)


class _Span(_Strict):
    doc_id: _Text
    start: _Offset
    end: _Offset
    text: _Text


class _TokenLevelRecord(_Record):
    relevant_spans: list[_Span] = []

    def ground_truth(self) -> TokenLevelGroundTruth:
        query = self.checked_query(len(self.relevant_spans), "spans")
        spans = [CharacterSpan(DocumentId(s.doc_id), s.start, s.end, s.text) for s in self.relevant_spans]
        return TokenLevelGroundTruth(query, spans, self.unanswerable)


class _ChunkLevelRecord(_Record):
    relevant_chunk_ids: list[_Text] = []

    def ground_truth(self) -> ChunkLevelGroundTruth:
        query = self.checked_query(len(self.relevant_chunk_ids), "chunk ids")
        return ChunkLevelGroundTruth(query, [ChunkId(name) for name in self.relevant_chunk_ids], self.unanswerable)


def _token_level(data: object) -> TokenLevelGroundTruth:
    return _TokenLevelRecord.model_validate(data).ground_truth()


def _chunk_level(data: object) -> ChunkLevelGroundTruth:
    return _ChunkLevelRecord.model_validate(data).ground_truth()


def read_token_level(path: str | Path) -> list[TokenLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file and the line."""
    return _read(Path(path), "token-level", _token_level)


def read_chunk_level(path: str | Path) -> list[ChunkLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file and the line."""
    return _read(Path(path), "chunk-level", _chunk_level)


def write_token_level(path: str | Path, truth: Iterable[TokenLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all.

    Raises ``GroundTruthError`` when it would not be read back the same, ``ArtifactError`` when it cannot be written.
    """

    def answers(item: TokenLevelGroundTruth) -> dict[str, object]:
        spans = item.relevant_spans
        return {"relevant_spans": [{"doc_id": s.doc_id, "start": s.start, "end": s.end, "text": s.text} for s in spans]}

    _write(Path(path), "token-level", list(truth), answers, _token_level)


def write_chunk_level(path: str | Path, truth: Iterable[ChunkLevelGroundTruth]) -> None:
    """Write ground truth so that reading it gives the same; the file is replaced at once or not at all.

    Raises ``GroundTruthError`` when it would not be read back the same, ``ArtifactError`` when it cannot be written.
    """

    def answers(item: ChunkLevelGroundTruth) -> dict[str, object]:
        return {"relevant_chunk_ids": list(item.relevant_chunk_ids)}

    _write(Path(path), "chunk-level", list(truth), answers, _chunk_level)


def _read(path: Path, evaluation_type: EvaluationType, parse: Callable[[object], T]) -> list[T]:
    if path.is_dir():
        raise GroundTruthError(f"{str(path)!r} is a folder: give the ground-truth file in it")
    if not path.exists():
        raise GroundTruthError(f"the ground-truth file {str(path)!r} is not there: check the path")
    try:
        text = read_text(path)
    except CorpusError as error:
        raise GroundTruthError(str(error)) from None
    return _parsed(text.removeprefix("\ufeff"), path, evaluation_type, parse)


def _parsed(text: str, path: Path, evaluation_type: EvaluationType, parse: Callable[[object], T]) -> list[T]:
    truth: list[T] = []
    lines: dict[QueryId, int] = {}
    is_first = True
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line, object_pairs_hook=_object, parse_constant=_not_a_number)
            was_first, is_first = is_first, False
            if isinstance(data, dict) and "format" in data:
                _check_header(data, evaluation_type, was_first)
                continue
            found = parse(data)
        except (ValueError, RecursionError, RagEvalError) as error:
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {preview(repeated)} stands twice in one object: keep one")
    return found


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has: leave it out")


def _check_header(data: object, evaluation_type: EvaluationType, is_first: bool) -> None:
    if not is_first:
        raise GroundTruthError("the line that names the format stands before all queries: remove this one")
    header = _Header.model_validate(data)
    if header.version != VERSION:
        raise GroundTruthError(f"this is version {header.version} of the format, which is not known: use {VERSION}")
    found = header.format.removeprefix("rag-eval/")
    if found != evaluation_type:
        raise GroundTruthError(
            f"this is {found} ground truth and the evaluation is {evaluation_type}: use the one that fits the other"
        )


def _write(
    path: Path,
    evaluation_type: EvaluationType,
    truth: list[T],
    answers: Callable[[T], dict[str, object]],
    parse: Callable[[object], T],
) -> None:
    lines = [json.dumps({"format": f"rag-eval/{evaluation_type}", "version": VERSION})]
    for item in truth:
        record: dict[str, object] = {"id": item.query.id, "query": item.query.text} | answers(item)
        if item.unanswerable:
            record["unanswerable"] = True
        if item.query.metadata:
            record["metadata"] = dict(item.query.metadata)
        try:
            lines.append(json.dumps(record, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise GroundTruthError(f"{item.query.id} cannot be kept as JSON: {error}") from None
    text = "\n".join(lines) + "\n"
    for item, found in zip(truth, _parsed(text, path, evaluation_type, parse), strict=True):
        if found != item:
            raise GroundTruthError(
                f"{item.query.id} would not be read back the same: use strings as keys of its metadata, "
                "and lists rather than tuples"
            )
    write_atomically(path, text.encode("utf-8"))


def _reason(error: ValueError | RecursionError | RagEvalError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        return f"{place}: {first['msg']}"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.colno}); write one JSON object a line"
    if isinstance(error, RecursionError):
        return "objects or lists stand too deep in each other: write one flat object a line"
    return str(error)
