"""Check ground truth against its corpus: every span must be the text of its document.

``check_against_corpus`` raises on faults. An audit lists all faults, and remarks for a person to look at.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from rapidfuzz.distance import Prefix

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.folding import folded_words, places_of
from rag_eval.ground_truth.quotes import KnownIds, Quotes
from rag_eval.ground_truth.records import AlternativeLine, ChunkLevelLine, SpanLine, TokenLevelLine, query_name
from rag_eval.ground_truth.truth_files import AnyLine, ParsedLine, read_truth_text, truth_lines
from rag_eval.retrieval.tokenizers import LEAKAGE_KINDS, leakage, leakage_kind
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk, bounds_fault
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, TokenLevelGroundTruth, judged_at, judged_spans
from rag_eval.types.ids import DocumentId, EvaluationType, mixed_ids
from rag_eval.types.offsets import fitting_unit

SHOWN_BEFORE = 20
"""Number of characters shown before the first difference of two long texts."""
SHOWN_DOCUMENTS = 5
REANCHORING = "rag-eval truth reanchor carries spans over to documents that have changed"

AnySpan = CharacterSpan | AlternativeLine
"""A checked span, or one as written in a file."""


class _Fault(NamedTuple):
    item: TokenLevelGroundTruth
    doc_id: DocumentId | None
    sentence: str


def check_against_corpus(
    truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, source: str | Path | None = None
) -> list[TokenLevelGroundTruth]:
    """Check every span, and add missing texts.

    Args:
        truth: The ground truth.
        corpus: The documents.
        source: The file that the ground truth was read from, to name the line in errors.

    Returns:
        The ground truth with all texts. Judged passages whose text has changed are removed, and so are unjudged again.

    Raises:
        GroundTruthError: If a query has no span, or a span is not the text of its document; describes the first fault
            and counts the others.
    """
    documents, items = corpus.by_id(), list(truth)
    known, faults = KnownIds(documents), list[_Fault]()
    for item in items:
        if not item.relevant_spans and not item.unanswerable:
            faults.append(_Fault(item, None, "it has no relevant spans: add them, or declare the query unanswerable"))
        spans = (span for group in item.groups for span in group)
        found = ((span, span_fault(span, documents.get(span.doc_id), known)) for span in spans)
        faults += [_Fault(item, span.doc_id, sentence) for span, sentence in found if sentence is not None]
    if faults:
        raise GroundTruthError(_description(faults, source, documents))
    return [_completed(item, documents) for item in items]


def _completed(item: TokenLevelGroundTruth, documents: Mapping[DocumentId, Document]) -> TokenLevelGroundTruth:
    if judged := judged_spans(item.query):
        same = {span: span for span in judged if span_fault(span, documents.get(span.doc_id)) is None}
        item = replace(item, query=judged_at(item.query, same))
    if all(span.text for group in item.groups for span in group):
        return item

    def with_text(span: CharacterSpan) -> CharacterSpan:
        return span if span.text else documents[span.doc_id].span(span.start, span.end)

    return replace(
        item,
        relevant_spans=[with_text(span) for span in item.relevant_spans],
        alternatives={with_text(span): list(map(with_text, others)) for span, others in item.alternatives.items()},
        origins={with_text(span): origin for span, origin in item.origins.items()},
    )


def _description(faults: Sequence[_Fault], source: str | Path | None, documents: Mapping[DocumentId, Document]) -> str:
    item, _, sentence = faults[0]
    if len(faults) > 1:
        sentence += f"; {len(faults) - 1} more like it"
        names = sorted({fault.doc_id for fault in faults[1:] if fault.doc_id})
        if names:
            sentence += f" in {', '.join(repr(name) for name in names[:SHOWN_DOCUMENTS])}"
        if len(names) > SHOWN_DOCUMENTS:
            sentence += f" and {len(names) - SHOWN_DOCUMENTS} more documents"
        sentence += ", which rag-eval truth check lists"
    name = query_name(item.query.id, item.query.text)
    if source is None:
        return f"{name}: {sentence}"
    lines = truth_lines(read_truth_text(source), TokenLevelLine, Quotes(lambda: documents))
    number = next((line.number for line in lines if line.record and line.record.query_id == item.query.id), None)
    place = f"{source}, {name}" if number is None else f"{source}, line {number}, {name}"
    if any(fault.doc_id for fault in faults):
        sentence += f"; {REANCHORING}, and rag-eval run --reanchor does so for one run"
    return f"{place}: {sentence}"


def span_fault(span: AnySpan, document: Document | None, known: KnownIds | None = None) -> str | None:
    """Explain why a span is not the text of its document, and where the text is; None if the span is correct.

    ``document`` is None if it is not in the corpus; ``known`` are the ids of the corpus.
    """
    if not 0 <= span.start < span.end:
        return bounds_fault(span.doc_id, span.start, span.end) + _remedy(span, document, "; ")
    if document is None:
        return (known or KnownIds()).fault(span.doc_id)
    text = document.content[span.start : span.end]
    if text == span.text or (not span.text and len(text) == span.end - span.start):
        return None
    remedy = _remedy(span, document, ": ")
    if span.end > len(document.content):
        says = f"says {preview(span.text)} and " if span.text else ""
        return (
            f"the span [{span.start}, {span.end}) {says}reaches past the end of "
            f"{span.doc_id!r}, which has {len(document.content)} characters{remedy}"
        )
    has, says = contrasted(text, span.text)
    return f"{span.doc_id!r} has {has} at [{span.start}, {span.end}), the span says {says}{remedy}"


def _remedy(span: AnySpan, document: Document | None, before: str) -> str:
    if document is None or not span.text:
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


def contrasted(first: str, second: str) -> tuple[str, str]:
    """Quote two texts for a message, starting shortly before their first difference."""
    cut = Prefix.similarity(first, second) - SHOWN_BEFORE
    if cut <= 0:
        return preview(first), preview(second)
    return preview("…" + first[cut:]), preview("…" + second[cut:])


def check_chunker(truth: Sequence[ChunkLevelGroundTruth], chunker_name: str) -> None:
    """Raise ``GroundTruthError`` if the ground truth was made with another chunker."""
    for item in truth:
        if item.chunker is not None and item.chunker != chunker_name:
            raise GroundTruthError(
                f"the ground truth was made with {item.chunker} and this run uses {chunker_name}: chunk ids are "
                f"valid for one chunker only; run with that one, make new ground truth, or evaluate at token level"
            )


def check_chunk_ids(truth: Sequence[ChunkLevelGroundTruth], chunks: Iterable[Chunk | PositionAwareChunk]) -> None:
    """Raise ``GroundTruthError`` if the ground truth has ids of chunks that the corpus does not have."""
    known = {chunk.id for chunk in chunks}
    named = {chunk_id for item in truth for group in item.groups for chunk_id in group}
    unknown = sorted(named - known)
    if fault := mixed_ids(known, named):
        raise GroundTruthError(fault)
    if unknown:
        raise GroundTruthError(
            f"{len(unknown)} of the {len(named)} chunk ids in the ground truth are not among the {len(known)} chunks "
            f"of this run, first {unknown[0]}: it was made with other documents or another chunker"
        )


FaultKind = Literal["line", "unknown document", "span"]
RemarkKind = Literal[
    "question asked twice",
    "answer given twice",
    "spans overlap",
    "quoted in other words",
    "no chunker",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault or a remark about a line of a ground-truth file."""

    kind: FaultKind | RemarkKind
    line: int
    query_id: str | None
    query: str | None
    doc_id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class TruthAudit:
    """The faults, remarks and counts of a ground-truth file."""

    evaluation_type: EvaluationType
    queries: int
    unanswerable: int
    answers: int
    """Number of spans or chunk ids, including alternatives."""
    valid_answers: int
    faults: Sequence[Finding]
    remarks: Sequence[Finding]
    leakage: Mapping[str, int] = field(default_factory=dict)
    """Number of questions by the share of their words that is copied from their passages."""

    @property
    def is_valid(self) -> bool:
        return not self.faults


