import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval import (
    CharacterSpan,
    ChunkLevelGroundTruth,
    DocumentId,
    Query,
    TokenLevelGroundTruth,
    generate_chunk_id,
)
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.native import read_chunk_level, read_token_level, write_chunk_level, write_token_level

SPAN = {"doc_id": "a.md", "start": 0, "end": 3, "text": "one"}
spans = st.builds(
    lambda doc, start, text: CharacterSpan(DocumentId(doc), start, start + len(text), text),
    nasty_texts(max_size=6),
    st.integers(0, 10**9),
    nasty_texts(max_size=20).filter(bool),
)
truths = st.builds(
    lambda text, found, meta: TokenLevelGroundTruth(Query.from_text(text, meta), found, unanswerable=not found),
    nasty_texts(max_size=20).filter(lambda text: bool(text.strip())),
    st.lists(spans, max_size=3),
    st.dictionaries(nasty_texts(max_size=4), st.integers() | nasty_texts(max_size=4), max_size=2),
)


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(truths, min_size=1, max_size=4, unique_by=lambda item: item.query.id))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, items: list[TokenLevelGroundTruth]
) -> None:
    path = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    write_token_level(path, items)
    assert read_token_level(path) == items


def test_chunk_level_truth_is_read_back_with_its_chunker(tmp_path: Path) -> None:
    items = [
        ChunkLevelGroundTruth(Query.from_text("why?", {"chunker": "Halves(2)"}), [generate_chunk_id("é")]),
        ChunkLevelGroundTruth(Query.from_text("where?"), [], unanswerable=True),
    ]
    write_chunk_level(tmp_path / "c.jsonl", items)
    read = read_chunk_level(tmp_path / "c.jsonl")
    assert read == items
    assert [item.chunker for item in read] == ["Halves(2)", None]
    with pytest.raises(GroundTruthError, match=r"c\.jsonl, line 1: this is chunk-level ground truth"):
        read_token_level(tmp_path / "c.jsonl")
    with pytest.raises(GroundTruthError, match="has no relevant chunk ids"):
        read_chunk_level(write(tmp_path / "d.jsonl", {"query": "why?", "relevant_chunk_ids": []}))


def test_a_file_without_header_or_ids_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "why?", "relevant_spans": [SPAN]})
    path.write_text("\n" + path.read_text() + "\n\n")
    (item,) = read_token_level(path)
    assert item.query == Query.from_text("why?")
    assert item.relevant_spans == (CharacterSpan(DocumentId("a.md"), 0, 3, "one"),)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("{broken", r"line 2: not JSON .* write one JSON object a line"),
        ('["a list"]', r"line 2: the line: Input should be a valid dictionary"),
        ('{"query": "why?"}', r"line 2: relevant_spans: Field required"),
        ('{"query": "why?", "relevant_spans": []}', r"line 2: 'why\?' has no relevant spans: add them, or declare"),
        ('{"query": "  ", "relevant_spans": [], "unanswerable": true}', r"line 2: the query is empty"),
        ('{"query": "why?", "relevant_spans": [], "spans": []}', r"line 2: spans: Extra inputs are not permitted"),
        ('{"format": "rag-eval/token-level", "version": 2}', r"line 2: version: Input should be 1"),
        ('{"format": "rag-eval/other", "version": 1}', r"line 2: format: Input should be 'rag-eval/token-level' or"),
        (
            '{"format": "rag-eval/chunk-level", "version": 1}',
            "line 2: this is chunk-level ground truth and the evaluat",
        ),
        (
            '{"query": "why?", "relevant_spans": [{"doc_id": "a", "start": "0", "end": 3, "text": "one"}]}',
            r"line 2: relevant_spans\.0\.start: Input should be a valid integer",
        ),
        (
            '{"query": "why?", "relevant_spans": [{"doc_id": "a", "start": 3, "end": 3, "text": ""}]}',
            r"line 2: the span \[3, 3\) of 'a' holds no character",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, record: str, reason: str) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "fine?", "relevant_spans": [SPAN]})
    path.write_text(path.read_text() + record + "\n")
    with pytest.raises(GroundTruthError, match=r"t\.jsonl, " + reason):
        read_token_level(path)


def test_two_queries_with_one_id_are_named(tmp_path: Path) -> None:
    record = {"query": "why?", "relevant_spans": [SPAN]}
    with pytest.raises(GroundTruthError, match=r"line 2: the query id query_\w{8} stands in line 1 too"):
        read_token_level(write(tmp_path / "t.jsonl", record, record))
    assert len(read_token_level(write(tmp_path / "t.jsonl", record, record | {"id": "other"}))) == 2


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match="is not there"):
        read_token_level(tmp_path / "none.jsonl")
    with pytest.raises(GroundTruthError, match="holds no query"):
        read_token_level(write(tmp_path / "t.jsonl", {"format": "rag-eval/token-level", "version": 1}))
