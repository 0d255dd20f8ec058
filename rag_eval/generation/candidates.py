"""From the model's replies to candidates: every question asked for is kept, or dropped and reported."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

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
from rag_eval.generation.settings import FilterOptions, GenerationOptions
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
"""The longest question that is kept."""

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
"""Why a question that was asked for is not in the ground truth."""

Kind = TypeVar("Kind", bound=str)
AnyQuestion = SpanQuestion | ChunkQuestion | BareQuestion


class Dropped(Record):
    """How many there are of a kind, and the first of them, in printable characters."""

    count: int
    examples: tuple[str, ...]


class Upload(Record):
    """An upload of the ground truth: ``sent``, with its address, or ``failed``, with the reason."""

    dataset_name: str
    state: Literal["sent", "failed"]
    detail: str | None = None


class GenerationReport(Record):
    """Every question asked for is kept or dropped: asked = kept + Σ dropped.

    ``bad_answers`` counts answers that could not be used, by fault, of which another attempt may have brought a good
    one. ``unasked`` are questions for which no request was sent, because of what ``stopped`` says.
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
        """The whole ledger in one entry."""
        return self.ledger[-1]


class DropError(Exception):
    """A question is dropped: the reason, and what shows it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Draft:
    """A question of the model, with its text on one line, and what it was asked for."""

    text: str
    question: AnyQuestion
    brief: Brief
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question with what answers it and the documents behind it.

    ``evidence`` are the texts of the answer; without an answer there are none, and the documents are those shown.
    """

    draft: Draft
    evidence: tuple[str, ...] = ()
    documents: Collection[str] = ()
    spans: tuple[CharacterSpan, ...] = ()
    chunk_ids: tuple[ChunkId, ...] = ()

    @property
    def text(self) -> str:
        return self.draft.text


def matched(reply: Reply[Assignment]) -> tuple[list[tuple[Brief, AnyQuestion]], list[Brief]]:
    """Return the questions of a reply by their briefs, and the briefs without one; other questions are passed over."""
    briefs = {brief.number: brief for brief in reply.assignment.briefs}
    answer = reply.answer
    if isinstance(answer, Evidence):  # for a question that was not the model's
        quoted = SpanQuestion(number=1, question=reply.assignment.about, excerpts=answer.excerpts)
        return [(briefs[1], quoted)], []
    questions: Sequence[AnyQuestion] = ()
    if isinstance(answer, SpanQuestions | ChunkQuestions | BareQuestions):
        questions = answer.questions
    # Of two questions with one number the first is taken.
    taken = [(brief, question) for question in questions if (brief := briefs.pop(question.number, None)) is not None]
    return sorted(taken, key=lambda pair: pair[0].number), list(briefs.values())


def clean_question(text: str) -> str:
    """Return the question on one line; raises ``DropError`` when it is empty, too long or has control characters."""
    clean = " ".join(text.split())
    if not clean or len(clean) > MOST_CHARACTERS or any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        raise DropError("unusable question", text)
    return clean


def says_unanswerable(question: AnyQuestion, reply: Reply[Assignment]) -> bool:
    """Whether the model says that nothing it was shown answers the question."""
    return isinstance(question, BareQuestion) or (
        isinstance(question, SpanQuestion) and not question.excerpts and isinstance(reply.answer, Evidence)
    )


def to_verify(replies: Iterable[Reply[Assignment] | None]) -> dict[str, Assignment]:
    """Return the questions that are said to have no answer, which has to be verified, by what they were asked for."""
    questions: dict[str, Assignment] = {}
    for reply in filter(None, replies):
        for _, question in matched(reply)[0]:
            if says_unanswerable(question, reply):
                with suppress(DropError):
                    questions[clean_question(question.question)] = reply.assignment
    return questions


Drop = tuple[int, Reason, str]
"""The place of a candidate that a filter drops, the reason, and what shows it."""


