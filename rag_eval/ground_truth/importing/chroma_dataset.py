"""Chroma's chunking evaluation: ``questions_df.csv`` next to a folder ``corpora``.

A row has ``question``, ``references`` (a JSON list of ``content``, ``start_index``, ``end_index``) and ``corpus_id``,
the name of a document without its extension.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Json

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    Filled,
    ImportedTruth,
    ImportNotes,
    NotBlank,
    Placer,
    SourceModel,
    documents_folder,
    unique_questions,
)
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth

LONGEST_FIELD = 1 << 30


class _Row(SourceModel):
    question: NotBlank
    references: str | None
    corpus_id: Filled


class _References(SourceModel):
    references: Json[list[dict[str, object]]]


def read_chroma(path: Path, corpus: Path | None = None, glob: str | Sequence[str] = "**/*.md") -> ImportedTruth:
    """Read the questions of a CSV file, or of the folder that holds it, with their references as spans.

    The documents are in ``corpus``, by default the folder ``corpora`` next to the file. Raises ``GroundTruthError``
    if the file or the folder cannot be read.
    """
    table = path / "questions_df.csv" if path.is_dir() else path
    notes = ImportNotes()
    rows = list(_rows(table))
    folder = documents_folder(corpus, [table.parent / "corpora"])
    documents = Corpus.from_folder(folder, glob).documents
    return ImportedTruth(unique_questions(_items(rows, documents, notes), notes), notes, documents, folder)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        reader = csv.DictReader(io.StringIO(read_truth_text(path, "file"), newline=""), strict=True)
        missing = [name for name in _Row.model_fields if name not in (reader.fieldnames or [])]
        if missing:
            raise GroundTruthError(
                f"{str(path)!r} has no column {', '.join(missing)}: it needs {', '.join(_Row.model_fields)}; "
                "check that it is Chroma's questions file"
            )
        for row in reader:
            yield f"{path.name}, line {reader.line_num}", row
    except csv.Error as error:
        raise GroundTruthError(f"{str(path)!r} is not a table ({error}): check that it is whole") from None
    finally:
        csv.field_size_limit(before)


def _items(
    rows: Iterable[tuple[str, Mapping[str, str | None]]], documents: Iterable[Document], notes: ImportNotes
) -> Iterator[TokenLevelGroundTruth]:
    by_name = {document.id.rpartition(".")[0] or document.id: document for document in documents}
    placer = Placer(notes)
    for place, record in rows:
        row = notes.parsed(_Row, record, "row without a question or a corpus", place)
        if row is None:
            continue
        where = f"{place}, {preview(row.question)}"
        document = by_name.get(row.corpus_id)
        if document is None:
            notes.leave_out("question about a document that is not there", f"{where}: {row.corpus_id!r}")
            continue
        kind = "question whose references are not a list of objects"
        read = notes.parsed(_References, {"references": row.references}, kind, where)
        if read is None:
            continue
        spans = []
        for reference in read.references:
            start, end, text = (reference.get(key) for key in ("start_index", "end_index", "content"))
            if (span := placer.place(document, start, end, text, where)) is not None:
                spans.append(span)
        if spans:
            metadata = {"source": "chroma", "corpus_id": row.corpus_id}
            yield TokenLevelGroundTruth(Query.from_text(row.question, metadata), spans)
        else:
            notes.leave_out("question without a reference that could be placed", where)
