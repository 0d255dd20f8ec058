"""Rewrite questions into the texts to search."""

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
    """Returns the texts to search instead of a question."""

    @property
    def fusion(self) -> Fusion | None:
        """The fusion of the texts' hits; None if every question has one text."""

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        """Return the texts to search for each question."""


@part
class RewrittenQueries(TextWriter):
    """Searches for each question as a model rewrites it, or as asked if the model returns nothing."""

    prompt = "rewritten"
    fusion: ClassVar[Fusion | None] = None

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        requests = [(text, self.request(WrittenText, question=text)) for text in questions]
        written = answers.of(self, requests, WrittenText)
        return [[answer.text.strip() if answer else text] for answer, text in zip(written, questions, strict=True)]


@part
class HypotheticalAnswers(RewrittenQueries):
    """Searches for an answer that a model imagines instead of each question (HyDE).

    L. Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2022.
    """

    prompt = "hyde"


@part
class QueryVariants(TextWriter):
    """Searches for each question and other wordings by a model; their hits are fused by rank."""

    prompt = "variants"

    count: Annotated[Count, Shown, Field(le=20, description="Number of other wordings.")] = 3
    _: KW_ONLY
    fusion: Annotated[Any, PartOf(FUSION), Field(description="How to fuse the rankings of the wordings.")] = Field(
        default_factory=ReciprocalRankFusion
    )

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        requests = [(text, self.request(WrittenTexts, count=self.count, question=text)) for text in questions]
        written = answers.of(self, requests, WrittenTexts)
        wordings = [usable(answer.texts)[: self.count] if answer else [] for answer in written]
        return [list(dict.fromkeys([text, *others])) for text, others in zip(questions, wordings, strict=True)]


class ForeignQueries(ForeignFunction):
    """A function of a question that returns the text to search, or a list of texts whose hits are fused.

    If it returns nothing, the question is searched as it is asked. Raises ``ConfigurationError`` if the object cannot
    be called.
    """

    kind = "rewriter"
    methods = ("rewrite",)
    wanted = "a function of a question"
    section = "queries"
    fusion = ReciprocalRankFusion()

    def searches(self, questions: Sequence[str], answers: Answers) -> list[list[str]]:
        return [self._of(question, answers) for question in questions]

    def _of(self, question: str, answers: Answers) -> list[str]:
        answer = self.ask(self._call, question)
        texts = [answer] if isinstance(answer, str) else [] if answer is None else answer
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(f"the {self.label} returned {preview(repr(answer))}: return a text or a list")
        answers.total += 1
        answers.fresh += 1
        answers.missing += not usable(texts)
        return usable(texts) or [question]
