"""LangChain's and chonkie's chunkers as they are: what the adapter makes of them, and what certification says."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.chunking.certify import Certificate, certify, nasty_texts
from rag_eval.chunking.foreign_chunkers import Piece, as_chunker
from rag_eval.chunking.placement import ChunkerPositionAdapter, place
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.tokens import get_encoding
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

langchain = pytest.importorskip("langchain_text_splitters")
chonkie = pytest.importorskip("chonkie")

CORPORA = Path(__file__).parents[3] / "shared" / "data" / "chroma" / "corpora"
ENCODING = "cl100k_base"
# What fails on a line of a megabyte fails on a shorter one, where LangChain's search for the places ends soon.
TEXTS = {name: text[:100_000] for name, text in nasty_texts().items()}
TEXT = "Straße 👍🏽 one. " * 40 + "\n\n" + "Deux mots. " * 40


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """tiktoken would download its ranks; give it the same ranks from the installed package."""
    monkeypatch.setattr("tiktoken.get_encoding", get_encoding)
    logging.getLogger("langchain_text_splitters").setLevel(logging.ERROR)
    yield
    logging.getLogger("langchain_text_splitters").setLevel(logging.NOTSET)


def failed(certificate: Certificate) -> set[str]:
    return {check.name for check in certificate.checks if check.status == "failed"}


def failures(certificate: Certificate, name: str) -> int:
    return next(check.failures for check in certificate.checks if check.name == name)


def test_langchain_recursive_is_placed_without_loss() -> None:
    certificate = certify(langchain.RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=0))
    assert certificate.passed, str(certificate)
    assert certificate.positions == "found"


def test_langchain_recursive_claims_the_wrong_copy_in_repeated_text() -> None:
    splitter = langchain.RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=50, add_start_index=True)
    certificate = certify(splitter, TEXTS)
    assert certificate.positions == "claimed"
    assert failed(certificate) == {"increasing starts", "coverage"}


def test_langchain_token_splitter_claims_places_that_are_not_there() -> None:
    splitter = langchain.TokenTextSplitter(
        encoding_name=ENCODING, chunk_size=50, chunk_overlap=25, add_start_index=True, disallowed_special=()
    )
    certificate = certify(splitter, TEXTS)
    assert failed(certificate) == {"exact slices", "increasing starts", "coverage"}
    assert failures(certificate, "exact slices") > certificate.chunks // 3
    assert next(check for check in certificate.checks if check.name == "size limit").status == "not applicable"


def test_langchain_token_splitter_refuses_special_token_text_by_default() -> None:
    splitter = langchain.TokenTextSplitter(encoding_name=ENCODING, chunk_size=50, chunk_overlap=0)
    certificate = certify(splitter, {"special": "before <|endoftext|> after"})
    assert failed(certificate) == {"runs"}
    assert "disallowed special token" in str(certificate.checks[0].example)


def test_langchain_markdown_headers_change_the_text() -> None:
    certificate = certify(langchain.MarkdownHeaderTextSplitter([("#", "title")]))
    assert {"exact slices", "coverage"} <= failed(certificate)


@pytest.mark.parametrize("kind", ["TokenChunker", "RecursiveChunker"])
def test_chonkie_is_exact_in_characters_and_not_in_tokens(kind: str) -> None:
    chunker = getattr(chonkie, kind)
    assert certify(chunker(tokenizer="character", chunk_size=200)).passed
    certificate = certify(chunker(tokenizer=get_encoding(ENCODING), chunk_size=50), TEXTS)
    assert certificate.positions == "claimed"
    assert {"runs", "exact slices"} <= failed(certificate)


def test_chonkie_sentences_do_not_keep_their_size() -> None:
    assert failed(certify(chonkie.SentenceChunker(tokenizer="character", chunk_size=200), TEXTS)) == {"size limit"}


def test_wrong_claims_are_replaced_by_what_the_adapter_finds() -> None:
    splitter = langchain.TokenTextSplitter(
        encoding_name=ENCODING, chunk_size=40, chunk_overlap=20, add_start_index=True
    )
    adapter = ChunkerPositionAdapter(splitter)
    text = "Plain words that repeat. " * 200
    chunks = adapter.chunk_with_positions(Document(DocumentId("d"), text))
    report = adapter.reports[DocumentId("d")]
    assert adapter.wrong_claims > 0
    assert (report.skipped_chunks, report.uncovered_characters) == (0, 0)
    assert all(text[chunk.start : chunk.end] == chunk.content for chunk in chunks)


def test_claims_that_hold_are_taken_as_they_are() -> None:
    chunker = chonkie.TokenChunker(tokenizer="character", chunk_size=30, chunk_overlap=10)
    adapter = ChunkerPositionAdapter(chunker)
    placed = adapter.chunk_with_positions(Document(DocumentId("d"), TEXT))
    assert [(c.start, c.end) for c in placed] == [(c.start_index, c.end_index) for c in chunker.chunk(TEXT)]
    assert adapter.wrong_claims == 0


def test_names_hold_class_and_sizes() -> None:
    recursive = langchain.RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=50)
    assert as_chunker(recursive).name.startswith("RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=50, ")
    token = chonkie.TokenChunker(tokenizer="character", chunk_size=30, chunk_overlap=10)
    name = ChunkerPositionAdapter(token).name
    assert name.startswith("PositionAdapter(TokenChunker(chunk_size=30, chunk_overlap=10, ")
    same = chonkie.TokenChunker(tokenizer="character", chunk_size=30, chunk_overlap=10)
    assert as_chunker(same).name == as_chunker(token).name
    other = langchain.RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=50, separators=["x"])
    assert as_chunker(other).name != as_chunker(recursive).name


@pytest.fixture(scope="module")
def reports() -> tuple[str, str, dict[str, int]]:
    """Repetitive reports, a twin in which no character repeats, and where in it each character is."""
    path = CORPORA / "finance.md"
    if not path.exists():
        pytest.skip("the Chroma corpora are not there")
    source = path.read_bytes().decode("utf-8")
    twin = "".join(char if char.isspace() else chr(0x20000 + i) for i, char in enumerate(source))
    return source, twin, {char: i for i, char in enumerate(twin) if not char.isspace()}


@pytest.mark.parametrize(
    ("size", "overlap"), [(1000, 0), (1000, 200), (400, 200), (300, 250), (200, 50), (100, 50), (50, 25)]
)
def test_on_repetitive_reports_every_chunk_is_placed_where_it_was_cut(
    size: int, overlap: int, reports: tuple[str, str, dict[str, int]]
) -> None:
    """The splitter sees separators and lengths only: a twin in which no character repeats tells the truth."""
    source, twin, at = reports
    splitter = langchain.RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap)
    truth = [at[piece[0]] for piece in splitter.split_text(twin)]
    found = place(source, map(Piece, splitter.split_text(source)))
    starts = [placement.cut[0] if placement.cut else -1 for placement in found]
    assert starts == truth


@pytest.mark.parametrize(("size", "overlap"), [(100, 50), (800, 400), (400, 0)])
def test_langchain_is_placed_where_our_chunker_cuts(size: int, overlap: int) -> None:
    path = CORPORA / "finance.md"
    if not path.exists():
        pytest.skip("the Chroma corpora are not there")
    document = Document(DocumentId("finance.md"), path.read_bytes().decode("utf-8"))
    adapter = ChunkerPositionAdapter(langchain.RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap))
    found = {(chunk.start, chunk.end) for chunk in adapter.chunk_with_positions(document)}
    # Where two of LangChain's chunks start at one place, ours is the longer.
    longest = dict(sorted(found))
    assert list(longest.items()) == RecursiveCharacterChunker(size, overlap).cuts(document.content)
    assert (adapter.skipped_chunks, adapter.uncovered_share) == (0, 0.0)


def test_a_splitter_that_loses_nothing_is_certified_so_on_repetitive_reports() -> None:
    path = CORPORA / "finance.md"
    if not path.exists():
        pytest.skip("the Chroma corpora are not there")
    splitter = langchain.RecursiveCharacterTextSplitter(chunk_size=100, chunk_overlap=50)
    certificate = certify(splitter, {"finance": path.read_bytes().decode("utf-8")})
    assert failures(certificate, "coverage") == 0
    assert certificate.skipped_chunks == 0


@pytest.mark.parametrize("size", [50, 100])
def test_a_llama_index_splitter_is_certified_on_lone_carriage_returns(size: int) -> None:
    node_parser = pytest.importorskip("llama_index.core.node_parser")

    def tokens(text: str) -> list[int]:
        return get_encoding(ENCODING).encode(text, disallowed_special=())

    splitter = node_parser.SentenceSplitter(chunk_size=size, chunk_overlap=size // 5, tokenizer=tokens)
    certificate = certify(splitter, {"lone CR": nasty_texts()["lone CR"]})
    assert certificate.passed, str(certificate)


def test_a_haystack_splitter_is_warmed_up_before_it_is_run() -> None:
    from haystack import Document as HaystackDocument
    from haystack import component

    @component
    class Lines:
        ready = False

        def warm_up(self) -> None:
            self.ready = True

        @component.output_types(documents=list[HaystackDocument])
        def run(self, documents: list[HaystackDocument]) -> dict[str, list[HaystackDocument]]:
            if not self.ready:
                raise RuntimeError("run before it was warmed up")
            lines = [line for one in documents for line in (one.content or "").splitlines()]
            return {"documents": [HaystackDocument(content=line) for line in lines]}

    document = Document(DocumentId("a.md"), "one\ntwo\none")
    chunks = ChunkerPositionAdapter(Lines()).chunk_with_positions(document)
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 3), (4, 7), (8, 11)]
