"""Every error that the library raises for bad input or lost work, and how errors are told.

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

A message is one sentence: what is wrong, where, and what to do. Of several mistakes found together the first is
raised, and the others are its notes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREVIEW_CHARACTERS = 60


class RagEvalError(Exception):
    """The root: everything this library raises for bad input or lost work."""


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
    """A file of which its loader can make no text; the message says why, without the file's name."""


class UnfinishedDocumentError(UnreadableDocumentError):
    """A loader took too long for a file, or ended: another time it may do."""


class SpanError(RagEvalError):
    """A character span cannot be used."""


class InvalidSpanError(SpanError):
    """A span is empty, reversed, negative, or disagrees with the length of its own text."""


class SpanMismatchError(SpanError):
    """A span lies outside its document, or the document has other text there."""


class GroundTruthError(RagEvalError):
    """A ground-truth file or record cannot be used."""


class ReviewConflictError(GroundTruthError):
    """A decision was made on what somebody else has changed meanwhile; nothing was written."""


class TableError(RagEvalError):
    """A table, or a value on its way into one, does not fit the declared schema."""


class ConfigurationError(RagEvalError):
    """A setting cannot be used."""


class ArtifactError(RagEvalError):
    """Stored work is gone, altered or unreadable."""


class DamagedError(ArtifactError):
    """A table or an index that a stage made is gone or altered, and can be made again."""


class ServiceError(RagEvalError):
    """A remote service failed, or answered something that cannot be used; not ``may_pass`` where it will again."""

    may_pass = True


class RequestRefusedError(ServiceError):
    """A remote service works, and does not take what it was sent."""

    may_pass = False


class EvaluationFailedError(RagEvalError):
    """Some configurations of a chunking failed; ``outcomes`` and ``failures`` are what became of all of them."""

    def __init__(self, reason: str, outcomes: Sequence[Any], failures: Mapping[str, Any]) -> None:
        super().__init__(reason, outcomes, failures)  # all, so that it can be pickled
        self.outcomes, self.failures = outcomes, failures

    def __str__(self) -> str:
        return str(self.args[0])


class BenchmarkFailedError(RagEvalError):
    """Configurations of a benchmark failed; ``summary`` is the file that holds what the others found."""

    def __init__(self, message: str, summary: Path) -> None:
        super().__init__(message)
        self.summary = summary


class GateFailedError(RagEvalError):
    """A run dropped further below the baseline than is allowed, and significantly so."""


class ExperimentError(RagEvalError):
    """An experiment cannot be run as it is described."""


class DataError(ExperimentError):
    """The data of an experiment cannot be read, or a row lacks what a task asks for."""


class EvaluatorError(ExperimentError):
    """An evaluator failed, was given what it cannot judge, or returned what is no score."""


class OutputError(ExperimentError):
    """An output of an experiment failed; the results are kept, and are put out again by the next run."""


class ExperimentFailedError(RagEvalError):
    """Tasks or evaluators of an experiment failed; ``result`` is the ``ExperimentResult`` with all that succeeded."""

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


def preview(text: str, limit: int = PREVIEW_CHARACTERS) -> str:
    """Quote a text for a message: escaped, on one line, cut to ``limit`` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(cut)


def is_outage(error: BaseException) -> bool:
    """Tell whether a service failed in a way that may be over later."""
    return isinstance(error, ServiceError) and error.may_pass


def as_sentence(error: BaseException) -> str:
    """Put an error on one line for people: ours as it is, any other with its kind."""
    text = str(error) if isinstance(error, RagEvalError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


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
    """Return the error's own sentence and those in its notes."""
    return [str(error), *getattr(error, "__notes__", [])]


def shown_sentences(error: BaseException) -> list[str]:
    """Return the first ``MOST`` sentences, and how many more there are."""
    found = sentences(error)
    more = len(found) - MOST
    return found if more <= 0 else [*found[:MOST], f"… and {more:,} more mistakes: correct these first"]
