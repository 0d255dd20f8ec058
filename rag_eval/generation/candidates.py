"""Questions of the model on their way into the ground truth: read, held against what was asked, and placed."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rag_eval.generation.answers import BareQuestion, ChunkQuestion, SpanQuestion, Verdict
from rag_eval.generation.assignments import Reply
from rag_eval.generation.briefs import Brief
from rag_eval.generation.rendering import label
from rag_eval.generation.report import Reason
from rag_eval.generation.windows import Window
from rag_eval.ground_truth.locating import Hint, How, Located, Locator, Rejected
from rag_eval.types.ids import ChunkId
from rag_eval.types.span import CharacterSpan

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
    """The documents that hold the chunks; a text that several hold counts for each."""
    named = set(chunk_ids)
    return sorted({window.doc_id for window in windows for chunk in window.chunks if chunk.id in named})


def check_needs_several(chunk_ids: Iterable[ChunkId], windows: Sequence[Window]) -> None:
    """Raise ``DropError`` when one document holds all the chunks; a text may stand in several."""
    named = set(chunk_ids)
    for doc_id in documents_of(named, windows):
        held = {chunk.id for window in windows if window.doc_id == doc_id for chunk in window.chunks}
        if named <= held:
            raise DropError("one document only", doc_id)
