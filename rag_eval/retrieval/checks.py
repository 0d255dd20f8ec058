"""What goes into a retriever, and what its parts give, held against what they are."""

from collections.abc import Iterable, Sequence
from itertools import islice
from numbers import Integral
from typing import Any

from rag_eval.errors import ConfigurationError, preview
from rag_eval.retrieval.base import C, Hit, Reranker, place_of
from rag_eval.types.chunk import Chunk, PositionAwareChunk

STORE = ("add", "search", "search_many", "clear", "name")
RERANKER = ("rerank", "name")
RETRIEVER = ("index", "retrieve", "name")


def check_part(part: object, what: str, members: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless the object has these members; a class of such objects is none."""
    if isinstance(part, type) or not all(hasattr(part, member) for member in members):
        raise ConfigurationError(f"{preview(repr(part))} is not a {what}: give an object with {', '.join(members)}")


def check_k(k: int, what: str = "k") -> None:
    """Raise ``ConfigurationError`` unless k is a whole number of 1 or more."""
    if not isinstance(k, Integral) or k < 1:
        raise ConfigurationError(f"{what} is {k!r}: ask for at least one chunk")


def checked_hits(found: object, queries: int, name: str, *kinds: type) -> list[list[Hit[Any]]]:
    """What a retriever gave, read once: a list of hits with chunks of these kinds for every query.

    Raises ``ConfigurationError``, naming the retriever, when it is anything else.
    """
    lists = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else None
    if lists is None or not all(isinstance(hits, Iterable) and not isinstance(hits, str) for hits in lists):
        raise ConfigurationError(f"{name} gave {preview(repr(found))}: a retriever must give a list of hits a query")
    if len(lists) != queries:
        raise ConfigurationError(f"{name} answered {len(lists)} of {queries} queries: it must give a list for each")
    checked = [list(hits) for hits in lists]
    for hits in checked:
        for hit in hits:
            if not isinstance(hit, Hit):
                raise ConfigurationError(f"{name} gave {preview(repr(hit))}: wrap every chunk as Hit(chunk, score)")
            if not isinstance(hit.chunk, kinds):
                needed = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigurationError(
                    f"{name} gave a {type(hit.chunk).__name__}, this evaluation needs a {needed}: "
                    "use a retriever of the same evaluation type"
                )
    return checked


def reranked(reranker: Reranker, query: str, chunks: Sequence[C], k: int) -> list[C]:
    """The k best of the chunks by a reranker, all of them where they are fewer.

    Raises ``ConfigurationError``, naming the reranker, when it does not give so many different ones of the chunks.
    """
    if not chunks:
        return []
    given: object = reranker.rerank(query, chunks, k)
    kept = list(islice(given, k)) if isinstance(given, Iterable) else []
    candidates = {place_of(chunk): chunk for chunk in chunks}
    places = dict.fromkeys(place_of(chunk) for chunk in kept if isinstance(chunk, Chunk | PositionAwareChunk))
    wanted = min(k, len(candidates))
    if len(kept) != wanted or len(places) != wanted or not places.keys() <= candidates.keys():
        raise ConfigurationError(
            f"{reranker.name} gave {preview(repr(given))} for {len(chunks)} chunks and top_k = {k}: "
            f"a reranker must give {wanted} different ones of the chunks that it was given"
        )
    return [candidates[place] for place in places]
