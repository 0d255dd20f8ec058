"""What a workspace holds, and making room in it. Everything but the runs' summaries can be made again.

Other processes may add, rename and remove files meanwhile: what is gone by the time it is looked at counts for nothing.
A folder that leads out of the workspace by a link is left alone.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.files import touch

DIVIDED = ("tables", "cache")
"""The folders whose folders are told apart."""

FIRST_VERSION = ("results", "prefect")
"""What the first version of rag-eval kept, which is never read: Prefect runs what such files tell it to."""

PRUNABLE = ("tables", "indexes", "records", *FIRST_VERSION)
CLEARABLE = (*PRUNABLE, "cache")
SECONDS_A_DAY = 86_400

logger = logging.getLogger("rag_eval.benchmark")


@dataclass(frozen=True, slots=True)
class Holding:
    """What one kind of work takes up."""

    kind: str
    files: int
    size: int


def holdings(workspace: Workspace) -> list[Holding]:
    """List what takes up the workspace: the files and bytes of each folder, then of the files beside the folders."""
    found = []
    for path in _children(workspace.root):
        if path.is_dir():
            parts = [part for part in _children(path) if part.is_dir()] if path.name in DIVIDED else []
            found += [_holding(f"{path.name}/{part.name}", _files(part)) for part in parts]
            inside = {part.name for part in parts}
            rest = [file for file in _files(path) if file.relative_to(path).parts[0] not in inside]
            found.append(_holding(path.name, rest))
    found.append(_holding("other files", (path for path in _children(workspace.root) if path.is_file())))
    return [holding for holding in found if holding.files]


def prune(workspace: Workspace, days: float) -> Holding:
    """Remove tables, indexes and records that no run has used for so many days, and return what was removed.

    Vectors, cuts and the answers of rerankers stay, because they are what costs; the runs' summaries stay too.
    """
    limit = time.time() - days * SECONDS_A_DAY
    gone = []
    for folder in _own_folders(workspace, PRUNABLE):
        for path in _children(folder) if folder.name == "indexes" else list(_files(folder)):
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < limit:
                    gone.append(_removed(path))
    return _total("pruned", gone)


def clear(workspace: Workspace) -> Holding:
    """Remove all work, all that costs included, and return what was removed; the runs' summaries stay."""
    return _total("cleared", [_removed(folder) for folder in _own_folders(workspace, CLEARABLE)])


def notice_first_version(workspace: Workspace) -> None:
    """Say in the log, as long as nothing was computed since, that a workspace is the first version's."""
    if not (workspace.root / "records").exists() and any(map(workspace.storage.names, FIRST_VERSION)):
        logger.warning(
            "the workspace %r is of the first version of rag-eval: its work is computed anew; "
            "rag-eval cache --clear removes what is no longer used",
            workspace.address,
        )


def mark_used(path: Path) -> None:
    """Take note that kept work was used now, which keeps it from being pruned."""
    with suppress(OSError):  # a workspace that is read-only can be used and not pruned
        touch(path)


def _own_folders(workspace: Workspace, kinds: tuple[str, ...]) -> list[Path]:
    folders = (workspace.root / kind for kind in kinds)
    return [folder for folder in folders if folder.is_dir() and workspace.contains(folder)]


def _removed(path: Path) -> Holding:
    """Remove a file, a folder or a link, and return what it took up."""
    is_folder = path.is_dir() and not path.is_symlink()
    holding = _holding(path.name, _files(path) if is_folder else [path])
    if is_folder:
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return holding


def _holding(kind: str, files: Iterator[Path] | list[Path]) -> Holding:
    sizes = []
    for path in files:
        with suppress(FileNotFoundError):
            sizes.append(path.lstat().st_size)
    return Holding(kind, len(sizes), sum(sizes))


def _total(kind: str, holdings: list[Holding]) -> Holding:
    return Holding(kind, sum(one.files for one in holdings), sum(one.size for one in holdings))


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(folder: Path) -> Iterator[Path]:
    # os.walk passes over folders that vanish; Path.rglob fails on them.
    for parent, _, files in os.walk(folder):
        yield from (Path(parent, name) for name in files)
