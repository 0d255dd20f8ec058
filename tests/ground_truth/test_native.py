import json
from dataclasses import replace
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
    QueryId,
    QueryText,
    TokenLevelGroundTruth,
    generate_chunk_id,
)
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.truth_files import read_chunk_level, read_token_level, write_chunk_level, write_token_level

HEADER = {"format": "rag-eval/token-level", "version": 1}
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


A, B, COPY = (CharacterSpan(DocumentId(name), at, at + 3, "one") for name, at in (("a", 0), ("b", 4), ("c", 8)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(truths, st.lists(spans, max_size=3), st.sampled_from(["", "copy", "é\n"]))
def test_groups_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, item: TokenLevelGroundTruth, others: list[CharacterSpan], origin: str
) -> None:
    path = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    if item.relevant_spans:
        members = [span for span in dict.fromkeys(others) if span not in item.relevant_spans]
        origins = dict.fromkeys([item.relevant_spans[0], *members], origin) if origin else {}
        item = replace(item, alternatives={item.relevant_spans[0]: members}, origins=origins)
    write_token_level(path, [item])
    assert read_token_level(path) == [item]
    assert json.loads(path.read_text().split("\n")[0]) == HEADER


def test_groups_are_alternatives_beside_their_span(tmp_path: Path) -> None:
    path, query = tmp_path / "t.jsonl", Query.from_text("why?")
    item = TokenLevelGroundTruth(query, [A, A, B], alternatives={A: [COPY]}, origins={COPY: "copy", B: "review"})
    write_token_level(path, [item])
    written = json.loads(path.read_text().split("\n")[1])["relevant_spans"]
    plain = {"doc_id": "a", "start": 0, "end": 3, "text": "one"}
    assert written == [
        plain | {"alternatives": [plain | {"doc_id": "c", "start": 8, "end": 11, "origin": "copy"}]},
        plain,
        plain | {"doc_id": "b", "start": 4, "end": 7, "origin": "review"},
    ]
    assert read_token_level(path) == [item]


def test_chunk_level_groups_are_read_back(tmp_path: Path) -> None:
    one, two, three = map(generate_chunk_id, ("one", "two", "three"))
    items = [
        ChunkLevelGroundTruth(Query.from_text("how?"), [one]),
        ChunkLevelGroundTruth(Query.from_text("why?"), [one, two], False, {one: [three]}, {three: "copy"}),
    ]
    write_chunk_level(tmp_path / "c.jsonl", items)
    assert read_chunk_level(tmp_path / "c.jsonl") == items
    bad = {"query": "why?", "relevant_chunk_ids": ["x"], "alternatives": {"y": ["x"]}}
    with pytest.raises(GroundTruthError, match="'y' has alternatives and is not relevant itself"):
        read_chunk_level(write(tmp_path / "d.jsonl", bad))


GROUPED = SPAN | {"alternatives": [SPAN | {"start": 5, "end": 8}]}


@pytest.mark.parametrize(
    ("relevant", "reason"),
    [
        ([SPAN | {"alternatives": [SPAN]}], r"\[0, 3\) of 'a\.md' is in two groups, or twice in one: keep it once;"),
        ([GROUPED, SPAN | {"start": 5, "end": 8}], r"\[5, 8\) of 'a\.md' is in two groups"),
        ([SPAN | {"alternatives": [SPAN | {"start": 7}]}], r"the span \[7, 3\) of 'a\.md' has no characters"),
        (
            [SPAN | {"alternatives": [GROUPED]}],
            r"alternatives\.0\.alternatives: there is no such key.*: use .*origin, page, place;",
        ),
        ([SPAN | {"origin": ""}], r"origin: String should have at least 1 character"),
        ([SPAN | {"orign": "x"}], r"there is no such key.*origin.*: use doc_id, .*alternatives, page, place;"),
    ],
)
def test_bad_groups_are_named(tmp_path: Path, relevant: list[object], reason: str) -> None:
    path = write(tmp_path / "t.jsonl", HEADER, {"query": "why?", "relevant_spans": relevant})
    with pytest.raises(GroundTruthError, match=rf"t\.jsonl, line 2, .*{reason}"):
        read_token_level(path)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_that_is_one_list_is_one_fault(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps([{"query": "why?", "relevant_spans": [SPAN]}] * 2, indent=indent))
    with pytest.raises(
        GroundTruthError, match=r"line 1: the file is one JSON list: write its objects one a line"
    ) as told:
        read_token_level(path)
    assert "line 2" not in str(told.value)


def test_a_file_without_header_or_ids_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "why?", "relevant_spans": [SPAN]})
    path.write_text("\n" + path.read_text() + "\n\n")
    (item,) = read_token_level(path)
    assert item.query == Query.from_text("why?")
    assert item.relevant_spans == (CharacterSpan(DocumentId("a.md"), 0, 3, "one"),)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("{broken", r"line 2: not JSON .* write one JSON object per line"),
        ('["a list"]', r"line 2: the line: Input should be a valid dictionary"),
        ('{"query": "why?"}', r"line 2, query_\w{8} 'why\?': it has no relevant spans: add them, or declare"),
        ('{"relevant_spans": []}', r"line 2: query: it is missing: add it"),
        (
            '{"query": "why?", "unanswerable": true, "id": ""}',
            r"line 2, 'why\?': id: String should have at least 1 character",
        ),
        ('{"query": "why?", "query": "how?", "unanswerable": true}', r"line 2: the key 'query' occurs twice"),
        ('{"query": "why?", "unanswerable": true, "metadata": {"a": {"b": 1, "b": 2}}}', r"line 2: the key 'b' occurs"),
        ('{"query": "why?", "unanswerable": true, "metadata": {"a": NaN}}', r"line 2: NaN is not a JSON number"),
        (
            '{"query": "why?", "unanswerable": true, "metadata": {"a": -Infinity}}',
            r"line 2: -Infinity is not a JSON number",
        ),
        (
            '{"query": "why\\ud800", "unanswerable": true}',
            r"line 2, 'why.*': the text has a lone surrogate at character 3",
        ),
        (
            '{"query": "why?", "unanswerable": true, "id": "\\ud800"}',
            r"line 2, 'why\?': id: Input should be a valid string",
        ),
        (
            '{"query": "why?", "unanswerable": true, "metadata": {"a": "\\ud800"}}',
            r"line 2, query_\w{8} 'why\?': the metadata of the query ",
        ),
        (
            '{"query": "why?", "relevant_spans": [{"doc_id": "\\udfff", "start": 0, "end": 1, "text": "x"}]}',
            r"line 2, 'why\?': the text has a lone surrogate",
        ),
        (
            '{"query": "?", "relevant_spans": [{"doc_id": "a", "start": 9223372036854775808, "end": 1, "text": "x"}]}',
            r"line 2, '\?': relevant_spans\.0\.start: Input should be less than",
        ),
        (
            '{"query": "why?", "unanswerable": true, "metadata": {"a": ' + "[" * 200_000 + "]" * 200_000 + "}}",
            r"line 2: .*nested too deep",
        ),
        (
            '{"query": "why?", "relevant_spans": []}',
            r"line 2, query_\w{8} 'why\?': it has no relevant spans: add them, or declare",
        ),
        (
            '{"query": "  ", "relevant_spans": [], "unanswerable": true}',
            r"line 2, query_\w{8} '  ': the query is empty",
        ),
        (
            '{"query": "why?", "relevant_spans": [], "spans": []}',
            r"line 2, 'why\?': spans: there is no such key: use id, query, unanswerable, metadata, relevant_spans",
        ),
        (
            '{"query": "why?", "relevant_span": []}',
            r"line 2, 'why\?': relevant_span: there is no such key \(did you mean relevant_spans\?\)",
        ),
        (
            '{"query": "why?", "relevant_chunk_ids": []}',
            r"line 2, 'why\?': relevant_chunk_ids: it belongs to the other evaluation type",
        ),
        ('{"format": "rag-eval/token-level", "version": 1}', r"line 2: the line that names the format must come first"),
        (
            '{"query": "why?", "relevant_spans": [{"doc_id": "a", "start": "0", "end": 3, "text": "one"}]}',
            r"line 2, 'why\?': relevant_spans\.0\.start: Input should be a valid integer",
        ),
        (
            '{"query": "why?", "relevant_spans": [{"doc_id": "a", "start": 3, "end": 3, "text": ""}]}',
            r"line 2, query_\w{8} 'why\?': the span \[3, 3\) of 'a' has no characters",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, record: str, reason: str) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "fine?", "relevant_spans": [SPAN]})
    path.write_text(path.read_text() + record + "\n")
    with pytest.raises(GroundTruthError, match=r"t\.jsonl, " + reason):
        read_token_level(path)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ('{"format": "rag-eval/token-level", "version": 3}', "version: Input should be 1"),
        ('{"format": "rag-eval/other", "version": 1}', "format: Input should be 'rag-eval/token-level' or"),
        ('{"format": "rag-eval/chunk-level", "version": 1}', "this is chunk-level ground truth and the evaluat"),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, header: str, reason: str) -> None:
    (tmp_path / "t.jsonl").write_text("\n" + header + "\n")
    with pytest.raises(GroundTruthError, match=rf"t\.jsonl, line 2: {reason}"):
        read_token_level(tmp_path / "t.jsonl")


