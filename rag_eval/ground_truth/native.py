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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rag_eval.errors import CorpusError, GroundTruthError, RagEvalError, preview
from rag_eval.files import read_text
from rag_eval.ground_truth.records import (
    ChunkLevelRecord,
    Header,
    TokenLevelRecord,
    line_faults,
    parsed_line,
    query_name,
)
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType

Record = TypeVar("Record", TokenLevelRecord, ChunkLevelRecord)
TYPES: dict[type[TokenLevelRecord] | type[ChunkLevelRecord], EvaluationType] = {
    TokenLevelRecord: "token-level",
    ChunkLevelRecord: "chunk-level",
}


@dataclass(frozen=True, slots=True)
class TruthLine(Generic[Record]):
    """A line that is not empty: its number, the record it holds if it has the shape of one, and all its faults."""

    number: int
    record: Record | None
    faults: list[str]
    query: str | None
    """The question, as far as the line tells one."""

    @property
    def place(self) -> str:
        """``line 3, query_1f2e3d4c 'When does …?'``, as a message begins; less of it where the line does not tell."""
        if self.record is not None:
            return f"line {self.number}, {query_name(self.record.query_id, self.record.query)}"
        return f"line {self.number}" if self.query is None else f"line {self.number}, {preview(self.query)}"


def read_token_level(path: str | Path) -> list[TokenLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file, the line and the query."""
    return [record.ground_truth() for record in sound_records(read_truth_text(path), path, TokenLevelRecord)]


def read_chunk_level(path: str | Path) -> list[ChunkLevelGroundTruth]:
    """The ground truth of a file, in its order; raises ``GroundTruthError`` naming the file, the line and the query."""
    return [record.ground_truth() for record in sound_records(read_truth_text(path), path, ChunkLevelRecord)]


def read_truth_text(path: str | Path) -> str:
    """The text of a ground-truth file without its byte-order mark; raises ``GroundTruthError`` when there is none."""
    path = Path(path)
    if path.is_dir():
        raise GroundTruthError(f"{str(path)!r} is a folder: give the ground-truth file in it")
    if not path.exists():
        raise GroundTruthError(f"the ground-truth file {str(path)!r} is not there: check the path")
    try:
        return read_text(path).removeprefix("\ufeff")
    except CorpusError as error:
        raise GroundTruthError(str(error)) from None


def truth_lines(text: str, kind: type[Record]) -> Iterator[TruthLine[Record]]:
    """Every line of a file but its header and the empty ones, with all that is wrong with each by itself.

    A header that does not fit is a line without a record.
    """
    lines: dict[str, int] = {}
    is_first = True
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        was_first, is_first = is_first, False
        data: object = None
        try:
            data = parsed_line(line)
            if isinstance(data, dict) and "format" in data:
                _check_header(data, TYPES[kind], was_first)
                continue
            record = kind.model_validate(data)
        except (ValueError, RecursionError, RagEvalError) as error:
            yield TruthLine(number, None, line_faults(error), _question(data))
            continue
        faults = record.faults()
        if record.query_id in lines:
            faults.append(f"its id stands in line {lines[record.query_id]} too: remove one, or give each its own id")
        lines.setdefault(record.query_id, number)
        yield TruthLine(number, record, faults, record.query)


def sound_records(text: str, path: str | Path, kind: type[Record]) -> list[Record]:
    """The records of a file's text.

    Raises ``GroundTruthError`` with the first fault and how many more there are, and without any query.
    """
    lines = list(truth_lines(text, kind))
    faults = [f"{path}, {line.place}: {fault}" for line in lines for fault in line.faults]
    if faults:
        more = f"{len(faults) - 1} more; " if len(faults) > 1 else ""
        raise GroundTruthError(f"{faults[0]}; {more}rag-eval truth check lists all that is wrong with the file")
    records = [line.record for line in lines if line.record is not None]
    if not records:
        raise GroundTruthError(f"{path} holds no query: write one a line")
    return records


def truth_type(text: str) -> EvaluationType:
    """Which type of ground truth a file's text holds: what its header says, else what its first query has.

    A text that tells neither is token-level.
    """
    for line in text.split("\n"):
        try:
            data = parsed_line(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            is_chunk_level = data.get("format") == "rag-eval/chunk-level" or "relevant_chunk_ids" in data
            return "chunk-level" if is_chunk_level else "token-level"
    return "token-level"


def _question(data: object) -> str | None:
    query = data.get("query") if isinstance(data, dict) else None
    return query if isinstance(query, str) else None


def _check_header(data: object, evaluation_type: EvaluationType, is_first: bool) -> None:
    if not is_first:
        raise GroundTruthError("the line that names the format stands before all queries: remove this one")
    Header.model_validate(data).check(evaluation_type)
