"""Fingerprints of files, folders and plain data."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

Stamp = tuple[int, int, int]
"""A file's inode, size and time of change: another stamp is another file, or other bytes."""

_seen: dict[Path, tuple[Stamp, str]] = {}


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kept_sha256(path: Path) -> str:
    """As ``file_sha256``, for what is written once: read again only when it has changed since this process last did."""
    stamp = _stamp(path)
    known = _seen.get(path)
    if known is None or known[0] != stamp:
        known = _seen[path] = stamp, file_sha256(path)
    return known[1]


def remember(path: Path, digest: str) -> None:
    """Take note of the sha256 of a file that was written just now."""
    _seen[path] = _stamp(path), digest


def touch(path: Path) -> None:
    """Make now the time of change of a file or a folder; what is known of its bytes stays known."""
    known = _seen.get(path)
    is_same = known is not None and known[0] == _stamp(path)
    os.utime(path)
    if known is not None and is_same:
        remember(path, known[1])


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def files_sha256(folder: Path, paths: Iterable[Path], digest_of: Callable[[Path], str] = file_sha256) -> str:
    """The sha256 of the names (relative to ``folder``) and bytes of the files, in the given order, in hex.

    Raises ``OSError``, with the file's name, when one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(_line(path.relative_to(folder).as_posix(), digest_of(path)))
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
