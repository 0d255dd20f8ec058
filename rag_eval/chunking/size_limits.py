"""The size limit that a chunker declares, as something that can be checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rag_eval.chunking.base import BuiltInChunker
from rag_eval.tokens import ENCODINGS, count_tokens


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """At most ``size`` of something, and how it is measured."""

    size: int
    measure: Callable[[str], int]

    def kept_by(self, text: str) -> bool:
        """Whether the text is within the limit."""
        return self.measure(text) <= self.size


def find_size_limit(chunker: object) -> SizeLimit | None:
    """The limit that the chunker's own settings declare, in its own measure; None where it cannot be told.

    - our chunkers: ``max_chunk_size`` characters, ``chunk_size`` characters, or tokens where they have an ``encoding``;
    - LangChain: ``chunk_size`` in the splitter's length function;
    - chonkie: ``chunk_size`` in the chunker's tokenizer;
    - semchunk: ``chunk_size`` in its token counter.

    Windows of a document's tokens (``FixedTokenChunker``, LangChain's ``TokenTextSplitter``) have no such limit: a
    window's text, encoded alone, may be a token or two more.
    """
    if isinstance(chunker, BuiltInChunker):
        return _built_in_limit(chunker)
    tokenizer = getattr(chunker, "tokenizer", None)
    length_function = getattr(chunker, "_length_function", None)
    # LangChain's token splitters leave the length function at characters and count in their tokenizer.
    if length_function is len and hasattr(chunker, "_tokenizer"):
        length_function = None
    for size_name, measure in (
        ("_chunk_size", length_function),
        ("chunk_size", getattr(tokenizer, "count_tokens", None)),
        ("chunk_size", getattr(chunker, "token_counter", None)),
    ):
        if callable(measure) and (limit := _limit(chunker, size_name, measure)):
            return limit
    return None


def _built_in_limit(chunker: BuiltInChunker) -> SizeLimit | None:
    encoding = getattr(chunker, "encoding", None)

    def measure(text: str) -> int:
        return count_tokens(text, str(encoding)) if encoding in ENCODINGS else len(text)

    limits = (_limit(chunker, name, measure) for name in ("max_chunk_size", "chunk_size"))
    return next((limit for limit in limits if limit), None)


def _limit(chunker: object, name: str, measure: Callable[[str], Any]) -> SizeLimit | None:
    size = getattr(chunker, name, None)
    return SizeLimit(size, measure) if isinstance(size, int) else None
