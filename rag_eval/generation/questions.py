"""Define the requests to the model: prompts, questions per document, and the form of the answers.

Prompts are files of this package, with placeholders like ``${documents}``; a dollar sign is written ``$$``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from string import Template
from typing import Literal

from pydantic import Field

from rag_eval.embedding.embedder import Embedder
from rag_eval.errors import ConfigurationError
from rag_eval.generation.settings import GenerationOptions
from rag_eval.generation.windows import Window, related_pairs, spread
from rag_eval.llm.asking import ModelRequest, code_of
from rag_eval.llm.chat import ChatRequest, ModelAnswer, response_format
from rag_eval.storage.files import data_sha256, read_text
from rag_eval.types.ids import text_sha256

Purpose = Literal["questions", "cross-document", "unanswerable", "evidence", "verification"]
"""What a request is for, in the order of the cost report."""


class Excerpt(ModelAnswer):
    """A passage that the model quotes."""

    document: str = Field(description="The label of the document, such as D1.")
    text: str = Field(description="The passage, copied character by character.")
    before: str = Field(description="The few words directly before the passage; empty at the start of the document.")


class _Question(ModelAnswer):
    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str


class SpanQuestion(_Question):
    """A question with the passages that answer it."""

    excerpts: list[Excerpt]


class SpanQuestions(ModelAnswer):
    """Questions with passages."""

    questions: list[SpanQuestion]


class ChunkQuestion(_Question):
    """A question with the ids of the chunks that answer it."""

    chunk_ids: list[str] = Field(description="The ids of the chunks that are needed for the answer.")


class ChunkQuestions(ModelAnswer):
    """Questions with chunk ids."""

    questions: list[ChunkQuestion]


class BareQuestion(_Question):
    """A question that nothing answers."""


class BareQuestions(ModelAnswer):
    """Questions that nothing answers."""

    questions: list[BareQuestion]


class Evidence(ModelAnswer):
    """The passages that answer a question that is given."""

    excerpts: list[Excerpt] = Field(description="The passages that answer the question; empty if none does.")


class Verdict(ModelAnswer):
    """Whether passages answer a question."""

    answerable: bool
    passage: str = Field(description="The passage that answers the question, copied; empty if none does.")


AnswerModel = SpanQuestions | ChunkQuestions | BareQuestions | Evidence | Verdict


@dataclass(frozen=True, slots=True)
class Brief:
    """A question to write; ``number`` identifies it in the answer."""

    number: int
    query_type: str = ""
    difficulty: str = ""
    persona: str | None = None

    def metadata(self) -> dict[str, object]:
        """Return the metadata of the question."""
        values = {"query_type": self.query_type, "difficulty": self.difficulty, "persona": self.persona}
        return {name: value for name, value in values.items() if value}


def briefs_for(subject: str, count: int, options: GenerationOptions) -> Iterator[Brief]:
    """Yield briefs for a subject, numbered from 1, cycling through the combinations.

    Subject and seed choose the first combination. Other documents do not matter, so that a growing corpus reuses cached
    answers.
    """
    combinations = list(product(options.personas or (None,), options.difficulties, options.query_types))
    first = int(text_sha256(f"{options.seed or 0}/{subject}")[:12], 16)
    for number in range(count):
        persona, difficulty, query_type = combinations[(first + number) % len(combinations)]
        yield Brief(number + 1, query_type, difficulty, persona)


FOLDER = Path(__file__).parent / "prompts"
VOCABULARIES = ("query_types", "difficulties")
"""Text files with lines ``- name: description``."""


@cache
def prompt_text(name: str) -> str:
    """Return the text of a prompt file."""
    return read_text(FOLDER / f"{name}.md")


def rendered(name: str, **values: str) -> str:
    """Fill in a prompt; placeholders in the values are not replaced."""
    return Template(prompt_text(name)).substitute(values).strip()


def described(vocabulary: str, name: str) -> str:
    """Return a name with its description, if it has one."""
    for line in prompt_text(vocabulary).splitlines():
        if line.startswith(f"- {name}: "):
            return f"{name} ({line.removeprefix(f'- {name}: ')})"
    return name


def prompt_sha256(name: str) -> str:
    """Return the digest of all texts in a prompt, in 16 hex digits."""
    return data_sha256([prompt_text(part) for part in ("system", name, *VOCABULARIES)])[:16]


def label(number: int) -> str:
    """Return the name of a document in a prompt, by its number from 0."""
    return f"D{number + 1}"


def shown_documents(windows: Sequence[Window]) -> str:
    """Return the windows with labels and document ids, and chunks with their ids."""
    code = code_of([window.text for window in windows])
    parts = []
    for number, window in enumerate(windows):
        chunks = "\n".join(f"<<<{chunk.id} {code}>>>\n{chunk.content}" for chunk in window.chunks)
        # JSON keeps the name on one line.
        title = f"<<<{label(number)} {code}: {json.dumps(window.doc_id, ensure_ascii=False)}>>>"
        parts.append(f"{title}\n{chunks or window.text}\n<<<end of {label(number)} {code}>>>")
    return "\n\n".join(parts)


def shown_passages(passages: Sequence[Window]) -> str:
    """Return numbered passages, without the names of their documents."""
    code = code_of([passage.text for passage in passages])
    texts = (passage.text for passage in passages)
    parts = [f"<<<passage {n} {code}>>>\n{text}\n<<<end {code}>>>" for n, text in enumerate(texts, start=1)]
    return "\n\n".join(parts)


def shown_briefs(briefs: Sequence[Brief]) -> str:
    """Return a line for each question to write."""
    lines = []
    for brief in briefs:
        kind, difficulty = described("query_types", brief.query_type), described("difficulties", brief.difficulty)
        asked_by = "" if brief.persona is None else f"; asked by: {brief.persona}"
        lines.append(f"{brief.number}. kind: {kind}; difficulty: {difficulty}{asked_by}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Assignment(ModelRequest):
    """Questions to write about windows, or one question to judge; ``prompt_hash`` is the digest of the prompt."""

    purpose: Purpose
    prompt_hash: str
    windows: tuple[Window, ...] = ()
    briefs: tuple[Brief, ...] = ()


MOST_QUESTIONS = 10
"""Maximum number of questions per request: longer answers are often cut off."""
QUESTIONS_OF_A_PAIR = 2
TEMPLATES: dict[tuple[Purpose, type[AnswerModel]], str] = {
    ("questions", SpanQuestions): "token_level",
    ("questions", ChunkQuestions): "chunk_level",
    ("cross-document", SpanQuestions): "cross_document",
    ("cross-document", ChunkQuestions): "cross_document_chunks",
    ("unanswerable", BareQuestions): "unanswerable",
}
"""The prompts by kind of question and kind of answer."""


@dataclass(frozen=True)
class Planner:
    """Plans the assignments of a generation; ``answer`` is the form of answerable questions."""

    server: str
    model: str
    options: GenerationOptions
    answer: type[SpanQuestions] | type[ChunkQuestions]

    def per_document(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """Ask for questions about one document, spread over its windows."""
        briefs = briefs_for(windows[0].doc_id, count, self.options)
        assignments: list[Assignment] = []
        for window, share in zip(windows, spread(count, [window.tokens for window in windows]), strict=True):
            assignments += self._questions("questions", self.answer, [window], list(islice(briefs, share)))
        return assignments

    def cross_document(self, windows: Sequence[Window], count: int, embedder: Embedder) -> list[Assignment]:
        """Ask for questions about pairs of related documents; raise ``ConfigurationError`` if there are none."""
        pairs = related_pairs(windows, -(-count // QUESTIONS_OF_A_PAIR), embedder)
        if not pairs:
            raise ConfigurationError(
                "cross-document questions need 2 different documents: add documents, or ask for no such questions"
            )
        assignments: list[Assignment] = []
        for pair, share in zip(pairs, spread(count, [1] * len(pairs)), strict=True):
            subject = "\n".join(window.doc_id for window in pair)
            briefs = list(briefs_for(f"cross-document\n{subject}", share, self.options))
            assignments += self._questions("cross-document", self.answer, pair, briefs)
        return assignments

    def unanswerable(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """Ask for questions without an answer, spread over the corpus."""
        assignments: list[Assignment] = []
        for window, share in zip(windows, spread(count, [window.tokens for window in windows]), strict=True):
            briefs = list(briefs_for(f"unanswerable\n{window.doc_id}", share, self.options))
            assignments += self._questions("unanswerable", BareQuestions, [replace(window, chunks=())], briefs)
        return assignments

    def evidence(self, question: str, windows: Sequence[Window]) -> Assignment:
        """Ask for the answer to a real question, which gets number 1."""
        values = {"question": question, "documents": shown_documents(windows)}
        return self._assignment("evidence", question, "evidence", Evidence, values, windows, [Brief(1)])

    def verification(self, question: str, passages: str) -> Assignment:
        """Ask whether passages answer a question."""
        values = {"question": question, "documents": passages}
        return self._assignment("verification", question, "verification", Verdict, values)

    def _questions(
        self, purpose: Purpose, answer: type[AnswerModel], windows: Sequence[Window], briefs: Sequence[Brief]
    ) -> Iterator[Assignment]:
        """Ask for questions about the windows, at most ``MOST_QUESTIONS`` per request."""
        about = " and ".join(dict.fromkeys(window.doc_id for window in windows))
        for first in range(0, len(briefs), MOST_QUESTIONS):
            part = briefs[first : first + MOST_QUESTIONS]
            numbers = ", ".join(str(brief.number) for brief in part)
            values = {"briefs": shown_briefs(part), "documents": shown_documents(windows), "numbers": numbers}
            yield self._assignment(purpose, about, TEMPLATES[purpose, answer], answer, values, windows, part)

    def _assignment(
        self,
        purpose: Purpose,
        about: str,
        template: str,
        answer: type[AnswerModel],
        values: Mapping[str, str],
        windows: Sequence[Window] = (),
        briefs: Sequence[Brief] = (),
    ) -> Assignment:
        given = {"temperature": self.options.temperature, "seed": self.options.seed}
        request = ChatRequest(
            server=self.server,
            model=self.model,
            system=rendered("system"),
            user=rendered(template, **values),
            response_format=response_format(answer),
            settings={name: value for name, value in given.items() if value is not None},
            max_output_tokens=self.options.max_output_tokens,
        )
        return Assignment(purpose, about, request, answer, prompt_sha256(template), tuple(windows), tuple(briefs))
