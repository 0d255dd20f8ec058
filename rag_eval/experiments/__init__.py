"""General experiments: any task on any data with any evaluators.

::

    from rag_eval.experiments import CosineSimilarity, evaluatorq

    evaluatorq("Greeting", data=[{"input": "Hello", "output": "Hi"}], tasks=[answer], evaluators=[CosineSimilarity])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_eval.experiments.api import *  # noqa: F403  # the names that are loaded below when they are asked for


def __getattr__(name: str) -> Any:
    """Load what is asked for, so that a part can be used without the others."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rag_eval.experiments.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *import_module("rag_eval.experiments.api").__all__]