def filtered(
    candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder, *, by_length: bool
) -> tuple[list[Candidate], list[tuple[Candidate, Reason, str]]]:
    """Return the candidates that pass all filters, in their order, and those that do not, with reason and detail.

    Each filter sees what the ones before have left. Without ``by_length`` the lengths of the texts are left alone.
    """
    thresholds = options.filters
    filters: list[Callable[[list[Candidate]], Iterator[Drop]]] = [
        lambda some: _lengths(some, thresholds),
        lambda some: _leaks(some, thresholds.max_leakage),
        lambda some: _irrelevances(some, thresholds.min_relevance, embedder),
        lambda some: _repetitions(some, thresholds.max_question_similarity, embedder),
    ]
    kept = list(candidates)
    dropped: list[tuple[Candidate, Reason, str]] = []
    for drops_of in filters if by_length else filters[1:]:
        drops = list(drops_of(kept))
        dropped += [(kept[place], reason, detail) for place, reason, detail in drops]
        places = {place for place, _, _ in drops}
        kept = [candidate for place, candidate in enumerate(kept) if place not in places]
    return kept, dropped


def _lengths(candidates: list[Candidate], thresholds: FilterOptions) -> Iterator[Drop]:
    """Questions with an excerpt of fewer or more tokens than allowed."""
    fewest, most = thresholds.min_excerpt_tokens, thresholds.max_excerpt_tokens
    for place, candidate in enumerate(candidates):
        for text in candidate.evidence:
            tokens = count_tokens(text, ENCODING)
            if fewest is not None and tokens < fewest:
                yield (place, "excerpt too short", f"{tokens} tokens, {fewest} at least: {text}")
                break
            if most is not None and tokens > most:
                yield (place, "excerpt too long", f"{tokens} tokens, {most} at most: {text}")
                break


def _leaks(candidates: list[Candidate], most: float | None) -> Iterator[Drop]:
    """Questions that repeat an excerpt: see ``leakage``."""
    for place, candidate in enumerate(candidates if most is not None else ()):
        share, text = max(((leakage(candidate.text, text), text) for text in candidate.evidence), default=(0.0, ""))
        if most is not None and share > most:
            yield (place, "copies the excerpt", f"{percent(share)} of its words, {percent(most)} at most: {text}")


def _irrelevances(candidates: list[Candidate], least: float | None, embedder: Embedder) -> Iterator[Drop]:
    """Questions whose excerpts, taken together, are less similar to them than allowed."""
    places = [place for place, candidate in enumerate(candidates) if candidate.evidence]
    if least is None or not places:
        return
    texts = ["\n".join(candidates[place].evidence) for place in places]
    questions = unit_vectors(embed_queries(embedder, [candidates[place].text for place in places]), "question vectors")
    answers = unit_vectors(text_vectors(embedder, texts), "excerpt vectors")
    similarities = row_dots(questions.astype(np.float64), answers.astype(np.float64))
    for place, similarity, text in zip(places, similarities.tolist(), texts, strict=True):
        if similarity < least:
            yield (place, "excerpt not relevant", f"similarity {similarity:.2f}, {least:.2f} at least: {text}")


def _repetitions(candidates: list[Candidate], most: float | None, embedder: Embedder) -> Iterator[Drop]:
    """Questions that an earlier one asks too: in the same words (always), or nearly, with the same numbers."""
    first: dict[tuple[str, ...], int] = {}
    others: list[int] = []
    for place, candidate in enumerate(candidates):
        earlier = first.setdefault(tuple(words(candidate.text)) or (candidate.text,), place)
        if earlier != place:
            yield (place, "near duplicate", f"the same words as: {candidates[earlier].text}")
        else:
            others.append(place)
    if most is None or len(others) < 2:
        return
    vectors = unit_vectors(embed_queries(embedder, [candidates[place].text for place in others]), "question vectors")
    # By their numbers apart: "Route 2" and "Route 3" are near each other in any space of words.
    groups: dict[frozenset[str], list[int]] = {}
    for row, place in enumerate(others):
        numbers = frozenset(word for word in words(candidates[place].text) if any(c.isdigit() for c in word))
        groups.setdefault(numbers, []).append(row)
    for rows in groups.values():
        for later, earlier, similarity in _alike(vectors[rows], most):
            nearest = candidates[others[rows[earlier]]].text
            yield (others[rows[later]], "near duplicate", f"similarity {similarity:.2f} with: {nearest}")


BLOCK = 1_024


