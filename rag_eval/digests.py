"""Fingerprints of files, folders and plain data."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from rag_eval.files import unreadable


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(folder: Path, paths: Iterable[Path]) -> str:
    """The sha256 of the names (relative to ``folder``) and bytes of the files, in the given order, in hex.

    Raises ``CorpusError`` when a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            content = file_sha256(path)
        except OSError as error:
            raise unreadable(path, error) from None
        # A file name need not be UTF-8; surrogateescape is how Python reads such names.
        digest.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def data_sha256(data: object) -> str:
    """The sha256 of plain data as canonical JSON, in hex: equal data has an equal digest."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
