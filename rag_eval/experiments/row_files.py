"""Rows from JSONL, CSV and Parquet files, one at a time."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rag_eval.errors import ExperimentError
from rag_eval.experiments.encoding import decode

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
