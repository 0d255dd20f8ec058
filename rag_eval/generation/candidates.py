"""From the model's replies to candidates that can stand: every question asked for is kept, or dropped and reported."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries, text_vectors
from rag_eval.errors import preview
from rag_eval.formatting import percent
from rag_eval.generation.questions import (
    AnswerModel,
    Assignment,
    BareQuestion,
    Brief,
    ChunkQuestion,
    Evidence,
    Excerpt,
    Purpose,
    SpanQuestion,
    Verdict,
)
from rag_eval.generation.settings import GenerationOptions
from rag_eval.ground_truth.locating import How
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
Kind = TypeVar("Kind", bound=str)

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


class Dropped(Record):
    """So many of a kind, and the first of them to look at, in printable characters."""

    count: int
    examples: tuple[str, ...]


class Upload(Record):
    """An upload of the ground truth: ``sent``, with its address, or ``failed``, with the reason."""

    dataset_name: str
    state: Literal["sent", "failed"]
    detail: str | None = None


class GenerationReport(Record):
    """Every question asked for is kept or dropped: asked = kept + Σ dropped.

    ``surplus`` counts questions of the model that nobody asked for; they are passed over. ``bad_answers`` counts
    answers that could not be used, by fault, of which another attempt may have brought a good one. ``unasked`` are
    questions for which no request was sent, because of what ``stopped`` says. ``excerpts`` counts how they were found.
    """

    evaluation_type: EvaluationType
    model: str
    documents: int
    asked: int
    kept: int
    unasked: int
    surplus: int
    dropped: dict[Reason, Dropped]
    bad_answers: dict[AnswerFault, Dropped]
    excerpts: dict[How, int]
    ledger: tuple[LedgerEntry, ...]
    stopped: str | None = None
    upload: Upload | None = None

    @property
    def total(self) -> LedgerEntry:
        """The whole ledger in one entry."""
        return self.ledger[-1]


def quoted(*parts: str) -> str:
    """Return an example to look at: each part in printable characters, and cut."""
    return ": ".join(preview(part, EXAMPLE_CHARACTERS) for part in parts)


def tallied(examples: Mapping[Kind, Sequence[str]], kinds: Iterable[Kind]) -> dict[Kind, Dropped]:
    """Return how many examples there are of each kind, in the order of ``kinds``, and the first of them."""
    return {
        kind: Dropped(count=len(examples[kind]), examples=tuple(examples[kind][:MOST_EXAMPLES]))
        for kind in kinds
        if kind in examples
    }


MOST_CHARACTERS = 600
AnyQuestion = SpanQuestion | ChunkQuestion | BareQuestion


class DropError(Exception):
    """A question is dropped: the reason, and what shows it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question with what answers it and the documents behind it.

    ``evidence`` are the texts of the answer; without an answer there are none, and the documents are those shown.
    """

    text: str
    reply: Reply
    brief: Brief
    evidence: tuple[str, ...] = ()
    documents: Collection[str] = ()
    spans: tuple[CharacterSpan, ...] = ()
    chunk_ids: tuple[ChunkId, ...] = ()
    hows: tuple[How, ...] = ()


def matched(reply: Reply) -> tuple[list[tuple[Brief, AnyQuestion]], list[Brief], int]:
    """The questions of a reply by their briefs, the briefs without one, and how many questions nobody asked for."""
    briefs = {brief.number: brief for brief in reply.assignment.briefs}
    answer = reply.answer
    if isinstance(answer, Evidence):  # for a question that was not the model's
        given = SpanQuestion(number=1, question=reply.assignment.about, excerpts=answer.excerpts)
        return [(briefs[1], given)], [], 0
    questions = () if answer is None or isinstance(answer, Verdict) else answer.questions
    # Of two questions with one number the first is taken.
    taken = [(brief, question) for question in questions if (brief := briefs.pop(question.number, None)) is not None]
    return sorted(taken, key=lambda pair: pair[0].number), list(briefs.values()), len(questions) - len(taken)


def clean_question(text: str) -> str:
    """The question on one line; raises ``DropError`` when it is empty, far too long or holds control characters."""
    clean = " ".join(text.split())
    if not clean or len(clean) > MOST_CHARACTERS or any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        raise DropError("unusable question", text)
    return clean


BLOCK = 1_024


Drop = tuple[int, Reason, str]
"""The place of a candidate that a filter drops, the reason, and what shows it."""


def filtered(
    candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder, *, by_length: bool
) -> tuple[list[Candidate], list[tuple[Candidate, Reason, str]]]:
    """Return the candidates that pass all filters, in their order, and those that do not, with reason and detail.

    Each filter sees what the ones before have left. Without ``by_length`` the lengths of the texts are left alone.
    """
    kept = list(candidates)
    dropped: list[tuple[Candidate, Reason, str]] = []
    filters = [lengths] if by_length else []
    for drops in (*filters, leaks, irrelevances, repetitions):
        found = list(drops(kept, options, embedder))
        dropped += [(kept[place], reason, detail) for place, reason, detail in found]
        gone = {place for place, _, _ in found}
        kept = [candidate for place, candidate in enumerate(kept) if place not in gone]
    return kept, dropped


def lengths(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions with an excerpt of fewer or more tokens than allowed."""
    fewest, most = options.filters.min_excerpt_tokens, options.filters.max_excerpt_tokens
    for place, candidate in enumerate(candidates):
        for text in candidate.evidence:
            tokens = count_tokens(text, options.encoding)
            if fewest is not None and tokens < fewest:
                yield (place, "excerpt too short", f"{tokens} tokens, {fewest} at least: {text}")
                break
            if most is not None and tokens > most:
                yield (place, "excerpt too long", f"{tokens} tokens, {most} at most: {text}")
                break


