"""Find and read the files of a corpus, write files atomically, and compute digests of files and plain data."""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path, PureWindowsPath
from typing import Literal, NamedTuple

from rag_eval.distribution import PRODUCT
from rag_eval.errors import (
    ArtifactError,
    ConfigurationError,
    CorpusError,
    CorpusFolderError,
    EmptyCorpusError,
    TextEncodingError,
    preview,
)

SCRATCH_PREFIX = ".part-"
"""Prefix of unfinished files. Those that a killed process left are removed after a day."""
SCRATCH_SECONDS = 86_400

FOLLOW_LINKS = "RAG_EVAL_FOLLOW_LINKS"
"""Environment variable that allows documents to be links to files outside of their folder."""

MOST_COUNTED = 10_000
"""Maximum number of files of a folder that are counted for an error message."""
SHOWN_KINDS = 3
TEXT_SUFFIXES = (".md", ".txt", ".rst", ".adoc", ".html", ".org", ".tex")


def kind_of(path: Path) -> Literal["file", "folder", "device"] | None:
    """Return the kind of object at a path, following links; a pipe counts as a device. Raises ``CorpusError``."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "device"


def patterns_of(glob: str | Sequence[str]) -> list[str]:
    """Return one pattern, or several, as a list."""
    return [glob] if isinstance(glob, str) else list(glob)


def matching_files(folder: Path, glob: str | Sequence[str]) -> list[Path]:
    """Return the files below ``folder`` that match a pattern, or one of several, sorted by POSIX path.

    Raises:
        CorpusFolderError: The folder does not exist.
        CorpusError: A folder cannot be read, or a file is a link that leads out of the folder without ``FOLLOW_LINKS``.
        EmptyCorpusError: No file matches.
        ConfigurationError: The pattern is not valid, or leads out of the folder.
    """
    kind = kind_of(folder)
    if kind is None:
        raise CorpusFolderError(f"the corpus folder {str(folder)!r} does not exist: check the path")
    if kind != "folder":
        raise CorpusFolderError(f"{str(folder)!r} is not a folder: give the folder that holds the documents")
    found: set[Path] = set()
    for pattern in (patterns := _checked_patterns(glob)):
        try:
            _check_folders(folder, Path(pattern).parts)
            found.update(path for path in folder.glob(pattern) if path.is_file())
        except OSError as error:
            raise unreadable(Path(error.filename or folder), error) from None
    if not found:
        shown = " or ".join(map(repr, patterns))
        raise EmptyCorpusError(f"no file in {str(folder)!r} matches {shown}: {_kinds_of_files(folder)}")
    paths = sorted(found, key=lambda path: path.as_posix())
    if not os.environ.get(FOLLOW_LINKS):
        _check_links(folder, paths)
    return paths


def _checked_patterns(glob: str | Sequence[str]) -> list[str]:
    """Return the patterns as a list; raise ``ConfigurationError`` on one that is invalid or leads out of the folder."""
    patterns = patterns_of(glob)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigurationError(f"glob is {glob!r}: give a pattern such as '**/*.md', or a list of them")
    for pattern in patterns:
        parts = Path(pattern).parts
        if not parts or Path(pattern).is_absolute() or ".." in parts:
            raise ConfigurationError(
                f"the pattern {pattern!r} must be relative to the corpus folder, such as '**/*.md'"
            )
        if any("**" in part and part != "**" for part in parts):
            raise ConfigurationError(f"the pattern {pattern!r} has ** beside other characters: write it like '**/*.md'")
    return patterns


def _check_folders(folder: Path, parts: Sequence[str]) -> None:
    """Raise ``OSError`` on an unreadable folder that the pattern searches, which a glob would treat as empty."""

    def refuse(error: OSError) -> None:
        raise error

    fixed = list(takewhile(lambda part: not set(part) & set("*?["), parts[:-1]))
    start = folder.joinpath(*fixed)
    depth = float("inf") if "**" in parts else len(parts) - 1 - len(fixed)
    for parent, folders, _ in os.walk(start, onerror=refuse) if start.is_dir() else ():
        if len(Path(parent).relative_to(start).parts) >= depth:
            folders.clear()


def _check_links(folder: Path, paths: Iterable[Path]) -> None:
    """Raise ``CorpusError`` on a link out of the folder, which could turn any file into a document."""
    home = os.path.realpath(folder)
    real: dict[Path, str] = {}
    for path in paths:
        if path.parent not in real:
            real[path.parent] = os.path.realpath(path.parent)
        target = os.path.realpath(path) if path.is_symlink() else os.path.join(real[path.parent], path.name)
        if os.path.commonpath([home, target]) != home:
            raise CorpusError(
                f"{str(path)!r} is a link to {target!r}, outside the corpus folder: replace it with a copy, or set "
                f"{FOLLOW_LINKS}=1 to follow such links"
            )


def _kinds_of_files(folder: Path) -> str:
    """Return the most common kinds of files in a folder, and the pattern for the first, for an error message."""
    seen = (path for path in folder.rglob("*") if not path.name.startswith(".") and path.is_file())
    kinds = Counter(path.suffix if path.suffix[1:].isalnum() else "" for path in islice(seen, MOST_COUNTED))
    if not kinds:
        return "it has no files, so check the path"
    listed = sorted(kinds, key=lambda suffix: (suffix not in TEXT_SUFFIXES, -kinds[suffix], suffix))[:SHOWN_KINDS]
    found = ", ".join(f"{kinds[suffix]} {suffix or 'other'} file{'s'[: kinds[suffix] != 1]}" for suffix in listed)
    return f"it has {found}; give --glob '**/*{listed[0]}', or glob in the benchmark file"


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file; raises ``TextEncodingError``, or ``CorpusError`` if it is unreadable."""
    if kind_of(path) == "device":
        raise CorpusError(f"{str(path)!r} is a pipe or a device: give a file")
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
    """Return the error for a file of a corpus that cannot be read."""
    if error.errno == errno.ENAMETOOLONG:
        return CorpusError(f"the path {preview(str(path))} is too long for this system: give a shorter one")
    return CorpusError(f"{str(path)!r} cannot be read ({error.strerror}): check the file and its permissions")


