"""What the model is given to do, one request each, and how its answer is read."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.generation.answers import AnswerModel, BadAnswer, Verdict, response_format
from rag_eval.generation.briefs import Brief
from rag_eval.generation.chat import ChatRequest
from rag_eval.generation.ledger import Purpose
from rag_eval.generation.options import GenerationOptions
from rag_eval.generation.prompt_files import Prompts
from rag_eval.generation.rendering import shown_briefs, shown_documents
from rag_eval.generation.windows import Window

MOST_QUESTIONS = 10
"""The most questions of one request: longer answers are cut off more often than they help."""


@dataclass(frozen=True)
class Assignment:
    """Some questions to write about some windows; for ``verification``, one to judge.

    ``about`` names it in messages, ``prompt_hash`` the texts that it was made with.
    """

    purpose: Purpose
    about: str
    request: ChatRequest
    answer: type[AnswerModel]
    prompt_hash: str
    windows: tuple[Window, ...] = ()
    briefs: tuple[Brief, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What came of an assignment: a usable answer, or None after all attempts; ``bad`` are those without use."""

    assignment: Assignment
    answer: AnswerModel | None
    bad: tuple[BadAnswer, ...] = ()


@dataclass(frozen=True)
class Desk:
    """Writes assignments for one model on one server."""

    server: str
    model: str
    prompts: Prompts
    options: GenerationOptions

    def questions(
        self,
        purpose: Purpose,
        prompt: str,
        answer: type[AnswerModel],
        windows: Sequence[Window],
        briefs: Sequence[Brief],
    ) -> list[Assignment]:
        """The questions of the briefs about the windows, in requests of at most ``MOST_QUESTIONS``."""
        about = " and ".join(dict.fromkeys(window.doc_id for window in windows))
        made = []
        for first in range(0, len(briefs), MOST_QUESTIONS):
            part = briefs[first : first + MOST_QUESTIONS]
            text = self.prompts.render(
                prompt,
                briefs=shown_briefs(part, self.prompts),
                documents=shown_documents(windows),
                numbers=", ".join(str(brief.number) for brief in part),
            )
            request, digest = self._request(text, answer), self.prompts.sha256(prompt)
            made.append(Assignment(purpose, about, request, answer, digest, tuple(windows), tuple(part)))
        return made

    def verification(self, question: str, passages: str) -> Assignment:
        """Judge whether the passages answer the question."""
        text = self.prompts.render("verification", question=question, documents=passages)
        digest = self.prompts.sha256("verification")
        return Assignment("verification", question, self._request(text, Verdict), Verdict, digest)

    def _request(self, text: str, answer: type[AnswerModel]) -> ChatRequest:
        given = {"temperature": self.options.temperature, "seed": self.options.seed}
        return ChatRequest(
            server=self.server,
            model=self.model,
            system=self.prompts.system,
            user=text,
            response_format=response_format(answer),
            settings={name: value for name, value in given.items() if value is not None},
            max_output_tokens=self.options.max_output_tokens,
        )
