"""Which questions are asked about which documents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from rag_eval.embedding.base import Embedder
from rag_eval.errors import ConfigurationError
from rag_eval.generation.answers import AnswerModel, BareQuestions
from rag_eval.generation.assignments import Assignment, Desk
from rag_eval.generation.briefs import briefs_for
from rag_eval.generation.related import related_groups
from rag_eval.generation.windows import Window, spread

QUESTIONS_OF_A_GROUP = 2


@dataclass(frozen=True)
class Level:
    """What differs between the kinds of ground truth: the prompts, and what the model answers."""

    prompt: str
    cross_document_prompt: str
    answer: type[AnswerModel]


class Planner:
    """Makes the assignments of one generation."""

    def __init__(self, desk: Desk, level: Level) -> None:
        self._desk, self._level = desk, level

    def per_document(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """So many questions about one document, spread over its windows."""
        briefs = briefs_for(windows[0].doc_id, count, self._desk.options)
        made: list[Assignment] = []
        for window, share in zip(windows, spread(count, [window.tokens for window in windows]), strict=True):
            part = list(islice(briefs, share))
            made += self._desk.questions("questions", self._level.prompt, self._level.answer, [window], part)
        return made

    def cross_document(self, windows: Sequence[Window], count: int, embedder: Embedder) -> list[Assignment]:
        """So many questions about groups of related documents; raises ``ConfigurationError`` when there are none."""
        options = self._desk.options
        size = options.documents_per_group
        groups = related_groups(windows, -(-count // QUESTIONS_OF_A_GROUP), size, embedder)
        if not groups:
            raise ConfigurationError(
                f"cross-document questions need {size} different documents and the corpus has not as many: "
                "add documents, or ask for none"
            )
        made: list[Assignment] = []
        for group, share in zip(groups, spread(count, [1] * len(groups)), strict=True):
            subject = "\n".join(window.doc_id for window in group)
            briefs = list(briefs_for(f"cross-document\n{subject}", share, options))
            prompt = self._level.cross_document_prompt
            made += self._desk.questions("cross-document", prompt, self._level.answer, group, briefs)
        return made

    def unanswerable(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """So many questions without an answer, spread over the corpus."""
        made: list[Assignment] = []
        for window, share in _shares(windows, count):
            briefs = list(briefs_for(f"unanswerable\n{window.doc_id}", share, self._desk.options))
            # What the model is shown has no chunks: it is not asked to name any.
            shown = Window(window.doc_id, window.text, window.tokens, window.start)
            made += self._desk.questions("unanswerable", "unanswerable", BareQuestions, [shown], briefs)
        return made


def _shares(windows: Sequence[Window], count: int) -> Iterable[tuple[Window, int]]:
    shares = spread(count, [window.tokens for window in windows])
    return [(window, share) for window, share in zip(windows, shares, strict=True) if share]
