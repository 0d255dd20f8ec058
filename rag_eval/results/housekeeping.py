"""Show what a workspace holds, and free space in it. Everything except the runs' summaries can be computed again.

Other processes may add, rename and remove files meanwhile: missing files are skipped. A folder that leads out of the
workspace by a link is left alone. Nothing is removed while a run uses the workspace.
"""

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_eval.config.models import SECTIONS
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.llm.chat import ANSWERS_FOLDER
from rag_eval.pipeline.document_caches import CUTS_VERSION, LOADED_VERSION
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.results.runs import baseline_runs, read_summary
from rag_eval.storage.files import data_sha256, remove
from rag_eval.storage.locks import try_lock, wait_for_lock
from rag_eval.storage.rows import identity_folder

DIVIDED = ("tables", "cache")
"""Folders whose subfolders are listed."""
PRUNABLE = ("tables", "indexes", "results")
CLEARABLE = (*PRUNABLE, "cache")
SECONDS_A_DAY = 86_400
DIGITS = 16
"""Number of digits of an identity in the name of its folder."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The files of one kind and their size in bytes."""

    kind: str
    files: int
    size: int


def holdings(workspace: Workspace) -> list[Holding]:
    """List the files and bytes of each folder of the workspace, then of the files beside the folders."""
    kinds: defaultdict[str, list[Path]] = defaultdict(list)
    for path in _files(workspace.root):
        *folders, _ = path.relative_to(workspace.root).parts
        kinds["/".join(folders[: 2 if folders[:1] and folders[0] in DIVIDED else 1])].append(path)
    others = kinds.pop("", [])
    listed = [_holding(kind, kinds[kind]) for kind in sorted(kinds)]
    return [holding for holding in (*listed, _holding("other files", others)) if holding.files]


def prune(workspace: Workspace, days: float, *, dry_run: bool = False) -> list[Holding]:
    """Remove what no run has used for so many days, and return it by kind; a ``dry_run`` removes nothing.

    Runs go by when they began; tables, indexes and results by when a run last used them; vectors, cuts and rankings
    if no remaining run has their part; answers of models if none was added. The baseline and the newest run of each
    benchmark stay, with all that they refer to.

    Raises:
        ConfigurationError: A run uses the workspace.
        ArtifactError: The baseline cannot be read.
    """
    with _nobody_in(workspace):
        limit = time.time() - days * SECONDS_A_DAY
        measure = _size_of if dry_run else _removed
        return [_total(kind, [measure(path) for path in paths]) for kind, paths in _unused(workspace, limit) if paths]


def _unused(workspace: Workspace, limit: float) -> list[tuple[str, list[Path]]]:
    """Return what has not been used since the limit and is not needed, by kind."""
    runs: dict[Path, BenchmarkOutcome] = {}
    for path in _matching(workspace, "runs", f"*/{SUMMARY}"):
        with suppress(ArtifactError):  # such as a file of another version
            runs[path.parent] = read_summary(path)
    pinned = _pinned(workspace, runs.values())
    staying = {folder for folder, run in runs.items() if run.run in pinned or run.started.timestamp() >= limit}
    needed = _needed_files(workspace, [run for run in runs.values() if run.run in pinned])
    unused = {"runs": [folder for folder in runs if folder not in staying]}
    for kind in PRUNABLE:
        paths = _matching(workspace, kind, "*") if kind == "indexes" else _files_of(workspace, kind)
        rest = (path for path in paths if path.relative_to(workspace.root).as_posix() not in needed)
        unused[kind] = [path for path in rest if _changed(path) < limit]
    names = {name for folder in staying for name in _cache_names(runs[folder])}
    unused["cache"] = [folder for folder in _unused_caches(workspace, names) if _last_changed(folder) < limit]
    locks = [path for path in _files_of(workspace, "locks") if path.parent.name != IN_USE]
    unused["locks"] = [path for path in locks if _changed(path) < time.time() - SECONDS_A_DAY]
    return list(unused.items())


def _unused_caches(workspace: Workspace, used: set[str]) -> Iterator[Path]:
    """Yield the cache folders whose names end in none of these."""
    for folder in (*_matching(workspace, "cache", "*/*"), workspace.root / ANSWERS_FOLDER):
        is_used = folder.name.removesuffix("-queries")[-DIGITS:] in used
        if not is_used and folder.is_dir() and workspace.contains(folder):
            yield folder


def _pinned(workspace: Workspace, runs: Iterable[BenchmarkOutcome]) -> set[str]:
    """Return the baselines and the newest run of each benchmark, which are kept whatever their age."""
    newest: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: run.started):
        benchmark = [str(run.config.corpus), run.config.evaluation_type, str(run.config.ground_truth)]
        newest[data_sha256(benchmark)] = run.run
    return {*newest.values(), *baseline_runs(workspace)}


