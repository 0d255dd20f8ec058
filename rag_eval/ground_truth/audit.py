"""All that can be said about a ground-truth file and its corpus: what is wrong, and what to know of the rest.

A *fault* makes the truth unusable: a line that cannot be read, a query without truth, an unknown document, a span its
document denies. A *remark* does not, but a person should look: a question asked twice, a span given twice, spans that
overlap, truth text that occurs at more than one place, so that the right content at another place counts as a miss.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import preview
from rag_eval.ground_truth.check import span_fault
from rag_eval.ground_truth.files import TruthLine, truth_lines
from rag_eval.ground_truth.records import ChunkLevelRecord, SpanLine, TokenLevelRecord
from rag_eval.metrics.intervals import merge_places
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId, EvaluationType

Words = NDArray[np.uint64]

BATCH_CHARACTERS = 1 << 21
LONGEST_WINDOW = 32
BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
INVERSE = pow(BASE, -1, 1 << 64)
TABLE_BITS = 20


@dataclass(frozen=True, slots=True)
class _Needles:
    """The texts whose beginning is hashed over windows of one size, by that hash."""

    window: int
    by_head: dict[int, list[tuple[str, int]]]

    @property
    def heads(self) -> Words:
        return np.array(sorted(self.by_head), dtype=np.uint64)


def count_occurrences(texts: Iterable[str], documents: Iterable[Document]) -> dict[str, dict[DocumentId, int]]:
    """For each text in how many places it begins, by document; overlapping places count, absent documents are left out.

    An empty text occurs nowhere.
    """
    found: dict[str, dict[DocumentId, int]] = {text: {} for text in texts}
    longest = max(map(len, found), default=0)
    if longest == 0:
        return found
    powers = _powers(BASE, max(longest, LONGEST_WINDOW))
    needles = _needles([text for text in found if text], powers)
    for batch in _batches(documents):
        _count_in_batch(batch, needles, found)
    return found


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        if batch and size + len(document.content) > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += len(document.content)
    if batch:
        yield batch


def _needles(texts: Sequence[str], powers: Words) -> list[_Needles]:
    by_window: dict[int, _Needles] = {}
    for text in texts:
        window = 1 << (min(len(text), LONGEST_WINDOW).bit_length() - 1)
        weighted = _codes(text) * powers[: len(text)]
        head, whole = int(weighted[:window].sum()), int(weighted.sum())
        needles = by_window.setdefault(window, _Needles(window, {}))
        needles.by_head.setdefault(head, []).append((text, whole))
    return list(by_window.values())


def _count_in_batch(
    batch: Sequence[Document], needles: Sequence[_Needles], found: dict[str, dict[DocumentId, int]]
) -> None:
    joined = "".join(document.content for document in batch)
    if not joined:
        return
    ends = np.cumsum([len(document.content) for document in batch])
    sums = np.zeros(len(joined) + 1, dtype=np.uint64)
    np.cumsum(_codes(joined) * _powers(BASE, len(joined)), out=sums[1:])
    inverses = _powers(INVERSE, len(joined))
    for group in needles:
        places, heads = _head_matches(sums, inverses, group)
        borders = np.flatnonzero(np.diff(heads)) + 1
        for same in np.split(np.arange(len(places)), borders) if len(places) else []:
            for text, whole in group.by_head[int(heads[same[0]])]:
                at = places[same]
                at = at[at + len(text) <= len(joined)]
                at = at[(sums[at + len(text)] - sums[at]) * inverses[at] == np.uint64(whole)]
                owners = np.searchsorted(ends, at, side="right")
                at, owners = at[at + len(text) <= ends[owners]], owners[at + len(text) <= ends[owners]]
                for place, owner in zip(at.tolist(), owners.tolist(), strict=True):
                    if joined.startswith(text, place):
                        counts, doc_id = found[text], batch[owner].id
                        counts[doc_id] = counts.get(doc_id, 0) + 1


def _head_matches(sums: Words, inverses: Words, needles: _Needles) -> tuple[NDArray[np.int64], Words]:
    """The places where a text may begin and the hash of the window there, sorted by that hash, then by place."""
    places = len(sums) - needles.window
    if places <= 0:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    hashes = (sums[needles.window :] - sums[:places]) * inverses[:places]
    wanted = needles.heads
    table = np.zeros(1 << TABLE_BITS, dtype=bool)
    shift = np.uint64(64 - TABLE_BITS)
    table[wanted >> shift] = True
    candidates = np.flatnonzero(table[hashes >> shift])
    candidates = candidates[np.isin(hashes[candidates], wanted)]
    order = np.argsort(hashes[candidates], kind="stable")
    return candidates[order], hashes[candidates[order]]


def _codes(text: str) -> Words:
    # One more than the code point: a run of NULs must not hash like nothing.
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64) + np.uint64(1)


def _powers(base: int, count: int) -> Words:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Coverage:
    """A document, how many queries and spans ask about it, and how many of its characters answer one of them."""

    doc_id: DocumentId
    characters: int
    queries: int
    spans: int
    truth_characters: int

    @property
    def share(self) -> float:
        """The share of the document that is truth, each character counted once; 0 for an empty document."""
        return self.truth_characters / self.characters if self.characters else 0.0


def coverage_of(spans: Sequence[tuple[int, DocumentId, int, int]], corpus: Corpus) -> list[Coverage]:
    """The coverage of every document, in the corpus's order, from valid spans as (query, document, start, end)."""
    merged = merge_places((doc_id, start, end) for _, doc_id, start, end in spans)
    queries: dict[DocumentId, set[int]] = {}
    counts: dict[DocumentId, int] = {}
    for query, doc_id, _, _ in spans:
        queries.setdefault(doc_id, set()).add(query)
        counts[doc_id] = counts.get(doc_id, 0) + 1
    return [
        Coverage(
            document.id,
            len(document.content),
            len(queries.get(document.id, ())),
            counts.get(document.id, 0),
            sum(end - start for start, end in merged.get(document.id, [])),
        )
        for document in corpus
    ]


