"""Names of files, and writing an import."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval import CharacterSpan, Corpus, Document, DocumentId, Query, TokenLevelGroundTruth
from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError
from rag_eval.ground_truth.importing import IMPORTERS, import_truth
from rag_eval.ground_truth.importing.importer import FileNames, ImportedTruth, ImportNotes
from rag_eval.ground_truth.importing.output import write_corpus, write_import
from rag_eval.ground_truth.truth_files import read_token_level

DOCUMENTS = [Document(DocumentId("a.md"), "one\r\n"), Document(DocumentId("b/c d.md"), "\ufefftwo")]
TRUTH = [TokenLevelGroundTruth(Query.from_text("x?"), [CharacterSpan(DocumentId("a.md"), 0, 3, "one")])]


def leads_out(name: str) -> bool:
    return ".." in name.replace("\\", "/").split("/")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(nasty_texts(max_size=60).filter(lambda name: name and not leads_out(name)), max_size=12))
def test_every_id_gets_a_file_of_its_own(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    folder = tmp_path_factory.mktemp("corpus") / "c"
    names = FileNames(ImportNotes())
    unique = list(dict.fromkeys(ids))
    documents = [Document(names.name_for(doc_id), doc_id) for doc_id in unique]
    assert len({document.id.casefold() for document in documents}) == len(unique)
    if not documents:
        return
    write_corpus(folder, documents)
    assert {document.id: document.content for document in Corpus.from_folder(folder)} == {
        document.id: document.content for document in documents
    }


@pytest.mark.parametrize(
    ("doc_id", "name"),
    [
        ("MED-10", "MED-10.md"),
        (".hidden", "%2Ehidden.md"),
        (" blank ", "%20blank%20.md"),
        ("50% off", "50%25 off.md"),
        ("a/b\\c", "a%2Fb%5Cc.md"),
        ("Søn", "Søn.md"),
        ("e\u0301", "e%CC%81.md"),
        ("nul\x00", "nul%00.md"),
    ],
)
def test_names_are_kept_where_they_can_be(doc_id: str, name: str) -> None:
    notes = ImportNotes()
    assert FileNames(notes).name_for(doc_id) == name
    assert bool(notes.mended) == (name != f"{doc_id}.md")


def test_names_that_would_meet_or_are_too_long_get_a_mark() -> None:
    names = FileNames(ImportNotes())
    assert names.name_for("A") == "A.md"
    assert names.name_for("a").startswith("a~")
    assert len(names.name_for("long" * 100)) < 220


def test_truth_and_documents_are_written_and_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    found = ImportedTruth(TRUTH, ImportNotes(), DOCUMENTS)
    output = tmp_path / "new" / "truth.jsonl"
    written = write_import(found, output)
    assert written.corpus == tmp_path / "new" / "corpus"
    assert (written.corpus / "b" / "c d.md").read_bytes() == "\ufefftwo".encode()
    assert read_token_level(output) == TRUTH
    assert write_import(found, output) == written
    (written.corpus / "more.md").write_text("mine")
    assert write_import(found, output).other_files == 1

    other = ImportedTruth(TRUTH, ImportNotes(), [Document(DocumentId("a.md"), "one!"), DOCUMENTS[1]])
    with pytest.raises(ArtifactError, match=r"1 files in .* would be replaced, first 'a\.md'"):
        write_import(other, output)
    assert (written.corpus / "a.md").read_bytes() == b"one\r\n"
    write_import(other, output, overwrite=True)
    assert (written.corpus / "a.md").read_bytes() == b"one!"
    output.write_text("something else")
    with pytest.raises(ArtifactError, match="already exists with other content"):
        write_import(other, output)
    assert output.read_text() == "something else"
    assert sorted(path.name for path in output.parent.iterdir()) == ["corpus", "truth.jsonl"]


def test_documents_that_lie_in_a_folder_stay_there_unless_asked(tmp_path: Path) -> None:
    found = ImportedTruth(TRUTH, ImportNotes(), DOCUMENTS, tmp_path / "texts")
    assert write_import(found, tmp_path / "t.jsonl").corpus == tmp_path / "texts"
    assert write_import(found, tmp_path / "t.jsonl", tmp_path / "copy").corpus == tmp_path / "copy"
    assert (tmp_path / "copy" / "a.md").read_bytes() == b"one\r\n"


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    found = ImportedTruth(TRUTH, ImportNotes(), DOCUMENTS)
    with pytest.raises(ArtifactError, match="is a file: give a folder"):
        write_import(found, tmp_path / "t.jsonl", tmp_path / "file")
    with pytest.raises(ArtifactError, match="is a folder: give a file"):
        write_import(found, tmp_path)
    with pytest.raises(ConfigurationError, match="has no documents"):
        write_import(ImportedTruth(TRUTH, ImportNotes()), tmp_path / "t.jsonl", tmp_path / "c")
    for doc_id in ("../out.md", str(tmp_path / "out.md")):
        with pytest.raises(GroundTruthError, match="leads out of its folder"):
            write_corpus(tmp_path / "c", [Document(DocumentId(doc_id), "x")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_an_unknown_kind_or_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"use one of {', '.join(IMPORTERS)}, mine$"):
        import_truth("trec", tmp_path, {"mine": lambda name: ImportedTruth(TRUTH, ImportNotes())})
    assert import_truth("mine", "x", {"mine": lambda name: ImportedTruth([name], ImportNotes())}).truth == ["x"]
    with pytest.raises(ConfigurationError, match="--split does not apply to squad"):
        import_truth("squad", tmp_path, split="test", glob=None)
