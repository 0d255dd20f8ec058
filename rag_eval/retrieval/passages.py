"""Passages: what a model would be given for a hit, where that is more than the chunk that was found.

A passage belongs to the hit that brings it. **A cut counts hits**: at k = 5 the passages of the first five hits are
returned, and a budget of tokens takes passages in the order of their hits as long as they fit. Passages that overlap or
touch are one, at the rank of its best hit: no character is returned, paid for or counted twice.
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
    """Gives the place of what is returned for a hit."""

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        """Return the place of the passage of each hit, of chunks by number; None where it is beyond a limit."""


@part
class WindowPassage:
    """The chunk with its neighbours in the document."""

    count: Annotated[Count, Shown, Field(description="How many chunks on each side.")] = 1

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        found: dict[int, Place | None] = {}
        for hit in hits:
            near = chunks[max(0, hit - self.count) : hit + self.count + 1]
            found[hit] = min(start for start, _ in near), max(end for _, end in near)
        return found


MOST_TOKENS = 2_000
ENCODING = "cl100k_base"
"""What counts the tokens of a limit."""


@part
class SectionPassage:
    """The section that the chunk is in, from its heading to the next; of a chunk that spans several, all of them."""

    max_tokens: Annotated[
        OptionalCount, Shown, Field(description="The most tokens of a section; of a longer one the hit is returned.")
    ] = MOST_TOKENS
    level: Annotated[Count, Field(le=6, description="The lowest level of a heading that begins a section.")] = 6

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        outline = Outline(document)
        places = {hit: outline.section(*chunks[hit], self.level) for hit in hits}
        fitting = {place: _fits(document, place, self.max_tokens) for place in set(places.values())}
        return {hit: place if fitting[place] else None for hit, place in places.items()}


@part
class DocumentPassage:
    """The whole document that the chunk is in."""

    max_tokens: Annotated[
        OptionalCount, Shown, Field(description="The most tokens of a document; of a longer one the hit is returned.")
    ] = MOST_TOKENS

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        place = 0, len(document.content)
        fits = _fits(document, place, self.max_tokens)
        return dict.fromkeys(hits, place if fits else None)


class ForeignPassage(ForeignFunction):
    """A function of a chunk, or of a chunk and its document, that gives the place of what is returned for it.

    A place is (start, end) in the document, or a span of it; None returns the chunk. Raises ``ConfigurationError`` when
    the object cannot be called.
    """

    kind = "passage"
    methods = ("passage",)
    wanted = "a function of a chunk"
    section = "returns"

    def passages(self, document: Document, chunks: Sequence[Place], hits: Sequence[int]) -> dict[int, Place | None]:
        """Return the place of the passage of each hit; raises ``ConfigurationError`` on what is none."""
        return {hit: self._of(document, *chunks[hit]) for hit in hits}

    def _of(self, document: Document, start: int, end: int) -> Place:
        given = self.ask_about(document.chunk_at(start, end), document)
        if given is None:
            return start, end
        place = (given.start, given.end) if isinstance(given, CharacterSpan | PositionAwareChunk) else given
        is_pair = isinstance(place, list | tuple) and len(place) == 2 and all(type(offset) is int for offset in place)
        if not is_pair or getattr(given, "doc_id", document.id) != document.id:
            raise ConfigurationError(
                f"the {self.label} gave {preview(repr(given))} for a chunk of {document.id!r}: give (start, end) in "
                "the document, a span of it, or None"
            )
        if not 0 <= place[0] < place[1] <= len(document.content):
            raise ConfigurationError(
                f"the {self.label} gave [{place[0]}, {place[1]}) of {document.id!r}, which has "
                f"{len(document.content)} characters: give a place in the document"
            )
        if isinstance(given, CharacterSpan):
            document.check_span(given)
        return place[0], place[1]


def _fits(document: Document, place: Place, max_tokens: int | None) -> bool:
    # A token is at least a character's byte: a short text need not be counted.
    text = document.content[slice(*place)]
    return max_tokens is None or len(text.encode()) <= max_tokens or count_tokens(text, ENCODING) <= max_tokens
