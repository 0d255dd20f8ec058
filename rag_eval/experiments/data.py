"""Read the rows of an experiment from memory, files, iterators, callables or LangSmith datasets."""

import asyncio
import csv
import inspect
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing, closing, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic_core import from_json

from rag_eval.errors import DataError
from rag_eval.experiments.engine import CallThread
from rag_eval.experiments.results import Row

if TYPE_CHECKING:
    from uuid import UUID

    from langsmith import Client
    from langsmith.schemas import Example

PARQUET_BATCH = 1_024
AHEAD = 64
CLOSE_SECONDS = 1.0
"""How long the end of a stream waits for a source that does not respond."""
LANGSMITH_PAGE = 100


class ServiceDataset(Protocol):
    """A dataset of a service."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows."""


Data = Iterable[Row] | AsyncIterable[Row] | Callable[[], object] | ServiceDataset | str | Path
"""Rows: a list, a (async) iterator, a (async) callable that returns one, the path of a JSONL, CSV or Parquet file, or a
dataset of a service."""


def file_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file.

    Raises:
        DataError: The file is missing, damaged, or of an unknown kind.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{str(path)!r} is not a data file: give {', '.join(READERS)}")
    if not path.is_file():
        raise DataError(f"the data file {str(path)!r} is missing: check the path")
    return reader(path)


def _jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = from_json(line)
            except ValueError as error:
                raise DataError(f"line {number} of {str(path)!r} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise DataError(f"line {number} of {str(path)!r} is not an object: give one with input and output")
            yield row


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(
                        f"line {reader.line_num} of {str(path)!r} does not have the header's "
                        f"{len(reader.fieldnames or [])} cells: check its commas and quotes"
                    )
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"line {reader.line_num} of {str(path)!r} cannot be read: {error}") from None


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(PARQUET_BATCH):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise DataError(f"{str(path)!r} is not Parquet: {error}") from None


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}


async def stream(data: Data) -> AsyncGenerator[Row, None]:
    """Yield the rows of data, and close its generator at the end.

    Synchronous callables and iterators are read on one thread, so that a slow source delays no call.

    Raises:
        DataError: The data is of another kind, or a row is not a mapping.
    """
    thread = CallThread()
    number = 0
    try:
        async with aclosing(_rows(await _opened(data, thread), thread)) as rows:
            async for row in rows:
                if not isinstance(row, Mapping):
                    raise DataError(f"row {number} is a {type(row).__name__}: give mappings with input and output")
                yield row
                number += 1
    finally:
        thread.close()


async def _opened(data: Data, thread: CallThread) -> object:
    source: object = data
    if callable(source) and not hasattr(source, "rows"):
        source = source() if inspect.iscoroutinefunction(source) else await thread.call(source)
    if inspect.isawaitable(source):
        source = await source
    if hasattr(source, "rows"):
        return await thread.call(source.rows)
    return file_rows(Path(source)) if isinstance(source, str | Path) else source


async def _rows(source: object, thread: CallThread) -> AsyncGenerator[object, None]:
    if isinstance(source, list | tuple):
        for row in source:
            yield row
        return
    if isinstance(source, Iterable) and not isinstance(source, Mapping | str | bytes):
        source = _read_ahead(source, thread)
    if not isinstance(source, AsyncIterable):
        raise DataError(
            f"data is a {type(source).__name__}: give a list of rows, an iterator, a callable, a path or a dataset"
        )
    async with aclosing(source) if isinstance(source, AsyncGenerator) else nullcontext():
        async for row in source:
            yield row


async def _read_ahead(source: Iterable[object], thread: CallThread) -> AsyncGenerator[object, None]:
    """Yield the rows of a source that a thread reads, up to ``AHEAD`` rows in advance."""
    rows: queue.Queue[object] = queue.Queue(AHEAD)
    arrived, stopped = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def fill() -> None:
        try:
            for row in source:
                rows.put(row)
                if stopped.is_set():
                    return
                if not arrived.is_set():
                    loop.call_soon_threadsafe(arrived.set)
        finally:
            if isinstance(source, Generator):
                source.close()

    filled = thread.call(fill)
    filled.add_done_callback(lambda _: arrived.set())
    try:
        while not filled.done() or not rows.empty():
            arrived.clear()
            while not rows.empty():
                yield rows.get_nowait()
            if not filled.done():
                await arrived.wait()
        filled.result()
    finally:
        stopped.set()
        with suppress(queue.Empty):  # make room for the row that the thread is about to put
            rows.get_nowait()
        await asyncio.wait({filled}, timeout=CLOSE_SECONDS)


class LangSmithDataset:
    """The examples of a LangSmith dataset.

    The key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``. If an example has one input or one
    output, the row has its value alone.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def rows(self) -> Iterator[Row]:
        """Yield the examples with the ``id`` that ``LangSmithOutput`` needs.

        Raises:
            ConfigurationError: There is no key.
            DataError: There is no such dataset.
            ServiceError: LangSmith fails.
        """
        from rag_eval.retry import BRIEF
        from rag_eval.services.langsmith_client import LangSmithService
        from rag_eval.services.langsmith_datasets import find_dataset

        with closing(LangSmithService.connect(BRIEF)) as service:
            dataset = find_dataset(service, self._name)
            if dataset is None:
                raise DataError(f"there is no LangSmith dataset {self._name!r}: check its name and the key")
            problem = f"the LangSmith dataset {self._name!r} cannot be read"
            for start in count(0, LANGSMITH_PAGE):
                page = service.ask(problem, partial(_example_page, dataset.id, start))
                for example in page:
                    row = {"input": _only_value(example.inputs), "output": _only_value(example.outputs)}
                    yield row | {"id": str(example.id), "metadata": example.metadata or {}}
                if len(page) < LANGSMITH_PAGE:
                    return


def _example_page(dataset_id: "UUID", start: int, client: "Client") -> "list[Example]":
    return list(client.list_examples(dataset_id=dataset_id, offset=start, limit=LANGSMITH_PAGE))


def _only_value(values: Row | None) -> object:
    if values is None:
        return None
    return next(iter(values.values())) if len(values) == 1 else dict(values)