def audit_token_level(text: str, corpus: Corpus) -> TruthAudit:
    """Audit the text of a token-level file."""
    documents = corpus.by_id()
    lines, remarks, quotes = list[ParsedLine[TokenLevelLine]](), list[Finding](), Quotes(lambda: documents)
    for line in truth_lines(text, TokenLevelLine, quotes):
        lines.append(line)
        remarks += [finding("quoted in other words", line, sentence) for sentence in quotes.differing]
        quotes.differing.clear()
    faults, known = list(_line_faults(lines)), KnownIds(documents)
    passages: dict[int, list[str]] = {}
    for line, span in _members(lines):
        document = documents.get(DocumentId(span.doc_id))
        if (fault := span_fault(span, document, known)) is not None:
            faults.append(finding("span" if document else "unknown document", line, fault, span.doc_id))
        elif document:
            passages.setdefault(line.number, []).append(document.content[span.start : span.end])
    shares = Counter(
        leakage_kind(leakage(line.query or "", *passages[line.number])) for line in lines if line.number in passages
    )
    records = [line.record for line in lines if line.record]
    return TruthAudit(
        evaluation_type="token-level",
        queries=len(records),
        unanswerable=sum(record.unanswerable for record in records),
        answers=len(list(_members(lines))),
        valid_answers=sum(map(len, passages.values())),
        faults=sorted(faults, key=lambda finding: finding.line),
        remarks=sorted([*remarks, *_asked_twice(lines), *_overlaps(lines)], key=lambda finding: finding.line),
        leakage={kind: shares[kind] for kind in LEAKAGE_KINDS},
    )


