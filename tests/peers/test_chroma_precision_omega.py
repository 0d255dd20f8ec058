"""The Precision_Ω that Chroma published, from its data and our chunkers, in two placements.

Chroma finds every chunk again in the corpus: without a final ".", at its first occurrence. Placed so, our chunks give
the published table to the printed decimal. Placed where they were cut, chunks that repeat earlier text no longer stand
on the first copy, and the figures of the second column come out: there is nothing published to compare them with, they
are kept so that a change is seen.
"""

import csv
import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.recursive import CHROMA_SEPARATORS, RecursiveTokenChunker
from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import PASSAGES, chunks_to_table, truth_to_tables
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText

ROOT = Path(__file__).parents[2]
# Beside the repository, or beside the folder that holds its work trees.
CHROMA = next(
    (path for path in (ROOT.parent / "shared/data/chroma", ROOT.parents[1] / "shared/data/chroma") if path.is_dir()),
    ROOT / "chroma",
)
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (recursive|fixed) (\d+)/(\d+) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
"""Chunker, size, overlap, the published figure, the same reproduced, and that with true places."""

needs_data = pytest.mark.skipif(not CHROMA.is_dir(), reason="Chroma's dataset is not beside the repository")


@cache
def corpus() -> Corpus:
    return Corpus.from_folder(CHROMA / "corpora")


@cache
def ground_truth() -> list[TokenLevelGroundTruth]:
    documents = corpus().by_id()
    truth = []
    with (CHROMA / "questions_df.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            doc_id = DocumentId(f"{row['corpus_id']}.md")
            spans = [
                CharacterSpan(doc_id, reference["start_index"], reference["end_index"], reference["content"])
                for reference in json.loads(row["references"])
            ]
            for span in spans:
                documents[doc_id].check_span(span)
            # Some questions are asked of two corpora: the number tells them apart.
            truth.append(TokenLevelGroundTruth(Query(QueryId(f"query_{number}"), QueryText(row["question"])), spans))
    return truth


def precision_omega(chunks: list[PositionAwareChunk]) -> list[float]:
    scores = score_passages(
        "token-level",
        PASSAGES.empty_table(),
        truth_to_tables(ground_truth()),
        ["precision_omega"],
        [],
        chunks=chunks_to_table(chunks),
    )
    return scores.column("value").to_pylist()


def printed(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f} ± {100 * pstdev(values):.1f}"


@needs_data
def test_the_dataset_is_the_published_one() -> None:
    assert len(corpus()) == 5
    assert len(ground_truth()) == 472
    assert sum(len(item.relevant_spans) for item in ground_truth()) == 790


@needs_data
@pytest.mark.parametrize("row", ROWS, ids="/".join)
def test_the_documented_row_comes_out(row: tuple[str, ...]) -> None:
    kind, size, overlap = row[0], int(row[1]), int(row[2])
    chunker = (
        FixedTokenChunker(size, overlap) if kind == "fixed" else RecursiveTokenChunker(size, overlap, CHROMA_SEPARATORS)
    )
    placed = [chunk for doc in corpus() for chunk in first_occurrence(chunker).chunk_with_positions(doc)]
    assert printed(precision_omega(placed)) == row[3] == row[4]
    assert (
        printed(precision_omega([chunk for doc in corpus() for chunk in chunker.chunk_with_positions(doc)])) == row[5]
    )


def first_occurrence(chunker: object) -> Any:
    """The chunker of the page, around another."""
    (code,) = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # the project's own documentation
    return names["FirstOccurrence"](chunker)


class Fours:
    """Cuts after every fourth character."""

    name = "fours"

    def chunk(self, text: str) -> list[str]:
        return [text[at : at + 4] for at in range(0, len(text), 4)]


@given(st.text("ab.", max_size=60))
def test_a_chunk_is_where_its_text_without_a_final_point_occurs_first(text: str) -> None:
    bare = [piece[:-1] if piece.endswith(".") else piece for piece in Fours().chunk(text)]
    expected = {(text.index(piece), text.index(piece) + len(piece)) for piece in bare if piece}
    chunks = first_occurrence(Fours()).chunk_with_positions(Document(DocumentId("d"), text))
    assert [(chunk.start, chunk.end) for chunk in chunks] == sorted(expected)
