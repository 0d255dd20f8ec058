"""LegalBench-RAG: ``benchmarks/*.json`` beside a folder ``corpus`` of text files.

A file has ``tests``, each with a ``query`` and ``snippets`` of ``file_path`` (below the corpus folder), ``span``
(``[start, end]``) and ``answer``, the text there. The benchmark opens its files with line ends translated, so that
its offsets count CRLF as one character; they are carried over to the file as it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import (
    ImportedTruth,
    ImportNotes,
    Placer,
    documents_folder,
    json_file,
    unique_questions,
)
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId
from rag_eval.types.offsets import to_code_points


def read_legalbench_rag(
    path: Path, corpus: Path | None = None, glob: str | Sequence[str] = "**/*.txt"
) -> ImportedTruth:
    """Read the tests of a benchmark file, or of all in ``benchmarks`` of a folder, with their snippets as spans.

    The documents are in ``corpus``, by default the folder of that name beside ``benchmarks``. Raises
    ``GroundTruthError`` when the files cannot be used.
    """
    files = sorted((path / "benchmarks").glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise GroundTruthError(f"{str(path / 'benchmarks')!r} holds no JSON file: give the benchmark file itself")
    notes = ImportNotes()
    tests = [test for file in files for test in _tests(file)]
    folder = documents_folder(corpus, [files[0].parent.parent / "corpus", files[0].parent / "corpus"])
    documents = Corpus.from_folder(folder, glob)
    truth = unique_questions(_items(tests, documents.by_id(), notes), notes)
    return ImportedTruth(truth, notes, documents.documents, folder)


def _tests(path: Path) -> Iterator[tuple[str, str, Any]]:
    data = json_file(path)
    tests = data.get("tests") if isinstance(data, dict) else None
    if not isinstance(tests, list):
        raise GroundTruthError(f"{str(path)!r} has no list of tests: check that it is a LegalBench-RAG benchmark")
    for number, test in enumerate(tests):
        yield path.stem, f"{path.name}, test {number}", test


def _items(
    tests: Iterable[tuple[str, str, Any]], documents: dict[DocumentId, Document], notes: ImportNotes
) -> Iterator[TokenLevelGroundTruth]:
    placer = Placer(notes)
    for benchmark, place, test in tests:
        query = test.get("query") if isinstance(test, dict) else None
        snippets = test.get("snippets") if isinstance(test, dict) else None
        if not isinstance(query, str) or not query.strip() or not isinstance(snippets, list):
            notes.leave_out("test without a query or a list of snippets", place)
            continue
        tags = test.get("tags")
        tags = tags if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) else []
        if not notes.can_write(place, query, *tags):
            continue
        where = f"{place}, {preview(query)}"
        spans = [span for snippet in snippets if (span := _span(snippet, where, documents, placer, notes)) is not None]
        if not spans:
            notes.leave_out("test without a snippet that could be placed", where)
            continue
        metadata: dict[str, object] = {"source": "legalbench-rag", "benchmark": benchmark}
        if tags:
            metadata["tags"] = tags
        yield TokenLevelGroundTruth(Query.from_text(query, metadata), spans)


def _span(
    snippet: Any, where: str, documents: dict[DocumentId, Document], placer: Placer, notes: ImportNotes
) -> CharacterSpan | None:
    name = snippet.get("file_path") if isinstance(snippet, dict) else None
    if not isinstance(name, str):
        notes.leave_out("snippet without a file", where)
        return None
    document = documents.get(DocumentId(name))
    if document is None:
        notes.leave_out("snippet of a document that is not there", f"{where}: {name!r}")
        return None
    place = snippet.get("span")
    start, end = place if isinstance(place, list) and len(place) == 2 else (None, None)
    if "answer" in snippet:
        return placer.place(document, start, end, snippet["answer"], where)
    found = None
    if type(start) is int and type(end) is int:
        found = to_code_points(document.content, start, end, "offsets that count CRLF as one")
    if found is None:
        notes.leave_out("span that is outside its document", f"{where}: {place!r} of {name!r}")
        return None
    return document.span(*found)
