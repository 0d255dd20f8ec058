"""Filter the questions of the model: keep each one, or drop it with a reason."""

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np
from pydantic import BaseModel

from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries, text_vectors
from rag_eval.errors import preview
from rag_eval.formatting import percent
from rag_eval.generation.questions import (
    Assignment,
    BareQuestion,
    BareQuestions,
    Brief,
    ChunkQuestion,
    ChunkQuestions,
    Evidence,
    Excerpt,
    SpanQuestion,
    SpanQuestions,
    Verdict,
)
from rag_eval.generation.settings import GenerationOptions
from rag_eval.generation.windows import ENCODING
from rag_eval.llm.asking import Reply
from rag_eval.llm.chat import AnswerFault
from rag_eval.llm.cost import LedgerEntry
from rag_eval.parts.part_settings import Record
from rag_eval.retrieval.tokenizers import leakage, words
from rag_eval.stores.exact_search import row_dots, unit_vectors
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId, EvaluationType

MOST_EXAMPLES = 5
EXAMPLE_CHARACTERS = 160
MOST_CHARACTERS = 600
"""Longest question that is kept, in characters."""

Reason = Literal[
    "no usable answer",
    "left out by the model",
    "unusable question",
    "no excerpt",
    "excerpt not found",
    "excerpt ambiguous",
    "unknown document",
    "unknown chunk id",
    "one document only",
    "answered by the corpus",
    "not verified",
    "excerpt too short",
    "excerpt too long",
    "copies the excerpt",
    "excerpt not relevant",
    "near duplicate",
]
"""Why a question was dropped."""

Kind = TypeVar("Kind", bound=str)
AnyQuestion = SpanQuestion | ChunkQuestion | BareQuestion
Replies = Sequence[Reply[Assignment] | None]
"""Replies in the order of the assignments; None for an assignment that was not sent."""


class Dropped(Record):
    """The number of questions dropped for a reason, and some examples in printable characters."""

    count: int
    examples: tuple[str, ...]


class Upload(Record):
    """An upload to LangSmith; ``detail`` is the address, or the reason why it failed."""

    dataset_name: str
    state: Literal["sent", "failed"]
    detail: str | None = None


class GenerationReport(Record):
    """The counts and the cost of a generation: asked = kept + Σ dropped.

    ``bad_answers`` counts unusable answers by fault; another attempt may have succeeded. ``unasked`` questions were
    not sent, for the reason in ``stopped``.
    """

    evaluation_type: EvaluationType
    model: str
    documents: int
    asked: int
    kept: int
    unasked: int
    dropped: dict[Reason, Dropped]
    bad_answers: dict[AnswerFault, Dropped]
    ledger: tuple[LedgerEntry, ...]
    stopped: str | None = None
    upload: Upload | None = None

    @property
    def total(self) -> LedgerEntry:
        """The total of all requests."""
        return self.ledger[-1]


class DropError(Exception):
    """Raised to drop a question; ``detail`` illustrates the reason."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Draft:
    """A question of the model, on one line, and its brief."""

    text: str
    question: AnyQuestion
    brief: Brief
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question with its answers, which are spans or chunk ids, their texts and their documents.

    An unanswerable question has no ``answers``, and the documents that the model was shown.
    """

    draft: Draft
    evidence: tuple[str, ...] = ()
    documents: Collection[str] = ()
    answers: tuple[CharacterSpan, ...] | tuple[ChunkId, ...] = ()

    @property
    def text(self) -> str:
        return self.draft.text


def matched(reply: Reply[Assignment]) -> tuple[list[tuple[Brief, AnyQuestion]], list[Brief]]:
    """Pair the questions of a reply with their briefs; return the pairs and the briefs without a question."""
    briefs = {brief.number: brief for brief in reply.assignment.briefs}
    answer = reply.answer
    if isinstance(answer, Evidence):  # the assignment is about a real question
        quoted = SpanQuestion(number=1, question=reply.assignment.about, excerpts=answer.excerpts)
        return [(briefs[1], quoted)], []
    questions: Sequence[AnyQuestion] = ()
    if isinstance(answer, SpanQuestions | ChunkQuestions | BareQuestions):
        questions = answer.questions
    taken = [(brief, question) for question in questions if (brief := briefs.pop(question.number, None)) is not None]
    return sorted(taken, key=lambda pair: pair[0].number), list(briefs.values())


def clean_question(text: str) -> str:
    """Return the question on one line; raise ``DropError`` if it is empty, too long or has control characters."""
    clean = " ".join(text.split())
    if not clean or len(clean) > MOST_CHARACTERS or any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        raise DropError("unusable question", text)
    return clean


