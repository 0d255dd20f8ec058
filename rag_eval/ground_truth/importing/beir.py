"""BEIR: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv`` in one folder.

A score above 0 makes the whole document relevant. The title of a document is put before its text.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    FileNames,
    Filled,
    ImportedTruth,
    ImportNotes,
    NotBlank,
    SourceModel,
    json_lines,
    unique_questions,
)
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import QueryId, QueryText

HEADER = ("query-id", "corpus-id", "score")


class _Document(SourceModel):
    id: Filled | int = Field(alias="_id")
    title: str | None = None
    text: str

    @property
    def content(self) -> str:
        return f"{self.title}\n\n{self.text}" if self.title else self.text


class _Query(SourceModel):
    id: Filled | int = Field(alias="_id")
    text: NotBlank
    metadata: object = None


def read_beir(path: Path, split: str | None = None) -> ImportedTruth:
    """Read the judged queries of a split, by default ``test`` or the only one, and all documents.

    Raises ``GroundTruthError`` if a file is missing.
    """
    notes = ImportNotes()
    scores_file = _scores_file(path, split)
    documents = _documents(path / "corpus.jsonl", notes)
    relevant = _relevant(scores_file, documents, notes)
    known: set[str] = set()
    truth = []
    for place, record in json_lines(path / "queries.jsonl", notes):
        query = notes.parsed(_Query, record, "query without an id or a text", place)
        if query is None:
            continue
        query_id = str(query.id)
        known.add(query_id)
        if scores := relevant.get(query_id):
            truth.append(_item(query, scores, documents))
        elif query_id in relevant:
            notes.leave_out("query without a relevant document", f"{place}: {query_id} {preview(query.text)}")
    for query_id in relevant.keys() - known:
        notes.leave_out("judgements of a query that is not there", query_id)
    return ImportedTruth(unique_questions(truth, notes), notes, list(documents.values()))


def _scores_file(path: Path, split: str | None) -> Path:
    files = {file.stem: file for file in sorted((path / "qrels").glob("*.tsv"))}
    if not files:
        raise GroundTruthError(f"{str(path / 'qrels')!r} has no .tsv files: give the folder of a BEIR dataset")
    chosen = split or ("test" if "test" in files or len(files) > 1 else next(iter(files)))
    if chosen not in files:
        raise GroundTruthError(f"there is no split {chosen!r}: give one of {', '.join(files)} with --split")
    return files[chosen]


def _documents(path: Path, notes: ImportNotes) -> dict[str, Document]:
    documents: dict[str, Document] = {}
    names = FileNames(notes)
    for place, record in json_lines(path, notes):
        read = notes.parsed(_Document, record, "document without an id or a text", place)
        if read is not None and str(read.id) in documents:
            notes.leave_out("document whose id is taken", f"{place}: {preview(str(read.id))}")
        elif read is not None and (document := names.document(str(read.id), read.content, place)):
            documents[str(read.id)] = document
    return documents


def _relevant(path: Path, documents: dict[str, Document], notes: ImportNotes) -> dict[str, dict[str, float]]:
    """Return the documents with a score above 0, by query."""
    relevant: dict[str, dict[str, float]] = {}
    for place, query_id, doc_id, score in _scores(path, notes):
        scores = relevant.setdefault(query_id, {})
        if score <= 0:
            continue
        if doc_id not in documents:
            notes.leave_out("judgement of a document that is not there", f"{place}: {preview(doc_id)}")
        elif not documents[doc_id].content:
            notes.leave_out("judgement of an empty document", f"{place}: {preview(doc_id)}")
        else:
            scores[doc_id] = max(score, scores.get(doc_id, 0.0))
    return relevant


def _scores(path: Path, notes: ImportNotes) -> Iterator[tuple[str, str, str, float]]:
    for number, line in enumerate(read_truth_text(path, "file").split("\n"), start=1):
        fields = line.rstrip("\r").split("\t")
        if not line.strip() or (number == 1 and tuple(fields) == HEADER):
            continue
        place = f"{path.name}, line {number}"
        try:
            query_id, doc_id, text = fields
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isfinite(score):
            yield place, query_id, doc_id, score
        else:
            notes.leave_out("broken line", f"{place}: {preview(line)} is not query, document and score between tabs")


def _item(query: _Query, scores: dict[str, float], documents: dict[str, Document]) -> TokenLevelGroundTruth:
    relevant = {documents[doc_id].id: score for doc_id, score in scores.items()}
    metadata: dict[str, object] = {**(query.metadata if isinstance(query.metadata, dict) else {}), "source": "beir"}
    if set(relevant.values()) != {1.0}:
        metadata["grades"] = relevant
    spans = [documents[doc_id].span(0, len(documents[doc_id].content)) for doc_id in scores]
    return TokenLevelGroundTruth(Query(QueryId(str(query.id)), QueryText(query.text), metadata), spans)
