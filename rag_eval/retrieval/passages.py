"""Find passages: the text that a model is given for a hit, if that is more than the chunk.

**A cut counts hits**: at k = 5 the passages of the first five hits are returned, and a budget of tokens takes passages
in the order of their hits as long as they fit. Passages that overlap or touch are merged at the rank of the best hit,
so no character is returned, paid for or counted twice.
"""

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from rag_eval.chunking.markdown import Outline
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Count, OptionalCount
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Document

Place = tuple[int, int]


class Passages(Protocol):
    """Finds the passage of a hit."""

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        """Return the place of the passage of each hit, given by its chunk number; None if it is too long."""


@part
class WindowPassage:
    """The chunk with its neighbours in the document."""

    count: Annotated[Count, Shown, Field(description="Number of chunks on each side.")] = 1

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        windows = {hit: chunks[max(0, hit - self.count) : hit + self.count + 1] for hit in hits}
        return {
            hit: (min(start for start, _ in window), max(end for _, end in window)) for hit, window in windows.items()
        }


MOST_TOKENS = 2_000
ENCODING = "cl100k_base"
"""Tiktoken encoding that counts tokens for limits."""


@part
class SectionPassage:
    """The section of the chunk, from its heading to the next; all sections if the chunk spans several."""

    max_tokens: Annotated[
        OptionalCount,
        Shown,
        Field(description="Maximum number of tokens of a section; for a longer section, the hit is returned."),
    ] = MOST_TOKENS
    level: Annotated[Count, Field(le=6, description="Lowest heading level that starts a section.")] = 6

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        outline = Outline(document)
        places = {hit: outline.section(*chunks[hit], self.level) for hit in hits}
        fitting = {place: _fits(document, place, self.max_tokens) for place in set(places.values())}
        return {hit: place if fitting[place] else None for hit, place in places.items()}


@part
class DocumentPassage:
    """The whole document of the chunk."""

    max_tokens: Annotated[
        OptionalCount,
        Shown,
        Field(description="Maximum number of tokens of a document; for a longer document, the hit is returned."),
    ] = MOST_TOKENS

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        place = 0, len(document.content)
        fits = _fits(document, place, self.max_tokens)
        return dict.fromkeys(hits, place if fits else None)


class ForeignPassage(ForeignFunction):
    """A function of a chunk, or of a chunk and its document, that returns the place of the passage.

    A place is (start, end) in the document, or a span of it; None is the chunk. Raises ``ConfigurationError`` if the
    object cannot be called.
    """

    kind = "passage"
    methods = ("passage",)
    wanted = "a function of a chunk"
    section = "returns"

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        return {hit: self._of(document, *chunks[hit]) for hit in hits}

    def _of(self, document: Document, start: int, end: int) -> Place:
        answer = self.ask_about(document.chunk_at(start, end), document)
        if answer is None:
            return start, end
        place = (answer.start, answer.end) if isinstance(answer, CharacterSpan | PositionAwareChunk) else answer
        is_pair = isinstance(place, list | tuple) and len(place) == 2 and all(type(offset) is int for offset in place)
        if not is_pair or getattr(answer, "doc_id", document.id) != document.id:
            raise ConfigurationError(
                f"the {self.label} returned {preview(repr(answer))} for a chunk of {document.id!r}: return "
                "(start, end) in the document, a span of it, or None"
            )
        if not 0 <= place[0] < place[1] <= len(document.content):
            raise ConfigurationError(
                f"the {self.label} returned [{place[0]}, {place[1]}) of {document.id!r}, which has "
                f"{len(document.content)} characters: return a place in the document"
            )
        if isinstance(answer, CharacterSpan):
            document.check_span(answer)
        return place[0], place[1]


def _fits(document: Document, place: Place, max_tokens: int | None) -> bool:
    # A token has at least one byte, so a short text need not be counted.
    text = document.content[slice(*place)]
    return max_tokens is None or len(text.encode()) <= max_tokens or count_tokens(text, ENCODING) <= max_tokens
