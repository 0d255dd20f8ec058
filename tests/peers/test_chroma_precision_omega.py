"""The Precision_Ω that Chroma published, from its data and our chunkers, in two placements.

Chroma finds every chunk again in the corpus: without a final ".", at its first occurrence. Placed so, our chunks give
the published table to the printed decimal. Placed where they were cut, chunks that repeat earlier text no longer stand
on the first copy, and the figures of the second column come out: there is nothing published to compare them with, they
are kept so that a change is seen.
"""

import csv
import json
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.recursive import CHROMA_SEPARATORS, RecursiveTokenChunker
from rag_eval.metrics.chroma import PrecisionOmega
from rag_eval.metrics.score_tables import score_token_level
from rag_eval.metrics.span_metrics import ChunkedCorpus
from rag_eval.tables import PASSAGES, chunks_to_table, truth_to_tables
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText, generate_pa_chunk_id

CHROMA = Path(__file__).parents[3] / "shared" / "data" / "chroma"

pytestmark = pytest.mark.skipif(not CHROMA.is_dir(), reason=f"Chroma's dataset is not at {CHROMA}")

# Chunker, published mean ± standard deviation in percent, and the same with true places.
ROWS = [
    (RecursiveTokenChunker(800, 400, CHROMA_SEPARATORS), "6.7±5.2", "6.7±5.2"),
    (RecursiveTokenChunker(400, 200, CHROMA_SEPARATORS), "13.9±10.4", "13.9±10.4"),
    (RecursiveTokenChunker(400, 0, CHROMA_SEPARATORS), "17.7±14.0", "17.7±14.0"),
    (RecursiveTokenChunker(200, 0, CHROMA_SEPARATORS), "29.9±18.4", "29.9±18.4"),
    (FixedTokenChunker(800, 400), "4.7±3.1", "4.7±3.1"),
    (FixedTokenChunker(400, 200), "8.4±5.1", "8.5±5.1"),
    (FixedTokenChunker(400, 0), "12.5±8.1", "12.7±8.3"),
    (FixedTokenChunker(200, 0), "21.0±11.9", "21.4±12.0"),
]


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


def at_first_occurrence(chunk: PositionAwareChunk) -> PositionAwareChunk:
    """The chunk where Chroma's evaluation would look for it."""
    text = chunk.content.removesuffix(".")
    start = corpus().by_id()[chunk.doc_id].content.index(text)
    return PositionAwareChunk(generate_pa_chunk_id(text), text, chunk.doc_id, start, start + len(text))


def precision_omega(chunks: list[PositionAwareChunk]) -> list[float]:
    scores = score_token_level(
        PASSAGES.empty_table(),
        truth_to_tables(ground_truth()),
        ["precision_omega"],
        [],
        chunks=chunks_to_table(chunks),
    )
    return scores.column("value").to_pylist()


def printed(values: list[float]) -> str:
    return f"{100 * fmean(values):.1f}±{100 * pstdev(values):.1f}"


def test_the_dataset_is_the_published_one() -> None:
    assert len(corpus()) == 5
    assert len(ground_truth()) == 472
    assert sum(len(one.relevant_spans) for one in ground_truth()) == 790


@pytest.mark.parametrize(("chunker", "published", "true"), ROWS, ids=lambda value: getattr(value, "name", None))
def test_the_published_row_and_the_same_with_true_places(chunker: BuiltInChunker, published: str, true: str) -> None:
    chunks = [chunk for document in corpus() for chunk in chunker.chunk_with_positions(document)]
    assert printed(precision_omega([at_first_occurrence(chunk) for chunk in chunks])) == published
    assert printed(precision_omega(chunks)) == true


def test_the_metric_alone_gives_what_the_table_gives() -> None:
    chunks = [chunk for document in corpus() for chunk in RecursiveTokenChunker(200).chunk_with_positions(document)]
    metric = PrecisionOmega(ChunkedCorpus(chunks))
    assert [metric.calculate([], one.relevant_spans) for one in ground_truth()] == precision_omega(chunks)
