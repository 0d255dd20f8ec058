import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval import (
    Chunk,
    ChunkLevelGroundTruth,
    Corpus,
    Document,
    DocumentId,
    PositionAwareChunk,
    Query,
    TokenLevelGroundTruth,
    generate_chunk_id,
    generate_pa_chunk_id,
)
from rag_eval import tables as t
from rag_eval.errors import TableError
from tests.made_tables import placed_hits

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | nasty_texts(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty_texts(max_size=5), inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(nasty_texts(max_size=5), json_values, max_size=3)
documents = st.builds(lambda name, text, meta: Document(DocumentId(name), text, meta), nasty_texts(max_size=9), nasty_texts(max_size=40), metadata)  # fmt: skip  # noqa: E501


@QUICK
@given(st.lists(documents, min_size=1, max_size=4, unique_by=lambda document: document.id))
def test_documents_survive(docs: list[Document]) -> None:
    assert t.documents_from_table(t.documents_to_table(Corpus(docs))) == docs


@QUICK
@given(documents, metadata)
def test_chunks_survive(doc: Document, meta: dict[str, object]) -> None:
    cuts = [(i, j) for i in range(len(doc.content)) for j in (i + 1, len(doc.content))]
    placed = [
        PositionAwareChunk(generate_pa_chunk_id(doc.content[i:j]), doc.content[i:j], doc.id, i, j, meta)
        for i, j in cuts
    ]
    assert t.chunks_from_table(t.chunks_to_table(placed)) == placed
    plain = [Chunk(generate_chunk_id(chunk.content), chunk.content, doc.id, meta) for chunk in placed]
    table = t.chunks_to_table(plain)
    assert t.chunks_from_table(table) == plain
    assert table.column("ordinal").to_pylist() == list(range(len(plain)))


@QUICK
@given(st.lists(st.tuples(nasty_texts(max_size=12), metadata, documents), max_size=4, unique_by=lambda item: item[0]))
def test_ground_truth_survives(items: list[tuple[str, dict[str, object], Document]]) -> None:
    by_span, by_chunk = [], []
    for text, meta, doc in items:
        query = Query.from_text(f"{text}?", meta)
        spans = [doc.span(i, i + 1) for i in range(len(doc.content))]
        by_span.append(TokenLevelGroundTruth(query, spans, unanswerable=not spans))
        by_chunk.append(ChunkLevelGroundTruth(query, [generate_chunk_id(s.text) for s in spans], not spans))
    assert t.truth_from_tables(t.truth_to_tables(by_span), TokenLevelGroundTruth) == by_span
    assert t.truth_from_tables(t.truth_to_tables(by_chunk), ChunkLevelGroundTruth) == by_chunk


@pytest.mark.parametrize("value", [(1, 2), {3}, {1: "a"}, float("nan"), object(), "\ud800"])
def test_metadata_that_json_would_change_is_refused(value: object) -> None:
    with pytest.raises(TableError, match=r"metadata of document 'a\.md'"):
        t.documents_to_table(Corpus([Document(DocumentId("a.md"), "text", {"key": value})]))


def test_a_table_of_another_shape_is_refused_by_column() -> None:
    table = t.documents_to_table(Corpus([Document(DocumentId("a.md"), "text")]))
    with pytest.raises(TableError, match=r"missing \['sha256'\], unexpected \[\]"):
        t.documents_from_table(table.drop_columns(["sha256"]))
    with pytest.raises(TableError, match="column 'content' of the documents table is string, it needs large_string"):
        t.documents_from_table(table.set_column(1, "content", table.column("content").cast(pa.string())))
    empty = pa.array([None], pa.string())
    with pytest.raises(TableError, match="column 'sha256' of the documents table has 1 empty values"):
        t.documents_from_table(table.set_column(2, "sha256", empty))


def test_a_document_with_a_wrong_sha256_is_refused() -> None:
    table = t.documents_to_table(Corpus([Document(DocumentId("a.md"), "text")]))
    altered = table.set_column(1, "content", pa.array(["other"], pa.large_string()))
    with pytest.raises(TableError, match=r"content of document 'a\.md'"):
        t.documents_from_table(altered)


def test_truth_of_an_unknown_query_is_refused() -> None:
    doc = Document(DocumentId("a.md"), "text")
    tables = t.truth_to_tables([TokenLevelGroundTruth(Query.from_text("why?"), [doc.span(0, 2)])])
    with pytest.raises(TableError, match="names 1 unknown queries, first 'query_"):
        t.truth_from_tables(t.TruthTables(tables.queries.slice(0, 0), tables.answers), TokenLevelGroundTruth)


@pytest.mark.parametrize("metadata", ["{broken", "[1]", "[" * 200_000])
def test_metadata_that_is_not_a_json_object_is_refused(metadata: str) -> None:
    text = pa.array([metadata], pa.string())
    doc = Document(DocumentId("a.md"), "text")
    documents = t.documents_to_table(Corpus([doc]))
    with pytest.raises(TableError, match=r"metadata of document 'a\.md' is"):
        t.documents_from_table(documents.set_column(3, "metadata", text))
    queries = t.truth_to_tables([TokenLevelGroundTruth(Query.from_text("why?"), [doc.span(0, 2)])])
    broken = t.TruthTables(queries.queries.set_column(3, "metadata", text), queries.answers)
    with pytest.raises(TableError, match="metadata of query 'query_"):
        t.truth_from_tables(broken, TokenLevelGroundTruth)
    chunks = t.chunks_to_table([PositionAwareChunk(generate_pa_chunk_id("te"), "te", doc.id, 0, 2)])
    with pytest.raises(TableError, match=r"metadata of a chunk of 'a\.md'"):
        t.chunks_from_table(chunks.set_column(7, "metadata", text))


def test_a_repeated_column_is_refused() -> None:
    table = t.documents_to_table(Corpus([Document(DocumentId("a.md"), "text")]))
    with pytest.raises(TableError, match="has the column 'sha256' more than once"):
        t.documents_from_table(table.append_column("sha256", table.column("sha256")))


@pytest.mark.parametrize(("start", "end"), [(-5, 2), (-3, 0), (0, 2), (3, 0)])
def test_a_place_that_does_not_fit_its_text_is_refused(start: int, end: int) -> None:
    table = t.chunks_to_table([PositionAwareChunk(generate_pa_chunk_id("one"), "one", DocumentId("a.md"), 0, 3)])
    for name, value in (("start", start), ("end", end)):
        number = table.schema.get_field_index(name)
        table = table.set_column(number, table.schema.field(name), pa.array([value], pa.int64()))
    with pytest.raises(TableError, match=r"of 'a\.md' as the place of 'one', which is 3 characters long"):
        t.chunks_from_table(table)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("c", "a.md", 2**70, 0, "x"), "column 'start' is of type int64, and a value does not fit"),
        (("c", "a.md", "0", 0, "x"), "column 'start' is of type int64, and a value does not fit"),
        (("c", "\ud800", 0, 0, "x"), "column 'doc_id' is of type string, and a value does not fit"),
        (("c", None, 0, 0, "x"), "column 'doc_id' needs a value in every row, but 1 rows have none"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused(row: tuple[object, ...], message: str) -> None:
    with pytest.raises(TableError, match=message):
        t.table_of(t.CHUNKS, [row], ("chunk_id", "doc_id", "start", "ordinal", "content"), metadata="{}")


def test_metadata_nested_too_deep_is_refused() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(TableError, match=r"metadata of document 'a\.md' cannot be stored as JSON"):
        t.documents_to_table(Corpus([Document(DocumentId("a.md"), "text", {"key": nested})]))


def test_groups_of_evidence_survive() -> None:
    doc = Document(DocumentId("a.md"), "one one two")
    one, copy, two = doc.span(0, 3), doc.span(4, 7), doc.span(8, 11)
    truth = [TokenLevelGroundTruth(Query.from_text("1?"), [one, two], False, {one: [copy]}, {copy: "copy"})]
    tables = t.truth_to_tables(truth)
    rows = tables.answers.select(["group", "member", "start", "origin"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 0, 0, None), (0, 1, 4, "copy"), (1, 0, 8, None)]
    assert t.truth_from_tables(tables, TokenLevelGroundTruth) == truth
    ids = [generate_chunk_id(text) for text in "abc"]
    chunk_truth = [ChunkLevelGroundTruth(Query.from_text("1?"), ids[:2], False, {ids[1]: [ids[2]]}, {ids[0]: "model"})]
    assert t.truth_from_tables(t.truth_to_tables(chunk_truth), ChunkLevelGroundTruth) == chunk_truth


def test_chunks_are_numbered_within_their_documents_with_and_without_places() -> None:
    a, b = (Document(DocumentId(name), "one two") for name in ("a.md", "b.md"))
    placed = [
        PositionAwareChunk(generate_pa_chunk_id("one"), "one", doc.id, start, start + 3)
        for doc, start in ((a, 0), (b, 0), (a, 4))
    ]
    table = t.chunks_to_table(placed)
    assert t.check_schema(table, t.CHUNKS, "chunks", t.PLACE).column("ordinal").to_pylist() == [0, 0, 1]
    assert t.has_places(table)
    plain = t.chunks_to_table([Chunk(generate_chunk_id("x"), "x", a.id)])
    assert not t.has_places(plain)
    with pytest.raises(TableError, match="column 'start' of the chunks table has 1 empty values"):
        t.chunks_from_table(pa.concat_tables([table, plain]))


def test_searched_texts_default_to_the_content() -> None:
    table = t.chunks_to_table([Chunk(generate_chunk_id(text), text, DocumentId("a.md")) for text in ("one", "two")])
    assert t.searched_texts(table).to_pylist() == ["one", "two"]
    searched = pa.array([None, "Title: two"], pa.large_string())
    table = table.set_column(t.CHUNKS.get_field_index("searched"), t.CHUNKS.field("searched"), searched)
    assert t.searched_texts(table).to_pylist() == ["one", "Title: two"]


def test_queries_become_searches_and_hits_become_passages() -> None:
    queries = t.truth_to_tables([TokenLevelGroundTruth(Query.from_text("why?"), [], True)]).queries
    searches = t.check_schema(t.as_searches(queries), t.SEARCHES, "searches").to_pylist()
    assert searches == [{"query_id": queries["query_id"][0].as_py(), "variant": 0, "text": "why?", "filter": None}]
    hits = placed_hits([("q", 1, 0.25, "a.md", 3, 9, "c"), ("q", 2, 0.125, "a.md", 0, 3, "d")])
    passages = t.check_schema(t.as_passages(hits), t.PASSAGES, "passages", t.PLACE)
    assert passages.select(t.PLACE).equals(hits.select(t.PLACE))
    assert passages.column("rank").to_pylist() == [1, 2]
    assert passages.column("hit_ranks").null_count == passages.column("tokens").null_count == 2


def test_a_column_without_values_that_must_have_them_is_refused() -> None:
    with pytest.raises(TableError, match="needs a value in every row"):
        t.table_with(t.QUERIES, {"query_id": "q", "text": "?", "metadata": "{}"}, 2)
