"""From the model's replies to candidates that can stand: every question asked for is kept, or dropped and counted."""

import unicodedata
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np

from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries, text_vectors
from rag_eval.generation.options import GenerationOptions
from rag_eval.generation.questions import (
    AnswerModel,
    Assignment,
    BareQuestion,
    Brief,
    ChunkQuestion,
    Reply,
    SpanQuestion,
    Verdict,
    label,
)
from rag_eval.generation.report import Counter, Dropped, Reason
from rag_eval.generation.windows import Window
from rag_eval.ground_truth.locating import Hint, How, Located, Locator, Rejected
from rag_eval.llm.chat import AnswerFault
from rag_eval.retrieval.bm25 import words
from rag_eval.stores.exact_search import row_dots, unit_vectors
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId

MOST_CHARACTERS = 600
_UNPLACED: Mapping[str, Reason] = {"empty": "no excerpt", "ambiguous": "excerpt ambiguous"}

AnyQuestion = SpanQuestion | ChunkQuestion | BareQuestion


class DropError(Exception):
    """A question is dropped: the reason, and what shows it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Candidate:
    """A question with what answers it; ``evidence`` are the texts of the answer, empty where there is none."""

    text: str
    reply: Reply
    brief: Brief
    evidence: tuple[str, ...] = ()
    spans: tuple[CharacterSpan, ...] = ()
    chunk_ids: tuple[ChunkId, ...] = ()
    chunk_documents: tuple[str, ...] = ()
    hows: tuple[How, ...] = ()

    @property
    def unanswerable(self) -> bool:
        """Whether it was asked for without an answer."""
        return self.reply.assignment.purpose == "unanswerable"


def matched(reply: Reply) -> tuple[list[tuple[Brief, AnyQuestion]], list[Brief], list[AnyQuestion]]:
    """The questions of a reply by their briefs, the briefs without one, and the questions that nobody asked for."""
    briefs = {brief.number: brief for brief in reply.assignment.briefs}
    found: list[tuple[Brief, AnyQuestion]] = []
    surplus: list[AnyQuestion] = []
    answer = reply.answer
    for question in () if answer is None or isinstance(answer, Verdict) else answer.questions:
        brief = briefs.pop(question.number, None)
        if brief is None:
            surplus.append(question)
        else:
            found.append((brief, question))
    return sorted(found, key=lambda pair: pair[0].number), list(briefs.values()), surplus


def clean_question(text: str) -> str:
    """The question on one line; raises ``DropError`` when it is empty, far too long or holds control characters."""
    clean = " ".join(text.split())
    if not clean or len(clean) > MOST_CHARACTERS or any(unicodedata.category(c) in ("Cc", "Cs") for c in clean):
        raise DropError("unusable question", text)
    return clean


def placed_spans(question: SpanQuestion, windows: Sequence[Window], locator: Locator) -> list[Located]:
    """The places of the excerpts, each once; raises ``DropError`` unless every one has a sure place in its window.

    A question with an excerpt that cannot be placed is dropped whole: with a part of its answer it would be wrong.
    """
    by_label = {label(number): window for number, window in enumerate(windows)}
    places: dict[tuple[str, int, int], Located] = {}
    for excerpt in question.excerpts:
        window = by_label.get(excerpt.document)
        if window is None:
            raise DropError("unknown document", excerpt.document)
        hint = Hint(before=excerpt.before, window=(window.start, window.end))
        place = locator.locate(excerpt.text, window.doc_id, hint)
        if isinstance(place, Rejected):
            raise DropError(_UNPLACED.get(place.reason, "excerpt not found"), excerpt.text)
        places.setdefault((place.span.doc_id, place.span.start, place.span.end), place)
    if not places:
        raise DropError("no excerpt", question.question)
    return [places[key] for key in sorted(places)]


def known_chunks(question: ChunkQuestion, windows: Sequence[Window]) -> dict[ChunkId, str]:
    """The texts of the chunks that the question names; raises ``DropError`` on an id that was not shown, or none."""
    shown = {chunk.id: chunk.content for window in windows for chunk in window.chunks}
    named = [ChunkId(name.strip()) for name in question.chunk_ids]
    for chunk_id in named:
        if chunk_id not in shown:
            raise DropError("unknown chunk id", chunk_id)
    if not named:
        raise DropError("no excerpt", question.question)
    return {chunk_id: shown[chunk_id] for chunk_id in named}


def documents_of(chunk_ids: Iterable[ChunkId], windows: Sequence[Window]) -> list[str]:
    """Return the documents that hold the chunks; a text that several hold counts for each."""
    named = set(chunk_ids)
    return sorted({window.doc_id for window in windows for chunk in window.chunks if chunk.id in named})


def check_needs_several(chunk_ids: Iterable[ChunkId], windows: Sequence[Window]) -> None:
    """Raise ``DropError`` when one document holds all the chunks; a text may stand in several."""
    named = set(chunk_ids)
    for doc_id in documents_of(named, windows):
        held = {chunk.id for window in windows if window.doc_id == doc_id for chunk in window.chunks}
        if named <= held:
            raise DropError("one document only", doc_id)


RUN = 3
"""So many words in a row that stand in an excerpt too are copied."""

BLOCK = 1_024


@dataclass(frozen=True, slots=True)
class Drop:
    """A candidate that a filter drops: its place in the list, the reason, and what shows it."""

    place: int
    reason: Reason
    detail: str


def filtered(
    candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder, *, by_length: bool
) -> tuple[list[Candidate], list[tuple[Candidate, Drop]]]:
    """Return the candidates that pass all filters, in their order, and those that do not.

    Each filter sees what the ones before have left. Without ``by_length`` the lengths of the texts are left alone.
    """
    kept = list(candidates)
    dropped: list[tuple[Candidate, Drop]] = []
    filters = [lengths] if by_length else []
    for drops in (*filters, leaks, irrelevances, repetitions):
        found = {drop.place: drop for drop in drops(kept, options, embedder)}
        dropped += [(kept[place], drop) for place, drop in found.items()]
        kept = [candidate for place, candidate in enumerate(kept) if place not in found]
    return kept, dropped


def lengths(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions with an excerpt of fewer or more tokens than allowed."""
    fewest, most = options.filters.min_excerpt_tokens, options.filters.max_excerpt_tokens
    for place, candidate in enumerate(candidates):
        for text in candidate.evidence:
            tokens = count_tokens(text, options.encoding)
            if fewest is not None and tokens < fewest:
                yield Drop(place, "excerpt too short", f"{tokens} tokens, {fewest} at least: {text}")
                break
            if most is not None and tokens > most:
                yield Drop(place, "excerpt too long", f"{tokens} tokens, {most} at most: {text}")
                break


