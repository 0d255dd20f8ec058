"""The rows of an experiment: from memory, files, iterators and callables, and from datasets of LangSmith and orq.ai."""

import asyncio
import csv
import inspect
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rag_eval.errors import ExperimentError, ServiceError
from rag_eval.experiments.engine import Slots
from rag_eval.experiments.json_lines import decode
from rag_eval.experiments.types import Row

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

PARQUET_BATCH = 1_024


def file_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, by its ending; raises ``ExperimentError`` when it is missing or not of that kind."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ExperimentError(f"{str(path)!r} is not a kind of data: give {', '.join(READERS)}")
    if not path.is_file():
        raise ExperimentError(f"the data file {str(path)!r} is not there: check the path")
    return reader(path)


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = decode(line)
            except ValueError as error:
                raise ExperimentError(f"line {number} of {str(path)!r} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ExperimentError(
                    f"line {number} of {str(path)!r} is not an object: give one with input and output"
                )
            yield row


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # a document in a cell is longer than the module's default
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise ExperimentError(
                        f"line {reader.line_num} of {str(path)!r} does not have the header's "
                        f"{len(reader.fieldnames or [])} cells: check its commas and quotes"
                    )
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ExperimentError(f"line {reader.line_num} of {str(path)!r} cannot be read: {error}") from None


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(PARQUET_BATCH):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise ExperimentError(f"{str(path)!r} is not Parquet: {error}") from None


READERS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}


AHEAD = 64
"""At most so many rows are read before somebody asks for them."""
CLOSE_SECONDS = 1.0
"""How long the end of a stream waits for a source that is just being read, which may hang."""


async def read_beside(source: Iterable[Any], reader: Slots) -> AsyncGenerator[Any, None]:
    """The rows of a source; raises what it raises, after the rows before. A generator is closed where it was read."""
    buffer = _Buffer()
    ended = reader.call(buffer.fill, source)
    ended.add_done_callback(lambda _: buffer.arrived.set())
    try:
        while buffer.rows or not ended.done():
            if buffer.rows:
                yield buffer.take()
            else:
                await buffer.more()
        ended.result()
    finally:
        buffer.stop()
        await asyncio.wait({ended}, timeout=CLOSE_SECONDS)


class _Buffer:
    """Rows on their way from the thread that reads them to the event loop."""

    def __init__(self) -> None:
        self.rows: deque[Any] = deque()
        self.arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_awaited = False
        self._has_room = threading.Event()
        self._is_stopped = False

    def fill(self, source: Iterable[Any]) -> None:
        """Read all rows; on the thread."""
        try:
            for row in source:
                self.rows.append(row)
                if self._is_awaited:
                    self._is_awaited = False
                    self._loop.call_soon_threadsafe(self.arrived.set)
                while len(self.rows) >= AHEAD and not self._is_stopped:
                    self._has_room.wait()
                    self._has_room.clear()
                if self._is_stopped:
                    return
        finally:
            if isinstance(source, Generator):
                source.close()

    def take(self) -> Any:
        """The next row, of which there is one; on the loop, as what follows."""
        row = self.rows.popleft()
        if len(self.rows) == AHEAD // 2:
            self._has_room.set()
        return row

    async def more(self) -> None:
        """Wait until there is a row, or the end."""
        self.arrived.clear()
        self._is_awaited = True
        # A row that came before the thread could know that it is awaited told nobody.
        if not self.rows:
            await self.arrived.wait()

    def stop(self) -> None:
        """Read no further."""
        self._is_stopped = True
        self._has_room.set()


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


PAGE = 50
LANGSMITH_PAGE = 100
ORQ_SECONDS = 30


class LangSmithDataset:
    """The examples of a LangSmith dataset; an example's only input or output stands for itself.

    The key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def rows(self) -> Iterator[Row]:
        """The examples, page by page, with the ``id`` that ``LangSmithOutput`` knows them by.

        Raises ``ConfigurationError`` without a key, ``ExperimentError`` when there is no such dataset, and
        ``ServiceError`` when LangSmith does not give it.
        """
        from rag_eval.retry import BRIEF
        from rag_eval.services.langsmith_client import LangSmithService
        from rag_eval.services.langsmith_datasets import find_dataset

        service = LangSmithService.connect(BRIEF)
        try:
            dataset = find_dataset(service, self._name)
            if dataset is None:
                raise ExperimentError(f"there is no LangSmith dataset {self._name!r}: check its name and the key")
            for start in count(0, LANGSMITH_PAGE):
                wanted = {"dataset_id": dataset.id, "offset": start, "limit": LANGSMITH_PAGE}
                page = service.ask(f"the LangSmith dataset {self._name!r} cannot be read", partial(_examples, wanted))
                for example in page:
                    found = {"input": _sole(example.inputs), "output": _sole(example.outputs)}
                    yield found | {"id": str(example.id), "metadata": example.metadata or {}}
                if len(page) < LANGSMITH_PAGE:
                    return
        finally:
            service.close()


def _examples(wanted: Mapping[str, Any], client: "Client") -> "list[Example]":
    return list(client.list_examples(**wanted))


class OrqDataset:
    """The data points of an orq.ai dataset, by its id; needs the extra ``orq`` and ``ORQ_API_KEY``."""

    def __init__(self, dataset_id: str) -> None:
        self._id = dataset_id

    def rows(self) -> Iterator[Row]:
        """The data points, page by page; raises ``ServiceError`` when orq.ai does not give them."""
        client = self._client()
        after: str | None = None
        while True:
            page = self._page(client, after)
            for point in page.data:
                found = {"input": _sole(point.inputs), "output": point.expected_output}
                yield found | {"id": point.id, "messages": point.messages}
            if not page.has_more or not page.data:
                return
            after = page.data[-1].id

    def _page(self, client: Any, after: str | None) -> Any:
        import httpx
        from orq_ai_sdk.models import OrqError

        try:
            return client.datasets.list_datapoints(dataset_id=self._id, limit=PAGE, starting_after=after)
        except (OrqError, httpx.HTTPError) as error:
            raise ServiceError(f"the orq.ai dataset {self._id!r} cannot be read: {type(error).__name__}") from None

    def _client(self) -> Any:
        key = os.environ.get("ORQ_API_KEY")
        if not key:
            raise ExperimentError("ORQ_API_KEY is not set: set it to read a dataset of orq.ai")
        try:
            from orq_ai_sdk import Orq
        except ImportError:
            raise ExperimentError("orq.ai's SDK is not installed: pip install 'rag-eval[orq]'") from None
        address = os.environ.get("ORQ_BASE_URL") or None
        return Orq(api_key=key, server_url=address, timeout_ms=ORQ_SECONDS * 1_000)


def _sole(values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return next(iter(values.values())) if len(values) == 1 else dict(values)
