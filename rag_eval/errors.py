"""Every error a user can meet, as one tree.

::

    RagEvalError
    ├── CorpusError
    │   ├── CorpusFolderError       the folder is not there, or is not a folder
    │   ├── EmptyCorpusError        no document was found or given
    │   ├── DuplicateDocumentError  two documents share one id
    │   └── TextEncodingError       text that UTF-8 cannot read or write
    ├── SpanError
    │   ├── InvalidSpanError        a span that is empty, reversed or negative
    │   └── SpanMismatchError       a span that its document does not bear out
    ├── GroundTruthError            a ground-truth file or record that cannot be used
    ├── TableError                  an Arrow table or a value that does not fit its schema
    ├── ConfigurationError          a setting that cannot be used
    ├── ArtifactError               stored work that is gone, altered or unreadable
    ├── ServiceError                a remote service failed or answered nonsense
    └── BenchmarkFailedError        configurations of a benchmark failed; the others are kept

A message is one sentence that says what is wrong, where, and what to do. Catch ``RagEvalError`` to catch all.
"""

from pathlib import Path

__all__ = [
    "ArtifactError",
    "BenchmarkFailedError",
    "ConfigurationError",
    "CorpusError",
    "CorpusFolderError",
    "DuplicateDocumentError",
    "EmptyCorpusError",
    "GroundTruthError",
    "InvalidSpanError",
    "RagEvalError",
    "ServiceError",
    "SpanError",
    "SpanMismatchError",
    "TableError",
    "TextEncodingError",
]

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


class SpanError(RagEvalError):
    """A character span cannot be used."""


class InvalidSpanError(SpanError):
    """A span is empty, reversed, negative, or disagrees with the length of its own text."""


class SpanMismatchError(SpanError):
    """A span lies outside its document, or the document has other text there."""


class GroundTruthError(RagEvalError):
    """A ground-truth file or record cannot be used."""


class TableError(RagEvalError):
    """A table, or a value on its way into one, does not fit the declared schema."""


class ConfigurationError(RagEvalError):
    """A setting cannot be used."""


class ArtifactError(RagEvalError):
    """Stored work is gone, altered or unreadable."""


class ServiceError(RagEvalError):
    """A remote service failed, or answered something that cannot be used."""


class BenchmarkFailedError(RagEvalError):
    """Configurations of a benchmark failed; ``summary`` is the file that holds what the others found."""

    def __init__(self, message: str, summary: Path) -> None:
        super().__init__(message)
        self.summary = summary


def preview(text: str, limit: int = PREVIEW_CHARACTERS) -> str:
    """The text quoted for a message: escaped, on one line, cut to ``limit`` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(cut)
