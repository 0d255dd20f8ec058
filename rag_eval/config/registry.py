"""The parts of a configuration by name: what a file can ask for, and what ``rag-eval`` lists."""

from dataclasses import dataclass
from typing import Any, get_args

from rag_eval.config.chunkers import ChunkerConfig
from rag_eval.config.embedders import EmbedderConfig
from rag_eval.config.rerankers import RerankerConfig
from rag_eval.config.settings import Component
from rag_eval.config.stores import StoreConfig


@dataclass(frozen=True)
class Kind:
    """A kind of part, by what it is called, and its members by their ``type``."""

    name: str
    members: dict[str, type[Component]]


def members_of(union: Any) -> dict[str, type[Component]]:
    """The components of a union, or of a single class, by their ``type``; empty if it holds anything else."""
    classes: list[type[Any]] = [part for part in _flattened(union) if isinstance(part, type)]
    if not all(issubclass(part, Component) for part in classes):
        return {}
    return {part.model_fields["type"].default: part for part in classes}


def _flattened(union: Any) -> list[Any]:
    parts = get_args(union)
    return [leaf for part in parts for leaf in _flattened(part)] if parts else [union]


CHUNKERS = members_of(ChunkerConfig)
EMBEDDERS = members_of(EmbedderConfig)
STORES = members_of(StoreConfig)
RERANKERS = members_of(RerankerConfig)

SECTIONS = {
    "chunkers": Kind("chunker", CHUNKERS),
    "embedders": Kind("embedder", EMBEDDERS),
    "stores": Kind("store", STORES),
    "rerankers": Kind("reranker", RERANKERS),
}
"""The sections of a benchmark that list parts."""
