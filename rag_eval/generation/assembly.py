"""From the model's replies to candidates that can stand: every question asked for is kept, or dropped and counted."""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast, get_args

from rag_eval.embedding.base import Embedder
from rag_eval.generation.answers import AnswerModel, BareQuestion, Fault, Verdict
from rag_eval.generation.assignments import Assignment, Reply
from rag_eval.generation.briefs import Brief
from rag_eval.generation.candidates import AnyQuestion, Candidate, DropError, clean_question, matched
from rag_eval.generation.filters import filtered
from rag_eval.generation.options import GenerationOptions
from rag_eval.generation.report import Counter, Dropped, Reason
from rag_eval.ground_truth.locating import How

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
        return self._bad.counted(get_args(Fault))

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
    """The questions that are said to have no answer, each once; whether that is so has to be judged."""
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
