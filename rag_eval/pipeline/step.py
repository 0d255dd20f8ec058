"""A step of the pipeline: a function from tables and parts to tables, with a name and a version.

A step runs on tables in memory, or in a workspace on references. In a workspace its result is stored under a cache key:
the step's name and version, the digests of its inputs, the identities of its parts, and the versions of the packages
that produce the result. Nothing else is part of the key: not the time, not the workspace, not the worker.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import pyarrow as pa
from pydantic import BaseModel

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import MetricAtCut
from rag_eval.parts import identity, is_part, versions_of
from rag_eval.parts.objects import check_unchanged
from rag_eval.pipeline.references import (
    ChunksRef,
    Effort,
    IndexFilesRef,
    IndexRef,
    QueriesRef,
    RankingRef,
    Result,
    TableRef,
    TruthRef,
)
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import data_sha256
from rag_eval.stores.store import VectorStore
from rag_eval.tables import PreparedQueries

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Result)

Shards = Sequence[pa.Table]
"""A table in parts, one for each shard of the documents."""


class Index(NamedTuple):
    """The tables of an index: chunks with vectors or words, each with a table for each shard."""

    chunks: Shards
    vectors: Shards = ()
    store: VectorStore | IndexFilesRef | None = None
    """The store that has the vectors, or its files; None to fill it for each search."""
    postings: Shards = ()
    statistics: pa.Table | None = None


@dataclass(frozen=True)
class SearchHits:
    """The hits of one retriever in an index, and what was searched."""

    hits: pa.Table
    index: Index
    queries: PreparedQueries
    depth: int


@dataclass(frozen=True)
class Step(Generic[P, T, R]):
    """A function with the information for its cache key and its storage."""

    function: Callable[P, T]
    version: int
    """Raise this whenever the result would change."""
    write: Callable[[Workspace, Any], R]
    """Writes the result of the function without the effort, and returns a reference to it."""
    packages: tuple[str, ...] = ()
    """Packages that decide the result, beside those of the parts; their versions are in the cache key."""

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", "-")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the step by name, like a function."""
        return _named, (self.function.__module__, self.function.__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the step on tables in memory: return its result and the effort."""
        return self.function(*args, **kwargs)

    def cache_key(self, inputs: Mapping[str, object]) -> str:
        """Return the cache key of a run from its inputs by name; it is safe as a file name."""
        named = {name: key_part(value) for name, value in inputs.items() if value is not None}
        named["packages"] = versions_of(self.packages)
        return f"{self.name}-v{self.version}-{data_sha256(named)[:40]}"

    def run(self, workspace: Workspace, *inputs: object) -> R:
        """Run the step in a workspace: read the tables of its inputs, and write its result.

        Args:
            workspace: Where the inputs are read from and the result is written.
            inputs: References, which are read as tables, parts and settings.

        Returns:
            The reference to the result, with the time when the step began and its effort.

        Raises:
            ConfigurationError: The code of a part changed meanwhile.
        """
        begun, started = datetime.now(UTC), time.perf_counter()
        function = cast("Callable[..., tuple[object, Effort | Callable[[], Effort]]]", self.function)
        where = {"workspace": workspace} if "workspace" in inspect.signature(function).parameters else {}
        value, effort = function(*(read(workspace, value) for value in inputs), **where)
        result = self.write(workspace, value)
        total = effort() if callable(effort) else effort
        check_unchanged(inputs)
        seconds = round(time.perf_counter() - started, 6)
        return result.model_copy(update={"made": begun, "effort": total.model_copy(update={"seconds": seconds})})


def _named(module: str, name: str) -> object:
    return getattr(import_module(module), name)


def step(
    *, version: int, write: Callable[[Workspace, Any], R], packages: tuple[str, ...] = ()
) -> Callable[[Callable[P, T]], Step[P, T, R]]:
    """Make a function a step under its own name.

    The function takes tables, parts and settings, and returns its result and the effort. A parameter ``workspace`` is
    the workspace of the run, for its caches; None in memory. A large table may come in parts, one at a time in memory;
    then the effort is a function to be called at the end.
    """
    return lambda function: Step(function, version, write, packages)


def as_table(kind: str) -> Callable[[Workspace, pa.Table | Iterable[pa.Table]], TableRef]:
    """Return the function that writes the result of a step as a table of this kind."""
    return lambda workspace, tables: workspace.write_table(kind, tables)


def key_part(value: object) -> object:
    """Return an input as plain data for a cache key; raises ``ConfigurationError`` if it has no digest."""
    if hasattr(value, "key_data"):
        return value.key_data
    if isinstance(value, BaseModel):
        value = {"type": type(value).__name__} | dict(value)
    if isinstance(value, MetricAtCut):
        value = {"metric": value.metric, "name": str(value)}
    if isinstance(value, Mapping):
        return {str(name): key_part(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [key_part(part) for part in value]
    if isinstance(value, str | int | float | None):
        return value
    if is_part(value) or isinstance(getattr(value, "name", None), str):
        return identity(value)
    raise ConfigurationError(f"a {type(value).__name__} cannot be part of a cache key: pass a reference or a setting")


def read(workspace: Workspace, value: object) -> object:
    """Load an input of a step: replace references by the tables they point to."""
    if isinstance(value, TableRef):
        return workspace.read_table(value)
    if isinstance(value, ChunksRef):
        return workspace.read_table(value.table)
    if isinstance(value, TruthRef):
        return workspace.read_truth(value)
    if isinstance(value, QueriesRef):
        allowed = None if value.allowed is None else workspace.read_table(value.allowed)
        return PreparedQueries(workspace.read_table(value.searches), allowed)
    if isinstance(value, IndexRef):
        return _read_index(workspace, value)
    if isinstance(value, RankingRef):
        queries = cast("PreparedQueries", read(workspace, value.queries))
        return SearchHits(workspace.read_table(value.hits), _read_index(workspace, value.index), queries, value.depth)
    if isinstance(value, Mapping):
        return {name: read(workspace, part) for name, part in value.items()}
    return [read(workspace, part) for part in value] if isinstance(value, list) else value


def _read_index(workspace: Workspace, ref: IndexRef) -> Index:
    """Return the tables of an index; the files of its store are read when it is searched."""
    return Index(
        chunks=[workspace.read_table(shard.table) for shard in ref.chunks],
        vectors=[workspace.read_table(shard) for shard in ref.vectors],
        store=ref.store,
        postings=[workspace.read_table(shard) for shard in ref.postings],
        statistics=None if ref.statistics is None else workspace.read_table(ref.statistics),
    )