def _members(
    lines: Iterable[ParsedLine[TokenLevelLine]],
) -> Iterator[tuple[ParsedLine[TokenLevelLine], AlternativeLine]]:
    """Yield all spans and alternatives with their line numbers."""
    for line in lines:
        for span in line.record.relevant_spans if line.record else []:
            yield from ((line, member) for member in span.members)


def audit_chunk_level(text: str) -> TruthAudit:
    """Audit the text of a chunk-level file; only a run with its chunker can check the ids."""
    lines = list(truth_lines(text, ChunkLevelLine, Quotes(None)))
    records = [line.record for line in lines if line.record]
    remarks = [*_asked_twice(lines), *_chunk_remarks(lines)]
    answers = sum(len(record.relevant_chunk_ids) + sum(map(len, record.alternatives.values())) for record in records)
    return TruthAudit(
        evaluation_type="chunk-level",
        queries=len(records),
        unanswerable=sum(record.unanswerable for record in records),
        answers=answers,
        valid_answers=answers,
        faults=[*_line_faults(lines)],
        remarks=sorted(remarks, key=lambda finding: finding.line),
    )


def _chunk_remarks(lines: Sequence[ParsedLine[ChunkLevelLine]]) -> Iterator[Finding]:
    for line in lines:
        counts = Counter(line.record.relevant_chunk_ids if line.record else [])
        for chunk_id in sorted(chunk_id for chunk_id, count in counts.items() if count > 1):
            yield finding("answer given twice", line, f"{chunk_id!r} is given twice: once is enough")
        if line.record and counts and not isinstance(line.record.metadata.get("chunker"), str):
            yield finding("no chunker", line, 'the chunker is not named: add it as metadata "chunker"')


def _line_faults(lines: Sequence[AnyLine]) -> Iterator[Finding]:
    if not lines:
        yield Finding("line", 1, None, None, None, "the file has no queries: write one per line")
    for line in lines:
        record = line.record
        # audit_token_level reports impossible offsets, together with the text of the document.
        spans = record.relevant_spans if isinstance(record, TokenLevelLine) else []
        judged = {member.fault() for span in spans for member in span.members}
        for fault in line.faults:
            if fault not in judged:
                yield finding("line", line, fault)


def _asked_twice(lines: Sequence[AnyLine]) -> Iterator[Finding]:
    """Remark on questions that differ only in case and spacing."""
    first: dict[str, AnyLine] = {}
    for line in lines:
        if line.record is None:
            continue
        earlier = first.setdefault(folded_words(line.record.query), line)
        # A repeated id is already a fault.
        if earlier is not line and earlier.record and earlier.record.query_id != line.record.query_id:
            yield finding(
                "question asked twice",
                line,
                f"line {earlier.number} asks the same question: merge the two",
            )


def _overlaps(lines: Sequence[ParsedLine[TokenLevelLine]]) -> Iterator[Finding]:
    for line in lines:
        spans = sorted(line.record.relevant_spans, key=lambda span: span.place) if line.record else []
        reach: SpanLine | None = None
        for span in spans:
            if reach is None or reach.doc_id != span.doc_id or span.start >= reach.end:
                reach = span
                continue
            here = f"[{span.start}, {span.end})"
            if reach.place == span.place:
                sentence = f"{here} of {span.doc_id!r} is given twice: once is enough"
                yield finding("answer given twice", line, sentence, span.doc_id)
            else:
                first = f"[{reach.start}, {reach.end}) and {here} of {span.doc_id!r}"
                yield finding("spans overlap", line, f"{first} overlap: their characters count once", span.doc_id)
            reach = max(reach, span, key=lambda span: span.end)


def finding(kind: FaultKind | RemarkKind, line: AnyLine, message: str, doc_id: str | None = None) -> Finding:
    """Return a finding about a line of a file."""
    query_id = line.record.query_id if line.record else None
    return Finding(kind, line.number, query_id, line.query, doc_id, message)
