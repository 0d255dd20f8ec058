"""Chunkers of LangChain, chonkie, LlamaIndex and Haystack as they are: where the adapter places their pieces."""

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from chunker_contract import lost_text
from strategies import known_texts

from rag_eval.chunking.foreign_chunkers import Piece
from rag_eval.chunking.placement import ChunkerPositionAdapter, place
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.tokens import get_encoding
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

langchain = pytest.importorskip("langchain_text_splitters")
chonkie = pytest.importorskip("chonkie")

CORPORA = Path(__file__).parents[3] / "shared" / "data" / "chroma" / "corpora"
ENCODING = "cl100k_base"
TEXT = "Straße 👍🏽 one. " * 40 + "\n\n" + "Deux mots. " * 40


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """tiktoken would download its ranks; give it the same ranks from the installed package."""
    monkeypatch.setattr("tiktoken.get_encoding", get_encoding)
    logging.getLogger("langchain_text_splitters").setLevel(logging.ERROR)
    yield
    logging.getLogger("langchain_text_splitters").setLevel(logging.NOTSET)


def check_placed(chunker: object, text: str) -> None:
    """Assert that every piece is placed, in order and without loss."""
    adapter = ChunkerPositionAdapter(chunker)
    cuts = [(chunk.start, chunk.end) for chunk in adapter.chunk_with_positions(Document(DocumentId("d"), text))]
    assert adapter.skipped_chunks == 0
    assert all(before < after for (before, _), (after, _) in pairwise(cuts))
    assert not lost_text(text, cuts)


@pytest.mark.parametrize("name", known_texts())
def test_splitters_that_lose_nothing_are_placed_without_loss(name: str) -> None:
    check_placed(langchain.RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=0), known_texts()[name])
    for kind in (chonkie.TokenChunker, chonkie.RecursiveChunker):
        check_placed(kind(tokenizer="character", chunk_size=200), known_texts()[name])


def test_wrong_claims_are_replaced_by_what_the_adapter_finds() -> None:
    splitter = langchain.TokenTextSplitter(
        encoding_name=ENCODING, chunk_size=40, chunk_overlap=20, add_start_index=True
    )
    adapter = ChunkerPositionAdapter(splitter)
    text = "Plain words that repeat. " * 200
    chunks = adapter.chunk_with_positions(Document(DocumentId("d"), text))
    claims = [piece.claim_holds(text) for piece in adapter.chunker.pieces(text)]
    assert not all(claims)
    assert adapter.skipped_chunks == 0
    assert all(text[chunk.start : chunk.end] == chunk.content for chunk in chunks)
    assert not lost_text(text, [(chunk.start, chunk.end) for chunk in chunks])


def test_right_claims_are_used() -> None:
    chunker = chonkie.TokenChunker(tokenizer="character", chunk_size=30, chunk_overlap=10)
    adapter = ChunkerPositionAdapter(chunker)
    placed = adapter.chunk_with_positions(Document(DocumentId("d"), TEXT))
    assert [(c.start, c.end) for c in placed] == [(c.start_index, c.end_index) for c in chunker.chunk(TEXT)]


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
    starts = [cut[0] if cut else -1 for cut in found]
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
    assert adapter.skipped_chunks == 0
    assert not lost_text(document.content, found)


@pytest.mark.parametrize("size", [50, 100])
def test_a_llama_index_splitter_is_placed_on_lone_carriage_returns(size: int) -> None:
    node_parser = pytest.importorskip("llama_index.core.node_parser")

    def tokens(text: str) -> list[int]:
        return get_encoding(ENCODING).encode(text, disallowed_special=())

    splitter = node_parser.SentenceSplitter(chunk_size=size, chunk_overlap=size // 5, tokenizer=tokens)
    check_placed(splitter, known_texts()["lone CR"])


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
            lines = [line for document in documents for line in (document.content or "").splitlines()]
            return {"documents": [HaystackDocument(content=line) for line in lines]}

    document = Document(DocumentId("a.md"), "one\ntwo\none")
    chunks = ChunkerPositionAdapter(Lines()).chunk_with_positions(document)
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 3), (4, 7), (8, 11)]
