import pytest

from rag_eval import (
    CharacterSpan,
    ChunkLevelGroundTruth,
    ChunkLevelRunOutput,
    DocumentId,
    Query,
    TokenLevelGroundTruth,
    TokenLevelRunOutput,
    generate_chunk_id,
)
from rag_eval.errors import GroundTruthError

SPAN = CharacterSpan(DocumentId("a.md"), 0, 3, "one")


def test_the_same_question_has_the_same_id() -> None:
    assert Query.from_text("why?").id == Query.from_text("why?", {"persona": "crew"}).id
    assert Query.from_text("why?").id != Query.from_text("why ?").id


def test_an_unanswerable_query_has_no_answers() -> None:
    query = Query.from_text("why?")
    assert TokenLevelGroundTruth(query, [], unanswerable=True).relevant_spans == ()
    with pytest.raises(GroundTruthError, match="declared unanswerable and has 1 relevant spans"):
        TokenLevelGroundTruth(query, [SPAN], unanswerable=True)
    with pytest.raises(GroundTruthError, match="has 1 relevant chunk ids"):
        ChunkLevelGroundTruth(query, [generate_chunk_id("one")], unanswerable=True)


COPY = CharacterSpan(DocumentId("b.md"), 4, 7, "one")


def test_a_span_and_its_alternatives_are_one_group() -> None:
    query, other = Query.from_text("why?"), CharacterSpan(DocumentId("a.md"), 4, 7, "two")
    truth = TokenLevelGroundTruth(query, [SPAN, other], alternatives={SPAN: [COPY], other: []}, origins={COPY: "copy"})
    assert truth.relevant_spans == (SPAN, other), "the alternatives are no spans of their own"
    assert truth.groups == [(SPAN, COPY), (other,)]
    assert truth.alternatives == {SPAN: (COPY,)}, "a span without alternatives is not named"
    assert truth != TokenLevelGroundTruth(query, [SPAN, other])
    one, two = generate_chunk_id("one"), generate_chunk_id("two")
    assert ChunkLevelGroundTruth(query, [one], alternatives={one: [two]}).groups == [(one, two)]
    assert TokenLevelGroundTruth(query, [SPAN, SPAN]).groups == [(SPAN,), (SPAN,)]


@pytest.mark.parametrize(
    ("alternatives", "origins", "sentence"),
    [
        ({COPY: [SPAN]}, {}, r"\[4, 7\) of 'b.md' has alternatives and is not relevant itself: add it, or remove them"),
        ({SPAN: [SPAN]}, {}, r"\[0, 3\) of 'a.md' is in two groups, or twice in one: keep it once"),
        ({SPAN: [COPY, COPY]}, {}, r"\[4, 7\) of 'b.md' is in two groups, or twice in one: keep it once"),
        ({}, {COPY: "copy"}, r"\[4, 7\) of 'b.md' has an origin and is in no group: add it, or remove the origin"),
    ],
)
def test_groups_that_contradict_each_other_are_refused(
    alternatives: dict[CharacterSpan, list[CharacterSpan]], origins: dict[CharacterSpan, str], sentence: str
) -> None:
    with pytest.raises(GroundTruthError, match=f"^query_.*: {sentence}$"):
        TokenLevelGroundTruth(Query.from_text("why?"), [SPAN], alternatives=alternatives, origins=origins)


def test_sequences_are_copied_into_tuples() -> None:
    assert TokenLevelRunOutput([SPAN]).retrieved_spans == (SPAN,)
    assert ChunkLevelRunOutput([generate_chunk_id("one")]).retrieved_chunk_ids == (generate_chunk_id("one"),)


def test_values_can_be_hashed_despite_their_metadata() -> None:
    query = Query.from_text("why?", {"tags": ["a"]})
    assert len({TokenLevelGroundTruth(query, [SPAN]), TokenLevelGroundTruth(query, [SPAN])}) == 1
