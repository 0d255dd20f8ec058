"""What spans are counted in: characters, or the tokens of a declared tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, SpanMismatchError
from rag_eval.metrics.formulas import Counts
from rag_eval.metrics.intervals import Place
from rag_eval.tokens import check_encoding, token_ends
from rag_eval.types.document import Document
from rag_eval.types.span import CharacterSpan


class SpanUnit(Protocol):
    """A way to count the length of a span."""

    @property
    def name(self) -> str | None:
        """The tokenizer, or None for characters."""

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as intervals whose length is counted in this unit."""


@dataclass(frozen=True)
class CharacterUnit:
    """Counts characters (code points)."""

    name: None = None

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as they are."""
        return [(span.doc_id, span.start, span.end) for span in spans]


CHARACTERS = CharacterUnit()


class TokenUnit:
    """Counts the tokens of whole documents: a span holds the tokens that start in it.

    A token starts at the character that holds its first byte. As each token of a document starts at one character,
    it belongs to exactly one of two spans that touch, and counts once however the spans overlap. A span inside one
    token, past its first character, holds none. Documents are tokenised when first asked for.
    Raises ``ConfigurationError`` on an unknown encoding.
    """

    def __init__(self, encoding: str, documents: Iterable[Document]) -> None:
        check_encoding(encoding)
        self.name = encoding
        self._texts: dict[str, str] = {document.id: document.content for document in documents}
        self._starts: dict[str, NDArray[np.int64]] = {}

    def places(self, spans: Sequence[CharacterSpan]) -> list[Place]:
        """The spans as intervals of token numbers.

        Raises ``ConfigurationError`` on a document that was not given and ``SpanMismatchError`` past its end.
        """
        places: list[Place] = []
        for span in spans:
            first, last = self.tokens_before(span.doc_id, np.array([span.start, span.end])).tolist()
            places.append((span.doc_id, first, last))
        return places

    def tokens_before(self, doc_id: str, positions: Counts) -> Counts:
        """How many tokens of the document start before each position; raises as ``places`` does."""
        starts = self._token_starts(doc_id)
        length = len(self._texts[doc_id])
        if positions.size and positions.max() > length:
            raise SpanMismatchError(
                f"a span reaches to {positions.max()} in {doc_id!r}, which has {length} characters: "
                "give the documents that the spans were taken from"
            )
        return np.searchsorted(starts, positions, side="left").astype(np.int64, copy=False)

    def _token_starts(self, doc_id: str) -> NDArray[np.int64]:
        if doc_id not in self._starts:
            if doc_id not in self._texts:
                raise ConfigurationError(
                    f"the tokens of {doc_id!r} cannot be counted, the document was not given: give the whole corpus"
                )
            ends = token_ends(self._texts[doc_id], self.name)
            self._starts[doc_id] = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        return self._starts[doc_id]