def says_unanswerable(question: AnyQuestion, reply: Reply[Assignment]) -> bool:
    """Return whether the model says that the documents do not answer the question."""
    return isinstance(question, BareQuestion) or (
        isinstance(question, SpanQuestion) and not question.excerpts and isinstance(reply.answer, Evidence)
    )


def to_verify(replies: Replies) -> dict[str, Assignment]:
    """Return the questions that the model says have no answer, with their assignments."""
    questions: dict[str, Assignment] = {}
    for reply in filter(None, replies):
        for _, question in matched(reply)[0]:
            if says_unanswerable(question, reply):
                with suppress(DropError):
                    questions[clean_question(question.question)] = reply.assignment
    return questions


class Drop(NamedTuple):
    """A candidate that a filter drops, and why."""

    candidate: Candidate
    reason: Reason
    detail: str


def filtered(
    candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder, *, by_length: bool
) -> tuple[list[Candidate], list[Drop]]:
    """Return the candidates that pass all filters, and those that fail; ``by_length`` also checks the excerpts."""
    limits, left, dropped = options.filters, list(candidates), list[Drop]()
    filters: list[Callable[[list[Candidate]], Iterator[Drop]]] = [
        lambda some: _lengths(some, limits.min_excerpt_tokens or 0, limits.max_excerpt_tokens or inf),
        lambda some: _leaks(some, inf if limits.max_leakage is None else limits.max_leakage),
        lambda some: _irrelevances(some, limits.min_relevance, embedder),
        lambda some: _repetitions(some, limits.max_question_similarity, embedder),
    ]
    for drops_of in filters if by_length else filters[1:]:
        drops = list(drops_of(left))
        gone = {id(drop.candidate) for drop in drops}
        left = [candidate for candidate in left if id(candidate) not in gone]
        dropped += drops
    return left, dropped


def _lengths(candidates: list[Candidate], fewest: float, most: float) -> Iterator[Drop]:
    for candidate in candidates:
        for text in candidate.evidence:
            tokens = count_tokens(text, ENCODING)
            if tokens < fewest:
                yield Drop(candidate, "excerpt too short", f"{tokens} tokens, {fewest} at least: {text}")
                break
            if tokens > most:
                yield Drop(candidate, "excerpt too long", f"{tokens} tokens, {most} at most: {text}")
                break


def _leaks(candidates: list[Candidate], most: float) -> Iterator[Drop]:
    for candidate in candidates:
        share, text = max(((leakage(candidate.text, text), text) for text in candidate.evidence), default=(0.0, ""))
        if share > most:
            detail = f"{percent(share)} of its words, {percent(most)} at most: {text}"
            yield Drop(candidate, "copies the excerpt", detail)


def _irrelevances(candidates: list[Candidate], least: float | None, embedder: Embedder) -> Iterator[Drop]:
    answered = [candidate for candidate in candidates if candidate.evidence]
    if least is None or not answered:
        return
    texts = ["\n".join(candidate.evidence) for candidate in answered]
    questions = unit_vectors(embed_queries(embedder, [candidate.text for candidate in answered]), "question vectors")
    answers = unit_vectors(text_vectors(embedder, texts), "excerpt vectors")
    similarities = row_dots(questions.astype(np.float64), answers.astype(np.float64))
    for candidate, similarity, text in zip(answered, similarities.tolist(), texts, strict=True):
        if similarity < least:
            yield Drop(candidate, "excerpt not relevant", f"similarity {similarity:.2f}, {least:.2f} at least: {text}")


def _repetitions(candidates: list[Candidate], most: float | None, embedder: Embedder) -> Iterator[Drop]:
    """Drop questions with the same words as an earlier one, and similar ones with the same numbers."""
    first: dict[tuple[str, ...], Candidate] = {}
    for candidate in candidates:
        earlier = first.setdefault(tuple(words(candidate.text)) or (candidate.text,), candidate)
        if earlier is not candidate:
            yield Drop(candidate, "near duplicate", f"the same words as: {earlier.text}")
    unique = list(first.values())
    if most is None or len(unique) < 2:
        return
    vectors = unit_vectors(embed_queries(embedder, [candidate.text for candidate in unique]), "question vectors")
    # Embeddings hardly distinguish "Route 2" from "Route 3".
    groups: dict[frozenset[str], list[int]] = {}
    for row, candidate in enumerate(unique):
        groups.setdefault(frozenset(word for word in words(candidate.text) if any(map(str.isdigit, word))), []).append(
            row
        )
    for rows in groups.values():
        for later, nearest, similarity in _alike(vectors[rows], most):
            detail = f"similarity {similarity:.2f} with: {unique[rows[nearest]].text}"
            yield Drop(unique[rows[later]], "near duplicate", detail)