def leaks(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that repeat an excerpt: see ``leakage``."""
    most = options.filters.max_leakage
    for place, candidate in enumerate(candidates if most is not None else ()):
        share, text = max(((leakage(candidate.text, text), text) for text in candidate.evidence), default=(0.0, ""))
        if most is not None and share > most:
            yield (place, "copies the excerpt", f"{percent(share)} of its words, {percent(most)} at most: {text}")


def irrelevances(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions whose excerpts, taken together, are less similar to them than allowed."""
    least = options.filters.min_relevance
    places = [place for place, candidate in enumerate(candidates) if candidate.evidence]
    if least is None or not places:
        return
    asked = unit_vectors(embed_queries(embedder, [candidates[place].text for place in places]), "questions' vectors")
    told = ["\n".join(candidates[place].evidence) for place in places]
    answers = unit_vectors(text_vectors(embedder, told), "excerpts' vectors")
    similarities = row_dots(asked.astype(np.float64), answers.astype(np.float64))
    for place, similarity, text in zip(places, similarities.tolist(), told, strict=True):
        if similarity < least:
            yield (place, "excerpt not relevant", f"similarity {similarity:.2f}, {least:.2f} at least: {text}")


def repetitions(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that an earlier one asks too: in the same words (always), or nearly, with the same numbers."""
    most = options.filters.max_question_similarity
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
    vectors = unit_vectors(embed_queries(embedder, [candidates[place].text for place in others]), "questions' vectors")
    # By their numbers apart: "Route 2" and "Route 3" are near each other in any space of words.
    groups: dict[frozenset[str], list[int]] = {}
    for row, place in enumerate(others):
        numbers = frozenset(word for word in words(candidates[place].text) if any(c.isdigit() for c in word))
        groups.setdefault(numbers, []).append(row)
    for rows in groups.values():
        for later, earlier, similarity in _alike(vectors[rows], most):
            nearest = candidates[others[rows[earlier]]].text
            detail = f"similarity {similarity:.2f} with: {nearest}"
            yield (others[rows[later]], "near duplicate", detail)


def _alike(vectors: Vectors, least: float) -> Iterator[tuple[int, int, float]]:
    """Each row that is as similar as ``least`` to an earlier one that is not so itself, with that one."""
    kept = np.ones(len(vectors), bool)
    for begin in range(0, len(vectors), BLOCK):
        similarities = vectors[begin : begin + BLOCK] @ vectors[: begin + BLOCK].T
        for row in range(begin, min(begin + BLOCK, len(vectors))):
            scores = np.where(kept[:row], similarities[row - begin, :row], -np.inf)
            if row and scores.max() >= least:
                kept[row] = False
                yield row, int(np.argmax(scores)), float(scores.max())


Place = Callable[[Reply, Brief, str, AnyQuestion], Candidate]
"""Makes a candidate of a question with an answer, or raises ``DropError``."""


class Assembly:
    """Takes the replies of one generation; its counts, with examples of what was dropped, are for the report."""

    def __init__(self, options: GenerationOptions, embedder: Embedder) -> None:
        self._options, self._embedder = options, embedder
        self.asked = self.unasked = self.surplus = self.kept = 0
        self.dropped: defaultdict[Reason, list[str]] = defaultdict(list)
        self.bad_answers: defaultdict[AnswerFault, list[str]] = defaultdict(list)
        self.excerpts: Counter[How] = Counter()

    def candidates(
        self,
        assignments: Sequence[Assignment],
        replies: Sequence[Reply | None],
        verdicts: Sequence[Reply | None],
        place: Place,
        *,
        by_length: bool,
    ) -> list[Candidate]:
        """The candidates that stand, in the order of the assignments; ``verdicts`` judge ``unverified(replies)``."""
        judged = {reply.assignment.about: reply.answer for reply in verdicts if reply is not None}
        found: list[Candidate] = []
        for assignment, reply in zip(assignments, replies, strict=True):
            if reply is None:
                self.unasked += len(assignment.briefs)
            else:
                found += self._read(reply, judged, place)
        for answered in filter(None, (*replies, *verdicts)):
            for bad in answered.bad:
                self.bad_answers[bad.fault].append(quoted(answered.assignment.about, bad.detail))
        # What people really asked is kept as they asked it.
        real = [one for one in found if one.reply.assignment.purpose == "evidence"]
        invented = [one for one in found if one.reply.assignment.purpose != "evidence"]
        kept, dropped = filtered(invented, self._options, self._embedder, by_length=by_length)
        kept += real
        for candidate, reason, detail in dropped:
            self.dropped[reason].append(quoted(candidate.text, detail))
        self.kept = len(kept)
        self.excerpts.update(how for candidate in kept for how in candidate.hows)
        return kept

    def _read(self, reply: Reply, judged: Mapping[str, AnswerModel | None], place: Place) -> Iterator[Candidate]:
        assignment = reply.assignment
        questions, missing, surplus = matched(reply)
        self.asked += len(assignment.briefs)
        self.surplus += surplus
        for brief in missing:
            reason: Reason = "no usable answer" if reply.answer is None else "left out by the model"
            self.dropped[reason].append(quoted(f"{assignment.about}, question {brief.number}"))
        for brief, question in questions:
            try:
                text = clean_question(question.question)
                if not is_unanswered(question, reply):
                    yield place(reply, brief, text, question)
                    continue
                verdict = judged.get(text)
                if not isinstance(verdict, Verdict):
                    raise DropError("not verified", "no verdict")
                if verdict.answerable and isinstance(question, SpanQuestion):
                    quoted_one = Excerpt(document="", text=verdict.passage, before="")
                    yield place(reply, brief, text, question.model_copy(update={"excerpts": [quoted_one]}))
                    continue
                if verdict.answerable:
                    raise DropError("answered by the corpus", verdict.passage)
                yield Candidate(text, reply, brief, documents={window.doc_id for window in assignment.windows})
            except DropError as drop:
                self.dropped[drop.reason].append(quoted(question.question, drop.detail))


def unverified(replies: Iterable[Reply | None]) -> dict[str, Purpose]:
    """Return the questions that are said to have no answer, and what for; whether that is so has to be judged."""
    found: dict[str, Purpose] = {}
    for reply in replies:
        for _, question in () if reply is None else matched(reply)[0]:
            if reply is not None and is_unanswered(question, reply):
                with suppress(DropError):
                    found[clean_question(question.question)] = reply.assignment.purpose
    return found


def is_unanswered(question: AnyQuestion, reply: Reply) -> bool:
    """Whether the model says that nothing it was shown answers the question."""
    return isinstance(question, BareQuestion) or (
        isinstance(question, SpanQuestion) and not question.excerpts and isinstance(reply.answer, Evidence)
    )