FaultKind = Literal["line", "unknown document", "span"]
RemarkKind = Literal[
    "question asked twice", "answer given twice", "spans overlap", "occurs more than once", "no chunker"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: its kind, the line and the query it is about, and a sentence."""

    kind: FaultKind | RemarkKind
    line: int
    query_id: str | None
    query: str | None
    doc_id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class TruthAudit:
    """What was found in a ground-truth file."""

    evaluation_type: EvaluationType
    queries: int
    unanswerable: int
    answers: int
    """Spans, or chunk ids."""
    valid_answers: int
    faults: Sequence[Finding]
    remarks: Sequence[Finding]
    coverage: Sequence[Coverage]
    """For each document how much truth it holds; none for chunk-level truth, which names no documents."""
    truth_characters: int
    repeated_characters: int
    """Of ``truth_characters``, the sum over the valid spans, how many belong to texts that occur more than once."""

    @property
    def is_valid(self) -> bool:
        """Whether nothing makes the truth unusable."""
        return not self.faults

    @property
    def repeated(self) -> int:
        """How many valid spans have a text that occurs at more than one place of the corpus."""
        return sum(remark.kind == "occurs more than once" for remark in self.remarks)

    @property
    def repeated_share(self) -> float:
        """The share of the truth's characters in such spans; 0 without truth."""
        return self.repeated_characters / self.truth_characters if self.truth_characters else 0.0


def audit_token_level(text: str, corpus: Corpus) -> TruthAudit:
    """Audit the text of a token-level file; nothing is raised for what is wrong with it."""
    documents = corpus.by_id()
    lines = list(truth_lines(text, TokenLevelRecord))
    faults = [*_line_faults(lines)]
    valid: list[tuple[TruthLine[TokenLevelRecord], SpanLine]] = []
    for line in lines:
        for span in line.record.relevant_spans if line.record else []:
            document = documents.get(DocumentId(span.doc_id))
            fault = span_fault(span, document)
            if fault is None:
                valid.append((line, span))
            else:
                kind: FaultKind = "unknown document" if document is None else "span"
                faults.append(_finding(kind, line, fault, span.doc_id))
    counts = count_occurrences({span.text for _, span in valid}, corpus)
    remarks = [*_asked_twice(lines), *_overlaps(lines)]
    remarks += [_repeated(line, span, counts[span.text]) for line, span in valid if sum(counts[span.text].values()) > 1]
    return TruthAudit(
        evaluation_type="token-level",
        queries=sum(line.record is not None for line in lines),
        unanswerable=sum(line.record is not None and line.record.unanswerable for line in lines),
        answers=sum(len(line.record.relevant_spans) for line in lines if line.record),
        valid_answers=len(valid),
        faults=sorted(faults, key=lambda finding: finding.line),
        remarks=sorted(remarks, key=lambda finding: finding.line),
        coverage=coverage_of(
            [(line.number, DocumentId(span.doc_id), span.start, span.end) for line, span in valid], corpus
        ),
        truth_characters=sum(len(span.text) for _, span in valid),
        repeated_characters=sum(len(span.text) for _, span in valid if sum(counts[span.text].values()) > 1),
    )


def audit_chunk_level(text: str) -> TruthAudit:
    """Audit the text of a chunk-level file by itself: only a run with its chunker can say whether its ids are true."""
    lines = list(truth_lines(text, ChunkLevelRecord))
    records = [line.record for line in lines if line.record]
    remarks = [*_asked_twice(lines)]
    for line in lines:
        ids = line.record.relevant_chunk_ids if line.record else []
        for chunk_id in sorted({chunk_id for chunk_id in ids if ids.count(chunk_id) > 1}):
            remarks.append(_finding("answer given twice", line, f"{chunk_id!r} is given twice: once is enough"))
        if ids and line.record and not isinstance(line.record.metadata.get("chunker"), str):
            remarks.append(_finding("no chunker", line, 'the chunker is not named: add it as metadata "chunker"'))
    answers = sum(len(record.relevant_chunk_ids) for record in records)
    return TruthAudit(
        evaluation_type="chunk-level",
        queries=len(records),
        unanswerable=sum(record.unanswerable for record in records),
        answers=answers,
        valid_answers=answers,
        faults=[*_line_faults(lines)],
        remarks=sorted(remarks, key=lambda finding: finding.line),
        coverage=[],
        truth_characters=0,
        repeated_characters=0,
    )


AnyLine = TruthLine[TokenLevelRecord] | TruthLine[ChunkLevelRecord]


def _line_faults(lines: Sequence[AnyLine]) -> Iterator[Finding]:
    if not lines:
        yield Finding("line", 1, None, None, None, "the file holds no query: write one a line")
    for line in lines:
        record = line.record
        # The numbers of a span are judged with its document at hand, which tells more.
        judged = {s.fault() for s in record.relevant_spans} if isinstance(record, TokenLevelRecord) else set()
        for fault in line.faults:
            if fault not in judged:
                yield _finding("line", line, fault)


def _asked_twice(lines: Sequence[AnyLine]) -> Iterator[Finding]:
    """Questions that differ at most in case and spacing."""
    first: dict[str, AnyLine] = {}
    for line in lines:
        if line.record is None:
            continue
        earlier = first.setdefault(" ".join(line.record.query.casefold().split()), line)
        if earlier is not line:
            yield _finding(
                "question asked twice",
                line,
                f"line {earlier.number} asks the same: put what is relevant to both into one of them",
            )


def _overlaps(lines: Sequence[TruthLine[TokenLevelRecord]]) -> Iterator[Finding]:
    for line in lines:
        spans = sorted(line.record.relevant_spans, key=lambda s: (s.doc_id, s.start, s.end)) if line.record else []
        reach: SpanLine | None = None
        for span in spans:
            if reach is not None and reach.doc_id == span.doc_id and span.start < reach.end:
                same = (reach.start, reach.end) == (span.start, span.end)
                yield _finding(
                    "answer given twice" if same else "spans overlap",
                    line,
                    f"[{span.start}, {span.end}) of {span.doc_id!r} is given twice: once is enough"
                    if same
                    else f"[{reach.start}, {reach.end}) and [{span.start}, {span.end}) of {span.doc_id!r} overlap: "
                    "their characters count once",
                    span.doc_id,
                )
            if reach is None or reach.doc_id != span.doc_id or span.end > reach.end:
                reach = span


def _repeated(line: AnyLine, span: SpanLine, counts: dict[DocumentId, int]) -> Finding:
    here = counts.get(DocumentId(span.doc_id), 0)
    elsewhere = [doc_id for doc_id in counts if doc_id != span.doc_id]
    places = [f"{here} times in {span.doc_id!r}"] if here > 1 else []
    places += [f"in {elsewhere[0]!r} too"] if len(elsewhere) == 1 else []
    places += [f"in {len(elsewhere)} other documents"] if len(elsewhere) > 1 else []
    message = f"{preview(span.text)} at [{span.start}, {span.end}) stands {' and '.join(places)}"
    return _finding("occurs more than once", line, message, span.doc_id)


def _finding(kind: FaultKind | RemarkKind, line: AnyLine, message: str, doc_id: str | None = None) -> Finding:
    query_id = line.record.query_id if line.record else None
    return Finding(kind, line.number, query_id, line.query, doc_id, message)
