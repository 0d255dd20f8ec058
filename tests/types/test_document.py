import os
from pathlib import Path

import pytest

from rag_eval import (
    CharacterSpan,
    Chunk,
    Corpus,
    Document,
    DocumentId,
    PositionAwareChunk,
    Query,
    generate_chunk_id,
    generate_pa_chunk_id,
)
from rag_eval.errors import (
    ArtifactError,
    ConfigurationError,
    CorpusError,
    CorpusFolderError,
    DuplicateDocumentError,
    EmptyCorpusError,
    InvalidSpanError,
    SpanMismatchError,
    TextEncodingError,
)
from rag_eval.storage.files import read_text, write_atomically

DOC = Document(DocumentId("a.md"), "one\r\ntwo 👩🏽‍🚀 three")


def test_a_span_takes_its_text_from_the_document() -> None:
    start = DOC.content.index("👩")
    assert DOC.span(start, start + 4).text == "👩🏽‍🚀"
    DOC.check_span(DOC.span(start, start + 4))


def test_a_span_past_the_end_is_refused() -> None:
    with pytest.raises(SpanMismatchError, match=r"\[10, 99\) reaches past the end of 'a.md', which has 19 characters"):
        DOC.span(10, 99)
    with pytest.raises(InvalidSpanError):
        DOC.span(3, 3)


def test_a_span_with_another_text_is_refused() -> None:
    doc = Document(DocumentId("long.md"), "y" * 500)
    with pytest.raises(SpanMismatchError) as caught:
        doc.check_span(CharacterSpan(doc.id, 0, 300, "z" * 300))
    message = str(caught.value)
    assert "'yyyy" in message
    assert "'zzzz" in message
    assert message.endswith("the document or the span has changed")
    assert len(message) < 350


@pytest.mark.parametrize(("content", "start"), [("één uur", 6), ("één uur en meer", 6)])
def test_bytes_where_code_points_should_be_are_recognised(content: str, start: int) -> None:
    doc = Document(DocumentId("a.md"), content)
    with pytest.raises(SpanMismatchError, match=r"these are UTF-8 byte offsets, count code points: \[4, 7\)"):
        doc.check_span(CharacterSpan(doc.id, start, start + 3, "uur"))


def test_a_span_of_another_document_is_refused() -> None:
    with pytest.raises(SpanMismatchError, match=r"\[0, 3\) is of 'b.md', this document is 'a.md'"):
        DOC.check_span(CharacterSpan(DocumentId("b.md"), 0, 3, "one"))


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TextEncodingError, match=r"document id '\\udcff.md' has a lone surrogate.*rename the file"):
        Document(DocumentId("\udcff.md"), "a")
    with pytest.raises(TextEncodingError, match=r"document 'bad.md' has a lone surrogate at character 1"):
        Document(DocumentId("bad.md"), "a\udfff")


def test_a_corpus_needs_documents_with_unique_ids() -> None:
    with pytest.raises(EmptyCorpusError):
        Corpus([])
    with pytest.raises(DuplicateDocumentError, match=r"'a\.md'"):
        Corpus([DOC, DOC])


def test_metadata_is_copied() -> None:
    given = {"key": 1}
    values = [
        Document(DocumentId("a.md"), "one", given),
        Corpus([DOC], given),
        Chunk(generate_chunk_id("one"), "one", DOC.id, given),
        PositionAwareChunk(generate_pa_chunk_id("one"), "one", DOC.id, 0, 3, given),
        Query.from_text("why?", given),
    ]
    given["key"] = 2
    assert [value.metadata for value in values] == [{"key": 1}] * 5


def test_from_folder_reads_bytes_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_bytes("\ufeffcrlf\r\nlone\rend\n".encode())
    (tmp_path / "a.md").write_bytes("e\u0301 ☃".encode())
    (tmp_path / "c.txt").write_bytes(b"not asked for")
    corpus = Corpus.from_folder(tmp_path)
    assert [document.id for document in corpus] == ["a.md", "sub/b.md"]
    assert [document.content for document in corpus] == ["e\u0301 ☃", "\ufeffcrlf\r\nlone\rend\n"]
    assert [document.id for document in Corpus.from_folder(str(tmp_path), glob="*.txt")] == ["c.txt"]


def test_from_folder_reports_errors(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="nowhere' does not exist"):
        Corpus.from_folder(tmp_path / "nowhere")
    with pytest.raises(EmptyCorpusError, match=r"matches '\*\*/\*\.md'"):
        Corpus.from_folder(tmp_path)
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(TextEncodingError, match=r"latin\.md' is not UTF-8: byte 3 is 0xe9"):
        Corpus.from_folder(tmp_path)
    with pytest.raises(CorpusFolderError, match="not a folder"):
        Corpus.from_folder(tmp_path / "latin.md")
    for pattern in ("", ".", "./", "/etc/*", "../*.md"):
        with pytest.raises(ConfigurationError, match="must be relative"):
            Corpus.from_folder(tmp_path, pattern)
    for pattern in ("**.md", "***/x", "a/b**"):
        with pytest.raises(ConfigurationError, match=r"has \*\* beside other characters"):
            Corpus.from_folder(tmp_path, pattern)


def test_hidden_folders_are_read_and_links_to_folders_are_not_entered(tmp_path: Path) -> None:
    for name in (".hidden/a.md", "real/b.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "c.md").symlink_to(tmp_path / "real" / "b.md")
    assert [document.id for document in Corpus.from_folder(tmp_path)] == [".hidden/a.md", "c.md", "real/b.md"]


def test_a_file_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("text")
    with pytest.raises(TextEncodingError, match=r"'caf\\udce9\.md'.*rename the file"):
        Corpus.from_folder(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(CorpusError, match=r"folder\.md' cannot be read \(Is a directory\)"):
        read_text(tmp_path / "folder.md")


def test_a_chunk_returns_its_span() -> None:
    chunk = PositionAwareChunk(generate_pa_chunk_id("two"), "two", DOC.id, 5, 8)
    assert chunk.to_span() == DOC.span(5, 8)
    with pytest.raises(InvalidSpanError):
        PositionAwareChunk(generate_pa_chunk_id("two"), "two", DOC.id, 5, 9).to_span()


def test_an_empty_match_lists_what_the_folder_has(tmp_path: Path) -> None:
    with pytest.raises(EmptyCorpusError, match=r"matches '\*\*/\*\.md': it has no files"):
        Corpus.from_folder(tmp_path)
    for name in ("a.png", "b.png", "c.txt", "LICENSE", ".hidden.md.swp"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    with pytest.raises(EmptyCorpusError) as caught:
        Corpus.from_folder(tmp_path)
    assert str(caught.value).endswith(
        "it has 1 .txt file, 2 .png files, 1 other file; give --glob '**/*.txt', or glob in the benchmark file"
    )
    assert [document.id for document in Corpus.from_folder(tmp_path, "**/*.txt")] == ["c.txt"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ArtifactError, match=r"file.*' cannot be created"):
            write_atomically(folder / "data", b"")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ArtifactError, match=r"taken' cannot be written \(Is a directory\)"):
        write_atomically(tmp_path / "taken", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
