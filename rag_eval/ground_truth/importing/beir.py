"""BEIR: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv`` in one folder.

A judgement above 0 makes the whole document relevant: its span is the document. Each document becomes a text, the
title before the body.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    FileNames,
    ImportedTruth,
    ImportNotes,
    json_lines,
    unique_questions,
)
from rag_eval.ground_truth.records import JsonObject
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import QueryId, QueryText

HEADER = ("query-id", "corpus-id", "score")
Judgements = dict[str, dict[str, float]]
"""For each query the documents with a score above 0."""


def read_beir(path: Path, split: str | None = None) -> ImportedTruth:
    """Read the judged queries of one split, by default ``test`` or the only one, and all documents.

    Raises ``GroundTruthError`` when a file is missing.
    """
    notes = ImportNotes()
    judgements_file = _judgements_file(path, split)
    documents = _documents(path / "corpus.jsonl", notes)
    judgements = _judgements(judgements_file, documents, notes)
    known: set[str] = set()
    truth = []
    for place, record in json_lines(path / "queries.jsonl", notes):
        query_id, text = _id(record), record.get("text")
        if query_id is None or not isinstance(text, str) or not text.strip():
            notes.leave_out("query without an id or a text", place)
            continue
        if not notes.can_write(place, query_id, text):
            continue
        known.add(query_id)
        item = _item(query_id, text, record, judgements.get(query_id, {}), documents)
        if item is not None:
            truth.append(item)
        elif query_id in judgements:
            notes.leave_out("query without a relevant document", f"{place}: {query_id} {preview(text)}")
    for query_id in judgements.keys() - known:
        notes.leave_out("judgements of a query that is not there", query_id)
    return ImportedTruth(unique_questions(truth, notes), notes, list(documents.values()))


def _judgements_file(path: Path, split: str | None) -> Path:
    files = {file.stem: file for file in sorted((path / "qrels").glob("*.tsv"))}
    if not files:
        raise GroundTruthError(f"{str(path / 'qrels')!r} holds no .tsv file: give the folder of a BEIR dataset")
    chosen = split or ("test" if "test" in files or len(files) > 1 else next(iter(files)))
    if chosen not in files:
        raise GroundTruthError(f"there is no split {chosen!r}: give one of {', '.join(files)} with --split")
    return files[chosen]


def _documents(path: Path, notes: ImportNotes) -> dict[str, Document]:
    documents: dict[str, Document] = {}
    names = FileNames(notes)
    for place, record in json_lines(path, notes):
        doc_id, title, text = _id(record), record.get("title") or "", record.get("text")
        if doc_id is None or not isinstance(text, str) or not isinstance(title, str):
            notes.leave_out("document without an id or a text", place)
        elif doc_id in documents:
            notes.leave_out("document whose id is taken", f"{place}: {preview(doc_id)}")
        else:
            document = names.document(doc_id, f"{title}\n\n{text}" if title else text, place)
            if document is not None:
                documents[doc_id] = document
    return documents


def _judgements(path: Path, documents: dict[str, Document], notes: ImportNotes) -> Judgements:
    found: Judgements = {}
    for place, query_id, doc_id, score in _scores(path, notes):
        relevant = found.setdefault(query_id, {})
        if score <= 0:
            continue
        document = documents.get(doc_id)
        if document is None:
            notes.leave_out("judgement of a document that is not there", f"{place}: {preview(doc_id)}")
        elif not document.content:
            notes.leave_out("judgement of an empty document", f"{place}: {preview(doc_id)}")
        else:
            relevant[doc_id] = max(score, relevant.get(doc_id, 0.0))
    return found


def _scores(path: Path, notes: ImportNotes) -> Iterator[tuple[str, str, str, float]]:
    for number, line in enumerate(read_truth_text(path, "file").split("\n"), start=1):
        fields = line.rstrip("\r").split("\t")
        if not line.strip() or (number == 1 and tuple(fields) == HEADER):
            continue
        place = f"{path.name}, line {number}"
        try:
            query_id, doc_id, told = fields
            score = float(told)
        except ValueError:
            score = math.nan
        if math.isfinite(score):
            yield place, query_id, doc_id, score
        else:
            notes.leave_out("broken line", f"{place}: {preview(line)} is not query, document and score between tabs")


def _item(
    query_id: str, text: str, record: JsonObject, relevant: dict[str, float], documents: dict[str, Document]
) -> TokenLevelGroundTruth | None:
    if not relevant:
        return None
    places = {doc_id: documents[doc_id] for doc_id in relevant}
    own = record.get("metadata")
    metadata: dict[str, object] = {**(own if isinstance(own, dict) else {}), "source": "beir"}
    if set(relevant.values()) != {1.0}:
        metadata["grades"] = {places[doc_id].id: score for doc_id, score in relevant.items()}
    spans = [document.span(0, len(document.content)) for document in places.values()]
    return TokenLevelGroundTruth(Query(QueryId(query_id), QueryText(text), metadata), spans)


def _id(record: JsonObject) -> str | None:
    found = record.get("_id")
    # Some conversions have made numbers of the ids.
    return str(found) if type(found) in (str, int) and str(found) else None
