"""Hits as tables give what the retrievers of the library give."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import Document, DocumentId, Hit, LexicalReranker, PositionAwareChunk, Query, RecursiveCharacterChunker
from rag_eval.benchmark.hits import fuse_tables, hits_at, rerank_table
from rag_eval.retrieval.fusion import fuse
from rag_eval.retrieval.vector import rerank_hits
from rag_eval.tables import HITS, QUERIES, chunks_to_table, table_of

DOC = Document(
    DocumentId("a.md"), "the ferry leaves at noon. rye bread is baked at dawn. the captain drinks coffee. more"
)
CHUNKS = RecursiveCharacterChunker(20, 0).chunk_with_positions(DOC)
TABLE = chunks_to_table(CHUNKS)
ASKED = [Query.from_text(text) for text in ("ferry at noon", "rye coffee")]
QUERIES_TABLE = table_of(QUERIES, [(query.id, query.text, False, "{}") for query in ASKED])
rankings = st.lists(
    st.tuples(*(st.lists(st.integers(0, len(CHUNKS) - 1), unique=True) for _ in ASKED)), min_size=2, max_size=3
)


def as_table(ranking: tuple[list[int], ...]) -> pa.Table:
    query = np.repeat(np.arange(len(ASKED)), [len(numbers) for numbers in ranking])
    rank = np.concatenate([np.arange(len(numbers)) for numbers in ranking]).astype(np.int64)
    number = np.array([number for numbers in ranking for number in numbers], np.int64)
    return hits_at("made", TABLE, QUERIES_TABLE, query, rank, number, 1 / (rank + 1.0))


def places(table: pa.Table, query: Query) -> list[tuple[str, int, int]]:
    rows = [row for row in table.to_pylist() if row["query_id"] == query.id]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["doc_id"], row["start"], row["end"]) for row in rows]


def place(chunk: PositionAwareChunk) -> tuple[str, int, int]:
    return chunk.doc_id, chunk.start, chunk.end


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rankings, st.integers(1, 6))
def test_fused_tables_are_fused_hits(found: list[tuple[list[int], ...]], depth: int) -> None:
    fused = fuse_tables([as_table(ranking) for ranking in found], QUERIES_TABLE, depth)
    assert fused.schema.equals(HITS)
    for number, query in enumerate(ASKED):
        hits = [[Hit(CHUNKS[one], 1.0) for one in ranking[number]] for ranking in found]
        assert places(fused, query) == [place(hit.chunk) for hit in fuse(hits)][:depth]


def test_a_reranked_table_is_reranked_hits() -> None:
    order = list(range(len(CHUNKS)))
    reranked = rerank_table(as_table((order, order[:0])), TABLE, QUERIES_TABLE, LexicalReranker(), 2)
    expected = rerank_hits(LexicalReranker(), ASKED[0].text, [Hit(chunk, 1.0) for chunk in CHUNKS], 2)
    assert places(reranked, ASKED[0]) == [place(hit.chunk) for hit in expected]
    assert places(reranked, ASKED[1]) == []
    assert reranked.column("score").to_pylist() == [1.0, 0.5]
