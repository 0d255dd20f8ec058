from pathlib import Path

import pytest

from rag_eval import CharacterSpan, Corpus, Document, DocumentId, PositionAwareChunk, generate_pa_chunk_id
from rag_eval.errors import (
    ConfigurationError,
    CorpusFolderError,
    DuplicateDocumentError,
    EmptyCorpusError,
    InvalidSpanError,
    SpanMismatchError,
    TextEncodingError,
)

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


def test_a_span_with_other_text_is_refused_showing_both_shortened() -> None:
    doc = Document(DocumentId("long.md"), "y" * 500)
    with pytest.raises(SpanMismatchError) as caught:
        doc.check_span(CharacterSpan(doc.id, 0, 300, "z" * 300))
    message = str(caught.value)
    assert "'yyyy" in message
    assert "'zzzz" in message
    assert len(message) < 350


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TextEncodingError, match=r"document 'bad.md' has a lone surrogate at character 1"):
        Document(DocumentId("bad.md"), "a\udfff")


def test_a_corpus_needs_documents_with_ids_of_their_own() -> None:
    with pytest.raises(EmptyCorpusError):
        Corpus([])
    with pytest.raises(DuplicateDocumentError, match=r"'a\.md'"):
        Corpus([DOC, DOC])


def test_a_list_of_documents_is_frozen() -> None:
    documents = [DOC]
    corpus = Corpus(documents)
    documents.clear()
    assert list(corpus) == [DOC]
    assert len(corpus) == 1
    assert corpus.by_id() == {"a.md": DOC}


def test_from_folder_reads_bytes_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_bytes("\ufeffcrlf\r\nlone\rend\n".encode())
    (tmp_path / "a.md").write_bytes("e\u0301 ☃".encode())
    (tmp_path / "c.txt").write_bytes(b"not asked for")
    corpus = Corpus.from_folder(tmp_path)
    assert [document.id for document in corpus] == ["a.md", "sub/b.md"]
    assert [document.content for document in corpus] == ["e\u0301 ☃", "\ufeffcrlf\r\nlone\rend\n"]
    assert [document.id for document in Corpus.from_folder(str(tmp_path), glob="*.txt")] == ["c.txt"]


def test_from_folder_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="nowhere' is not there"):
        Corpus.from_folder(tmp_path / "nowhere")
    with pytest.raises(EmptyCorpusError, match=r"matches '\*\*/\*\.md'"):
        Corpus.from_folder(tmp_path)
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(TextEncodingError, match=r"latin\.md' is not UTF-8: byte 3 is 0xe9"):
        Corpus.from_folder(tmp_path)
    with pytest.raises(CorpusFolderError, match="not a folder"):
        Corpus.from_folder(tmp_path / "latin.md")
    for pattern in ("", "/etc/*", "../*.md"):
        with pytest.raises(ConfigurationError, match="must be relative"):
            Corpus.from_folder(tmp_path, pattern)


def test_a_chunk_knows_its_span() -> None:
    chunk = PositionAwareChunk(generate_pa_chunk_id("two"), "two", DOC.id, 5, 8)
    assert chunk.to_span() == DOC.span(5, 8)
    with pytest.raises(InvalidSpanError):
        PositionAwareChunk(generate_pa_chunk_id("two"), "two", DOC.id, 5, 9).to_span()
