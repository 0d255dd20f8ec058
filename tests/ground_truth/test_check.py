import json
import re
from pathlib import Path

import pytest

from rag_eval import (
    CharacterSpan,
    Chunk,
    ChunkLevelGroundTruth,
    Corpus,
    Document,
    DocumentId,
    Query,
    TokenLevelGroundTruth,
)
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus, check_chunk_ids, span_fault
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.types.ids import ChunkId

CORPUS = Corpus([Document(DocumentId("a.md"), "one two three")])
QUERY = Query.from_text("why?")


def truth(doc_id: str, start: int, end: int, text: str) -> TokenLevelGroundTruth:
    return TokenLevelGroundTruth(QUERY, [CharacterSpan(DocumentId(doc_id), start, end, text)])


def fault_in(content: str, start: int, text: str, end: int | None = None) -> str | None:
    document = Document(DocumentId("a.md"), content)
    return span_fault(CharacterSpan(document.id, start, end or start + len(text), text), document)


def test_alternatives_are_checked_like_spans() -> None:
    (good,) = truth("a.md", 4, 7, "two").relevant_spans
    bad = CharacterSpan(DocumentId("a.md"), 0, 3, "two")
    with pytest.raises(GroundTruthError, match=r"'a\.md' has 'one' at \[0, 3\), the span says 'two'"):
        check_against_corpus([TokenLevelGroundTruth(QUERY, [good], alternatives={good: [bad]})], CORPUS)


def test_alternatives_that_are_no_chunks_are_named() -> None:
    there, copy, gone = ChunkId("chunk_a"), ChunkId("chunk_b"), ChunkId("chunk_c")
    chunks = [Chunk(one, "text", DocumentId("a.md")) for one in (there, copy)]
    check_chunk_ids([ChunkLevelGroundTruth(QUERY, [there], alternatives={there: [copy]})], chunks)
    with pytest.raises(GroundTruthError, match=r"1 of the 3 chunk ids in the ground truth are not .* first chunk_c"):
        check_chunk_ids([ChunkLevelGroundTruth(QUERY, [there], alternatives={there: [copy, gone]})], chunks)


def test_truth_that_its_corpus_bears_out_passes() -> None:
    check_against_corpus([truth("a.md", 4, 7, "two"), TokenLevelGroundTruth(QUERY, [], unanswerable=True)], CORPUS)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (
            truth("b.md", 4, 7, "two"),
            r"span in 'b\.md', which is not in the corpus: check the id, the corpus folder and",
        ),
        (truth("./docs/a.md", 4, 7, "two"), r"not in the corpus: write 'a\.md', the path inside the corpus folder"),
        (truth("a.md", 4, 7, "ten"), r"'a\.md' has 'two' at \[4, 7\), the span says 'ten'"),
        (truth("a.md", 10, 17, "reeeeee"), "'reeeeee' and reaches past the end"),
        (TokenLevelGroundTruth(QUERY, []), "has no relevant spans"),
    ],
)
def test_truth_that_its_corpus_denies_is_named(item: TokenLevelGroundTruth, reason: str) -> None:
    with pytest.raises(GroundTruthError, match=rf"{QUERY.id} 'why\?': .*{reason}"):
        check_against_corpus([item], CORPUS)


@pytest.mark.parametrize(
    ("content", "start", "text", "hint"),
    [
        ("one two three", 0, "two", r"the text is at \[4, 7\)$"),
        ("two x two x two", 5, "two", r"the text is at \[6, 9\) and at 2 more places$"),
        ("one two three", 0, "ten", r"that text is nowhere in the document"),
        ("één twee", 6, "twee", r"these are UTF-8 byte offsets, count code points: \[4, 8\)$"),
        ("😀😀 two", 5, "two", r"these are UTF-16 unit offsets, count code points: \[3, 6\)$"),
        ("a\r\nb\r\ntwo", 4, "two", r"these are offsets that count CRLF as one, count code points: \[6, 9\)$"),
        ("one two", 5, "two", r"reaches past the end of 'a\.md', which has 7 characters: the text is at \[4, 7\)$"),
    ],
)
def test_a_wrong_place_comes_with_the_right_one(content: str, start: int, text: str, hint: str) -> None:
    fault = fault_in(content, start, text)
    assert fault is not None
    assert re.search(hint, fault), fault
    assert ("count code points" in fault) == ("these are" in hint)


def test_long_texts_are_shown_where_they_differ() -> None:
    same = "x" * 300
    fault = fault_in(f"{same}left{same}", 0, f"{same}right{same[1:]}")
    assert fault is not None
    assert "xleftx" in fault
    assert "xrightx" in fault
    assert len(fault) < 400


def test_the_error_names_the_line_and_all_documents_concerned(tmp_path: Path) -> None:
    spans = [{"doc_id": doc_id, "start": 0, "end": 3, "text": "two"} for doc_id in ("a.md", "b.md", "b.md")]
    path = tmp_path / "truth.jsonl"
    path.write_text(
        "\n".join(
            [
                "",
                json.dumps({"query": "fine?", "unanswerable": True}),
                json.dumps({"query": "which?", "relevant_spans": spans}),
            ]
        )
    )
    expected = (
        r"truth\.jsonl, line 3, query_\w{8} 'which\?': 'a\.md' has 'one' at \[0, 3\), the span says 'two': the text "
        r"is at \[4, 7\); 2 more like it in 'b\.md', which rag-eval truth check lists; rag-eval truth reanchor "
    )
    with pytest.raises(GroundTruthError, match=expected):
        check_against_corpus(read_token_level(path), CORPUS, path)
