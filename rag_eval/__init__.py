"""Measure retrieval for RAG: which way of chunking, embedding and searching brings back the right content."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_eval.api import *  # noqa: F403  # the names that are loaded below when they are asked for


def __getattr__(name: str) -> Any:
    """Load what is asked for, so that the command line does not load what it does not need."""
    is_part = (name.startswith("_") and name != "__all__") or find_spec(f"{__name__}.{name}") is not None
    if is_part:  # `from rag_eval import tokens` asks here first, and imports the module when there is no such name
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rag_eval.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *import_module("rag_eval.api").__all__]
