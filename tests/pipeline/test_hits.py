"""Hits as tables: where they come from, fused and reranked."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import Chunk, Document, DocumentId, LexicalReranker, Query, RecursiveCharacterChunker, generate_chunk_id
from rag_eval.pipeline.hits import answers_table, fuse_tables, hits_at, merge_tables, rerank_table, unsure
from rag_eval.retrieval.fusion import Found, ReciprocalRankFusion
from rag_eval.retrieval.retriever import hits_of
from rag_eval.retrieval.systems import SystemAnswer
from rag_eval.stores.rankings import Ranking
from rag_eval.tables import HITS, QUERIES, as_searches, chunks_to_table, table_of

DOC = Document(
    DocumentId("a.md"), "the ferry leaves at noon. rye bread is baked at dawn. the captain drinks coffee. more"
)
CHUNKS = RecursiveCharacterChunker(20, 0).chunk_with_positions(DOC)
TABLE = chunks_to_table(CHUNKS)
ASKED = [Query.from_text(text) for text in ("ferry at noon", "rye coffee")]
QUERIES_TABLE = as_searches(table_of(QUERIES, [(query.id, query.text, False, "{}") for query in ASKED]))
rankings = st.lists(
    st.tuples(*(st.lists(st.integers(0, len(CHUNKS) - 1), unique=True) for _ in ASKED)), min_size=2, max_size=3
)


def as_ranking(ranking: tuple[list[int], ...]) -> Ranking:
    return Ranking.of((np.array(numbers, np.int64), 1 / np.arange(1, len(numbers) + 1)) for numbers in ranking)


def as_table(ranking: tuple[list[int], ...]) -> pa.Table:
    return hits_at("made", TABLE, QUERIES_TABLE, as_ranking(ranking))


def places(table: pa.Table, query: Query) -> list[tuple[str, int, int]]:
    rows = [row for row in table.to_pylist() if row["query_id"] == query.id]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["doc_id"], row["start"], row["end"]) for row in rows]


def place(number: int) -> tuple[str, int, int]:
    return CHUNKS[number].doc_id, CHUNKS[number].start, CHUNKS[number].end


def reciprocal_ranks(rankings: list[list[int]]) -> list[tuple[int, float]]:
    """The formula, one chunk at a time."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (60 + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rankings, st.integers(1, 6))
def test_hits_are_fused_by_their_reciprocal_ranks(found: list[tuple[list[int], ...]], depth: int) -> None:
    fused = fuse_tables([as_table(ranking) for ranking in found], QUERIES_TABLE, ReciprocalRankFusion(), depth)
    assert fused.schema.equals(HITS)
    arrays = ReciprocalRankFusion().fuse(Found([as_ranking(ranking) for ranking in found], len(ASKED)), depth)
    assert arrays.scores.tolist() == fused.column("score").to_pylist()
    for number, query in enumerate(ASKED):
        expected = reciprocal_ranks([ranking[number] for ranking in found])[:depth]
        assert places(fused, query) == [place(chunk) for chunk, _ in expected]
        assert arrays.scores[arrays.searches == number].tolist() == [score for _, score in expected]


def test_a_reranker_reorders_all_hits() -> None:
    order = list(range(len(CHUNKS)))
    reranked = rerank_table(as_table((order, order[:0])), TABLE, QUERIES_TABLE, LexicalReranker())
    expected = [place(CHUNKS.index(one)) for one in LexicalReranker().rerank(ASKED[0].text, CHUNKS, len(CHUNKS))]
    assert places(reranked, ASKED[0]) == expected
    assert places(reranked, ASKED[1]) == []
    assert reranked.column("score").to_pylist() == [1 / rank for rank in range(1, len(CHUNKS) + 1)]
    assert set(reranked.column("stage").to_pylist()) == {"reranked"}


def test_hits_without_places_are_fused_and_reranked_by_their_ordinals() -> None:
    plain = chunks_to_table([Chunk(generate_chunk_id(c.content), c.content, c.doc_id, {"ordinal": n}) for n, c in enumerate(CHUNKS)])  # fmt: skip  # noqa: E501
    both = [hits_at("made", plain, QUERIES_TABLE, as_ranking(one)) for one in (([0, 1], [2]), ([1, 3], []))]
    fused = fuse_tables(both, QUERIES_TABLE, ReciprocalRankFusion(), 9)
    assert fused.column("ordinal").to_pylist() == [1, 0, 3, 2]
    reranked = rerank_table(fused, plain, QUERIES_TABLE, LexicalReranker())
    assert sorted(reranked.column("ordinal").to_pylist()[:3]) == [0, 1, 3]
    assert reranked.column("ordinal").to_pylist()[3:] == [2]


