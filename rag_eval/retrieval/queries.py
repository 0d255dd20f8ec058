"""Searches: what is really searched for a question, where that is not the question as it is asked."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from rag_eval.errors import ConfigurationError, preview
from rag_eval.llm.writing import Answers, TextWriter, WrittenText, WrittenTexts, usable
from rag_eval.parts import PartOf, Shown, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Count
from rag_eval.retrieval import FUSION
from rag_eval.retrieval.fusion import Fusion, ReciprocalRankFusion


class Rewriter(Protocol):
    """Gives what is searched in the place of a question."""

    @property
    def fusion(self) -> Fusion | None:
        """What fuses the hits of the texts; None where a question has one text."""

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        """Return the texts to search for each question."""


@part
class RewrittenQueries(TextWriter):
    """Each question as a model rewrites it for a search; as asked, and counted, where the model gives nothing."""

    prompt = "rewritten"
    fusion: ClassVar[Fusion | None] = None

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        """Return the texts to search for each question; raises as ``Answers.of``."""
        asked = [(text, self.request(WrittenText, question=text)) for text in questions]
        given = answers.of(self, asked, WrittenText)
        return [[answer.text.strip() if answer else text] for answer, text in zip(given, questions, strict=True)]


@part
class HypotheticalAnswers(RewrittenQueries):
    """The answer that a model imagines, in the place of each question (HyDE).

    L. Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2022.
    """

    prompt = "hyde"


@part
class QueryVariants(TextWriter):
    """Each question with other wordings of a model beside it; their hits are fused by their ranks."""

    prompt = "variants"

    count: Annotated[Count, Shown, Field(le=20, description="How many wordings beside the question.")] = 3
    _: KW_ONLY
    fusion: Annotated[Any, PartOf(FUSION), Field(description="How the rankings of the wordings become one.")] = Field(
        default_factory=ReciprocalRankFusion
    )

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        """Return the texts to search for each question, its own first; raises as ``Answers.of``."""
        asked = [(text, self.request(WrittenTexts, count=self.count, question=text)) for text in questions]
        found = [
            usable(answer.texts)[: self.count] if answer else [] for answer in answers.of(self, asked, WrittenTexts)
        ]
        return [list(dict.fromkeys([text, *others])) for text, others in zip(questions, found, strict=True)]


class ForeignQueries(ForeignFunction):
    """A function of a question that gives the text to search, or a list of texts whose hits are fused.

    Nothing leaves the question as it is asked. Raises ``ConfigurationError`` when the object cannot be called.
    """

    kind = "rewriter"
    methods = ("rewrite",)
    wanted = "a function of a question"
    section = "queries"
    fusion = ReciprocalRankFusion()

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        """Return the texts to search for each question; raises ``ConfigurationError`` on anything but texts."""
        return [self._of(question, answers) for question in questions]

    def _of(self, question: str, answers: Answers) -> list[str]:
        given = self.ask(self._call, question)
        texts = [given] if isinstance(given, str) else [] if given is None else given
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(f"the {self.label} gave {preview(repr(given))}: give a text, or a list of texts")
        answers.total += 1
        answers.fresh += 1
        answers.missing += not usable(texts)
        return usable(texts) or [question]
