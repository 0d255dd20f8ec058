"""Fingerprints of files, folders and plain data."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(folder: Path, paths: Iterable[Path]) -> str:
    """The sha256 of the names (relative to ``folder``) and bytes of the files, in the given order, in hex.

    Raises ``OSError``, with the file's name, when one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(_line(path.relative_to(folder).as_posix(), file_sha256(path)))
    return digest.hexdigest()


def texts_sha256(texts: Iterable[tuple[str, str]]) -> str:
    """What ``files_sha256`` gives for files of these names and texts."""
    digest = hashlib.sha256()
    for name, text in texts:
        digest.update(_line(name, hashlib.sha256(text.encode()).hexdigest()))
    return digest.hexdigest()


def _line(name: str, content: str) -> bytes:
    # A file name need not be UTF-8; surrogateescape is how Python reads such names.
    return f"{name}\0{content}\n".encode("utf-8", "surrogateescape")


def data_sha256(data: object) -> str:
    """The sha256 of plain data as canonical JSON, in hex: equal data has an equal digest."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