def stays_inside(name: str) -> bool:
    """Return whether a relative name with ``/`` stays below the folder that it is joined to, on every system."""
    is_plain = not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and "\0" not in name
    return is_plain and not PureWindowsPath(name).drive


PLACES = {
    "win32": {"cache": "AppData/Local/Cache", "state": "AppData/Local"},
    "darwin": {"cache": "Library/Caches", "state": "Library/Application Support"},
}
"""Folders for files of a user, below the home folder, on systems without XDG."""


def user_folder(kind: Literal["cache", "state"], system: str = sys.platform) -> Path:
    """Return our folder for files of this user: below ``XDG_CACHE_HOME`` or ``XDG_STATE_HOME``, or by the system."""
    places = PLACES.get(system, {"cache": ".cache", "state": ".local/state"})
    return Path(os.environ.get(f"XDG_{kind.upper()}_HOME") or Path.home() / places[kind]) / PRODUCT


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds the old content or the new, never a part; raises ``ArtifactError``."""
    with scratch_path(path.parent) as scratch, writing(path):
        scratch.write_bytes(data)
        os.replace(scratch, path)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_fault(error: BaseException) -> str | None:
    """Return a sentence if an error, or its cause, is a full disk or a path that is too long; None otherwise."""
    chain: BaseException | None = error
    while chain is not None:
        number = chain.errno if isinstance(chain, OSError) else None
        # SQLite, LanceDB and others raise errors without an errno.
        if number in FULL or "disk is full" in str(chain) or "No space left on device" in str(chain):
            return "the disk is full: make room, then run again; finished steps are kept"
        if number == errno.ENAMETOOLONG and isinstance(chain, OSError):
            return str(unreadable(Path(chain.filename or ""), chain))
        chain = chain.__cause__ or chain.__context__
    return None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``ArtifactError`` for an ``OSError`` of the block, which writes to ``path``."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = "make room" if error.errno in FULL else "check the path"
        raise ArtifactError(f"{str(path)!r} cannot be written ({reason}): {advice}, then run again") from None


def check_folder(folder: Path) -> None:
    """Create the folder; raises ``ArtifactError`` if it cannot be created or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "make room" if error.errno in FULL else "use another"
        shown = preview(str(folder)) if error.errno == errno.ENAMETOOLONG else repr(str(folder))
        raise ArtifactError(f"the folder {shown} cannot be created ({error.strerror}): {advice}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"the folder {str(folder)!r} cannot be written to: change its permissions, or use another")


@contextmanager
def scratch_path(folder: Path) -> Iterator[Path]:
    """Yield an unused path in ``folder``, which is created; remove it afterwards. Raises ``ArtifactError``."""
    check_folder(folder)
    path = folder / f"{SCRATCH_PREFIX}{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        remove(path)


def sweep_scratch(folder: Path) -> None:
    """Remove unfinished files below a folder that have not changed for a day."""
    limit = time.time() - SCRATCH_SECONDS
    for parent, folders, files in os.walk(folder):
        scratch = [name for name in (*folders, *files) if name.startswith(SCRATCH_PREFIX)]
        folders[:] = [name for name in folders if name not in scratch]
        for path in (Path(parent, name) for name in scratch):
            if _last_change(path) < limit:
                remove(path)


def _last_change(path: Path) -> float:
    """Return when a file, or any file in a folder, was last changed."""
    times = [0.0]
    # os.walk skips folders that vanish; Path.rglob fails on them.
    inside = (Path(parent, name) for parent, _, files in os.walk(path) for name in files)
    for file in (path, *inside):
        with suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times)


