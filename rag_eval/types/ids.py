"""Ids: a type for each kind of string that identifies something, and how ids are made from texts."""

import hashlib
from typing import Literal, NewType

from rag_eval.errors import TextEncodingError, preview

DocumentId = NewType("DocumentId", str)
"""A document's POSIX path relative to the corpus folder, such as ``guides/setup.md``."""

QueryId = NewType("QueryId", str)
"""``query_`` and 8 hex digits."""

QueryText = NewType("QueryText", str)
"""The question as it is asked."""

ChunkId = NewType("ChunkId", str)
"""``chunk_`` and 12 hex digits."""

PositionAwareChunkId = NewType("PositionAwareChunkId", str)
"""``pa_chunk_`` and 12 hex digits."""

EvaluationType = Literal["chunk-level", "token-level"]
"""The choice that comes first: ground truth as chunk ids, or as character spans."""


def generate_chunk_id(content: str) -> ChunkId:
    """``chunk_`` + 12 hex digits of sha256 of the content in UTF-8: the same text has the same id."""
    return ChunkId("chunk_" + text_sha256(content)[:12])


def generate_pa_chunk_id(content: str) -> PositionAwareChunkId:
    """``pa_chunk_`` + 12 hex digits of sha256 of the content in UTF-8: the same text has the same id."""
    return PositionAwareChunkId("pa_chunk_" + text_sha256(content)[:12])


def generate_query_id(text: str) -> QueryId:
    """``query_`` + 8 hex digits of sha256 of the question in UTF-8."""
    return QueryId("query_" + text_sha256(text)[:8])


def text_sha256(text: str) -> str:
    """Return the sha256 of a text in UTF-8, in hex; raises ``TextEncodingError`` on a lone surrogate."""
    return hashlib.sha256(encode_utf8(text)).hexdigest()


def encode_utf8(text: str, what: str = "the text", remedy: str = "decode the source with its real encoding") -> bytes:
    """Encode a text; raises ``TextEncodingError``, naming ``what`` and the ``remedy``, on a lone surrogate."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 10) : error.start + 10]
        raise TextEncodingError(
            f"{what} has a lone surrogate at character {error.start} ({preview(around)}), "
            f"which UTF-8 cannot hold: {remedy}"
        ) from None
