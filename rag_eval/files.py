"""Reading files exactly as they are, and writing them whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_eval.errors import ConfigurationError, CorpusFolderError, EmptyCorpusError, TextEncodingError


def matching_files(folder: Path, glob: str) -> list[Path]:
    """The files below ``folder`` that match, sorted by POSIX path.

    Raises ``CorpusFolderError`` when the folder is not there and ``EmptyCorpusError`` when nothing matches.
    """
    if not folder.exists():
        raise CorpusFolderError(f"the corpus folder {str(folder)!r} is not there: check the path")
    if not folder.is_dir():
        raise CorpusFolderError(f"{str(folder)!r} is not a folder: give the folder that holds the documents")
    if not glob or Path(glob).is_absolute() or ".." in Path(glob).parts:
        raise ConfigurationError(f"the pattern {glob!r} must be relative to the corpus folder, such as '**/*.md'")
    paths = sorted((path for path in folder.glob(glob) if path.is_file()), key=lambda path: path.as_posix())
    if not paths:
        raise EmptyCorpusError(f"no file in {str(folder)!r} matches {glob!r}: check the folder and the pattern")
    return paths


def read_text(path: Path) -> str:
    """The file's text, decoded as UTF-8 and otherwise untouched; raises ``TextEncodingError``."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextEncodingError(
            f"{str(path)!r} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}); "
            "convert the file to UTF-8"
        ) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader meets the old content or the new, never a part."""
    with scratch_path(path.parent) as scratch:
        scratch.write_bytes(data)
        os.replace(scratch, path)


@contextmanager
def scratch_path(folder: Path) -> Iterator[Path]:
    """A path of its own in ``folder``; whatever stands there afterwards is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".part-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
