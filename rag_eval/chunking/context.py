"""Context at index time: what is put around a chunk before it is embedded and matched by words.

It goes into what is *searched*, never into the chunk: its place, its text and its id stay what they are, and so does
what is returned and scored.
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
    """A document and its chunks in reading order: their texts and, at token level, their places."""

    document: Document
    texts: Sequence[str]
    places: Sequence[tuple[int, int] | None]
    chunks: Sequence[Chunk | PositionAwareChunk] = ()
    """The chunks as objects, for a function of a user's."""

    def place(self, number: int) -> tuple[int, int]:
        """Return the place of a chunk; where it has none, that of its first copy, or else the start."""
        known = self.places[number]
        if known is not None:
            return known
        at = max(0, self.document.content.find(self.texts[number]))
        return at, min(len(self.document.content), at + len(self.texts[number]))


class ChunkContext(Protocol):
    """Decides what is searched of each chunk."""

    def searched(self, cut: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return what is searched of every chunk of every document."""


@part
class HeadingContext:
    """The title of the document and the headings above the chunk, put before it; asks no model."""

    def searched(self, cut: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        return [self._of(one) for one in cut]

    def _of(self, cut: CutDocument) -> list[str]:
        outline, made = Outline(cut.document), []
        for number, text in enumerate(cut.texts):
            path = outline.path(*cut.place(number))
            above = path if outline.title in path else [outline.title, *path]
            made.append(SEPARATOR.join([*above, text]))
        return made


@part
class NeighbourContext:
    """The chunks before and after, put around the chunk."""

    count: Annotated[Count, Shown, Field(description="How many chunks on each side.")] = 1

    def searched(self, cut: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        return [
            [
                "\n".join(one.texts[max(0, number - self.count) : number + self.count + 1])
                for number in range(len(one.texts))
            ]
            for one in cut
        ]


@part
class WrittenContext(TextWriter):
    """A sentence or two that a model writes about the chunk's place in its document, put before it.

    The model sees the chunk and ``around`` characters of the document around it. A chunk for which it gives nothing
    usable is searched as it is, and counted.
    """

    prompt = "context"

    around: Annotated[Count, Field(description="How many characters of the document the model sees.")] = 20_000

    def searched(self, cut: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return what is searched of every chunk; raises as ``Answers.of``."""
        asked = []
        for one in cut:
            for number, text in enumerate(one.texts):
                start, end = one.place(number)
                beside = max(0, self.around - (end - start)) // 2
                seen = one.document.content[max(0, start - beside) : end + beside]
                asked.append((one.document.id, self.request(WrittenText, document=seen, chunk=text)))
        given = iter(answers.of(self, asked, WrittenText))
        written = [[(text, next(given)) for text in one.texts] for one in cut]
        return [[_before(answer.text if answer else None, text) for text, answer in one] for one in written]


def _before(context: str | None, text: str) -> str:
    return f"{context.strip()}\n\n{text}" if context and context.strip() else text


class ForeignContext(ForeignFunction):
    """A function of a chunk, or of a chunk and its document, that gives the text to put before the chunk.

    Nothing, or an empty text, leaves the chunk as it is. Raises ``ConfigurationError`` on what cannot be called.
    """

    kind = "context"
    methods = ("context",)
    wanted = "a function of a chunk"
    section = "context"

    def searched(self, cut: Sequence[CutDocument], answers: Answers) -> list[list[str]]:
        """Return what is searched of every chunk; raises ``ConfigurationError`` on anything but texts."""
        return [[self._of(chunk, text, one) for chunk, text in zip(one.chunks, one.texts, strict=True)] for one in cut]

    def _of(self, chunk: Chunk | PositionAwareChunk, text: str, cut: CutDocument) -> str:
        given = self.ask_about(chunk, cut.document)
        if given is not None and not isinstance(given, str):
            raise ConfigurationError(f"the {self.label} gave {preview(repr(given))}: give a text, or None")
        return _before(given, text)
