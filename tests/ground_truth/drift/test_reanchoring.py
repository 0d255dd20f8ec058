from dataclasses import replace
from pathlib import Path

import pytest

from rag_eval import CharacterSpan, Corpus, Document, DocumentId, Query, TokenLevelGroundTruth
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.drift import documents_that_no_longer_match, reanchor, write_reanchored
from rag_eval.ground_truth.truth_files import read_token_level, write_token_level

A, B, C = (DocumentId(f"{letter}.md") for letter in "abc")
OLD_A = "The ferry leaves at noon. Tickets cost 5 euro. Dogs travel free. Tickets are sold on board."
OLD_B = "Nothing has changed here, 你好 👍🏽."
NEW_A = "Note: " + OLD_A.replace("5 euro", "6 euro").replace("Dogs travel free. ", "")


def corpus(**texts: str) -> Corpus:
    return Corpus([Document(DocumentId(f"{name}.md"), text) for name, text in texts.items()])


def span(content: str, text: str, doc_id: DocumentId = A) -> CharacterSpan:
    start = content.index(text)
    return CharacterSpan(doc_id, start, start + len(text), text)


def query(text: str, *spans: CharacterSpan, **metadata: object) -> TokenLevelGroundTruth:
    return TokenLevelGroundTruth(Query.from_text(text, metadata), spans)


TRUTH = [
    query("when?", span(OLD_A, "The ferry leaves at noon."), span(OLD_B, "你好 👍🏽", B), difficulty="hard"),
    query("how much?", span(OLD_A, "Tickets cost 5 euro."), span(OLD_A, "Dogs travel free.")),
    TokenLevelGroundTruth(Query.from_text("who?"), [], unanswerable=True),
    query("dogs?", span(OLD_A, "Dogs travel free.")),
    query("where?", span(OLD_A, "on board")),
]


def test_spans_are_carried_through_the_difference_to_the_old_text() -> None:
    report = reanchor(TRUTH, corpus(a=NEW_A, b=OLD_B), {A: [OLD_A]})
    assert report.counts == {"kept": 1, "moved": 2, "altered": 1, "lost": 2}
    assert [(one.status, one.new.text if one.new else one.reason) for one in report.spans] == [
        ("moved", "The ferry leaves at noon."),
        ("kept", "你好 👍🏽"),
        ("altered", "Tickets cost 6 euro."),
        ("lost", "deleted"),
        ("lost", "deleted"),
        ("moved", "on board"),
    ]
    assert [item.query for item in report.truth] == [TRUTH[number].query for number in (0, 1, 2, 4)]
    assert [item.query.text for item in report.unanswered] == ["dogs?"]
    check_against_corpus(report.truth, corpus(a=NEW_A, b=OLD_B))
    assert [(item.query.text, len(item.relevant_spans)) for item in report.lost] == [
        ("how much?", 1),
        ("dogs?", 1),
    ]


def test_without_the_old_text_a_span_is_found_by_its_text_or_lost() -> None:
    twice = [*TRUTH, query("twice?", span(OLD_A, "Tickets"))]
    report = reanchor(twice, corpus(a=NEW_A, b=OLD_B))
    assert [(one.status, one.reason) for one in report.spans if one.old.doc_id == A] == [
        ("moved", None),
        ("lost", "not-found"),
        ("lost", "not-found"),
        ("lost", "not-found"),
        ("moved", None),
        ("lost", "ambiguous"),
    ]
    other_text = reanchor(twice, corpus(a=NEW_A, b=OLD_B), {A: ["Of another document."]})
    assert other_text.spans == report.spans
    stays = reanchor([query("two?", span("one two", "two"), span("one two", "one"))], corpus(a="six two two"))
    assert [(one.status, one.reason) for one in stays.spans] == [("kept", None), ("lost", "not-found")]


def test_each_span_is_carried_from_the_version_it_fits() -> None:
    middle = "Preface. " + OLD_A
    mixed = [
        query("old?", span(OLD_A, "The ferry leaves at noon."), span(OLD_A, "on board")),
        query("middle?", span(middle, "Tickets cost 5 euro.")),
        query("new?", span(NEW_A, "Tickets cost 6 euro.")),
        query("never?", CharacterSpan(A, 500, 508, "on board")),
    ]
    report = reanchor(mixed, corpus(a=NEW_A), {A: ["Unrelated.", middle, OLD_A]})
    assert [(one.status, one.new.text if one.new else None) for one in report.spans] == [
        ("moved", "The ferry leaves at noon."),
        ("moved", "on board"),
        ("altered", "Tickets cost 6 euro."),
        ("kept", "Tickets cost 6 euro."),
        ("moved", "on board"),
    ]


def test_a_document_that_is_gone_takes_its_spans_along() -> None:
    report = reanchor(TRUTH, corpus(b=OLD_B), {A: [OLD_A]})
    assert {one.reason for one in report.spans if one.old.doc_id == A} == {"document-gone"}


def test_truth_that_matches_is_left_alone() -> None:
    report = reanchor(TRUTH, corpus(a=OLD_A, b=OLD_B), {A: [NEW_A]})
    assert report.is_unchanged
    assert list(report.truth) == TRUTH
    assert documents_that_no_longer_match(TRUTH, corpus(a=OLD_A, b=OLD_B)) == {}


def test_the_documents_that_no_longer_match_are_named_with_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    write_token_level(path, TRUTH)
    changed = corpus(a=NEW_A, c="")
    assert documents_that_no_longer_match(TRUTH, changed) == {A: 5, B: 1}
    with pytest.raises(
        GroundTruthError, match=r"'a\.md'.* 5 more like it in 'a\.md', 'b\.md'.*rag-eval truth reanchor"
    ):
        check_against_corpus(TRUTH, changed, path)
    with pytest.raises(GroundTruthError, match=r"has no relevant spans: add them, or declare the query unanswerable$"):
        check_against_corpus([TokenLevelGroundTruth(TRUTH[0].query, [])], changed, path)