def test_an_unanswerable_query_need_not_list_what_it_has_not(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "why?", "unanswerable": True})
    (tokens,), (chunks,) = read_token_level(path), read_chunk_level(path)
    assert (tokens.relevant_spans, chunks.relevant_chunk_ids) == ((), ())


def test_a_byte_order_mark_is_passed_over_and_a_path_may_be_a_string(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "why?", "unanswerable": True})
    path.write_bytes("\ufeff".encode() + path.read_bytes())
    truth = read_token_level(str(path))
    assert [item.query.text for item in truth] == ["why?"]
    write_token_level(str(tmp_path / "u.jsonl"), truth)
    assert read_token_level(tmp_path / "u.jsonl") == truth


UNANSWERABLE = TokenLevelGroundTruth(Query.from_text("why?"), [], unanswerable=True)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "has no queries"),
        ([UNANSWERABLE, UNANSWERABLE], "line 3, query_.* 'why\\?': its id is in line 2 too"),
        ([TokenLevelGroundTruth(Query.from_text("why?"), [])], "has no relevant spans"),
        ([replace(UNANSWERABLE, query=Query(QueryId(""), QueryText("why?")))], "id: String should have at least 1"),
        ([replace(UNANSWERABLE, query=Query(QueryId("q"), QueryText("\ud800")))], "lone surrogate"),
        *(
            ([replace(UNANSWERABLE, query=Query.from_text("why?", {"key": value}))], reason)
            for value, reason in [
                ((1, 2), "could not be read back unchanged"),
                ({1: "a"}, "could not be read back unchanged"),
                (float("nan"), "cannot be kept as JSON"),
                ({1}, "cannot be kept as JSON"),
            ]
        ),
    ],
)
def test_what_would_not_be_read_back_is_not_written(
    tmp_path: Path, items: list[TokenLevelGroundTruth], reason: str
) -> None:
    with pytest.raises(GroundTruthError, match=reason):
        write_token_level(tmp_path / "t.jsonl", items)
    assert list(tmp_path.iterdir()) == []


