"""Types for the ids of documents, chunks and queries, and functions that derive ids from texts."""

import hashlib
from collections.abc import Iterable
from typing import Literal, NewType

from rag_eval.errors import TextEncodingError, preview

DocumentId = NewType("DocumentId", str)
"""A POSIX path relative to the corpus folder, such as ``guides/setup.md``."""

QueryId = NewType("QueryId", str)
"""``query_`` and 8 hex digits."""

QueryText = NewType("QueryText", str)
"""The text of a question."""

ChunkId = NewType("ChunkId", str)
"""``chunk_`` and 12 hex digits."""

PositionAwareChunkId = NewType("PositionAwareChunkId", str)
"""``pa_chunk_`` and 12 hex digits."""

EvaluationType = Literal["chunk-level", "token-level"]
"""Whether the ground truth consists of chunk ids or of character spans."""


def generate_chunk_id(content: str) -> ChunkId:
    """Return ``chunk_`` and 12 hex digits of the SHA-256 of the content: equal texts have equal ids.

    ::

        generate_chunk_id("one")  # 'chunk_7692c3ad3540'
    """
    return ChunkId("chunk_" + text_sha256(content)[:12])


def generate_pa_chunk_id(content: str) -> PositionAwareChunkId:
    """Return ``pa_chunk_`` and 12 hex digits of the SHA-256 of the content: equal texts have equal ids."""
    return PositionAwareChunkId("pa_chunk_" + text_sha256(content)[:12])


def generate_query_id(text: str) -> QueryId:
    """Return ``query_`` and 8 hex digits of the SHA-256 of the question: equal questions have equal ids."""
    return QueryId("query_" + text_sha256(text)[:8])


def mixed_ids(retrieved: Iterable[str], relevant: Iterable[str]) -> str | None:
    """Return a message if one side has ``chunk_`` ids and the other ``pa_chunk_`` ids, which never match, or None."""
    first, other = next(iter(retrieved), ""), next(iter(relevant), "")
    kinds = {prefix for name in (first, other) for prefix in ("pa_chunk_", "chunk_") if name.startswith(prefix)}
    if len(kinds) < 2:
        return None
    return (
        f"what was retrieved has ids such as {first}, the ground truth {other}: chunk_ ids are those of chunks without "
        "a position, pa_chunk_ ids those of position-aware chunks, and they never match; use generate_chunk_id for both"
    )


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hex. Raises ``TextEncodingError`` on a lone surrogate."""
    return hashlib.sha256(encode_utf8(text)).hexdigest()


def encode_utf8(text: str, what: str = "the text", remedy: str = "decode the source with its real encoding") -> bytes:
    """Encode a text as UTF-8.

    Args:
        text: The text.
        what: What the text is, for the message.
        remedy: What the user can do, for the message.

    Raises:
        TextEncodingError: The text contains a lone surrogate.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 10) : error.start + 10]
        raise TextEncodingError(
            f"{what} has a lone surrogate at character {error.start} ({preview(around)}), "
            f"which UTF-8 cannot encode: {remedy}"
        ) from None
