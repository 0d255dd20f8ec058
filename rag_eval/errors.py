"""Errors that the library raises, and helpers that collect and show them.

::

    RagEvalError
        CorpusError
            CorpusFolderError
            EmptyCorpusError
            DuplicateDocumentError
            TextEncodingError
            UnreadableDocumentError
                UnfinishedDocumentError
        SpanError
            InvalidSpanError
            SpanMismatchError
        GroundTruthError
            ReviewConflictError
        TableError
        ConfigurationError
        ArtifactError
            DamagedError
        ServiceError
            RequestRefusedError
        EvaluationFailedError
        BenchmarkFailedError
        GateFailedError
        ExperimentError
            DataError
            EvaluatorError
            OutputError
        ExperimentFailedError

A message says what is wrong, where, and what to do. When several mistakes are found together, the first one is raised
and the others are attached to it as notes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREVIEW_CHARACTERS = 60


class RagEvalError(Exception):
    """The base class of all errors of this library."""


class CorpusError(RagEvalError):
    """The documents cannot be used."""


class CorpusFolderError(CorpusError):
    """The corpus folder is missing or is not a folder."""


class EmptyCorpusError(CorpusError):
    """There is no document to evaluate."""


class DuplicateDocumentError(CorpusError):
    """Two documents have the same id."""


class TextEncodingError(CorpusError):
    """A text is not valid UTF-8, or cannot be written as UTF-8."""


class UnreadableDocumentError(CorpusError):
    """A loader cannot read text from a file. The message starts after the file's name, which the caller adds."""


class UnfinishedDocumentError(UnreadableDocumentError):
    """A loader timed out or crashed, so reading the file again may succeed."""


class SpanError(RagEvalError):
    """A character span cannot be used."""


class InvalidSpanError(SpanError):
    """A span is empty, reversed or negative, or its text has another length."""


class SpanMismatchError(SpanError):
    """A span lies outside its document, or the document has a different text there."""


class GroundTruthError(RagEvalError):
    """A ground-truth file or record cannot be used."""


class ReviewConflictError(GroundTruthError):
    """A reviewed record was changed by somebody else in the meantime. Nothing was written."""


class TableError(RagEvalError):
    """A table or a value does not fit the declared schema."""


class ConfigurationError(RagEvalError):
    """A setting cannot be used."""


class ArtifactError(RagEvalError):
    """A stored result is missing, damaged or unreadable."""


class DamagedError(ArtifactError):
    """A stored table or index is missing or damaged, and can be computed again."""


class ServiceError(RagEvalError):
    """A remote service failed or gave an unusable answer. ``may_pass`` is true if a retry can succeed."""

    may_pass = True


class RequestRefusedError(ServiceError):
    """A remote service rejected a request, and would reject it again."""

    may_pass = False


class EvaluationFailedError(RagEvalError):
    """Some configurations of a chunker failed. ``outcomes`` and ``failures`` hold the results of all of them."""

    def __init__(self, reason: str, outcomes: Sequence[Any], failures: Mapping[str, Any]) -> None:
        super().__init__(reason, outcomes, failures)  # all arguments, so that the error can be pickled
        self.outcomes, self.failures = outcomes, failures

    def __str__(self) -> str:
        return str(self.args[0])


class BenchmarkFailedError(RagEvalError):
    """Some configurations of a benchmark failed. ``summary`` is the file with the results of the others."""

    def __init__(self, message: str, summary: Path) -> None:
        super().__init__(message)
        self.summary = summary


class GateFailedError(RagEvalError):
    """A run is significantly worse than the baseline, by more than the allowed drop."""


class ExperimentError(RagEvalError):
    """An experiment is not set up correctly."""


class DataError(ExperimentError):
    """The data of an experiment cannot be read, or a row lacks a value that a task needs."""


class EvaluatorError(ExperimentError):
    """An evaluator failed, got an input that it cannot judge, or did not return a score."""


class OutputError(ExperimentError):
    """An output of an experiment failed. The results are stored, and the next run writes them again."""


class ExperimentFailedError(RagEvalError):
    """Tasks or evaluators of an experiment failed. ``result`` is the ``ExperimentResult`` of those that succeeded."""

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


def preview(text: str, limit: int = PREVIEW_CHARACTERS) -> str:
    """Quote a text for a message: escaped, on one line, and at most ``limit`` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(cut)


def is_outage(error: BaseException) -> bool:
    """Return whether a service failed temporarily."""
    return isinstance(error, ServiceError) and error.may_pass


def as_sentence(error: BaseException) -> str:
    """Return an error on one line, with its type unless it is one of ours."""
    text = str(error) if isinstance(error, RagEvalError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


MOST = 20
"""Number of mistakes to show."""


class Faults:
    """Collect the errors of independent blocks, to raise them together.

    ::

        faults = Faults()
        for row in rows:
            with faults.noted():
                check(row)
        faults.raise_any()
    """

    def __init__(self) -> None:
        self._first: RagEvalError | None = None
        self._sentences: dict[str, None] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record a ``RagEvalError`` of the block instead of raising it."""
        try:
            yield
        except RagEvalError as error:
            self.add(error)

    def add(self, error: RagEvalError) -> None:
        """Record an error and its notes, each message once."""
        self._first = self._first or error
        self._sentences.update(dict.fromkeys(sentences(error)))

    def __bool__(self) -> bool:
        return self._first is not None

    def raise_any(self) -> None:
        """Raise the first recorded error, if any, with the messages of the others as notes."""
        if self._first is not None:
            _, *self._first.__notes__ = self._sentences
            raise self._first from None


def sentences(error: BaseException) -> list[str]:
    """Return the message of an error and those of its notes."""
    return [str(error), *getattr(error, "__notes__", [])]


def shown_sentences(error: BaseException) -> list[str]:
    """Return the first ``MOST`` messages, and the number of further ones."""
    messages = sentences(error)
    more = len(messages) - MOST
    return messages if more <= 0 else [*messages[:MOST], f"… and {more:,} more mistakes: correct these first"]
