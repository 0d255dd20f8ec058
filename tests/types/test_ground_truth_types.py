import pytest

from rag_eval import (
    CharacterSpan,
    ChunkLevelGroundTruth,
    ChunkLevelRunOutput,
    DocumentId,
    EvaluationResult,
    Query,
    TokenLevelDatasetExample,
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


def test_sequences_are_copied_into_tuples() -> None:
    assert TokenLevelRunOutput([SPAN]).retrieved_spans == (SPAN,)
    assert ChunkLevelRunOutput([generate_chunk_id("one")]).retrieved_chunk_ids == (generate_chunk_id("one"),)


def test_values_can_be_hashed_despite_their_metadata() -> None:
    query = Query.from_text("why?", {"tags": ["a"]})
    assert len({TokenLevelGroundTruth(query, [SPAN]), TokenLevelGroundTruth(query, [SPAN])}) == 1


def test_examples_and_results_have_the_documented_defaults() -> None:
    example = TokenLevelDatasetExample({"query": "why?"}, {"relevant_spans": []})
    assert example.metadata == {}
    result = EvaluationResult({"span_recall": 0.5})
    assert (result.experiment_url, result.raw_results) == (None, None)