def _alike(vectors: Vectors, least: float) -> Iterator[tuple[int, int, float]]:
    """Yield each row that is as similar as ``least`` to an earlier one that is not so itself, with that one."""
    kept = np.ones(len(vectors), bool)
    for begin in range(0, len(vectors), BLOCK):
        similarities = vectors[begin : begin + BLOCK] @ vectors[: begin + BLOCK].T
        for row in range(begin, min(begin + BLOCK, len(vectors))):
            scores = np.where(kept[:row], similarities[row - begin, :row], -np.inf)
            if row and scores.max() >= least:
                kept[row] = False
                yield row, int(np.argmax(scores)), float(scores.max())


class Assembly:
    """Takes the replies of one generation; its counts, with examples of what was dropped, are for the report."""

    def __init__(self, options: GenerationOptions, embedder: Embedder) -> None:
        self._options, self._embedder = options, embedder
        self.asked = self.unasked = self.kept = 0
        self._dropped: defaultdict[str, list[str]] = defaultdict(list)
        self._bad_answers: defaultdict[str, list[str]] = defaultdict(list)

    @property
    def dropped(self) -> dict[Reason, Dropped]:
        """The questions that were dropped, by reason."""
        return _tallied(self._dropped, get_args(Reason))

    @property
    def bad_answers(self) -> dict[AnswerFault, Dropped]:
        """The answers that could not be used, by fault."""
        return _tallied(self._bad_answers, get_args(AnswerFault))

    def candidates(
        self,
        assignments: Sequence[Assignment],
        replies: Sequence[Reply[Assignment] | None],
        verdicts: Sequence[Reply[Assignment] | None],
        place: Callable[[Draft], Candidate],
        *,
        by_length: bool,
    ) -> list[Candidate]:
        """Return the candidates that are kept, in the order of the assignments.

        ``verdicts`` are about the questions ``to_verify``; ``place`` locates the answer to a draft, or raises
        ``DropError``.
        """
        judged = {reply.assignment.about: reply.answer for reply in filter(None, verdicts)}
        candidates: list[Candidate] = []
        for assignment, reply in zip(assignments, replies, strict=True):
            if reply is None:
                self.unasked += len(assignment.briefs)
            else:
                candidates += self._read(reply, judged, place)
        for answered in filter(None, (*replies, *verdicts)):
            for bad in answered.bad:
                self._bad_answers[bad.fault].append(_example(answered.assignment.about, bad.detail))
        # What people really asked is kept as they asked it.
        real = [one for one in candidates if one.draft.assignment.purpose == "evidence"]
        invented = [one for one in candidates if one.draft.assignment.purpose != "evidence"]
        kept, dropped = filtered(invented, self._options, self._embedder, by_length=by_length)
        kept += real
        for candidate, reason, detail in dropped:
            self._dropped[reason].append(_example(candidate.text, detail))
        self.kept = len(kept)
        return kept

    def _read(
        self,
        reply: Reply[Assignment],
        judged: Mapping[str, BaseModel | None],
        place: Callable[[Draft], Candidate],
    ) -> Iterator[Candidate]:
        assignment = reply.assignment
        questions, missing = matched(reply)
        self.asked += len(assignment.briefs)
        for brief in missing:
            reason: Reason = "no usable answer" if reply.answer is None else "left out by the model"
            self._dropped[reason].append(_example(f"{assignment.about}, question {brief.number}"))
        for brief, question in questions:
            try:
                draft = Draft(clean_question(question.question), question, brief, assignment)
                if says_unanswerable(question, reply):
                    yield _verified(draft, judged.get(draft.text), place)
                else:
                    yield place(draft)
            except DropError as drop:
                self._dropped[drop.reason].append(_example(question.question, drop.detail))


def _verified(draft: Draft, verdict: BaseModel | None, place: Callable[[Draft], Candidate]) -> Candidate:
    """Return a question as unanswerable; a real one that the verdict quotes an answer to, with that answer."""
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
    """Return an example to look at: each part in printable characters, and cut."""
    return ": ".join(preview(part, EXAMPLE_CHARACTERS) for part in parts)


def _tallied(examples: Mapping[str, Sequence[str]], kinds: Iterable[Kind]) -> dict[Kind, Dropped]:
    """Return how many examples there are of each kind, in the order of ``kinds``, and the first of them."""
    return {
        kind: Dropped(count=len(examples[kind]), examples=tuple(examples[kind][:MOST_EXAMPLES]))
        for kind in kinds
        if kind in examples
    }
