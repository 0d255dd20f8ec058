"""Each filter drops what it should, keeps the rest, shows why, and can be turned off."""

import numpy as np
import pytest
from numpy.typing import NDArray

from rag_eval import FilterOptions, GenerationOptions, LocalEmbedder
from rag_eval.generation.candidates import Candidate, Draft, filtered, leakage
from rag_eval.generation.questions import Assignment, BareQuestion, Brief, SpanQuestions
from rag_eval.generation.windows import Window, related_pairs
from rag_eval.llm.chat import ChatRequest, response_format
from rag_eval.types.ids import DocumentId

REQUEST = ChatRequest("", "tiny", "", "", response_format(SpanQuestions), {})
ASSIGNMENT = Assignment("questions", "a.md", REQUEST, SpanQuestions, "hash")
BRIEF = Brief(1, "factual", "easy")
TEXT = "The crane of Storvåg lifts twelve tonnes at most in calm weather."
OFF = FilterOptions(
    min_relevance=None,
    max_question_similarity=None,
    max_leakage=None,
    min_excerpt_tokens=None,
    max_excerpt_tokens=None,
)


def candidate(question: str, *evidence: str) -> Candidate:
    return Candidate(Draft(question, BareQuestion(number=1, question=question), BRIEF, ASSIGNMENT), evidence)


def reasons(*candidates: Candidate, by_length: bool = True, **filters: object) -> list[tuple[str, str]]:
    """What is dropped, with one filter on."""
    options = GenerationOptions(filters=OFF.model_copy(update=filters))
    kept, dropped = filtered(candidates, options, LocalEmbedder(), by_length=by_length)
    places = [next(place for place, one in enumerate(candidates) if one is this) for this in kept]
    assert places == sorted(places)
    assert len(kept) + len(dropped) == len(candidates)
    assert all(detail for _, _, detail in dropped)
    return [(one.text, reason) for one, reason, _ in dropped]


def test_excerpts_that_are_too_short_or_too_long() -> None:
    short, long = candidate("How much?", TEXT, "12 t"), candidate("What?", "word " * 50)
    good = candidate("How heavy a load?", TEXT)
    assert reasons(short, good, long, min_excerpt_tokens=5, max_excerpt_tokens=40) == [
        ("How much?", "excerpt too short"),
        ("What?", "excerpt too long"),
    ]
    assert reasons(short, good, long, min_excerpt_tokens=5, max_excerpt_tokens=40, by_length=False) == []


def test_questions_that_copy_their_excerpt() -> None:
    copied = candidate("What does the crane of Storvåg lift at most in calm weather?", TEXT)
    own = candidate("What is the heaviest load that can be hoisted at Storvåg?", TEXT)
    other = candidate("What can the crane of Storvåg lift at most in calm weather?", "Diesel is sold from a barge.")
    assert reasons(copied, own, other, max_leakage=0.6) == [(copied.text, "copies the excerpt")]
    assert reasons(copied, own, other, max_leakage=1.0) == []


@pytest.mark.parametrize(
    ("question", "excerpt", "share"),
    [
        ("a b c d", "a b c x", 0.75),
        ("a b c d e f", "d e f a b c", 1.0),
        ("a b", "a b", 0.0),
        ("", "a b c", 0.0),
        ("a b c", "", 0.0),
        ("A, B – C?", "a b c", 1.0),
        ("起重机能吊多少吨", "起重机能吊十二吨", 4 / 7),
    ],
)
def test_leakage_is_the_share_of_words_in_copied_runs(question: str, excerpt: str, share: float) -> None:
    assert leakage(question, excerpt) == pytest.approx(share)


def test_excerpts_that_have_nothing_to_do_with_the_question() -> None:
    wrong = candidate("Who conducts the orchestra in Vienna?", "Diesel fuel is sold from a yellow barge.")
    right = candidate("Where can I buy fuel for my boat?", "Diesel fuel is sold from a yellow barge.")
    none = candidate("Who supplied the paint?")
    assert reasons(wrong, right, none, min_relevance=0.2) == [(wrong.text, "excerpt not relevant")]
    assert reasons(wrong, right, min_relevance=-1.0) == []


def test_questions_that_were_asked_before() -> None:
    first = candidate("What must the crew check before a fire drill?", TEXT)
    near = candidate("Before a fire drill, what does the crew have to check?", TEXT)
    same = candidate("what must the CREW check before a fire drill", "Other text altogether.")
    two, three = candidate("What is the gust limit on Route 2?"), candidate("What is the gust limit on Route 3?")
    near_duplicates = [(same.text, "near duplicate"), (near.text, "near duplicate")]
    assert reasons(first, near, same, two, three, max_question_similarity=0.92) == near_duplicates
    assert reasons(first, near, two, three, max_question_similarity=0.95) == []
    assert reasons(first, near, same) == [(same.text, "near duplicate")], "equal words would have equal ids"
    assert reasons(candidate("?!"), candidate("?!"), candidate("!?")) == [("?!", "near duplicate")]


class Scripted:
    """Vectors by text."""

    name, dimension = "scripted", 2

    def __init__(self, vectors: dict[str, tuple[float, float]]) -> None:
        self._vectors = vectors

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        return np.array([self._vectors[text] for text in texts], np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])[0]


def test_a_zero_vector_is_like_nothing() -> None:
    embedder = Scripted({"a?": (0, 0), "b?": (0, 0), "c?": (3, 4), "t": (6, 8)})
    options = GenerationOptions(filters=OFF.model_copy(update={"min_relevance": 0.5, "max_question_similarity": 0.5}))
    kept, _ = filtered([candidate("a?", "t"), candidate("c?", "t")], options, embedder, by_length=False)
    assert [one.text for one in kept] == ["c?"]
    kept, _ = filtered([candidate("a?"), candidate("b?")], options, embedder, by_length=False)
    assert len(kept) == 2


def windows(**vectors: tuple[float, float]) -> tuple[list[Window], Scripted]:
    """Windows by document (the letter before the digit), with their vectors."""
    made = [Window(DocumentId(name[0]), name, 1) for name in vectors]
    return made, Scripted(vectors)


def texts(pairs: list[tuple[Window, Window]]) -> list[list[str]]:
    return [[window.text for window in pair] for pair in pairs]


def test_related_documents_come_together_and_take_turns() -> None:
    given, embedder = windows(a1=(1, 0), a2=(0, 1), b1=(1, 0.3), c1=(0.25, 1), d1=(-1, 0.2))
    assert texts(related_pairs(given, 1, embedder)) == [["a2", "c1"]]
    assert texts(related_pairs(given, 2, embedder)) == [["a2", "c1"], ["a1", "b1"]]
    many = texts(related_pairs(given, 99, embedder))
    assert len({frozenset(text[0] for text in group) for group in many}) == len(many)


def test_equal_documents_and_too_few_are_not_grouped() -> None:
    given, embedder = windows(a1=(1, 0), b1=(1, 0), c1=(0.5, 1))
    groups = texts(related_pairs(given, 9, embedder))
    assert ["a1", "b1"] not in groups
    assert groups == [["a1", "c1"]] or groups == [["a1", "c1"], ["b1", "c1"]]
    assert related_pairs(given[:1], 3, embedder) == []
    assert related_pairs(given, 0, embedder) == []
