"""One query under review: its line, where it is kept, and what it says."""

from typing import Any, Literal

from rag_eval.errors import RagEvalError
from rag_eval.ground_truth.check import span_fault
from rag_eval.ground_truth.records import SpanLine, TokenLevelRecord, line_faults, parsed_line
from rag_eval.ground_truth.review.documents import DocumentFolder
from rag_eval.ground_truth.writing import BYTE_ORDER_MARK, changed_line

Side = Literal["truth", "rejected"]
Decision = Literal["accepted", "rejected"]
Status = Literal["open", "accepted", "rejected"]


class Entry:
    """A query's line as it stands in its file, what it says, and how often it was changed in this session."""

    def __init__(self, line: str, record: TokenLevelRecord, side: Side) -> None:
        self.line, self.record, self.side = line, record, side
        self.version = 0

    @property
    def status(self) -> Status:
        """Rejected where it is kept apart, else what the metadata says."""
        if self.side == "rejected":
            return "rejected"
        return "accepted" if self.record.metadata.get("review") == "accepted" else "open"

    def put(self, line: str, side: Side) -> None:
        """Give it another line, which is one that it can have, or another side."""
        if line != self.line:
            self.line, self.record = line, parse_entry(line)
        self.side = side

    def span_faults(self, documents: DocumentFolder) -> list[str | None]:
        """For each span what is wrong with it, None where nothing is."""
        return [_fault(span, documents) for span in self.record.relevant_spans]

    def changed(self, changes: dict[str, Any], metadata: dict[str, Any]) -> str:
        """The line with some keys replaced (removed where None), and some of its metadata; the rest as it was."""
        return changed_line(self.line, changes, metadata)


def parse_entry(line: str) -> TokenLevelRecord:
    """The record of a line; raises ``ValueError``, ``RecursionError`` or ``RagEvalError`` when it has not its shape."""
    return TokenLevelRecord.model_validate(parsed_line(line.removeprefix(BYTE_ORDER_MARK)))


def entry_or_fault(line: str) -> TokenLevelRecord | str:
    """The query of a line, or why it is none. Spans that do not stand are no obstacle: they are to be mended."""
    try:
        record = parse_entry(line)
    except (ValueError, RecursionError, RagEvalError) as error:
        return line_faults(error)[0]
    return record if record.query.strip() else "the query is empty"


def is_header(line: str) -> bool:
    """Whether a line is the one that names the format."""
    try:
        data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "format" in data


def _fault(span: SpanLine, documents: DocumentFolder) -> str | None:
    seen = documents.get(span.doc_id)
    return span_fault(span, None if seen is None else seen.document)