def test_what_is_written_keeps_ids_metadata_and_order_and_what_is_lost_is_kept_beside(tmp_path: Path) -> None:
    path, lost = tmp_path / "truth.jsonl", tmp_path / "truth.lost.jsonl"
    write_token_level(path, TRUTH)
    report = reanchor(read_token_level(path), corpus(a=NEW_A, b=OLD_B), {A: [OLD_A]})
    assert write_reanchored(report, path) == lost
    written = read_token_level(path)
    assert [item.query for item in written] == [TRUTH[number].query for number in (0, 1, 2, 4)]
    assert written[1].relevant_spans == (
        replace(TRUTH[1].relevant_spans[0], start=32, end=52, text="Tickets cost 6 euro."),
    )
    assert [item.relevant_spans for item in read_token_level(lost)] == [
        TRUTH[1].relevant_spans[1:],
        TRUTH[3].relevant_spans,
    ]

    later = reanchor(written, corpus(a="Note: " + OLD_A[:25], b=OLD_B), {A: [NEW_A]})
    assert later.counts == {"kept": 2, "moved": 0, "altered": 0, "lost": 2}
    assert write_reanchored(later, path) == lost
    told = [(item.query.text, [span.text for span in item.relevant_spans]) for item in read_token_level(lost)]
    assert told == [
        ("how much?", ["Dogs travel free.", "Tickets cost 6 euro."]),
        ("dogs?", ["Dogs travel free."]),
        ("where?", ["on board"]),
    ], "what was lost first comes first"
    assert write_reanchored(reanchor(read_token_level(path), corpus(a=NEW_A, b=OLD_B)), path) is None


def test_groups_go_on_with_the_members_that_are_left(tmp_path: Path) -> None:
    old = {A: "one two. one two. three", B: "one two"}
    first, second, third = (CharacterSpan(doc, at, at + 7, "one two") for doc, at in ((A, 0), (A, 9), (B, 0)))
    last = span(old[A], "three")
    truth = query("why?", first, last)
    truth = replace(truth, alternatives={first: [second, third]}, origins={first: "person", third: "copy"})
    path = tmp_path / "truth.jsonl"
    write_token_level(path, [truth])

    report = reanchor([truth], corpus(a="Note: one two. three", c="x"), {A: [old[A]], B: [old[B]]})
    (now,) = report.truth
    assert [(one.status, one.reason) for one in report.spans] == [
        ("lost", "rewritten"),
        ("moved", None),
        ("lost", "document-gone"),
        ("moved", None),
    ]
    kept = CharacterSpan(A, 6, 13, "one two")
    assert now.groups == [(kept,), (CharacterSpan(A, 15, 20, "three"),)]
    assert now.origins == {}
    (lost,) = report.lost
    assert (lost.groups, lost.origins) == ([(first, third)], {first: "person", third: "copy"})
    place = write_reanchored(report, path)
    assert place is not None
    assert (read_token_level(path), read_token_level(place)) == ([now], [lost])
    assert write_reanchored(report, path) == place, "what was lost already is not written twice"
    assert read_token_level(place) == [lost]


def test_members_that_one_group_loses_one_after_the_other_are_all_kept(tmp_path: Path) -> None:
    text = "one two. one two. one two"
    first, second, third = (CharacterSpan(A, at, at + 7, "one two") for at in (0, 9, 18))
    path, gone = tmp_path / "truth.jsonl", corpus(c="x")
    for members, origins in (([second], {}), ([third], {third: "copy"})):
        other = query("where?", CharacterSpan(DocumentId("c.md"), 0, 1, "x"))
        truth = [replace(query("why?", first), alternatives={first: members}, origins=origins), other]
        write_token_level(path, truth)
        place = write_reanchored(reanchor(truth, gone, {A: [text]}), path)
    assert place is not None
    (lost,) = read_token_level(place)
    assert (lost.groups, lost.origins) == ([(first, second, third)], {third: "copy"})


def test_truth_of_which_nothing_is_left_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    with pytest.raises(GroundTruthError, match="none of the 1 queries has a span that is in the corpus"):
        write_reanchored(reanchor(TRUTH[3:4], corpus(c="Something else.")), path)
    assert list(tmp_path.iterdir()) == []


def test_lines_whose_spans_stay_are_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    text = "One. Two. Three."
    changed = text.replace("Two. ", "Two. Or more. ")
    lines = [
        '\ufeff{"query":"one?",   "relevant_spans":[{"text":"One.","doc_id":"a.md","start":0,"end":4}]}\r',
        '{"unanswerable": true, "query": "none?"}',
        "",
        '{"metadata":{"é":[1.50]},"query":"three?","relevant_spans":[{"doc_id":"a.md","start":10,"end":16,"text":"Three."}]}\r',
        '{"query": "two?", "relevant_spans": [{"doc_id": "a.md", "start": 5, "end": 9, "text": "Two."}]}',
    ]
    path.write_bytes("\n".join(lines).encode())
    report = reanchor(read_token_level(path), corpus(a=changed), {A: [text]})
    assert write_reanchored(report, path) is None
    found = path.read_bytes().decode().split("\n")
    assert found[:3] == lines[:3]
    assert found[3] == (
        '{"metadata": {"é": [1.5]}, "query": "three?", '
        '"relevant_spans": [{"doc_id": "a.md", "start": 19, "end": 25, "text": "Three."}]}\r'
    )
    assert found[4:] == lines[4:]
    assert read_token_level(path) == list(report.truth)
