import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError, GroundTruthError, ReviewConflictError, SpanMismatchError
from rag_eval.ground_truth.records import Place
from rag_eval.ground_truth.review import app as answers
from rag_eval.ground_truth.review.entries import rejected_path
from rag_eval.ground_truth.review.session import (
    DocumentFolder,
    NewSpan,
    ReviewSession,
    Verdict,
)
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.types.evidence import judgements
from rag_eval.types.ids import QueryId, text_sha256
from tests.ground_truth.review.review_files import FERRY, Record, queries_in, records, span, write_files

WHEN, BOATS, SCRIPT, NEVER = (record["query"] for record in records())


def session_on(truth: Path) -> ReviewSession:
    return ReviewSession(truth, DocumentFolder(truth.parent / "docs", "**/*.md"))


def id_of(session: ReviewSession, text: str) -> QueryId:
    return next(query_id for query_id, entry in session.entries.items() if entry.record.query == text)


def decide(session: ReviewSession, text: str, decision: Verdict) -> None:
    query_id = id_of(session, text)
    session.decide(query_id, session.entries[query_id].version, decision)


def place_of(record: Record) -> Place:
    return record["doc_id"], record["start"], record["end"]


def texts(path: Path) -> list[str]:
    return [query["query"] for query in queries_in(path)]


