"""What a workspace holds, and making room in it. Everything but the runs' summaries can be made again.

Other processes may add, rename and remove files meanwhile: what is gone by the time it is looked at counts for nothing.
A folder that leads out of the workspace by a link is left alone. Nothing is removed while a run uses the workspace.
"""

import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_eval.config.models import SECTIONS
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.caches import LOADED_VERSION
from rag_eval.pipeline.step import CUTS_VERSION
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.results.runs import baseline_runs, read_summary
from rag_eval.storage.files import data_sha256, remove
from rag_eval.storage.locks import try_lock, wait_for_lock
from rag_eval.storage.rows import identity_folder

DIVIDED = ("tables", "cache")
"""The folders whose folders are told apart."""

PRUNABLE = ("tables", "indexes", "results")
CLEARABLE = (*PRUNABLE, "cache")
SECONDS_A_DAY = 86_400
DIGITS = 16
"""How much of an identity is in the name of its folder."""

logger = logging.getLogger("rag_eval.results")


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


@dataclass
class Needed:
    """What stays whatever its age, files that runs refer to and the caches of their parts, and the runs that go."""

    old: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    caches: set[str] = field(default_factory=set)


def prune(workspace: Workspace, days: float, *, dry_run: bool = False) -> list[Holding]:
    """Remove what no run has used for so many days, and return it by kind; a ``dry_run`` removes nothing.

    Runs go by when they began; tables, indexes and records by when a run last used them; vectors, cuts and rankings
    when no run that stays has their part; answers of models when none was added. The
    baseline and the newest run of each benchmark stay, with all that they refer to.
    Raises ``ConfigurationError`` while a run uses the workspace, ``ArtifactError`` when the baseline cannot be read.
    """
    with _nobody_in(workspace):
        limit = time.time() - days * SECONDS_A_DAY
        chosen: dict[str, list[Path]] = {}
        needed = _needed(workspace, limit)
        runs = [path.parent for path in _children_of(workspace, "runs", f"*/{SUMMARY}")]
        chosen["runs"] = [path for path in runs if path.name in needed.old]
        for kind in PRUNABLE:
            for folder in _own_folders(workspace, (kind,)):
                found = _children(folder) if kind == "indexes" else list(_files(folder))
                names = {path: path.relative_to(workspace.root).as_posix() for path in found}
                chosen[kind] = [path for path in found if names[path] not in needed.files and _changed(path) < limit]
        chosen["cache"] = [
            folder
            for folder in _children_of(workspace, "cache", "*/*") + _children_of(workspace, "cache", "answers")
            if folder.is_dir()
            and folder.name.removesuffix("-queries")[-DIGITS:] not in needed.caches
            and max(map(_changed, _files(folder)), default=0.0) < limit
        ]
        chosen["locks"] = [
            path
            for folder in _own_folders(workspace, ("locks", "leases"))
            for path in _files(folder)
            if path.parent.name != IN_USE and _changed(path) < time.time() - SECONDS_A_DAY
        ]
        take = _size_of if dry_run else _removed
        return [_total(kind, [take(path) for path in paths]) for kind, paths in chosen.items() if paths]


def _needed(workspace: Workspace, limit: float) -> Needed:
    """What the baselines, the newest run of each benchmark, and the runs that began since then need."""
    newest: dict[str, BenchmarkOutcome] = {}
    needed = Needed()
    outcomes = []
    for path in _children_of(workspace, "runs", f"*/{SUMMARY}"):
        with suppress(ArtifactError):  # of another version, perhaps: not ours to judge
            outcomes.append(read_summary(path))
    for one in sorted(outcomes, key=lambda one: one.started):
        newest[data_sha256([str(one.config.corpus), one.config.evaluation_type, str(one.config.ground_truth)])] = one
    stay = {one.run for one in newest.values()} | baseline_runs(workspace)
    for one in outcomes:
        if one.run in stay or one.started.timestamp() >= limit:
            records = [section.of(done.configuration) for done in one.configurations for section in SECTIONS.values()]
            records += one.corpus.loaders.values()
            needed.caches |= {name for part in records if part is not None for name in _cache_names(part)}
            needed.caches |= {"answers"} if "generate" in str(one.config.ground_truth) else set()  # which it extends
        else:
            needed.old.add(one.run)
        if one.run in stay:
            _need_files(workspace, one, needed)
    return needed


