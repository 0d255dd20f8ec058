"""Ids: a type for each kind of string that identifies something, and how ids are made from texts."""

import hashlib
from collections.abc import Iterable
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
    """Return ``chunk_`` + 12 hex digits of sha256 of the content in UTF-8: the same text has the same id."""
    return ChunkId("chunk_" + text_sha256(content)[:12])


def generate_pa_chunk_id(content: str) -> PositionAwareChunkId:
    """Return ``pa_chunk_`` + 12 hex digits of sha256 of the content in UTF-8: the same text has the same id."""
    return PositionAwareChunkId("pa_chunk_" + text_sha256(content)[:12])


def mixed_ids(retrieved: Iterable[str], relevant: Iterable[str]) -> str | None:
    """Say that one side has ``chunk_`` ids and the other ``pa_chunk_`` ids, which never match; None if it is not so."""
    sides = [next(iter(ids), None) for ids in (retrieved, relevant)]
    with_place = [first is not None and first.startswith("pa_chunk_") for first in sides]
    others = [first is not None and first.startswith("chunk_") for first in sides]
    if not any(with_place) or not any(others):
        return None
    return (
        f"what was retrieved has ids such as {sides[0]}, the ground truth {sides[1]}: chunk_ ids are of chunks without "
        "a place, pa_chunk_ ids of position-aware ones, and they never match; make both with generate_chunk_id"
    )


def generate_query_id(text: str) -> QueryId:
    """Return ``query_`` + 8 hex digits of sha256 of the question in UTF-8."""
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
