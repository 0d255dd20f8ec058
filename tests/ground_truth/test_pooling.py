"""What was retrieved and nobody judged, pooled, graded and in the truth."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import ChunkLevelGroundTruth, Corpus, Document, DocumentId, Query, TokenLevelGroundTruth
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.drift import reanchor, write_reanchored
from rag_eval.ground_truth.pooling import LONGEST, SHORTEST, Passage, PassageGrade, draw_sample, pool, with_grades
from rag_eval.ground_truth.review import app as answers
from rag_eval.ground_truth.review.session import DocumentFolder, ReviewSession
from rag_eval.ground_truth.truth_files import Truth, read_token_level, write_truth
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import PERSON, JudgedPassage, judgements, with_judgements
from rag_eval.types.ids import ChunkId
from tests.made_tables import placed_passages, plain_passages

DOC = Document(DocumentId("a.md"), "".join(f"word{number:04} " for number in range(1_000)))
ASKED, OTHER = Query.from_text("when?"), Query.from_text("where?")
DOCUMENTS = {DOC.id: DOC}


def truth(*spans: CharacterSpan) -> TokenLevelGroundTruth:
    return TokenLevelGroundTruth(ASKED, spans)


def found(**places: list[tuple[int, int]]) -> Mapping[str, object]:
    return {
        name: placed_passages([(ASKED.id, rank, DOC.id, *place) for rank, place in enumerate(some, start=1)])
        for name, some in places.items()
    }


def graded(item: Truth, judge: str, grades: Mapping[Passage, int]) -> Truth:
    by_passage = {(item.query.id, one): PassageGrade(reason="", grade=grade) for one, grade in grades.items()}  # type: ignore[arg-type]
    (now,) = with_grades([item], judge, by_passage)
    return now


def pooled(item: TokenLevelGroundTruth, k: int = 5, **places: list[tuple[int, int]]) -> list[JudgedPassage]:
    (now,) = pool([item], found(**places), k, DOCUMENTS)  # type: ignore[arg-type]
    assert now.groups == item.groups
    return judgements(now.query)


def test_overlapping_ranges_are_one_passage_by_agreement_and_rank() -> None:
    passages = pooled(
        truth(DOC.span(0, 9)),
        a=[(900, 1_000), (100, 200)],
        b=[(150, 300), (900, 950)],
        c=[(500, 600), (120, 180), (0, 9)],
    )
    told = [(one.passage.start, one.passage.end, one.configurations, one.rank) for one in passages]  # type: ignore[union-attr]
    assert told == [(100, 300, 3, 1), (900, 1_000, 2, 1), (500, 600, 1, 1)]
    assert all(not one.grades for one in passages)
    assert pooled(truth(DOC.span(0, 9)), 1, c=[(0, 9), (100, 200)]) == []


def test_what_is_in_the_truth_or_was_pooled_before_is_left_out() -> None:
    item = truth(DOC.span(90, 180))
    (now,) = pool([item], found(a=[(0, 450)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    assert [one.place for one in judgements(now.query)] == [
        {"doc_id": "a.md", "start": 0, "end": 89},
        {"doc_id": "a.md", "start": 180, "end": 449},
    ]
    assert pool([now], found(a=[(0, 450)]), 5, DOCUMENTS) == [now]  # type: ignore[arg-type]
    (more,) = pool([now], found(a=[(0, 450)], b=[(360, 540)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    assert [(one.place["start"], one.configurations) for one in judgements(more.query)] == [(180, 2), (0, 1), (450, 1)]
    unanswerable = TokenLevelGroundTruth(ASKED, [], True)
    assert pool([unanswerable], found(a=[(0, 450)]), 5, DOCUMENTS) == [unanswerable]  # type: ignore[arg-type]


places = st.tuples(st.integers(0, 8_000), st.integers(1, 3_000)).map(lambda one: (one[0], min(9_000, sum(one))))


@settings(deadline=None, max_examples=80)
@given(st.lists(places, min_size=1, max_size=8), st.lists(places, max_size=3))
def test_pooled_passages_hold_what_was_retrieved_and_no_two_overlap(
    hits: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    item = truth(*(DOC.span(*place) for place in spans or [(0, 9)]))
    passages = [one.passage for one in pooled(item, 10, a=hits)]
    retrieved, known = ({c for start, end in some for c in range(start, end)} for some in (hits, spans or [(0, 9)]))
    seen: set[int] = set()
    for one in passages:
        assert isinstance(one, CharacterSpan)
        own = set(range(one.start, one.end))
        assert SHORTEST <= len(own) <= LONGEST
        assert own <= retrieved - known
        assert not own & seen
        assert one.text == DOC.content[one.start : one.end] == one.text.strip()
        seen |= own
    # What is left is whitespace at the ends, or a scrap of something that was too short.
    left, run = sorted(retrieved - known - seen), 0
    for number, place in enumerate(left):
        run = run + 1 if number and place == left[number - 1] + 1 else 1
        assert run <= SHORTEST + 1


def test_chunk_ids_are_pooled_as_they_are() -> None:
    ids = [ChunkId(f"chunk_{number:012}") for number in range(4)]
    item = ChunkLevelGroundTruth(ASKED, [ids[0]])
    tables = {
        "a": plain_passages([(ASKED.id, 1, ids[1]), (ASKED.id, 2, ids[0])]),
        "b": plain_passages([(ASKED.id, 1, ids[2]), (ASKED.id, 2, ids[1])]),
    }
    (now,) = pool([item], tables, 2, {})
    assert [(one.passage, one.configurations, one.rank) for one in judgements(now.query)] == [
        (ids[1], 2, 1),
        (ids[2], 1, 1),
    ]
    judged = graded(now, "model", {ids[1]: 2, ids[2]: 0})
    assert isinstance(judged, ChunkLevelGroundTruth)
    assert list(judged.relevant_chunk_ids) == [ids[0], ids[1]]
    assert judged.origins == {ids[1]: "judged by model"}


def test_what_is_relevant_enters_the_truth_and_a_person_has_the_last_word() -> None:
    item = TokenLevelGroundTruth(
        ASKED, [DOC.span(0, 9)], False, {DOC.span(0, 9): [DOC.span(9, 18)]}, {DOC.span(9, 18): "copy"}
    )
    (now,) = pool([item], found(a=[(100, 200), (500, 600)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    first, second = (one.passage for one in judgements(now.query))
    judged = graded(now, "model", {first: 3, second: 1})
    assert judged.groups == [*item.groups, (first,)]
    assert judged.origins == {**item.origins, first: "judged by model"}
    assert [one.grades for one in judgements(judged.query)] == [{"model": 3}, {"model": 1}]
    reversed_by_person = graded(judged, PERSON, {first: 0, second: 2})
    assert reversed_by_person.groups == [*item.groups, (second,)]
    assert reversed_by_person.origins == {**item.origins, second: "judged by person"}
    again = graded(reversed_by_person, "model 2", {first: 3, second: 0})
    assert again.groups == reversed_by_person.groups
    assert [one.grade for one in judgements(again.query)] == [0, 2]


def test_a_question_keeps_the_truth_it_has() -> None:
    (now,) = pool([truth(DOC.span(0, 9))], found(a=[(100, 200)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    (one,) = judgements(now.query)
    alone = TokenLevelGroundTruth(now.query, [one.passage], False, {}, {one.passage: "judged by model"})  # type: ignore[list-item, dict-item]
    assert graded(alone, PERSON, {one.passage: 0}).relevant_spans == (one.passage,)


def test_a_sample_is_drawn_anew_from_all_passages() -> None:
    items = pool(
        [truth(DOC.span(0, 9)), TokenLevelGroundTruth(OTHER, [DOC.span(0, 9)])],
        found(a=[(n, n + 90) for n in range(90, 990, 90)]),
        10,
        DOCUMENTS,
    )  # type: ignore[arg-type]
    marked = [
        {one.place["start"] for one in judgements(draw_sample(items, 4, seed)[0].query) if one.sampled}
        for seed in range(60)
    ]
    assert all(len(one) == 4 for one in marked)
    assert set.union(*marked) == set(range(90, 990, 90))
    assert draw_sample(items, 4, 3) == draw_sample(draw_sample(items, 7, 5), 4, 3)
    assert draw_sample(items, 0, 3) == items


def test_judged_passages_are_kept_in_files(tmp_path: Path) -> None:
    (now,) = pool([truth(DOC.span(0, 9))], found(a=[(100, 200)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    (one,) = judgements(now.query)
    for grade in (0, 3):
        judged = graded(now, PERSON, {one.passage: grade})
        write_truth(tmp_path / "truth.jsonl", [judged])
        assert read_token_level(tmp_path / "truth.jsonl") == [judged]
    path = tmp_path / "wrong.jsonl"
    text = (tmp_path / "truth.jsonl").read_text("utf-8")
    path.write_text(text.replace('"grades": {"person": 3}', '"grades": {"person": 7}'), encoding="utf-8")
    with pytest.raises(GroundTruthError, match=r"line 2.*under 'judged': give doc_id.*from 0 to 3"):
        read_token_level(path)


def test_judged_passages_follow_their_text(tmp_path: Path) -> None:
    first, second, third = DOC.span(90, 180), DOC.span(450, 540), DOC.span(900, 990)
    query = with_judgements(ASKED, [JudgedPassage(span, {PERSON: 0}) for span in (first, second, third)])
    item = TokenLevelGroundTruth(query, [DOC.span(0, 9)])
    path = tmp_path / "truth.jsonl"
    write_truth(path, [item, TokenLevelGroundTruth(OTHER, [DOC.span(0, 9)])])
    before = path.read_text("utf-8")
    edited = DOC.content[:400] + "A new sentence. " + DOC.content[400:900] + "x" * 90 + DOC.content[990:]
    corpus = Corpus([Document(DOC.id, edited)])
    held = check_against_corpus([item], corpus)
    assert [one.passage for one in judgements(held[0].query)] == [first]
    report = reanchor(read_token_level(path), corpus, {DOC.id: [DOC.content]})
    assert (report.counts["kept"], len(report.spans), report.rejudged, report.is_unchanged) == (2, 2, 2, False)
    write_reanchored(report, path)
    found = [one.passage for one in judgements(read_token_level(path)[0].query)]
    assert found == [first, corpus.by_id()[DOC.id].span(466, 556)]
    assert path.read_text("utf-8").split("\n")[2] == before.split("\n")[2]
    assert reanchor(read_token_level(path), corpus).is_unchanged


def review(tmp_path: Path, item: Truth) -> ReviewSession:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(DOC.content, encoding="utf-8")
    write_truth(tmp_path / "truth.jsonl", [item])
    return ReviewSession(tmp_path / "truth.jsonl", DocumentFolder(tmp_path / "docs", "*.md"))


def test_pooled_passages_are_judged_in_a_review(tmp_path: Path) -> None:
    (item,) = pool([truth(DOC.span(0, 9))], found(a=[(90, 180), (270, 360), (450, 540)]), 5, DOCUMENTS)  # type: ignore[arg-type]
    session = review(tmp_path, item)
    assert answers.state(session)["queries"][0]["offered"] == 3
    assert "judged" not in answers.query(session, ASKED.id)["metadata"]
    first, second = (("a.md", start, start + 89) for start in (90, 270))
    session.judge(ASKED.id, first, "accepted")
    session.judge(ASKED.id, second, "accepted")
    session.undo()
    session.judge(ASKED.id, second, "rejected")
    (now,) = read_token_level(tmp_path / "truth.jsonl")
    assert [span.start for span in now.relevant_spans] == [0, 90]
    assert [one.grades for one in judgements(now.query)] == [{PERSON: 3}, {PERSON: 0}, {}]
    assert now.origins == {DOC.span(90, 179): "judged by person"}
    assert answers.state(session)["queries"][0]["offered"] == 1


def test_what_is_drawn_for_people_waits_for_them(tmp_path: Path) -> None:
    (now,) = draw_sample(pool([truth(DOC.span(0, 9))], found(a=[(90, 180), (270, 360)]), 5, DOCUMENTS), 1, 0)  # type: ignore[arg-type]
    passages = judgements(now.query)
    judged = graded(now, "model", {one.passage: 3 for one in passages})
    (waiting,) = (one.passage for one in passages if one.sampled)
    assert waiting not in [member for group in judged.groups for member in group]
    assert len(judged.groups) == 2
    session = review(tmp_path, judged)
    offered = [one for one in answers.query(session, ASKED.id)["spans"] if one["kind"] == "offered"]
    assert [(one["start"], one["judge"]) for one in offered] == [(waiting.start, None)]  # type: ignore[union-attr]
    assert len(graded(judged, PERSON, {waiting: 3}).groups) == 3


def test_judgements_without_passages_are_none() -> None:
    assert judgements(with_judgements(ASKED, [])) == []