def test_a_decision_is_saved_at_once_and_touches_its_line_only(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    before = truth.read_text(encoding="utf-8").split("\n")
    session = session_on(truth)
    decide(session, BOATS, "accepted")
    after = truth.read_text(encoding="utf-8").split("\n")
    assert [number for number in range(len(before)) if before[number] != after[number]] == [2]
    assert json.loads(after[2]) == json.loads(before[2]) | {"metadata": {"review": "accepted"}}
    assert read_token_level(truth)[1].query.metadata == {"review": "accepted"}
    assert not rejected_path(truth).exists()


def test_groups_are_kept_and_raise_the_version_of_the_file_they_go_to(tmp_path: Path) -> None:
    copy = span("ferry.md", FERRY, "22:40", 1) | {"origin": "copy"}
    grouped = {"query": "When?", "relevant_spans": [span("ferry.md", FERRY, "22:40") | {"alternatives": [copy]}]}
    truth = write_files(tmp_path, {"format": "rag-eval/token-level", "version": 1}, grouped, records()[1])
    session = session_on(truth)
    query_id = id_of(session, WHEN)
    seen = digest(session, "ferry.md")
    boats = span("ferry.md", FERRY, "Boote")
    session.put_span(query_id, NewSpan("ferry.md", boats["start"], boats["end"], seen))
    assert queries_in(truth)[0]["relevant_spans"] == [*grouped["relevant_spans"], boats]
    with pytest.raises(GroundTruthError, match="is an alternative of another span: keep one of them"):
        session.put_span(query_id, NewSpan("ferry.md", copy["start"], copy["end"], seen))
    decide(session, BOATS, "rejected")
    aside = rejected_path(truth)
    assert '"version": 1' in aside.read_text().split("\n")[0]
    decide(session, WHEN, "rejected")
    assert '"version": 1' in aside.read_text().split("\n")[0]
    assert [len(item.alternatives) for item in read_token_level(aside)] == [0, 1]


def test_a_wrong_alternative_is_a_fault_of_its_span(tmp_path: Path) -> None:
    wrong = span("ferry.md", FERRY, "22:40") | {"text": "22:41"}
    record = {"query": "When?", "relevant_spans": [span("ferry.md", FERRY, "Boote") | {"alternatives": [wrong]}]}
    session = session_on(write_files(tmp_path, record))
    with pytest.raises(GroundTruthError, match=r"adjust the span .*: an alternative: 'ferry\.md' has '22:40'"):
        decide(session, WHEN, "accepted")


def test_a_span_that_is_adjusted_keeps_the_alternatives_that_are_right_and_not_itself(tmp_path: Path) -> None:
    right, wrong = span("ferry.md", FERRY, "zwei"), span("ferry.md", FERRY, "22:40") | {"text": "22:41"}
    place = span("ferry.md", FERRY, "22:40", 1)
    grouped = span("ferry.md", FERRY, "Boote") | {"alternatives": [right, wrong, place]}
    truth = write_files(tmp_path, {"query": "When?", "relevant_spans": [grouped]})
    session = session_on(truth)
    seen = digest(session, "ferry.md")
    moved = NewSpan("ferry.md", place["start"], place["end"], seen, replaces=place_of(grouped))
    session.put_span(id_of(session, WHEN), moved)
    assert queries_in(truth)[0]["relevant_spans"] == [place | {"alternatives": [right]}]
    decide(session, WHEN, "accepted")
    with pytest.raises(ReviewConflictError, match="moved or removed this passage"):
        session.put_span(id_of(session, WHEN), moved)
    with pytest.raises(GroundTruthError, match="is an alternative of another span"):
        session.put_span(id_of(session, WHEN), replace(moved, replaces=place_of(right)))


def test_a_rejected_query_moves_to_a_file_beside_and_back(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    decide(session, BOATS, "rejected")
    decide(session, WHEN, "rejected")
    aside = tmp_path / "truth.rejected.jsonl"
    assert rejected_path(truth) == aside
    assert (texts(truth), texts(aside)) == ([SCRIPT, NEVER], [BOATS, WHEN])
    assert aside.read_text(encoding="utf-8").startswith('{"format": "rag-eval/token-level"')
    assert [item.query.metadata["review"] for item in read_token_level(aside)] == ["rejected", "rejected"]

    again = session_on(truth)
    assert [entry.status for entry in again.entries.values()] == ["open", "open", "rejected", "rejected"]
    decide(again, BOATS, "accepted")
    assert (texts(truth), texts(aside)) == ([SCRIPT, NEVER, BOATS], [WHEN])


def test_undo_takes_everything_back_byte_for_byte(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    before = truth.read_bytes()
    session = session_on(truth)
    decide(session, WHEN, "rejected")
    decide(session, BOATS, "accepted")
    decide(session, BOATS, "rejected")
    query_id = id_of(session, WHEN)
    session.put_span(query_id, NewSpan("ferry.md", 0, 3, digest(session, "ferry.md")))
    undone = [session.undo() for _ in range(5)]
    boats = id_of(session, BOATS)
    assert undone == [query_id, boats, boats, query_id, None]
    assert truth.read_bytes() == before
    assert texts(rejected_path(truth)) == []


def digest(session: ReviewSession, doc_id: str) -> str:
    seen = session.documents.get(doc_id)
    assert seen is not None
    return text_sha256(seen.content)


def test_spans_are_taken_from_the_document_and_kept_ones_stay(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    query_id = id_of(session, BOATS)
    party = FERRY.index("🎉")
    new = NewSpan("ferry.md", party, party + 7, digest(session, "ferry.md"))
    session.judge(query_id, place_of(records()[1]["relevant_spans"][0]), "rejected")
    session.put_span(query_id, new)
    session.put_span(query_id, new)
    spans = queries_in(truth)[1]["relevant_spans"]
    assert [one["text"] for one in spans] == ["zwei", "🎉 fährt"]
    assert read_token_level(truth)[1].relevant_spans[1].start == party
    seen = digest(session, "ferry.md")
    for place, reason in [
        (NewSpan("none.md", 0, 1, ""), "can no longer be read"),
        (NewSpan("ferry.md", 0, 1, "other"), "has changed: look at it"),
        (NewSpan("ferry.md", 0, 1, seen, replaces=("ferry.md", 5, 6)), "moved or removed"),
    ]:
        with pytest.raises(ReviewConflictError, match=reason):
            session.put_span(query_id, place)
    with pytest.raises(SpanMismatchError, match="reaches past the end"):
        session.put_span(query_id, NewSpan("ferry.md", 0, 10**6, seen))
    assert queries_in(truth)[1]["relevant_spans"] == spans
    session.judge(query_id, place_of(spans[0]), "rejected")
    with pytest.raises(GroundTruthError, match="it is the last passage: press 0"):
        session.judge(query_id, place_of(spans[1]), "rejected")
    session.decide(query_id, session.entries[query_id].version, "unanswerable")
    item = read_token_level(truth)[1]
    assert (item.unanswerable, item.relevant_spans, item.query.metadata["review"]) == (True, (), "accepted")
    assert {one.passage.text: one.grade for one in judgements(item.query)} == dict.fromkeys(  # type: ignore[union-attr]
        ("Boote", "zwei", "🎉 fährt"), 0
    )


def test_a_span_makes_an_unanswerable_query_answerable(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    query_id = id_of(session, NEVER)
    session.decide(query_id, session.entries[query_id].version, "accepted")
    session.put_span(query_id, NewSpan("ferry.md", 0, 1, digest(session, "ferry.md")))
    item = read_token_level(truth)[3]
    assert (item.unanswerable, [one.text for one in item.relevant_spans]) == (False, ["#"])


def test_only_what_is_true_can_be_accepted(tmp_path: Path) -> None:
    wrong = {"doc_id": "ferry.md", "start": 0, "end": 5, "text": "22:40"}
    short = {"doc_id": "ferry.md", "start": 0, "end": 3, "text": "22:40"}
    truth = write_files(
        tmp_path,
        {"query": "wrong?", "relevant_spans": [wrong]},
        {"query": "short?", "relevant_spans": [short]},
        {"query": "none?"},
    )
    session = session_on(truth)
    before = truth.read_bytes()
    for text, reason in [
        ("wrong?", r"adjust the span .* is at \[\d+, \d+\)"),
        ("short?", "adjust"),
        ("none?", "has no span"),
    ]:
        with pytest.raises(GroundTruthError, match=reason):
            decide(session, text, "accepted")
    assert truth.read_bytes() == before
    assert [row["faulty"] for row in answers.state(session)["queries"]] == [True, True, True]
    decide(session, "wrong?", "rejected")
    assert texts(truth) == ["short?", "none?"]


def test_what_somebody_else_wrote_is_taken_in_and_not_overwritten(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    when, seen = id_of(session, WHEN), session.entries[id_of(session, WHEN)].version
    before = session.revision
    truth.write_bytes(truth.read_bytes().replace(b'"22:40"', b'"22:4"').replace(b"Boats?", b"Ships?"))
    assert session.refresh() > before
    assert session.refresh() == session.revision
    decide(session, SCRIPT, "accepted")
    decide(session, "Ships?", "rejected")
    assert (texts(truth), texts(rejected_path(truth))) == ([WHEN, SCRIPT, NEVER], ["Ships?"])
    with pytest.raises(ReviewConflictError, match="has changed this question"):
        session.decide(when, seen, "accepted")
    with pytest.raises(ReviewConflictError, match="no longer in the file"):
        session.decide("nobody", seen, "rejected")


def test_two_people_review_one_file_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    many = [{"query": f"{number}?", "relevant_spans": [span("ferry.md", FERRY, "Boote")]} for number in range(40)]
    truth = write_files(tmp_path, *many)

    def review(numbers: range) -> None:
        session = session_on(truth)
        for number in numbers:
            decide(session, f"{number}?", "rejected" if number % 3 == 0 else "accepted")

    people = [threading.Thread(target=review, args=(one,)) for one in (range(20), range(20, 40))]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert dict.fromkeys(texts(rejected_path(truth))).keys() == {f"{number}?" for number in range(0, 40, 3)}
    assert all(item.query.metadata == {"review": "accepted"} for item in read_token_level(truth))


def test_what_somebody_else_has_decided_since_is_not_undone(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    anna, ben = session_on(truth), session_on(truth)
    decide(anna, WHEN, "accepted")
    decide(ben, WHEN, "rejected")
    assert texts(rejected_path(truth)) == [WHEN]
    with pytest.raises(ReviewConflictError, match="somebody else has changed this question since"):
        anna.undo()


def pooled(*places: Record, **more: object) -> Record:
    """The question about boats with passages that a run retrieved."""
    judged = [one | {"configurations": 2, "rank": 1, "grades": {}} | more for one in places]
    return records()[1] | {"metadata": {"judged": judged}}


def test_an_offered_passage_is_judged_into_the_truth_or_out_of_it(tmp_path: Path) -> None:
    first, second = span("ferry.md", FERRY, "22:40"), span("ferry.md", FERRY, "e\u0301ins")
    truth = write_files(tmp_path, records()[0], pooled(first, second))
    session = session_on(truth)
    query_id = id_of(session, BOATS)
    told = answers.query(session, query_id)
    assert [one["kind"] for one in told["spans"]] == ["span", "span", "offered", "offered"]
    assert [row["offered"] for row in answers.state(session)["queries"]] == [0, 2]
    session.judge(query_id, place_of(first), "accepted")
    session.judge(query_id, place_of(second), "rejected")
    assert queries_in(truth)[1]["relevant_spans"][2] == first | {"origin": "judged by person"}
    kinds = [(one["kind"], one["status"]) for one in answers.query(session_on(truth), query_id)["spans"]]
    assert kinds == [("span", "open"), ("span", "open"), ("span", "accepted"), ("rejected", "rejected")]
    session.judge(query_id, place_of(second), "accepted")
    assert len(queries_in(truth)[1]["relevant_spans"]) == 4
    with pytest.raises(ReviewConflictError, match="moved or removed this passage"):
        session.judge(query_id, ("ferry.md", 0, 1), "rejected")


def test_what_a_model_judged_is_shown_with_its_reason_and_is_not_offered(tmp_path: Path) -> None:
    place = span("ferry.md", FERRY, "Boote")
    record = pooled(place, span("ferry.md", FERRY, "22:40"), grades={"model": 1}, reasons={"model": "<b>close</b>"})
    session = session_on(write_files(tmp_path, record))
    told = answers.query(session, id_of(session, BOATS))
    assert [one["kind"] for one in told["spans"]] == ["span", "span"]
    assert [(one["judge"], one["grade"], one["reason"]) for one in told["spans"]] == [
        ("model", 1, "<b>close</b>"),
        (None, None, None),
    ]


def test_an_offer_that_is_adjusted_is_offered_no_more(tmp_path: Path) -> None:
    first = span("ferry.md", FERRY, "22:40")
    truth = write_files(tmp_path, pooled(first))
    session = session_on(truth)
    there = NewSpan("ferry.md", first["start"], first["end"] - 1, digest(session, "ferry.md"), place_of(first))
    session.put_span(id_of(session, BOATS), there)
    added = queries_in(truth)[0]["relevant_spans"][2]
    assert (added["text"], added["origin"]) == ("22:4", "judged by person")
    assert len(answers.query(session, id_of(session, BOATS))["spans"]) == 3


def test_one_alternative_is_judged_by_itself(tmp_path: Path) -> None:
    copy = span("ferry.md", FERRY, "22:40", 1) | {"origin": "copy"}
    grouped = span("ferry.md", FERRY, "22:40") | {"alternatives": [copy]}
    truth = write_files(tmp_path, {"query": WHEN, "relevant_spans": [grouped]})
    session = session_on(truth)
    query_id = id_of(session, WHEN)
    session.judge(query_id, place_of(copy), "rejected")
    assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, "22:40")]
    assert session.undo() == query_id
    assert queries_in(truth)[0]["relevant_spans"] == [grouped]
    session.judge(query_id, place_of(grouped), "accepted")
    assert [one["status"] for one in answers.query(session, query_id)["spans"]] == ["accepted", "open"]


def test_a_passage_taken_out_of_the_truth_is_listed_and_can_be_put_back(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    boats, place = id_of(session, BOATS), place_of(records()[1]["relevant_spans"][0])
    session.judge(boats, place, "rejected")
    kinds = [(one["kind"], one["text"]) for one in answers.query(session_on(truth), boats)["spans"]]
    assert kinds == [("span", "zwei"), ("rejected", "Boote")]
    session.judge(boats, place, "accepted")
    assert [one["text"] for one in queries_in(truth)[1]["relevant_spans"]] == ["zwei", "Boote"]


def test_a_move_that_was_cut_off_loses_nothing(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    whole = truth.read_bytes()
    decide(session_on(truth), BOATS, "rejected")
    truth.write_bytes(whole)  # as if the second write had not come
    session = session_on(truth)
    assert [entry.status for entry in session.entries.values()] == ["open"] * 4
    decide(session, WHEN, "accepted")
    assert (texts(truth), texts(rejected_path(truth))) == ([WHEN, BOATS, SCRIPT, NEVER], [])


def test_lines_that_are_no_queries_stay_as_they_are(tmp_path: Path) -> None:
    record = records()[0]
    ugly = ["\ufeff" + json.dumps(record) + "\r", "", "{broken", json.dumps(record), json.dumps({"query": " "})]
    truth = write_files(tmp_path, *ugly)
    session = session_on(truth)
    assert len(session.entries) == 1
    assert [one.partition(":")[0] for one in session.files.broken] == [
        f"line {number} of truth.jsonl" for number in (3, 4, 5)
    ]
    decide(session, WHEN, "accepted")
    lines = truth.read_bytes().decode().split("\n")
    assert lines[1:] == [*ugly[1:], ""]
    assert lines[0].endswith('"accepted"}}\r')


def test_a_link_stays_a_link_and_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = write_files(tmp_path / "real")
    link = tmp_path / "truth.jsonl"
    link.symlink_to(real)
    session = ReviewSession(link, DocumentFolder(real.parent / "docs", "**/*.md"))
    decide(session, WHEN, "accepted")
    assert link.is_symlink()
    assert queries_in(real)[0]["metadata"]["review"] == "accepted"

    (tmp_path / "chunks.jsonl").write_text('{"query": "x?", "relevant_chunk_ids": ["chunk_1"]}')
    with pytest.raises(GroundTruthError, match="has chunk ids"):
        ReviewSession(tmp_path / "chunks.jsonl", session.documents)
    with pytest.raises(GroundTruthError, match="does not exist"):
        ReviewSession(tmp_path / "none.jsonl", session.documents)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    rejected_path(truth).mkdir()
    with pytest.raises(ArtifactError):
        decide(session, WHEN, "rejected")
    assert session.entries[id_of(session, WHEN)].status == "open"
    assert texts(truth) == [WHEN, BOATS, SCRIPT, NEVER]


def test_a_document_that_changes_is_seen_as_it_is_now(tmp_path: Path) -> None:
    truth = write_files(tmp_path)
    session = session_on(truth)
    assert not any(row["faulty"] for row in answers.state(session)["queries"])
    (tmp_path / "docs" / "ferry.md").write_bytes(("Neu. " + FERRY).encode())
    told = answers.query(session, id_of(session, WHEN))
    moved = span("ferry.md", "Neu. " + FERRY, "22:40")
    assert f"the text is at [{moved['start']}, {moved['end']})" in told["spans"][0]["fault"]
    (tmp_path / "docs" / "ferry.md").unlink()
    for doc_id in ("ferry.md", "../truth.jsonl"):
        with pytest.raises(ReviewConflictError, match="is not in the folder"):
            answers.document(session, doc_id)