def _need_files(workspace: Workspace, outcome: BenchmarkOutcome, needed: Needed) -> None:
    """Add every file that a run refers to, and the stored results that refer to nothing else."""
    needed.files |= set(_uris(outcome.model_dump(mode="json")))
    for path in _files(workspace.root / "results"):
        with suppress(OSError, ValueError, RecursionError):
            made = set(_uris(json.loads(path.read_bytes())))
            if made and made <= needed.files:
                needed.files.add(path.relative_to(workspace.root).as_posix())


def _uris(data: object) -> Iterator[str]:
    """The places that are written down anywhere in plain data."""
    if isinstance(data, Mapping):
        if isinstance(data.get("uri"), str):
            yield data["uri"]
        data = list(data.values())
    for one in data if isinstance(data, list) else ():
        yield from _uris(one)


ASKING = ("context", "rewriter")
"""The kinds of parts that may have a model write, whose answers are kept with those about ground truth."""


def _cache_names(part: Any) -> Iterator[str]:
    """How the names of the folders end in which the work of a part, vectors, cuts, rankings or answers, is kept."""
    for identity in (part.digest, *(f"{part.digest} v{one}" for one in (CUTS_VERSION, LOADED_VERSION))):
        yield identity_folder(Path(), identity, "").name[-DIGITS:]
    if part.kind in ASKING and "model" in part.settings:
        yield "answers"


IN_USE = "runs"


@contextmanager
def in_use(workspace: Workspace) -> Iterator[None]:
    """Keep what a run uses from being pruned during the block; waits for a pruning that is under way."""
    mark = workspace.root / "locks" / IN_USE / uuid.uuid4().hex
    with ExitStack() as held:
        with wait_for_lock(_pruning(workspace)), suppress(ArtifactError):  # in a workspace that is read-only
            held.enter_context(try_lock(mark))
        try:
            yield
        finally:
            with suppress(OSError):
                mark.unlink(missing_ok=True)


@contextmanager
def _nobody_in(workspace: Workspace) -> Iterator[None]:
    """Keep runs from beginning; raises ``ConfigurationError`` while one is under way."""
    with wait_for_lock(_pruning(workspace)):
        for mark in _children_of(workspace, "locks", f"{IN_USE}/*"):
            with try_lock(mark) as is_free:
                if not is_free:
                    raise ConfigurationError(
                        f"a run uses the workspace {workspace.address!r}, and nothing was removed: try again when it "
                        "has ended"
                    )
            mark.unlink(missing_ok=True)  # of a run that was killed
        yield


def _pruning(workspace: Workspace) -> Path:
    return workspace.root / "locks" / "prune"


def clear(workspace: Workspace) -> Holding:
    """Remove all work, what costs included, but no summary; raises ``ConfigurationError`` while a run uses it."""
    with _nobody_in(workspace):
        return _total("cleared", [_removed(folder) for folder in _own_folders(workspace, CLEARABLE)])


def _own_folders(workspace: Workspace, kinds: tuple[str, ...]) -> list[Path]:
    folders = (workspace.root / kind for kind in kinds)
    return [folder for folder in folders if folder.is_dir() and workspace.contains(folder)]


def _children_of(workspace: Workspace, kind: str, pattern: str) -> list[Path]:
    return [path for folder in _own_folders(workspace, (kind,)) for path in sorted(folder.glob(pattern))]


def _changed(path: Path) -> float:
    """When a file was made or last used; what is gone by now is not old."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return time.time()


def _size_of(path: Path) -> Holding:
    is_folder = path.is_dir() and not path.is_symlink()
    return _holding(path.name, _files(path) if is_folder else [path])


def _removed(path: Path) -> Holding:
    """Remove a file, a folder or a link, and return what it took up."""
    holding = _size_of(path)
    remove(path)
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