def _needed_files(workspace: Workspace, runs: Iterable[BenchmarkOutcome]) -> set[str]:
    """Return every file that runs refer to, and the stored results that refer only to these."""
    needed = {uri for run in runs for uri in _uris(run.model_dump(mode="json"))}
    results = set()
    for path in _files(workspace.root / "results"):
        with suppress(OSError, ValueError, RecursionError):
            uris = set(_uris(json.loads(path.read_bytes())))
            if uris and uris <= needed:
                results.add(path.relative_to(workspace.root).as_posix())
    return needed | results


def _uris(data: object) -> Iterator[str]:
    """Yield every ``uri`` in plain data."""
    if isinstance(data, Mapping):
        if isinstance(data.get("uri"), str):
            yield data["uri"]
        data = list(data.values())
    for item in data if isinstance(data, list) else ():
        yield from _uris(item)


ASKING = ("context", "rewriter")
"""Kinds of parts that may ask a model, whose answers are stored with those about ground truth."""


def _cache_names(run: BenchmarkOutcome) -> Iterator[str]:
    """Yield the name endings of the folders with a run's cached vectors, cuts, rankings and answers."""
    parts: list[Any] = [section.of(c.configuration) for c in run.configurations for section in SECTIONS.values()]
    for part in (*parts, *run.corpus.loaders.values()):
        if part is None:
            continue
        for identity in (part.digest, f"{part.digest} v{CUTS_VERSION}", f"{part.digest} v{LOADED_VERSION}"):
            yield identity_folder(Path(), identity, "").name[-DIGITS:]
        if part.kind in ASKING and "model" in part.settings:
            yield ANSWERS_FOLDER.name
    if "generate" in str(run.config.ground_truth):  # the next run extends it
        yield ANSWERS_FOLDER.name


IN_USE = "runs"


@contextmanager
def in_use(workspace: Workspace) -> Iterator[None]:
    """Keep the workspace from being pruned while the block runs; wait until a running pruning ends."""
    mark = workspace.root / "locks" / IN_USE / uuid.uuid4().hex
    with ExitStack() as held:
        with wait_for_lock(_pruning(workspace)), suppress(ArtifactError):  # fails in a read-only workspace
            held.enter_context(try_lock(mark))
        try:
            yield
        finally:
            with suppress(OSError):
                mark.unlink(missing_ok=True)


@contextmanager
def _nobody_in(workspace: Workspace) -> Iterator[None]:
    """Keep runs from starting while the block runs; raises ``ConfigurationError`` if a run uses the workspace."""
    with wait_for_lock(_pruning(workspace)):
        for mark in _matching(workspace, "locks", f"{IN_USE}/*"):
            with try_lock(mark) as is_free:
                if not is_free:
                    raise ConfigurationError(f"a run uses the workspace {workspace.address!r}: try again when it ends")
            mark.unlink(missing_ok=True)  # left by a killed run
        yield


def _pruning(workspace: Workspace) -> Path:
    return workspace.root / "locks" / "prune"


def clear(workspace: Workspace) -> Holding:
    """Remove all results, including paid ones; raises ``ConfigurationError`` if a run uses the workspace."""
    with _nobody_in(workspace):
        folders = [folder for kind in CLEARABLE for folder in _own_folder(workspace, kind)]
        return _total("cleared", [_removed(folder) for folder in folders])


def _own_folder(workspace: Workspace, kind: str) -> list[Path]:
    """Return a folder of the workspace as a list; an empty list if it is missing or a link leads it elsewhere."""
    folder = workspace.root / kind
    return [folder] if folder.is_dir() and workspace.contains(folder) else []


def _matching(workspace: Workspace, kind: str, pattern: str) -> list[Path]:
    return [path for folder in _own_folder(workspace, kind) for path in sorted(folder.glob(pattern))]


def _files_of(workspace: Workspace, kind: str) -> list[Path]:
    return [path for folder in _own_folder(workspace, kind) for path in _files(folder)]


def _changed(path: Path) -> float:
    """Return when a file was created or last used; a missing file counts as new."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return time.time()


def _last_changed(folder: Path) -> float:
    return max(map(_changed, _files(folder)), default=0.0)


def _size_of(path: Path) -> Holding:
    is_folder = path.is_dir() and not path.is_symlink()
    return _holding(path.name, _files(path) if is_folder else [path])


def _removed(path: Path) -> Holding:
    """Remove a file, a folder or a link, and return its size."""
    holding = _size_of(path)
    remove(path)
    return holding


def _holding(kind: str, files: Iterable[Path]) -> Holding:
    sizes = []
    for path in files:
        with suppress(FileNotFoundError):
            sizes.append(path.lstat().st_size)
    return Holding(kind, len(sizes), sum(sizes))


def _total(kind: str, holdings: list[Holding]) -> Holding:
    return Holding(kind, sum(holding.files for holding in holdings), sum(holding.size for holding in holdings))


def _files(folder: Path) -> Iterator[Path]:
    # os.walk skips folders that vanish; Path.rglob fails on them.
    for parent, _, files in os.walk(folder):
        yield from (Path(parent, name) for name in files)