def _alike(vectors: Vectors, least: float) -> Iterator[tuple[int, int, float]]:
    """Yield each row that is similar to an earlier unyielded row, with the most similar one."""
    kept = np.ones(len(vectors), bool)
    for row in range(1, len(vectors)):
        scores = np.where(kept[:row], vectors[:row] @ vectors[row], -np.inf)
        if scores.max() >= least:
            kept[row] = False
            yield row, int(np.argmax(scores)), float(scores.max())


class Assembly:
    """The candidates in the replies of one generation, with counts and examples for the report."""

    def __init__(self, options: GenerationOptions, embedder: Embedder) -> None:
        self._options, self._embedder = options, embedder
        self.asked = self.unasked = self.kept = 0
        self._drops: list[tuple[Reason, str]] = []
        self._faults: list[tuple[AnswerFault, str]] = []

    @property
    def dropped(self) -> dict[Reason, Dropped]:
        """The dropped questions by reason."""
        return _tallied(self._drops, get_args(Reason))

    @property
    def bad_answers(self) -> dict[AnswerFault, Dropped]:
        """The unusable answers by fault."""
        return _tallied(self._faults, get_args(AnswerFault))

    def candidates(
        self,
        assignments: Sequence[Assignment],
        replies: Replies,
        verdicts: Replies,
        place: Callable[[Draft], Candidate],
        *,
        by_length: bool,
    ) -> list[Candidate]:
        """Return the candidates that are kept, in the order of the assignments, those about real questions last.

        Args:
            assignments: The requests.
            replies: The replies to the assignments.
            verdicts: The replies about the questions ``to_verify``.
            place: Locates the answer to a question, or raises ``DropError``.
            by_length: Whether to filter by the lengths of excerpts.
        """
        judged = {reply.assignment.about: reply.answer for reply in verdicts if reply}
        real, invented = list[Candidate](), list[Candidate]()
        for assignment, reply in zip(assignments, replies, strict=True):
            if reply is None:
                self.unasked += len(assignment.briefs)
            else:
                found = real if assignment.purpose == "evidence" else invented
                found += self._read(reply, judged, place)
        for answered in filter(None, (*replies, *verdicts)):
            self._faults += [(bad.fault, _example(answered.assignment.about, bad.detail)) for bad in answered.bad]
        kept, dropped = filtered(invented, self._options, self._embedder, by_length=by_length)
        self._drops += [(reason, _example(candidate.text, detail)) for candidate, reason, detail in dropped]
        self.kept = len(kept) + len(real)
        return [*kept, *real]

    def _read(
        self, reply: Reply[Assignment], judged: Mapping[str, BaseModel | None], place: Callable[[Draft], Candidate]
    ) -> Iterator[Candidate]:
        assignment = reply.assignment
        questions, missing = matched(reply)
        self.asked += len(assignment.briefs)
        for brief in missing:
            reason: Reason = "no usable answer" if reply.answer is None else "left out by the model"
            self._drops.append((reason, _example(f"{assignment.about}, question {brief.number}")))
        for brief, question in questions:
            try:
                draft = Draft(clean_question(question.question), question, brief, assignment)
                is_unanswerable = says_unanswerable(question, reply)
                yield _verified(draft, judged.get(draft.text), place) if is_unanswerable else place(draft)
            except DropError as drop:
                self._drops.append((drop.reason, _example(question.question, drop.detail)))


def _verified(draft: Draft, verdict: BaseModel | None, place: Callable[[Draft], Candidate]) -> Candidate:
    """Return a question as unanswerable, or a real question with the answer quoted by the verdict."""
    if not isinstance(verdict, Verdict):
        raise DropError("not verified", "no verdict")
    if not verdict.answerable:
        return Candidate(draft, documents={window.doc_id for window in draft.assignment.windows})
    if not isinstance(draft.question, SpanQuestion):
        raise DropError("answered by the corpus", verdict.passage)
    excerpts = [Excerpt(document="", text=verdict.passage, before="")]
    question = draft.question.model_copy(update={"excerpts": excerpts})
    return place(Draft(draft.text, question, draft.brief, draft.assignment))


def _example(*parts: str) -> str:
    """Return an example in printable characters, each part shortened."""
    return ": ".join(preview(part, EXAMPLE_CHARACTERS) for part in parts)


def _tallied(found: Iterable[tuple[Kind, str]], kinds: Iterable[Kind]) -> dict[Kind, Dropped]:
    """Count what was found of each kind, in the order of ``kinds``."""
    examples: dict[Kind, list[str]] = {}
    for kind, example in found:
        examples.setdefault(kind, []).append(example)
    return {
        kind: Dropped(count=len(examples[kind]), examples=tuple(examples[kind][:MOST_EXAMPLES]))
        for kind in kinds
        if kind in examples
    }
