"""The requests to the model: which questions are asked about which documents, and the form of the answers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rag_eval.embedding.embedder import Embedder, Vectors, text_vectors
from rag_eval.errors import ConfigurationError
from rag_eval.generation.options import GenerationOptions
from rag_eval.generation.prompts import Prompts
from rag_eval.generation.windows import Window, spread
from rag_eval.llm.chat import ChatRequest, UnusableAnswer, response_format
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.types.ids import text_sha256

Purpose = Literal["questions", "cross-document", "unanswerable", "verification"]
"""What a request is for, in the order in which it is accounted for."""


class _Strict(BaseModel):
    # Strict output needs every key required and no other allowed.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Excerpt(_Strict):
    """A passage that the model quotes."""

    document: str = Field(description="The label of the document, such as D1.")
    text: str = Field(description="The passage, copied character by character.")
    before: str = Field(description="The few words directly before the passage; empty at the start of the document.")


class SpanQuestion(_Strict):
    """A question with the passages that answer it."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str
    excerpts: list[Excerpt]


class SpanQuestions(_Strict):
    """Questions with passages."""

    questions: list[SpanQuestion]


class ChunkQuestion(_Strict):
    """A question with the ids of the chunks that answer it."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str
    chunk_ids: list[str] = Field(description="The ids of the chunks that are needed for the answer.")


class ChunkQuestions(_Strict):
    """Questions with chunk ids."""

    questions: list[ChunkQuestion]


class BareQuestion(_Strict):
    """A question that nothing answers."""

    number: int = Field(description="The number of the question in the list of questions to write.")
    question: str


class BareQuestions(_Strict):
    """Questions that nothing answers."""

    questions: list[BareQuestion]


class Verdict(_Strict):
    """Whether passages answer a question."""

    answerable: bool
    passage: str = Field(description="The passage that answers the question, copied; empty if none does.")


AnswerModel = SpanQuestions | ChunkQuestions | BareQuestions | Verdict


@dataclass(frozen=True, slots=True)
class Brief:
    """One question to be written; the number ties the answer to it."""

    number: int
    query_type: str
    difficulty: str
    persona: str | None = None

    def metadata(self) -> dict[str, object]:
        """Return what goes along with the question; without a persona there is none."""
        told: dict[str, object] = {"query_type": self.query_type, "difficulty": self.difficulty}
        return told if self.persona is None else {**told, "persona": self.persona}


def briefs_for(subject: str, count: int, options: GenerationOptions) -> Iterator[Brief]:
    """So many briefs for one subject, numbered from 1: the combinations in turn, the first by subject and seed.

    They do not depend on other documents, so that a corpus that grows keeps the answers it has.
    """
    combinations = list(product(options.personas or (None,), options.difficulties, options.query_types))
    first = int(text_sha256(f"{options.seed or 0}/{subject}")[:12], 16)
    for number in range(count):
        persona, difficulty, query_type = combinations[(first + number) % len(combinations)]
        yield Brief(number + 1, query_type, difficulty, persona)


CODE_DIGITS = 12


def label(number: int) -> str:
    """Return what the document with this number, from 0, is called in a prompt."""
    return f"D{number + 1}"


def shown_documents(windows: Sequence[Window]) -> str:
    """Return the windows with their labels and names; those of chunks with an id above each."""
    code = _code([window.text for window in windows])
    return "\n\n".join(_shown(label(number), window, code) for number, window in enumerate(windows))


def shown_passages(passages: Sequence[str]) -> str:
    """Passages of any documents, numbered."""
    code = _code(passages)
    parts = [f"<<<passage {n} {code}>>>\n{text}\n<<<end {code}>>>" for n, text in enumerate(passages, start=1)]
    return "\n\n".join(parts)


def shown_briefs(briefs: Sequence[Brief], prompts: Prompts) -> str:
    """Return a line for each question to write."""
    return "\n".join(_brief(brief, prompts) for brief in briefs)


def _brief(brief: Brief, prompts: Prompts) -> str:
    kind = prompts.describe("query_types", brief.query_type)
    difficulty = prompts.describe("difficulties", brief.difficulty)
    asked_by = "" if brief.persona is None else f"; asked by: {brief.persona}"
    return f"{brief.number}. kind: {kind}; difficulty: {difficulty}{asked_by}"


def _shown(name: str, window: Window, code: str) -> str:
    # As JSON the name of a file is one line, whatever it holds.
    title = f"<<<{name} {code}: {json.dumps(window.doc_id, ensure_ascii=False)}>>>"
    if not window.chunks:
        return f"{title}\n{window.text}\n<<<end of {name} {code}>>>"
    chunks = "\n".join(f"<<<{chunk.id} {code}>>>\n{chunk.content}" for chunk in window.chunks)
    return f"{title}\n{chunks}\n<<<end of {name} {code}>>>"


def _code(texts: Sequence[str]) -> str:
    code = text_sha256("\0".join(texts))[:CODE_DIGITS]
    while any(code in text for text in texts):
        code = text_sha256(code)[:CODE_DIGITS]
    return code


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
    bad: tuple[UnusableAnswer, ...] = ()


@dataclass(frozen=True)
class RequestBuilder:
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
        """Return the questions of the briefs about the windows, in requests of at most ``MOST_QUESTIONS``."""
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
            system=self.prompts.render("system"),
            user=text,
            response_format=response_format(answer),
            settings={name: value for name, value in given.items() if value is not None},
            max_output_tokens=self.options.max_output_tokens,
        )


BLOCK = 1_024
# Documents that say the same word for word make questions that one of them answers.
NEARLY_EQUAL = 0.98


def related_groups(windows: Sequence[Window], count: int, size: int, embedder: Embedder) -> list[tuple[Window, ...]]:
    """At most ``count`` groups of windows, each of ``size`` different documents, most similar first.

    Each window is grouped with the windows of other documents that are most similar to it by the cosine of their
    vectors. Documents come again only when all have had their turn, and no set of documents stands in two groups.
    Windows that are nearly equal are not grouped. Fewer groups come back when there are no more.
    """
    if count < 1 or len({window.doc_id for window in windows}) < size:
        return []
    vectors = unit_vectors(text_vectors(embedder, [window.text for window in windows]), "vectors of documents")
    candidates = _candidates(windows, vectors, size)
    groups: list[tuple[Window, ...]] = []
    uses = dict.fromkeys((window.doc_id for window in windows), 0)
    while len(groups) < count and candidates:
        # The least used documents first; candidates are sorted by similarity, and sorting keeps that order.
        best = min(candidates, key=lambda group: max(uses[window.doc_id] for window in group))
        names = {window.doc_id for window in best}
        candidates = [group for group in candidates if {window.doc_id for window in group} != names]
        for name in names:
            uses[name] += 1
        groups.append(best)
    return groups


def _candidates(windows: Sequence[Window], vectors: Vectors, size: int) -> list[tuple[Window, ...]]:
    """For each window the group around it, best first; groups of the same windows once."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(window.doc_id for window in windows))}
    documents = np.array([numbers[window.doc_id] for window in windows])
    found: dict[tuple[int, ...], float] = {}
    for begin in range(0, len(windows), BLOCK):
        similarities = vectors[begin : begin + BLOCK] @ vectors.T
        similarities[similarities >= NEARLY_EQUAL] = -np.inf
        for row, scores in enumerate(similarities):
            group = _around(begin + row, scores, documents, size)
            if group is not None:
                members, score = group
                found[members] = max(score, found.get(members, -np.inf))
    ranked = sorted(found, key=lambda members: (-found[members], members))
    return [tuple(windows[member] for member in members) for members in ranked]


