"""Carrying ground truth over to a corpus that has changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rag_eval.ground_truth.check import places_of
from rag_eval.ground_truth.drift.carrying import Carried, Carrier
from rag_eval.ground_truth.drift.outcomes import (
    DocumentOutcome,
    ReanchorReport,
    SpanOutcome,
    Way,
    counted_statuses,
)
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ground_truth import TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId
from rag_eval.types.span import CharacterSpan

OldTexts = Mapping[DocumentId, Sequence[str]]
"""Earlier versions of documents, the newest first."""


def reanchor(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, old: OldTexts | None = None) -> ReanchorReport:
    """The truth with every span where its text is in the corpus now.

    A document that bears out all its spans is left alone. Else each span is carried through the difference between
    the document and the version in which the span fits, of those in ``old`` the one that fits the most. A span that
    fits no version stays where its text stands at its place, goes where the document has its text exactly once, and
    is lost otherwise: nothing is guessed.
    """
    items, documents = list(truth), corpus.by_id()
    spans: dict[DocumentId, list[CharacterSpan]] = {}
    for item in items:
        for span in item.relevant_spans:
            spans.setdefault(span.doc_id, []).append(span)
    ways: dict[DocumentId, Way] = {}
    carried: dict[CharacterSpan, Carried] = {}
    for doc_id, found in spans.items():
        versions = (old or {}).get(doc_id, ())
        ways[doc_id] = _carry_all(list(dict.fromkeys(found)), documents.get(doc_id), versions, carried)
    outcomes = [[_outcome(item, span, carried[span], documents) for span in item.relevant_spans] for item in items]
    renewed = [
        replace(item, relevant_spans=[outcome.new for outcome in own if outcome.new is not None])
        for item, own in zip(items, outcomes, strict=True)
    ]
    every = [outcome for own in outcomes for outcome in own]
    return ReanchorReport(
        truth=[item for item in renewed if item.relevant_spans or item.unanswerable],
        unanswered=[
            item for item, now in zip(items, renewed, strict=True) if not now.relevant_spans and not now.unanswerable
        ],
        documents=[
            DocumentOutcome(doc_id, way, counted_statuses([one for one in every if one.old.doc_id == doc_id]))
            for doc_id, way in ways.items()
        ],
        spans=every,
    )


def documents_that_no_longer_match(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus) -> dict[DocumentId, int]:
    """The documents that are gone or have other text where the truth has spans, each with how many spans."""
    documents = corpus.by_id()
    found: dict[DocumentId, int] = {}
    for item in truth:
        for span in item.relevant_spans:
            document = documents.get(span.doc_id)
            if document is None or not _fits(span, document.content):
                found[span.doc_id] = found.get(span.doc_id, 0) + 1
    return found


def _carry_all(
    spans: Sequence[CharacterSpan],
    document: Document | None,
    versions: Sequence[str],
    carried: dict[CharacterSpan, Carried],
) -> Way:
    """Find out what becomes of the spans of one document; gives the way it was found out."""
    if document is None:
        carried.update((span, Carried("lost", None, "document-gone")) for span in spans)
        return "gone"
    content = document.content
    if all(_fits(span, content) for span in spans):
        carried.update((span, Carried("kept", (span.start, span.end))) for span in spans)
        return "unchanged"
    way: Way = "text"
    # Spans may have been made on different versions, the present one among them.
    left, candidates = list(spans), [*versions, content]
    while left and candidates:
        fitting = [[span for span in left if _fits(span, version)] for version in candidates]
        best = max(range(len(candidates)), key=lambda number: len(fitting[number]))
        version, found = candidates.pop(best), set(fitting[best])
        if not found:
            break
        carrier = Carrier(version, content)
        carried.update((span, carrier.carry(span.start, span.end)) for span in found)
        left = [span for span in left if span not in found]
        way = "diff" if version != content else way
    carried.update((span, _by_text(span, content)) for span in left)
    return way


def _by_text(span: CharacterSpan, content: str) -> Carried:
    places = places_of(span.text, content)
    if len(places) == 1:
        return Carried("moved", (places[0], places[0] + len(span.text)))
    return Carried("lost", None, "ambiguous" if places else "not-found")


def _fits(span: CharacterSpan, content: str) -> bool:
    return content[span.start : span.end] == span.text


def _outcome(
    item: TokenLevelGroundTruth, span: CharacterSpan, carried: Carried, documents: Mapping[DocumentId, Document]
) -> SpanOutcome:
    new = documents[span.doc_id].span(*carried.place) if carried.place is not None else None
    return SpanOutcome(item.query.id, span, carried.status, new, carried.reason)
