"""Drift: documents change, and the spans of ground truth are carried over to the new text."""

from rag_eval.ground_truth.drift.checking import check_still_matches
from rag_eval.ground_truth.drift.keeping import check_not_empty, keep_reanchored
from rag_eval.ground_truth.drift.outcomes import DocumentOutcome, LostReason, ReanchorReport, SpanOutcome, Status, Way
from rag_eval.ground_truth.drift.reanchoring import OldTexts, documents_that_no_longer_match, reanchor

__all__ = [
    "DocumentOutcome",
    "LostReason",
    "OldTexts",
    "ReanchorReport",
    "SpanOutcome",
    "Status",
    "Way",
    "check_not_empty",
    "check_still_matches",
    "documents_that_no_longer_match",
    "keep_reanchored",
    "reanchor",
]
