"""LegalBench-RAG: ``benchmarks/*.json`` next to a folder ``corpus`` of text files.

A file has ``tests``, each with a ``query`` and ``snippets`` of ``file_path`` (below the corpus folder), ``span``
(``[start, end]``) and ``answer``, the text there. Offsets count CRLF as one character: the benchmark opens its files
with line endings translated.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    ImportedTruth,
    ImportNotes,
    NotBlank,
    Placer,
    SourceModel,
    documents_folder,
    json_list,
    unique_questions,
)
from rag_eval.ground_truth.records import EncodableText
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import to_code_points


class _Test(SourceModel):
    query: NotBlank
    snippets: list[object]
    tags: list[EncodableText] = Field(default_factory=list)


class _Snippet(SourceModel):
    file_path: str
    span: object = None
    answer: object = None


def read_legalbench_rag(
    path: Path, corpus: Path | None = None, glob: str | Sequence[str] = "**/*.txt"
) -> ImportedTruth:
    """Read the tests of a benchmark file, or of all in ``benchmarks`` of a folder, with their snippets as spans.

    The documents are in ``corpus``, by default the folder of that name next to ``benchmarks``. Raises
    ``GroundTruthError`` if the files cannot be read.
    """
    files = sorted((path / "benchmarks").glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise GroundTruthError(f"{str(path / 'benchmarks')!r} has no JSON files: give the benchmark file itself")
    tests = [(file, json_list(file, "tests", "a LegalBench-RAG benchmark")) for file in files]
    folder = documents_folder(corpus, [files[0].parent.parent / "corpus", files[0].parent / "corpus"])
    documents = Corpus.from_folder(folder, glob)
    notes = ImportNotes()
    items = (item for file, records in tests for item in _items(file, records, documents.by_id(), notes))
    return ImportedTruth(unique_questions(items, notes), notes, documents.documents, folder)


def _items(
    file: Path, records: Sequence[object], documents: dict[DocumentId, Document], notes: ImportNotes
) -> Iterator[TokenLevelGroundTruth]:
    placer = Placer(notes)
    for number, record in enumerate(records):
        place = f"{file.name}, test {number}"
        test = notes.parsed(_Test, record, "test without a query or a list of snippets", place)
        if test is None:
            continue
        where = f"{place}, {preview(test.query)}"
        spans = [
            span for snippet in test.snippets if (span := _span(snippet, where, documents, placer, notes)) is not None
        ]
        if not spans:
            notes.leave_out("test without a snippet that could be placed", where)
            continue
        metadata: dict[str, object] = {"source": "legalbench-rag", "benchmark": file.stem}
        if test.tags:
            metadata["tags"] = test.tags
        yield TokenLevelGroundTruth(Query.from_text(test.query, metadata), spans)


def _span(
    record: object, where: str, documents: dict[DocumentId, Document], placer: Placer, notes: ImportNotes
) -> CharacterSpan | None:
    snippet = notes.parsed(_Snippet, record, "snippet without a file", where)
    if snippet is None:
        return None
    document = documents.get(DocumentId(snippet.file_path))
    if document is None:
        notes.leave_out("snippet of a document that is not there", f"{where}: {snippet.file_path!r}")
        return None
    start, end = snippet.span if isinstance(snippet.span, list) and len(snippet.span) == 2 else (None, None)
    if "answer" in snippet.model_fields_set:
        return placer.place(document, start, end, snippet.answer, where)
    place = None
    if type(start) is int and type(end) is int:
        place = to_code_points(document.content, start, end, "offsets that count CRLF as one")
    if place is None:
        notes.leave_out("span that is outside its document", f"{where}: {snippet.span!r} of {snippet.file_path!r}")
        return None
    return document.span(*place)
