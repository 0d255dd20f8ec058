"""Correct a ground-truth file where the correction is certain.

Corrects offsets, if the document has the text at one other place or in another unit; document ids with a path; and
spans without offsets. Other lines stay unchanged, byte for byte.
"""

from pathlib import Path

from rag_eval.errors import preview
from rag_eval.ground_truth.check import Finding, finding, span_fault
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.quotes import NAMES, KnownIds, Quotes
from rag_eval.ground_truth.records import AlternativeLine, JsonObject, TokenLevelLine, parsed_line
from rag_eval.ground_truth.truth_files import BYTE_ORDER_MARK, changed_line, truth_lines
from rag_eval.storage.files import read_text, write_atomically
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import fitting_unit


def fix_truth(path: str | Path, corpus: Corpus | None) -> list[Finding]:
    """Correct a file and return the corrections; if there are none, write nothing.

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
    """Return the corrected text of a file, and the corrections."""
    documents = corpus.by_id() if corpus else {}
    known = KnownIds(documents)
    lines, findings = text.split("\n"), list[Finding]()
    for line in truth_lines(text, TokenLevelLine, Quotes(lambda: documents)):
        if line.record is None:
            continue
        written = parsed_line(lines[line.number - 1]).get("relevant_spans", [])
        spans: list[JsonObject] = []
        fixed: list[Finding] = []
        for span, record in zip(line.record.relevant_spans, written, strict=True):
            before = [record, *record.get("alternatives", [])]
            now = [_fixed_member(*pair, documents, known) for pair in zip(span.members, before, strict=True)]
            fixed += [
                finding("span", line, f"{_named(old)} is now {_named(new)}", new["doc_id"])
                for old, new in zip(before, now, strict=True)
                if old != new
            ]
            spans.append({**now[0], "alternatives": now[1:]} if len(now) > 1 else now[0])
        if fixed:
            lines[line.number - 1] = changed_line(lines[line.number - 1], {"relevant_spans": spans}, {})
            findings += fixed
    return "\n".join(lines), findings


def _named(written: JsonObject) -> str:
    name = repr(written["doc_id"])
    if "start" in written:
        return f"{name} [{written['start']}, {written['end']})"
    return ", ".join([name, *(f"{key} {preview(str(written[key]))}" for key in (*NAMES, "text") if key in written)])


def _fixed_member(
    member: AlternativeLine, written: JsonObject, documents: dict[DocumentId, Document], known: KnownIds
) -> JsonObject:
    """Return a span with the correct document and position, if they are certain."""
    if "start" not in written:
        others = {key: value for key, value in written.items() if key not in ("text", *NAMES)}
        return {**others, "start": member.start, "end": member.end, "text": member.text}
    document = documents.get(DocumentId(known.path_inside(member.doc_id) or member.doc_id))
    if document is None:
        return written
    named = {**written, "doc_id": document.id}
    if span_fault(member, document) is None:
        return named
    content, text = document.content, member.text
    if text and (unit := fitting_unit(content, member.start, member.end, text)) is not None:
        return {**named, "start": unit.start, "end": unit.end, "text": content[unit.start : unit.end]}
    places = places_of(text, content, 2)
    return {**named, "start": places[0], "end": places[0] + len(text)} if len(places) == 1 else written
