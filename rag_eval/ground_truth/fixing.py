"""Correct a ground-truth file where its documents leave no doubt about what was meant.

Corrected are offsets, if the document has the text at one other place or in another unit; document ids with a path or
a typing error; spans without offsets; and spans and lines that are there twice. Other lines stay byte for byte.
"""

import json
from pathlib import Path

from rag_eval.errors import preview
from rag_eval.ground_truth.check import Finding, finding, span_fault
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.quotes import NAMES, KnownIds, Quotes
from rag_eval.ground_truth.records import AlternativeLine, JsonObject, TokenLevelLine, parsed_line
from rag_eval.ground_truth.truth_files import BYTE_ORDER_MARK, AnyLine, all_lines, changed_line, truth_type
from rag_eval.storage.files import read_text, write_atomically
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import fitting_unit


def fix_truth(path: str | Path, corpus: Corpus | None) -> list[Finding]:
    """Correct a file and return what was corrected; write nothing if nothing was.

    Raises:
        CorpusError: If the file cannot be read.
        ArtifactError: If the file cannot be written.
    """
    text = read_text(Path(path))
    fixed, found = fixed_truth(text.removeprefix(BYTE_ORDER_MARK), corpus)
    if found:
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        write_atomically(Path(path), (mark + fixed).encode("utf-8"))
    return found


def fixed_truth(text: str, corpus: Corpus | None) -> tuple[str, list[Finding]]:
    """Return the text of a file with its corrections, and what was corrected."""
    documents = corpus.by_id() if corpus else {}
    quotes = Quotes(lambda: documents)
    by_number = {line.number: line for line in all_lines(text, truth_type(text), quotes)}
    known, first_lines = KnownIds(documents), dict[str, int]()
    lines: list[str] = []
    findings: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        query = by_number.get(number)
        if query is None or query.record is None:
            lines.append(line)
            continue
        data = parsed_line(line)
        first = first_lines.setdefault(json.dumps({**data, "id": query.record.query_id}, sort_keys=True), number)
        if first != number:
            findings.append(finding("line", query, f"line {first} is the same: this one is removed"))
            continue
        spans, fixed = _fixed_spans(query, data.get("relevant_spans", []), documents, known)
        findings += fixed
        lines.append(changed_line(line, {"relevant_spans": spans}, {}) if fixed else line)
    return "\n".join(lines), findings


def _fixed_spans(
    line: AnyLine, written: list[JsonObject], documents: dict[DocumentId, Document], known: KnownIds
) -> tuple[list[JsonObject], list[Finding]]:
    """Return the spans of a line as they should be written, and what was corrected."""
    findings, kept = list[Finding](), list[JsonObject]()
    spans = line.record.relevant_spans if isinstance(line.record, TokenLevelLine) else []
    for span, record in zip(spans, written, strict=True):
        before = [record, *record.get("alternatives", [])]
        now = [_fixed_member(*pair, documents, known) for pair in zip(span.members, before, strict=True)]
        findings += [
            finding("span", line, f"{_named(old)} is now {_named(new)}", new["doc_id"])
            for old, new in zip(before, now, strict=True)
            if old != new
        ]
        fixed = {**now[0], "alternatives": now[1:]} if len(now) > 1 else now[0]
        if fixed in kept:
            sentence = f"{_named(fixed)} is given twice: one is removed"
            findings.append(finding("answer given twice", line, sentence, fixed["doc_id"]))
        else:
            kept.append(fixed)
    return kept, findings


def _named(written: JsonObject) -> str:
    name = repr(written["doc_id"])
    if "start" in written:
        return f"{name} [{written['start']}, {written['end']})"
    return ", ".join([name, *(f"{key} {preview(str(written[key]))}" for key in (*NAMES, "text") if key in written)])


def _fixed_member(
    member: AlternativeLine, written: JsonObject, documents: dict[DocumentId, Document], known: KnownIds
) -> JsonObject:
    """Return a span with the right document and place, if they are certain."""
    if "start" not in written:
        others = {key: value for key, value in written.items() if key not in ("text", *NAMES)}
        return {**others, "start": member.start, "end": member.end, "text": member.text}
    document = documents.get(DocumentId(member.doc_id))
    is_guess = False
    if document is None:
        name = known.path_inside(member.doc_id)
        is_guess = name is None
        name = known.similar(member.doc_id) if name is None else name
        document = documents.get(DocumentId(name)) if name is not None else None
    if document is None or (is_guess and not member.text):
        return written
    named = {**written, "doc_id": document.id}
    if span_fault(member, document) is None:
        return named
    content, text = document.content, member.text
    unit = fitting_unit(content, member.start, member.end, text) if text else None
    places = places_of(text, content, 2)
    if unit is not None:
        return {**named, "start": unit.start, "end": unit.end, "text": content[unit.start : unit.end]}
    if len(places) == 1 and not is_guess:  # not both the document and the place are guessed
        return {**named, "start": places[0], "end": places[0] + len(text)}
    return written
