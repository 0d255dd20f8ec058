"""Several mistakes told at once: the first is raised, and the others are its notes."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_eval.errors import RagEvalError

MOST = 20
"""How many mistakes are told; of more, only how many there are."""


class Faults:
    """Collects the errors of blocks that do not need each other."""

    def __init__(self) -> None:
        self._first: RagEvalError | None = None
        self._sentences: dict[str, None] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep the ``RagEvalError`` of the block, which ends there."""
        try:
            yield
        except RagEvalError as error:
            self.add(error)

    def add(self, error: RagEvalError) -> None:
        """Keep an error with its notes; the same sentence counts once."""
        self._first = self._first or error
        self._sentences.update(dict.fromkeys(sentences(error)))

    def raise_any(self) -> None:
        """Raise the first error, if there is one, with the sentences of all others as its notes."""
        if self._first is not None:
            _, *self._first.__notes__ = self._sentences
            raise self._first from None


def sentences(error: BaseException) -> list[str]:
    """The error's own sentence and those in its notes."""
    return [str(error), *getattr(error, "__notes__", [])]


def shown_sentences(error: BaseException) -> list[str]:
    """The sentences for people: the first ``MOST``, and how many more there are."""
    found = sentences(error)
    more = len(found) - MOST
    return found if more <= 0 else [*found[:MOST], f"… and {more:,} more mistakes: correct these first"]
