"""What comes of looking for an excerpt: a place, or the reason why there is none."""

from dataclasses import dataclass
from typing import Literal

from rag_eval.types.span import CharacterSpan

How = Literal["exact", "normalised", "fuzzy"]
"""To the letter; but for whitespace, Unicode form, case, quotes, dashes and emphasis marks; or nearly."""

Reason = Literal["empty", "too-short", "ambiguous", "not-found", "unknown-document"]
"""Nothing but whitespace; not there to the letter and too short to be looked for nearly; in several places that the
hint does not tell apart; nowhere; in a document that was not given."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known about where an excerpt comes from.

    ``window`` is a rule: the excerpt lies inside ``[start, end)`` of its document, other places do not count.
    ``before`` and ``after`` are the text around the excerpt and ``position`` is about where it starts; they decide
    between several places, and are not needed where there is one.
    """

    before: str = ""
    after: str = ""
    position: int | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """An excerpt that was found: its place with the document's own text, how, and how near the excerpt came to it.

    ``similarity`` is 1 for exact and normalised places; for fuzzy ones it is 1 - edits / length of the longer,
    counted without whitespace.
    """

    span: CharacterSpan
    how: How
    similarity: float = 1.0

    @property
    def outcome(self) -> How:
        """How it was found; for counting, beside ``Rejected.outcome``."""
        return self.how


@dataclass(frozen=True, slots=True)
class Rejected:
    """An excerpt that was not placed, and why; ``candidates`` are some of the places of an ambiguous one."""

    excerpt: str
    reason: Reason
    candidates: tuple[CharacterSpan, ...] = ()

    @property
    def outcome(self) -> Reason:
        """Why it was rejected; for counting, beside ``Located.outcome``."""
        return self.reason


Location = Located | Rejected
