"""What functions of all kinds return, read as places or refused."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from rag_eval import CallableRetriever, CharacterSpan, Chunk, Corpus, Document, DocumentId, Query, generate_chunk_id
from rag_eval.chunking.placement import SkippedChunkWarning
from rag_eval.errors import ConfigurationError, SpanError, SpanMismatchError
from rag_eval.retrieval.systems import AnswerReader

CORPUS = Corpus([Document(DocumentId("a.md"), "one two three four"), Document(DocumentId("b.md"), "red green blue")])
ASKED = [Query.from_text("?")]


TEXTS = Corpus(
    [
        Document(DocumentId("b.md"), "The ferry leaves at noon.\n\nBread is baked from rye and water.\n\nSame words."),
        Document(DocumentId("a.md"), "Same words.\n\nThe captain drinks coffee in the wheelhouse."),
    ]
)


def contents(answers: object) -> list[str]:
    retriever = CallableRetriever(lambda query, k: answers, name="ours")  # type: ignore[arg-type, return-value]
    retriever.index(CORPUS)
    return [hit.chunk.content for hit in retriever.retrieve(ASKED, 3)[0]]


@pytest.mark.parametrize("answers", ["one two", {"doc_id": "a.md", "start": 0, "end": 3}, None, 7, b"one"])
def test_what_is_not_a_list_of_answers_is_refused(answers: object) -> None:
    with pytest.raises(ConfigurationError, match=r"ours returned .*: return a list of answers"):
        contents(answers)


def test_an_async_function_is_awaited() -> None:
    async def search(query: str, k: int) -> list[str]:
        return ["one"][:k]

    retriever = CallableRetriever(search)
    retriever.index(CORPUS)
    assert [hit.chunk.content for hit in retriever.retrieve(ASKED, 1)[0]] == ["one"]


def test_an_endless_answer_is_read_as_far_as_it_counts() -> None:
    def endless() -> Iterator[tuple[str, int, int]]:
        return (("a.md", start, start + 1) for start in count())

    assert contents(endless()) == ["o", "n", "e"]


def test_numbers_of_numpy_are_places_and_truth_values_are_not() -> None:
    assert contents([("a.md", np.int64(0), np.int32(3))]) == ["one"]
    for place in ((False, True), (0.0, 3.0)):
        with pytest.raises(ConfigurationError, match="use whole numbers"):
            contents([("a.md", *place)])


def test_places_that_are_not_known_are_found_by_the_text() -> None:
    answers = [
        {"doc_id": "b.md", "start": None, "end": None, "text": "green"},
        {"doc_id": None, "text": "two three"},
        Chunk(generate_chunk_id("red"), "red", DocumentId("b.md")),
    ]
    assert contents(answers) == ["green", "two three", "red"]


@pytest.mark.parametrize(
    "answer",
    [
        {"doc_id": "a.md", "start": 0, "end": 3, "text": "two"},
        {"doc_id": "a.md", "start": 0, "end": 3, "text": "something else"},
        CharacterSpan(DocumentId("a.md"), 0, 3, "two"),
    ],
)
def test_a_text_that_contradicts_its_place_is_refused(answer: object) -> None:
    with pytest.raises(SpanError, match=r"'two'|something else"):
        contents([answer])
    assert contents([{"doc_id": "a.md", "start": 0, "end": 3, "text": "one"}]) == ["one"]


def test_a_score_beside_an_answer_goes_before_one_inside_it() -> None:
    answers = [("one", 0.5), ({"text": "two", "score": 0.1}, 0.4), {"text": "three", "score": 0.3}, "four"]
    read = AnswerReader("ours", CORPUS.documents).read_all(answers, "q", 9)
    assert [answer.score for answer in read] == [0.5, 0.4, 0.3, None]
    with pytest.raises(ConfigurationError, match="returned the score 'True': return a number"):
        AnswerReader("ours", CORPUS.documents).read_all([{"text": "one", "score": True}], "q", 9)


def test_before_index_there_is_no_corpus() -> None:
    with pytest.raises(ConfigurationError, match=r"ours has no corpus yet: call index\(corpus\) first"):
        CallableRetriever(lambda query, k: ["one"], name="ours").retrieve(ASKED, 1)


def test_a_function_becomes_a_retriever() -> None:
    answers: list[object] = [
        ("b.md", 0, 9),
        {"doc_id": "b.md", "start": 10, "end": 16},
        TEXTS.documents[1].span(0, 4),
        "captain  drinks\ncoffee",
        {"text": "Same words.", "doc_id": "a.md"},
        "never reached",
    ]
    retriever = CallableRetriever(lambda query, k: answers, name="ours")
    retriever.index(TEXTS)
    (found,) = retriever.retrieve([ASKED[0]], 5)
    assert [hit.chunk.content for hit in found] == [
        "The ferry",
        "leaves",
        "Same",
        "captain drinks coffee",
        "Same words.",
    ]
    assert retriever.name == "ours"
    assert [hit.score for hit in found] == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]


def test_a_text_that_is_not_in_the_corpus_is_left_out_and_counted() -> None:
    retriever = CallableRetriever(lambda query, k: ["No such words"])
    retriever.index(TEXTS)
    with pytest.warns(SkippedChunkWarning, match="is not in the corpus"):
        (found,) = retriever.retrieve([ASKED[0]], 5)
    assert found == []
    assert retriever.unplaced == 1


def test_a_text_in_several_places_is_at_the_first_that_no_earlier_answer_has() -> None:
    retriever = CallableRetriever(lambda query, k: ["Same words.", "Same  words.", "Same words.", "Same words."])
    retriever.index(Corpus(list(reversed(TEXTS.documents))))
    for query in (ASKED[0], ASKED[0]):  # anew for each question
        (found,) = retriever.retrieve([query], 5)
        assert [(hit.chunk.doc_id, hit.chunk.start, hit.chunk.end) for hit in found] == [
            ("a.md", 0, 11),
            ("b.md", 63, 74),
            ("a.md", 0, 11),
            ("a.md", 0, 11),
        ]
    assert retriever.unplaced == 0


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (("c.md", 0, 3), SpanMismatchError, "an invalid place for .*: 'c.md' is not in the corpus"),
        (("a.md", 0, 999), SpanMismatchError, "reaches past the end"),
        (("a.md", "0", 3), ConfigurationError, "use whole numbers"),
        (42, ConfigurationError, "returned '42' for query_"),
        ({"id": 1}, ConfigurationError, "an answer must be"),
    ],
)
def test_an_answer_that_is_no_place_is_named(answer: object, error: type[Exception], reason: str) -> None:
    retriever = CallableRetriever(lambda query, k: [answer])
    retriever.index(TEXTS)
    with pytest.raises(error, match=reason):
        retriever.retrieve([ASKED[0]], 5)
