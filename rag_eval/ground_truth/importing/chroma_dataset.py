"""Chroma's chunking evaluation: ``questions_df.csv`` beside a folder ``corpora``.

A row has ``question``, ``references`` (a JSON list of ``content``, ``start_index``, ``end_index``) and ``corpus_id``,
the name of a document without its ending.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    ImportedTruth,
    ImportNotes,
    Placer,
    documents_folder,
    unique_questions,
)
from rag_eval.ground_truth.records import JsonObject
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth

COLUMNS = ("question", "references", "corpus_id")
LONGEST_FIELD = 1 << 30


def read_chroma(path: Path, corpus: Path | None = None, glob: str | Sequence[str] = "**/*.md") -> ImportedTruth:
    """Read the questions of a CSV file, or of the folder that holds it, with their references as spans.

    The documents are in ``corpus``, by default the folder ``corpora`` beside the file. Raises ``GroundTruthError``
    when the file or the folder cannot be used.
    """
    table = path / "questions_df.csv" if path.is_dir() else path
    notes = ImportNotes()
    rows = list(_rows(table))
    folder = documents_folder(corpus, [table.parent / "corpora"])
    documents = Corpus.from_folder(folder, glob).documents
    return ImportedTruth(unique_questions(_items(rows, documents, notes), notes), notes, documents, folder)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        reader = csv.DictReader(io.StringIO(read_truth_text(path, "file"), newline=""), strict=True)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
        if missing:
            raise GroundTruthError(
                f"{str(path)!r} has no column {', '.join(missing)}: it needs {', '.join(COLUMNS)}; "
                "check that it is Chroma's questions file"
            )
        for row in reader:
            yield f"{path.name}, line {reader.line_num}", row
    except csv.Error as error:
        raise GroundTruthError(f"{str(path)!r} is not a table ({error}): check that it is whole") from None
    finally:
        csv.field_size_limit(before)


def _items(
    rows: Iterable[tuple[str, dict[str, str | None]]], documents: Iterable[Document], notes: ImportNotes
) -> Iterator[TokenLevelGroundTruth]:
    by_name = {document.id.rpartition(".")[0] or document.id: document for document in documents}
    placer = Placer(notes)
    for place, row in rows:
        question, name = row["question"], row["corpus_id"]
        if not question or not question.strip() or not name:
            notes.leave_out("row without a question or a corpus", place)
            continue
        where = f"{place}, {preview(question)}"
        document = by_name.get(name)
        if document is None:
            notes.leave_out("question about a document that is not there", f"{where}: {name!r}")
            continue
        references = _references(row["references"])
        if references is None:
            notes.leave_out("question whose references are not a list of objects", where)
            continue
        spans = []
        for reference in references:
            start, end, text = (reference.get(key) for key in ("start_index", "end_index", "content"))
            if (span := placer.place(document, start, end, text, where)) is not None:
                spans.append(span)
        if spans:
            yield TokenLevelGroundTruth(Query.from_text(question, {"source": "chroma", "corpus_id": name}), spans)
        else:
            notes.leave_out("question without a reference that could be placed", where)


def _references(text: str | None) -> list[JsonObject] | None:
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(item, dict) for item in found) else None
