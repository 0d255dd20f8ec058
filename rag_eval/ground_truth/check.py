"""Check ground truth against the corpus: every span must be the text that its document has there."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.files import read_truth_text, truth_lines
from rag_eval.ground_truth.records import TokenLevelLine, query_name
from rag_eval.types.chunks import Chunk, PositionAwareChunk, bounds_fault
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import fitting_unit

SHOWN_BEFORE = 20
"""How much of two long texts is shown before the first character in which they differ."""
SHOWN_DOCUMENTS = 5
MANY_PLACES = 1000


class SpanLike(Protocol):
    """Anything that says which text is where, a span that was checked or one still to be."""

    @property
    def doc_id(self) -> str:
        """The document's id."""

    @property
    def start(self) -> int:
        """The first code point."""

    @property
    def end(self) -> int:
        """The code point after the last."""

    @property
    def text(self) -> str:
        """The text that should be there."""


def check_against_corpus(
    truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, source: str | Path | None = None
) -> None:
    """Raise ``GroundTruthError`` on a query without truth, an unknown document, or a span of other text.

    The error is about the first and says how many more there are and in which documents; with ``source``, the file
    the truth was read from, it names the line.
    """
    documents = corpus.by_id()
    first: tuple[TokenLevelGroundTruth, str] | None = None
    others: list[str] = []
    for item in truth:
        for doc_id, fault in _faults(item, documents):
            if first is None:
                first = item, fault
            else:
                others.append(doc_id)
    if first is None:
        return
    item, fault = first
    raise GroundTruthError(f"{_place(item, source)}: {fault}{_and_others(others)}")


def span_fault(span: SpanLike, document: Document | None) -> str | None:
    """Say why a span is not its document's text, with both texts and where the text really is; None when it is.

    ``document`` is the one with the span's ``doc_id``, None where the corpus has none.
    """
    if not 0 <= span.start < span.end:
        return bounds_fault(span.doc_id, span.start, span.end) + _remedy(span, document, "; ")
    if document is None:
        return f"it has a span in {span.doc_id!r}, which is not in the corpus: check the corpus folder and its pattern"
    found = document.content[span.start : span.end]
    if found == span.text:
        return None
    if span.end > len(document.content):
        return (
            f"the span [{span.start}, {span.end}) says {preview(span.text)} and reaches past the end of "
            f"{span.doc_id!r}, which has {len(document.content)} characters{_remedy(span, document, ': ')}"
        )
    has, says = contrasted(found, span.text)
    return (
        f"{span.doc_id!r} has {has} at [{span.start}, {span.end}), the span says {says}{_remedy(span, document, ': ')}"
    )


def places_of(text: str, content: str, most: float = MANY_PLACES) -> list[int]:
    """Return where a text begins in a document, overlapping ones too: the first ``most``; none for an empty text."""
    places: list[int] = []
    place = content.find(text) if text else -1
    while place >= 0 and len(places) < most:
        places.append(place)
        place = content.find(text, place + 1)
    return places


def _remedy(span: SpanLike, document: Document | None, before: str) -> str:
    if document is None:
        return ""
    content = document.content
    fitting = fitting_unit(content, span.start, span.end, span.text)
    if fitting is not None:
        return f"{before}{fitting}"
    places = places_of(span.text, content)
    if not places:
        return f"{before}that text is nowhere in the document, so the document or the span has changed"
    nearest = min(places, key=lambda place: abs(place - span.start))
    others = len(places) - 1
    more = f" and at {others} more place{'s' if others > 1 else ''}" if others else ""
    return f"{before}the text is at [{nearest}, {nearest + len(span.text)}){more}"


def contrasted(found: str, said: str) -> tuple[str, str]:
    """Quote both texts for a message, from shortly before the first character in which they differ."""
    pairs = enumerate(zip(found, said, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), min(len(found), len(said)))
    cut = max(0, same - SHOWN_BEFORE)
    if cut == 0:
        return preview(found), preview(said)
    return preview("…" + found[cut:]), preview("…" + said[cut:])


def _faults(item: TokenLevelGroundTruth, documents: dict[DocumentId, Document]) -> list[tuple[str, str]]:
    if not item.relevant_spans and not item.unanswerable:
        return [("", "it has no relevant spans: add them, or declare the query unanswerable")]
    members = (span for group in item.groups for span in group)
    checked = ((span.doc_id, span_fault(span, documents.get(span.doc_id))) for span in members)
    return [(doc_id, fault) for doc_id, fault in checked if fault is not None]


def _place(item: TokenLevelGroundTruth, source: str | Path | None) -> str:
    name = query_name(item.query.id, item.query.text)
    if source is None:
        return name
    # The lines are wanted only here, so they are not carried along with truth that is in order.
    lines = truth_lines(read_truth_text(source), TokenLevelLine)
    number = next((line.number for line in lines if line.record and line.record.query_id == item.query.id), None)
    return f"{source}, {name}" if number is None else f"{source}, line {number}, {name}"


def _and_others(doc_ids: list[str]) -> str:
    if not doc_ids:
        return ""
    names = sorted({doc_id for doc_id in doc_ids if doc_id})
    listed = ", ".join(repr(name) for name in names[:SHOWN_DOCUMENTS])
    more = f" and {len(names) - SHOWN_DOCUMENTS} more documents" if len(names) > SHOWN_DOCUMENTS else ""
    where = f" in {listed}{more}" if names else ""
    return f"; {len(doc_ids)} more like it{where}, which rag-eval truth check lists"


def check_chunker(truth: Sequence[ChunkLevelGroundTruth], chunker_name: str) -> None:
    """Raise ``GroundTruthError``, naming both, when the truth was made with another chunker."""
    for item in truth:
        if item.chunker is not None and item.chunker != chunker_name:
            raise GroundTruthError(
                f"the ground truth was made with {item.chunker} and this run uses {chunker_name}: chunk ids are true "
                "for one chunker only; run with that one, make new ground truth, or evaluate at token level"
            )


def check_chunk_ids(truth: Sequence[ChunkLevelGroundTruth], chunks: Iterable[Chunk | PositionAwareChunk]) -> None:
    """Raise ``GroundTruthError``, with the count, when the truth names chunks that the corpus does not have."""
    known = {chunk.id for chunk in chunks}
    named = {chunk_id for item in truth for chunk_id in item.relevant_chunk_ids}
    unknown = sorted(named - known)
    if unknown:
        raise GroundTruthError(
            f"{len(unknown)} of the {len(named)} chunk ids in the ground truth are not among the {len(known)} chunks "
            f"of this run, first {unknown[0]}: the documents or the chunker are not those that it was made with"
        )
