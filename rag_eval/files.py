"""Reading files exactly as they are, and writing them whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_eval.errors import (
    ArtifactError,
    ConfigurationError,
    CorpusError,
    CorpusFolderError,
    EmptyCorpusError,
    TextEncodingError,
)

SCRATCH_PREFIX = ".part-"
"""How half-written files are called; whatever is left of them after a kill may be removed."""


def matching_files(folder: Path, glob: str) -> list[Path]:
    """The files below ``folder`` that match, sorted by POSIX path.

    Raises ``CorpusFolderError`` when the folder is not there, ``EmptyCorpusError`` when nothing matches and
    ``ConfigurationError`` when the pattern is none, or leads out of the folder.
    """
    if not folder.exists():
        raise CorpusFolderError(f"the corpus folder {str(folder)!r} is not there: check the path")
    if not folder.is_dir():
        raise CorpusFolderError(f"{str(folder)!r} is not a folder: give the folder that holds the documents")
    parts = Path(glob).parts
    if not parts or Path(glob).is_absolute() or ".." in parts:
        raise ConfigurationError(f"the pattern {glob!r} must be relative to the corpus folder, such as '**/*.md'")
    if any("**" in part and part != "**" for part in parts):
        raise ConfigurationError(f"the pattern {glob!r} has ** beside other characters: write it like '**/*.md'")
    paths = sorted((path for path in folder.glob(glob) if path.is_file()), key=lambda path: path.as_posix())
    if not paths:
        raise EmptyCorpusError(f"no file in {str(folder)!r} matches {glob!r}: check the folder and the pattern")
    return paths


def read_text(path: Path) -> str:
    """The file's text, decoded as UTF-8 and otherwise untouched.

    Raises ``TextEncodingError`` when it is not UTF-8 and ``CorpusError`` when the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextEncodingError(
            f"{str(path)!r} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}); "
            "convert the file to UTF-8"
        ) from None


def unreadable(path: Path, error: OSError) -> CorpusError:
    """The error for a file of a corpus that the system does not let us read."""
    return CorpusError(f"{str(path)!r} cannot be read ({error.strerror}): check the file and its rights")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader meets the old content or the new, never a part.

    Raises ``ArtifactError`` when it cannot be written.
    """
    with scratch_path(path.parent) as scratch:
        try:
            scratch.write_bytes(data)
            os.replace(scratch, path)
        except OSError as error:
            raise ArtifactError(f"{str(path)!r} cannot be written ({error.strerror}): check the place") from None


@contextmanager
def scratch_path(folder: Path) -> Iterator[Path]:
    """A path of its own in ``folder``, which is made; whatever stands there afterwards is removed.

    Raises ``ArtifactError`` when the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"the folder {str(folder)!r} cannot be made ({error.strerror}): use another") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"the folder {str(folder)!r} cannot be written to: change its rights, or use another")
    path = folder / f"{SCRATCH_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