def test_two_queries_with_one_id_are_named(tmp_path: Path) -> None:
    record = {"query": "why?", "relevant_spans": [SPAN]}
    with pytest.raises(GroundTruthError, match=r"line 2, query_\w{8} 'why\?': its id is in line 1 too"):
        read_token_level(write(tmp_path / "t.jsonl", record, record))
    assert len(read_token_level(write(tmp_path / "t.jsonl", record, record | {"id": "other"}))) == 2


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match="does not exist"):
        read_token_level(tmp_path / "none.jsonl")
    with pytest.raises(GroundTruthError, match="is a folder: give the ground-truth file in it"):
        read_token_level(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b"caf\xe9")
    with pytest.raises(GroundTruthError, match=r"latin\.jsonl' is not UTF-8: byte 3"):
        read_token_level(tmp_path / "latin.jsonl")
    with pytest.raises(GroundTruthError, match="has no queries"):
        read_token_level(write(tmp_path / "t.jsonl", {"format": "rag-eval/token-level", "version": 1}))


def test_the_error_says_how_many_faults_there_are_and_what_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"query": "a", "relevant_spans": []}\nnonsense\n{"query": ""}\n', encoding="utf-8")
    with pytest.raises(
        GroundTruthError, match=r"line 1, .*; 3 more; rag-eval truth check lists everything that is wrong"
    ):
        read_token_level(path)
