"""Add context to chunks at index time: text that is embedded and indexed together with a chunk.

Context changes what is *searched*, never the chunk: its position, text and id stay the same, and so does what is
returned and scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from rag_eval.chunking.markdown import Outline
from rag_eval.errors import ConfigurationError, preview
from rag_eval.llm.writing import Answers, TextWriter, WrittenText
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Count
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Document

SEPARATOR = ": "


@dataclass(frozen=True)
class CutDocument:
    """A document and its chunks in reading order: their texts and, at token level, their positions."""

    document: Document
    texts: Sequence[str]
    places: Sequence[tuple[int, int] | None]
    chunks: Sequence[Chunk | PositionAwareChunk] = ()
    """The chunks as objects, to pass to users' functions."""

    def place(self, number: int) -> tuple[int, int]:
        """Return the position of a chunk.

        Without positions, return the first occurrence of its text, or else the start of the document.
        """
        text, content = self.texts[number], self.document.content
        start = max(0, content.find(text))
        return self.places[number] or (start, min(len(content), start + len(text)))


class ChunkContext(Protocol):
    """Decides which text is searched for each chunk."""

    def searched(self, documents: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return the searched text of every chunk of every document."""


@part
class HeadingContext:
    """Puts the document title and the headings above a chunk before it, without a model."""

    def searched(self, documents: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        return [self._of(cut) for cut in documents]

    def _of(self, cut: CutDocument) -> list[str]:
        outline, texts = Outline(cut.document), []
        for number, text in enumerate(cut.texts):
            path = outline.path(*cut.place(number))
            above = path if outline.title in path else [outline.title, *path]
            texts.append(SEPARATOR.join([*above, text]))
        return texts


@part
class NeighbourContext:
    """Puts the neighbouring chunks before and after a chunk."""

    count: Annotated[Count, Shown, Field(description="Number of chunks on each side.")] = 1

    def searched(self, documents: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        return [
            [
                "\n".join(cut.texts[max(0, number - self.count) : number + self.count + 1])
                for number in range(len(cut.texts))
            ]
            for cut in documents
        ]


@part
class WrittenContext(TextWriter):
    """Puts one or two sentences by a model before a chunk, which describe its place in the document.

    The model sees the chunk and ``around`` characters of the document around it. Chunks for which it gives no usable
    answer are searched as they are, and counted.
    """

    prompt = "context"

    around: Annotated[Count, Field(description="Number of characters of the document that the model sees.")] = 20_000

    def searched(self, documents: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return the searched text of every chunk. Raises like ``Answers.of``."""
        requests = []
        for cut in documents:
            for number, text in enumerate(cut.texts):
                start, end = cut.place(number)
                beside = max(0, self.around - (end - start)) // 2
                seen = cut.document.content[max(0, start - beside) : end + beside]
                requests.append((cut.document.id, self.request(WrittenText, document=seen, chunk=text)))
        replies = iter(answers.of(self, requests, WrittenText))
        written = [[(text, next(replies)) for text in cut.texts] for cut in documents]
        return [[_before(answer.text if answer else None, text) for text, answer in pairs] for pairs in written]


def _before(context: str | None, text: str) -> str:
    return f"{context.strip()}\n\n{text}" if context and context.strip() else text


class ForeignContext(ForeignFunction):
    """A user's function of a chunk, or of a chunk and its document, that returns the text to put before the chunk.

    None or an empty text leaves the chunk as it is. Raises ``ConfigurationError`` if the object is not callable.
    """

    kind = "context"
    methods = ("context",)
    wanted = "a function of a chunk"
    section = "context"

    def searched(self, documents: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return the searched text of every chunk. Raises ``ConfigurationError`` if the function returns no text."""
        return [
            [self._of(chunk, text, cut) for chunk, text in zip(cut.chunks, cut.texts, strict=True)] for cut in documents
        ]

    def _of(self, chunk: Chunk | PositionAwareChunk, text: str, cut: CutDocument) -> str:
        context = self.ask_about(chunk, cut.document)
        if context is not None and not isinstance(context, str):
            raise ConfigurationError(f"the {self.label} returned {preview(repr(context))}: return a text, or None")
        return _before(context, text)