def leaks(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that repeat an excerpt: see ``leakage``."""
    most = options.filters.max_leakage
    for place, candidate in enumerate(candidates if most is not None else ()):
        share, text = max(((leakage(candidate.text, text), text) for text in candidate.evidence), default=(0.0, ""))
        if most is not None and share > most:
            yield Drop(place, "copies the excerpt", f"{share:.0%} of its words, {most:.0%} at most: {text}")


def leakage(question: str, excerpt: str) -> float:
    """The share of the question's words that stand in a run of three or more which the excerpt holds too; 0 to 1.

    0 for a question without words. Scripts without spaces count pairs of characters as words.
    """
    asked, told = words(question), words(excerpt)
    runs = {tuple(told[place : place + RUN]) for place in range(len(told) - RUN + 1)}
    copied = np.zeros(len(asked), bool)
    for place in range(len(asked) - RUN + 1):
        if tuple(asked[place : place + RUN]) in runs:
            copied[place : place + RUN] = True
    return float(copied.mean()) if asked else 0.0


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
            yield Drop(place, "excerpt not relevant", f"similarity {similarity:.2f}, {least:.2f} at least: {text}")


def repetitions(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that an earlier one asks too: word for word, or nearly, with the same numbers in them.

    Questions of the same words are always dropped, as they would have the same id.
    """
    most = options.filters.max_question_similarity
    first: dict[tuple[str, ...], int] = {}
    others: list[int] = []
    for place, candidate in enumerate(candidates):
        earlier = first.setdefault(tuple(words(candidate.text)) or (candidate.text,), place)
        if earlier != place:
            yield Drop(place, "near duplicate", f"the same words as: {candidates[earlier].text}")
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
            yield Drop(others[rows[later]], "near duplicate", detail)


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
    """Takes the replies of one generation; its counts are for the report."""

    def __init__(self, options: GenerationOptions, embedder: Embedder) -> None:
        self._options, self._embedder = options, embedder
        self.asked = self.unasked = self.surplus = self.kept = 0
        self._dropped, self._bad = Counter(), Counter()
        self.excerpts: Counts[How] = Counts()

    @property
    def dropped(self) -> dict[Reason, Dropped]:
        """Why questions are not in the ground truth."""
        return cast("dict[Reason, Dropped]", self._dropped.counted(get_args(Reason)))

    @property
    def bad_answers(self) -> dict[str, Dropped]:
        """Answers that could not be used."""
        return self._bad.counted(get_args(AnswerFault))

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
                self._bad.add(bad.fault, answered.assignment.about, bad.detail)
        kept, dropped = filtered(found, self._options, self._embedder, by_length=by_length)
        for candidate, drop in dropped:
            self._dropped.add(drop.reason, candidate.text, drop.detail)
        self.kept = len(kept)
        self.excerpts.update(how for candidate in kept for how in candidate.hows)
        return kept

    def _read(self, reply: Reply, judged: Mapping[str, AnswerModel | None], place: Place) -> Iterator[Candidate]:
        questions, missing, surplus = matched(reply)
        self.asked += len(reply.assignment.briefs)
        self.surplus += len(surplus)
        for brief in missing:
            reason: Reason = "no usable answer" if reply.answer is None else "left out by the model"
            self._dropped.add(reason, f"{reply.assignment.about}, question {brief.number}")
        for brief, question in questions:
            try:
                text = clean_question(question.question)
                if isinstance(question, BareQuestion):
                    _check_verdict(text, judged)
                    yield Candidate(text, reply, brief)
                else:
                    yield place(reply, brief, text, question)
            except DropError as drop:
                self._dropped.add(drop.reason, question.question, drop.detail)


def unverified(replies: Iterable[Reply | None]) -> list[str]:
    """Return the questions that are said to have no answer, each once; whether that is so has to be judged."""
    found: dict[str, None] = {}
    for reply in replies:
        for _, question in () if reply is None else matched(reply)[0]:
            if isinstance(question, BareQuestion):
                with suppress(DropError):
                    found[clean_question(question.question)] = None
    return list(found)


def _check_verdict(text: str, judged: Mapping[str, AnswerModel | None]) -> None:
    verdict = judged.get(text)
    if not isinstance(verdict, Verdict):
        raise DropError("not verified", "no verdict")
    if verdict.answerable:
        raise DropError("answered by the corpus", verdict.passage)
