"""Where an experiment's rows come from: every source becomes one stream that is read as fast as rows are worked on."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, closing, nullcontext
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rag_eval.errors import ExperimentError
from rag_eval.experiments.row_files import file_rows
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

    Closing the stream closes the generator it reads.
    """
    source = data
    if callable(source) and not isinstance(source, Dataset):
        source = source()
    if inspect.isawaitable(source):
        source = await source
    place = 0
    async with aclosing(_each(source)) as found:
        async for row in found:
            if not isinstance(row, Mapping):
                raise ExperimentError(f"row {place} is a {type(row).__name__}: give mappings with input and output")
            yield row
            place += 1


async def _each(source: Any) -> AsyncGenerator[Any, None]:
    if isinstance(source, str | Path):
        source = file_rows(Path(source))
    elif isinstance(source, Dataset):
        # The service's pages are waited for beside the event loop.
        iterator = iter(await asyncio.to_thread(source.rows))
        end = object()
        with closing(iterator) if isinstance(iterator, Generator) else nullcontext():
            while (row := await asyncio.to_thread(next, iterator, end)) is not end:
                yield row
        return
    if isinstance(source, AsyncIterable):
        async with aclosing(source) if isinstance(source, AsyncGenerator) else nullcontext():
            async for row in source:
                yield row
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        with closing(source) if isinstance(source, Generator) else nullcontext():
            for row in source:
                yield row
    else:
        raise ExperimentError(
            f"data is a {type(source).__name__}: give a list of rows, an iterator, a callable, a path or a dataset"
        )
