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

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.recursive import CHROMA_SEPARATORS, RecursiveTokenChunker
from rag_eval.metrics.chroma_metrics import PrecisionOmega
from rag_eval.metrics.score_tables import score_passages
from rag_eval.metrics.span_metrics import ChunkedCorpus
from rag_eval.results.reproduction import CHROMA_ROWS, FirstOccurrence, other_files
from rag_eval.tables import PASSAGES, chunks_to_table, truth_to_tables
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText

CHROMA = Path(__file__).parents[3] / "shared" / "data" / "chroma"

pytestmark = pytest.mark.skipif(not CHROMA.is_dir(), reason=f"Chroma's dataset is not at {CHROMA}")

TRUE = ["6.7 ± 5.2", "13.9 ± 10.4", "17.7 ± 14.0", "29.9 ± 18.4", "4.7 ± 3.1", "8.5 ± 5.1", "12.7 ± 8.3", "21.4 ± 12.0"]
"""With true places, in the order of the published rows."""


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


def test_the_dataset_is_the_published_one() -> None:
    assert len(corpus()) == 5
    assert len(ground_truth()) == 472
    assert sum(len(one.relevant_spans) for one in ground_truth()) == 790


@pytest.mark.parametrize(("row", "true"), list(zip(CHROMA_ROWS, TRUE, strict=True)))
def test_the_published_row_and_the_same_with_true_places(row: tuple[str, int, int, str], true: str) -> None:
    kind, size, overlap, published = row
    chunker = (
        FixedTokenChunker(size, overlap) if kind == "fixed" else RecursiveTokenChunker(size, overlap, CHROMA_SEPARATORS)
    )
    first = FirstOccurrence(chunker)
    assert printed(precision_omega([one for doc in corpus() for one in first.chunk_with_positions(doc)])) == published
    assert printed(precision_omega([one for doc in corpus() for one in chunker.chunk_with_positions(doc)])) == true


def test_the_digests_are_those_of_the_published_data() -> None:
    assert other_files("chroma", CHROMA) == []


def test_the_metric_alone_gives_what_the_table_gives() -> None:
    chunks = [chunk for document in corpus() for chunk in RecursiveTokenChunker(200).chunk_with_positions(document)]
    metric = PrecisionOmega(ChunkedCorpus(chunks))
    assert [metric.calculate([], one.relevant_spans) for one in ground_truth()] == precision_omega(chunks)