def _around(
    centre: int, scores: Vectors, documents: "np.ndarray[tuple[int], np.dtype[np.int64]]", size: int
) -> tuple[tuple[int, ...], float] | None:
    scores = np.where(documents == documents[centre], -np.inf, scores)
    members, total = [centre], 0.0
    for _ in range(size - 1):
        best = int(np.argmax(scores))
        if not np.isfinite(scores[best]):
            return None
        members.append(best)
        total += float(scores[best])
        scores[documents == documents[best]] = -np.inf
    return tuple(sorted(members)), total


QUESTIONS_OF_A_GROUP = 2


@dataclass(frozen=True)
class Level:
    """What differs between the kinds of ground truth: the prompts, and what the model answers."""

    prompt: str
    cross_document_prompt: str
    answer: type[AnswerModel]


class Planner:
    """Makes the assignments of one generation."""

    def __init__(self, builder: RequestBuilder, level: Level) -> None:
        self._builder, self._level = builder, level

    def per_document(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """So many questions about one document, spread over its windows."""
        briefs = briefs_for(windows[0].doc_id, count, self._builder.options)
        made: list[Assignment] = []
        for window, share in zip(windows, spread(count, [window.tokens for window in windows]), strict=True):
            part = list(islice(briefs, share))
            made += self._builder.questions("questions", self._level.prompt, self._level.answer, [window], part)
        return made

    def cross_document(self, windows: Sequence[Window], count: int, embedder: Embedder) -> list[Assignment]:
        """So many questions about groups of related documents; raises ``ConfigurationError`` when there are none."""
        options = self._builder.options
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
            made += self._builder.questions("cross-document", prompt, self._level.answer, group, briefs)
        return made

    def unanswerable(self, windows: Sequence[Window], count: int) -> list[Assignment]:
        """So many questions without an answer, spread over the corpus."""
        made: list[Assignment] = []
        for window, share in zip(windows, spread(count, [window.tokens for window in windows]), strict=True):
            briefs = list(briefs_for(f"unanswerable\n{window.doc_id}", share, self._builder.options))
            # What the model is shown has no chunks: it is not asked to name any.
            shown = Window(window.doc_id, window.text, window.tokens, window.start)
            made += self._builder.questions("unanswerable", "unanswerable", BareQuestions, [shown], briefs)
        return made
