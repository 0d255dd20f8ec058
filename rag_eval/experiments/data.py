"""Where an experiment's rows come from: every source becomes one stream that is read as fast as rows are worked on."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rag_eval.errors import ExperimentError
from rag_eval.experiments.reading import read_beside
from rag_eval.experiments.row_files import file_rows
from rag_eval.experiments.slots import Slots
from rag_eval.experiments.types import Row

Data = Iterable[Row] | AsyncIterable[Row] | Callable[[], Any] | str | Path
"""Rows: a list, a (async) iterator, a (async) callable that gives one, or the path of a JSONL, CSV or Parquet file."""


@runtime_checkable
class Dataset(Protocol):
    """Rows that a service holds."""

    def rows(self) -> Iterable[Row]:
        """The rows, page by page."""
        ...


def known_length(data: Any) -> int | None:
    """How many rows there are, where that is known without reading them."""
    return len(data) if isinstance(data, list | tuple) else None


async def stream(data: Any) -> AsyncGenerator[Row, None]:
    """Row after row; raises ``ExperimentError`` on data of another kind, or on a row that is not a mapping.

    What is not async, and not in memory already, is opened, read and closed on one thread of its own: a slow source
    holds up no call that is under way. Closing the stream closes the generator it reads.
    """
    reader = Slots(1)
    try:
        place = 0
        async with aclosing(_each(await _opened(data, reader), reader)) as found:
            async for row in found:
                if not isinstance(row, Mapping):
                    raise ExperimentError(f"row {place} is a {type(row).__name__}: give mappings with input and output")
                yield row
                place += 1
    finally:
        reader.close()


async def _opened(data: Any, reader: Slots) -> Any:
    """What is to be iterated."""
    source = data
    if callable(source) and not isinstance(source, Dataset):
        source = source() if inspect.iscoroutinefunction(source) else await reader.call(source)
    if inspect.isawaitable(source):
        source = await source
    if isinstance(source, Dataset):
        return await reader.call(source.rows)
    return file_rows(Path(source)) if isinstance(source, str | Path) else source


async def _each(source: Any, reader: Slots) -> AsyncGenerator[Any, None]:
    if isinstance(source, AsyncIterable):
        async with aclosing(source) if isinstance(source, AsyncGenerator) else nullcontext():
            async for row in source:
                yield row
    elif isinstance(source, list | tuple):
        for row in source:
            yield row
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | str | bytes):
        async with aclosing(read_beside(source, reader)) as found:
            async for row in found:
                yield row
    else:
        raise ExperimentError(
            f"data is a {type(source).__name__}: give a list of rows, an iterator, a callable, a path or a dataset"
        )
