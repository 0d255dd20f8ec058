"""What the page is told, as plain data. Offsets are code points; the page turns them into its own units."""

from typing import Any

from rag_eval.ground_truth.review.entries import Entry
from rag_eval.ground_truth.review.session import ReviewSession


def state(session: ReviewSession) -> dict[str, Any]:
    """The whole list: every query with its status, and the documents there are."""
    return {
        "file": session.name,
        "broken": session.broken,
        "documents": session.documents.ids,
        "queries": [row(session, query_id, entry) for query_id, entry in session.entries.items()],
    }


def row(session: ReviewSession, query_id: str, entry: Entry) -> dict[str, Any]:
    """A query as the list shows it."""
    record = entry.record
    return {
        "id": query_id,
        "text": record.query,
        "status": entry.status,
        "unanswerable": record.unanswerable,
        "spans": len(record.relevant_spans),
        "faulty": any(entry.span_faults(session.documents)) or not (record.relevant_spans or record.unanswerable),
    }


def query(session: ReviewSession, query_id: str, entry: Entry) -> dict[str, Any]:
    """A query with its spans, each with what is wrong with it."""
    record = entry.record
    faults = entry.span_faults(session.documents)
    return {
        "row": row(session, query_id, entry),
        "version": entry.version,
        "undo": session.can_undo,
        "metadata": {key: value for key, value in record.metadata.items() if key != "review"},
        "spans": [
            {"doc_id": span.doc_id, "start": span.start, "end": span.end, "text": span.text, "fault": fault}
            for span, fault in zip(record.relevant_spans, faults, strict=True)
        ],
    }


def document(session: ReviewSession, doc_id: str) -> dict[str, Any] | None:
    """A document's text; None when there is none of this id."""
    seen = session.documents.get(doc_id)
    # JSON, since a browser would drop a byte-order mark from plain text.
    return None if seen is None else {"id": doc_id, "text": seen.document.content, "digest": seen.digest}