def put_in_place(scratch: Path, path: Path) -> None:
    """Rename a file or a folder to its final path, and remove what was there."""
    with scratch_path(path.parent) as old:
        if path.is_dir():
            os.replace(path, old)
        os.replace(scratch, path)


def remove(path: Path) -> None:
    """Remove a file, a link, or as much of a folder as possible, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class Stamp(NamedTuple):
    """Identifies a file with its content, without reading it."""

    inode: int
    size: int
    made_ns: int

    @classmethod
    def of(cls, path: "Path | os.DirEntry[str]") -> "Stamp":
        """Return the current stamp of the file; raises ``OSError``."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


_seen: dict[Path, tuple[Stamp, str]] = {}


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kept_sha256(path: Path) -> str:
    """Return ``file_sha256``, reading the file only if it changed since this process last read it."""
    stamp = Stamp.of(path)
    known = _seen.get(path)
    if known is None or known[0] != stamp:
        known = _seen[path] = stamp, file_sha256(path)
    return known[1]


def remember(path: Path, digest: str) -> None:
    """Remember the sha256 of a file that was just written."""
    _seen[path] = Stamp.of(path), digest


def touch(path: Path) -> None:
    """Set the modification time of a file or a folder to now, and keep its remembered sha256."""
    known = _seen.get(path)
    is_same = known is not None and known[0] == Stamp.of(path)
    os.utime(path)
    if known is not None and is_same:
        remember(path, known[1])


def files_sha256(folder: Path, paths: Iterable[Path], digest_of: Callable[[Path], str] = file_sha256) -> str:
    """Return the sha256 of the relative names and the bytes of files, in order; raises ``OSError``."""
    return contents_sha256((path.relative_to(folder).as_posix(), digest_of(path)) for path in paths)


def contents_sha256(contents: Iterable[tuple[str, str]]) -> str:
    """Return the ``files_sha256`` of files with these names and sha256 digests."""
    digest = hashlib.sha256()
    for name, content in contents:
        # A file name need not be UTF-8; Python reads such names with surrogateescape.
        digest.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def data_sha256(data: object) -> str:
    """Return the sha256 of plain data as canonical JSON, in hex: equal data has an equal digest."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
