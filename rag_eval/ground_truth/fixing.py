"""Correct a ground-truth file where it and its documents leave no doubt about what was meant.

That is a span whose text is at one other place of its document, whose offsets count another unit, or whose document is
named by a path or with a typing error; a span that is quoted or given by its page, which gets its numbers; a span or a
whole line that is there twice; and the version of the format. The rest of a file stays byte for byte.
"""

import json
from pathlib import Path

from rag_eval.errors import preview
from rag_eval.ground_truth.check import Finding, finding, span_fault
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.quotes import NAMES, KnownIds, Quotes
from rag_eval.ground_truth.records import AlternativeLine, ChunkLevelLine, JsonObject, TokenLevelLine, parsed_line
from rag_eval.ground_truth.truth_files import BYTE_ORDER_MARK, ParsedLine, changed_line, truth_lines, truth_type
from rag_eval.storage.files import read_text, write_atomically
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import fitting_unit

AnyLine = ParsedLine[TokenLevelLine] | ParsedLine[ChunkLevelLine]


def fix_truth(path: str | Path, corpus: Corpus | None) -> list[Finding]:
    """Correct a file, whole or not at all, and return what was corrected; nothing is written where nothing was.

    Raises ``CorpusError`` when the file cannot be read, ``ArtifactError`` when it cannot be written.
    """
    text = read_text(Path(path))
    fixed, found = fixed_truth(text.removeprefix(BYTE_ORDER_MARK), corpus)
    if found:
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        write_atomically(Path(path), (mark + fixed).encode("utf-8"))
    return found


def fixed_truth(text: str, corpus: Corpus | None) -> tuple[str, list[Finding]]:
    """Return the text of a file with what can be corrected, and what that was, in the order of its lines."""
    documents = corpus.by_id() if corpus else {}
    quotes = Quotes(lambda: documents)
    parsed: list[AnyLine] = (
        list(truth_lines(text, ChunkLevelLine, quotes))
        if truth_type(text) == "chunk-level"
        else list(truth_lines(text, TokenLevelLine, quotes))
    )
    by_number = {line.number: line for line in parsed}
    is_grouped = any(line.record.has_groups for line in parsed if line.record)
    known, seen = KnownIds(documents), dict[str, int]()
    lines: list[str] = []
    found: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        read = by_number.get(number)
        if read is None or read.record is None:
            is_header = read is None and is_grouped and bool(line.strip())
            if is_header and parsed_line(line).get("version") == 1:
                line = changed_line(line, {"version": 2}, {})
                found.append(Finding("line", number, None, None, None, "the version of the format is 2 now"))
            lines.append(line)
            continue
        data = parsed_line(line)
        first = seen.setdefault(json.dumps({**data, "id": read.record.query_id}, sort_keys=True), number)
        if first != number:
            found.append(finding("line", read, f"line {first} is the same: this one is removed"))
            continue
        fixed, changes = _fixed_spans(read, data, documents, known)
        found += fixed
        lines.append(changed_line(line, changes, {}) if fixed else line)
    return "\n".join(lines), found


def _fixed_spans(
    line: AnyLine, data: JsonObject, documents: dict[DocumentId, Document], known: KnownIds
) -> tuple[list[Finding], JsonObject]:
    """Return what is corrected in the spans of a line, and the spans as they are written then."""
    if not isinstance(line.record, TokenLevelLine):
        return [], {}
    key = "relevant_spans" if "relevant_spans" in data else "relevantSpans"
    found, kept = [], []
    for span, written in zip(line.record.relevant_spans, data.get(key, []), strict=True):
        given = [written, *written.get("alternatives", [])]
        pairs = zip(span.members, given, strict=True)
        members = [_fixed_member(member, one, documents, known) for member, one in pairs]
        for before, now in zip(given, members, strict=True):
            if now != before:
                doc_id = now.get("doc_id", now.get("docId"))
                told = f"{_named(before)} is now {_named(now)}"
                found.append(finding("span", line, told, doc_id))
        fixed = {**members[0], "alternatives": members[1:]} if len(members) > 1 else members[0]
        if fixed in kept:
            told = f"{_named(fixed)} is given twice: one is removed"
            found.append(finding("answer given twice", line, told, fixed.get("doc_id", fixed.get("docId"))))
        else:
            kept.append(fixed)
    return found, {key: kept}


def _named(written: JsonObject) -> str:
    name = repr(written.get("doc_id", written.get("docId")))
    if "start" in written:
        return f"{name} [{written['start']}, {written['end']})"
    return ", ".join([name, *(f"{key} {preview(str(written[key]))}" for key in (*NAMES, "text") if key in written)])


def _fixed_member(
    member: AlternativeLine, written: JsonObject, documents: dict[DocumentId, Document], known: KnownIds
) -> JsonObject:
    """Return a span as it is written, with the document and the place that are meant if that is sure."""
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
    named = {**written, "docId" if "docId" in written else "doc_id": document.id}
    if span_fault(member, document) is None:
        return named
    content, text = document.content, member.text
    unit = fitting_unit(content, member.start, member.end, text) if text else None
    places = places_of(text, content, 2)
    if unit is not None:
        return {**named, "start": unit.start, "end": unit.end, "text": content[unit.start : unit.end]}
    if len(places) == 1 and not is_guess:  # both the document and the place would be guessed
        return {**named, "start": places[0], "end": places[0] + len(text)}
    return written
