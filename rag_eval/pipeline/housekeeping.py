"""What a workspace holds, and making room in it. Everything but the runs' summaries can be made again."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rag_eval.files import SCRATCH_PREFIX
from rag_eval.pipeline.workspace import Workspace

KINDS = ("tables", "indexes", "results", "cache", "runs")
PRUNABLE = ("tables", "indexes", "results")
SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Holding:
    """What one kind of work takes up."""

    kind: str
    files: int
    size: int


def holdings(workspace: Workspace) -> list[Holding]:
    """For each kind of work in the workspace how many files and bytes it takes."""
    found = []
    for kind in KINDS:
        for folder in _parts(workspace.root / kind):
            sizes = [path.stat().st_size for path in _files(folder)]
            found.append(Holding(folder.relative_to(workspace.root).as_posix(), len(sizes), sum(sizes)))
    return [holding for holding in found if holding.files]


def prune(workspace: Workspace, days: float) -> Holding:
    """Remove tables, indexes and results that no run has used for so many days; says what went.

    Vectors and cuts stay, because they are what costs; the runs' summaries stay too.
    """
    limit = time.time() - days * SECONDS_A_DAY
    files = size = 0
    for kind in PRUNABLE:
        folder = workspace.root / kind
        entries = _children(folder) if kind == "indexes" else _files(folder)
        for path in entries:
            if path.stat().st_mtime >= limit:
                continue
            inner = _files(path) if path.is_dir() else [path]
            files, size = files + len(inner), size + sum(one.stat().st_size for one in inner)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Holding("pruned", files, size)


def clear(workspace: Workspace) -> Holding:
    """Remove all work, vectors and cuts included; the runs' summaries stay. Says what went."""
    gone = [holding for holding in holdings(workspace) if not holding.kind.startswith("runs")]
    for kind in (*PRUNABLE, "cache"):
        shutil.rmtree(workspace.root / kind, ignore_errors=True)
    return Holding("cleared", sum(one.files for one in gone), sum(one.size for one in gone))


def sweep(workspace: Workspace) -> None:
    """Remove what killed writers left half written more than a day ago."""
    limit = time.time() - SECONDS_A_DAY
    for path in workspace.root.rglob(f"{SCRATCH_PREFIX}*"):
        if path.exists() and path.stat().st_mtime < limit:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def mark_used(path: Path) -> None:
    """Take note that kept work was used now."""
    try:
        os.utime(path)
    except OSError:
        return  # a workspace that is read-only can be used and not pruned


def _parts(folder: Path) -> list[Path]:
    inner = [path for path in _children(folder) if path.is_dir()]
    return inner if inner and folder.name in ("tables", "cache") else [folder]


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