def test_a_ranking_is_cut_by_search() -> None:
    ranking = as_ranking(([2, 0, 1], []))
    assert ranking.ranks.tolist() == [1, 2, 3]
    assert ranking.first(2).chunks.tolist() == [2, 0]
    assert [part.tolist() for part in ranking.by_search(3)] == [[2, 0, 1], [], []]
    assert hits_of(Ranking.of([]), [], 2) == [[], []]


def test_at_chunk_level_an_answer_of_a_system_is_an_id_it_gives_an_id_as_text_or_that_of_its_text() -> None:
    known = generate_chunk_id("one")
    answers = [
        SystemAnswer(DOC.span(0, 9), DOC.content[:9], None),
        SystemAnswer(None, known, 0.7),
        SystemAnswer(None, known, None, "an id of its own"),
        SystemAnswer(None, f"{known} and more", None),
    ]
    rows = answers_table("chunk-level", [ASKED[0].id], [answers]).to_pylist()
    assert [row["chunk_id"] for row in rows] == [
        generate_chunk_id(DOC.content[:9]),
        known,
        "an id of its own",
        generate_chunk_id(f"{known} and more"),
    ]
    assert [(row["rank"], row["score"]) for row in rows] == [(1, 1), (2, 0.7), (3, 1 / 3), (4, 1 / 4)]
    # An id alone does not say whether the text is in the documents: the document does.
    assert [row["doc_id"] for row in rows] == [DOC.id, None, None, None]
    assert {(row["start"], row["end"]) for row in rows} == {(None, None)}
    # With spans, what has a place is there and needs no text; what has none keeps its text.
    (placed, bare) = answers_table("token-level", [ASKED[0].id], [answers[:2]]).to_pylist()
    assert (placed["doc_id"], placed["start"], placed["end"], placed["text"]) == (DOC.id, 0, 9, None)
    assert (bare["doc_id"], bare["text"], bare["chunk_id"]) == (None, known, None)


in_shards = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=2, max_size=4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(in_shards, st.integers(1, 8), st.integers(1, 4))
def test_shards_are_asked_for_more_where_they_may_have_it_and_nowhere_else(
    scores: list[list[int]], depth: int, fetched: int
) -> None:
    """Places of shards alternate, and scores are mostly equal: by the score alone every shard would be asked."""
    found = []
    for shard, own in enumerate(scores):
        rows = [(float(score), f"{place}.md", shard) for place, score in enumerate(own)]
        found.append(sorted(rows, key=lambda row: (-row[0], row[1:])))

    def table(rows: list[tuple[float, str, int]]) -> pa.Table:
        numbered = [(ASKED[1].id, rank, *row, row[2] + 1) for rank, row in enumerate(rows, start=1)]
        columns = ("query_id", "rank", "score", "doc_id", "start", "end")
        return table_of(HITS, numbered, columns, variant=0, ordinal=0, chunk_id="", stage="made")

    def merged(some: list[list[tuple[float, str, int]]]) -> list[dict[str, object]]:
        best: list[dict[str, object]] = merge_tables(list(map(table, some)), QUERIES_TABLE, depth)[0].to_pylist()
        return best

    everything = sorted((row for rows in found for row in rows), key=lambda row: (-row[0], row[1:]))[:depth]
    few = [rows[:fetched] for rows in found]
    first = merge_tables(list(map(table, few)), QUERIES_TABLE, depth)
    asked = {shard: rows.tolist() for shard, rows in unsure(*first, QUERIES_TABLE, fetched)}
    assert all(rows == [1] for rows in asked.values())
    again = [rows[:depth] if shard in asked else few[shard] for shard, rows in enumerate(found)]
    assert [(one["score"], one["doc_id"], one["start"]) for one in merged(again)] == everything
    best = {(one["doc_id"], one["start"]) for one in merged(few)}
    for shard, rows in enumerate(few):
        is_full = len(rows) == fetched and all((doc_id, start) in best for _, doc_id, start in rows)
        assert (shard in asked) == is_full
