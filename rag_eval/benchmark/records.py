"""Stage records: what a stage made, kept under the key of the work, so that equal work is done once.

A record is a JSON file in the workspace. It is read strictly as the type that its stage declares: whatever else the
file holds is reported and computed again, and nothing in it is ever imported or called. Looking a record up needs no
Prefect.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval.benchmark.references import IndexRef, Made, TableRef, effort_of
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.files import remove, touch
from rag_eval.errors import ArtifactError

R = TypeVar("R")

logger = logging.getLogger("rag_eval.benchmark")


class StageRecord(BaseModel, Generic[R]):
    """What a stage made, and the key of the work that made it: a record under another name is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2] = 2
    key: str
    result: R


def record_path(workspace: Workspace, key: str) -> Path:
    """Return the file of the record with this key."""
    return workspace.root / "records" / f"{key}.json"


def find_record(workspace: Workspace, stage: Stage, key: str) -> Any | None:
    """Return the kept result of the work with this key, marked as used with all it refers to; None when there is none.

    One that was cut or altered, or that refers to files that are gone, altered or outside the workspace, is dropped
    and reported in the log. One that is older than a refresh allows counts as none. What only a bucket has is not
    fetched: that is for whoever reads it.
    """
    path = workspace.kept(record_path(workspace, key))
    if not path.exists() and not path.is_symlink():
        return None
    kept: Any = _read(workspace, stage, path, key)
    since, shards = workspace.made_since, kept if isinstance(kept, list) else [kept]
    if kept is not None and since is not None and any(one.made is None or one.made < since for one in shards):
        return None
    references = list(_references(kept))
    damage = (problem for ref in references if (problem := workspace.lack(ref)))
    problem = f"the record {key} was cut or altered" if kept is None else next(damage, None)
    if problem is not None:
        logger.warning("%s: %s is computed again", problem, stage.name)
        if workspace.contains(path.parent):
            with suppress(OSError):  # in a workspace that is read-only
                remove(path)
        return None
    for used in (*(workspace.root / ref.uri for ref in references if workspace.is_here(ref)), path):
        with suppress(OSError):  # a workspace that is read-only can be used and not pruned
            touch(used)
        workspace.ensure(used)
    return kept


def keep_record(workspace: Workspace, stage: Stage, key: str, result: Any) -> None:
    """Keep the result of the work with this key; where it cannot be written, the log says so and the run goes on."""
    record = StageRecord[stage.makes](key=key, result=result)  # type: ignore[name-defined]  # the stage says which
    try:
        workspace.keep(record_path(workspace, key), record.model_dump_json().encode())
    except ArtifactError as error:
        logger.warning("the record of %s was not kept, so that the next run computes it again: %s", stage.name, error)


class Done(NamedTuple):
    """What a stage made, under which key that is kept, and whether it was kept before."""

    result: Any
    key: str
    was_kept: bool


Inputs = tuple[Any, ...]


def made_once(workspace: Workspace, stage: Stage, *inputs: Any) -> Any:
    """Return what a stage makes of these inputs: what is kept of it, else made and kept now."""
    return do_once(workspace, stage, inputs, _Unguarded()).result


class Doing:
    """How the work of stages is done: here, one piece after another; a subclass may do it elsewhere, or at once."""

    def each(self, work: Callable[[Inputs], Done], pieces: list[Inputs]) -> list[Done]:
        """Work on every piece."""
        return [*map(work, pieces)]

    def turn(self, workspace: Workspace, key: str) -> AbstractContextManager[None]:
        """Wait until nobody else is at work on the same."""
        return alone(workspace, key)

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        """Return what the stage makes."""
        return stage(workspace, *inputs)


class _Unguarded(Doing):
    """For whoever has the turn already, or may do what others do too."""

    def turn(self, workspace: Workspace, key: str) -> AbstractContextManager[None]:
        return nullcontext()


def do_once(workspace: Workspace, stage: Stage, inputs: Inputs, doing: Doing | None = None) -> Done:
    """Do the work of a stage unless it is kept; work that comes in pieces is kept piece by piece, and as a whole.

    Raises what the stage raises.
    """
    doing, looked = doing or Doing(), stage.looked(workspace, *inputs)
    key = stage.key(*looked)
    if (found := find_record(workspace, stage, key)) is not None:
        return Done(found, key, was_kept=True)
    with doing.turn(workspace, key):
        if (found := find_record(workspace, stage, key)) is not None:  # made by whoever had the turn before
            return Done(found, key, was_kept=True)
        pieces = stage.pieces(*looked)
        if len(pieces) > 1:
            done = doing.each(lambda piece: do_once(workspace, stage, piece, doing), pieces)
            made = [_in_this_run(one, shard) for one in done for shard in one.result]
        else:
            made = doing.compute(stage, workspace, looked)
        # What it looked at may have grown by the work itself.
        key = stage.key_after(*looked)
        effort = effort_of(made)
        if effort is None or not effort.unfinished:
            keep_record(workspace, stage, key, made)
        return Done(made, key, was_kept=False)


def _in_this_run(done: Done, made: Made) -> Made:
    """What a piece made: where it was kept before, nothing of it was done now."""
    if not done.was_kept or made.effort is None:
        return made
    return made.model_copy(update={"effort": made.effort.model_copy(update={"fresh": 0, "seconds": 0.0})})


_keys_at_work: "WeakValueDictionary[tuple[str, str], threading.Lock]" = WeakValueDictionary()
_guard = threading.Lock()


@contextmanager
def alone(workspace: Workspace, key: str, on_wait: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Keep all others from the work with this key: a thread, process or machine waits, and then finds it done.

    ``on_wait`` is called when another process is at work on it. The file that is locked exists only meanwhile.
    """
    with _guard:  # a lock is forgotten when nobody holds or awaits it
        at_work = _keys_at_work.setdefault((str(workspace.root), key), threading.Lock())
    # The file alone would do, but some file systems know no locks.
    with at_work, workspace.storage.alone(workspace.root / "locks" / key, on_wait):
        yield


def _read(workspace: Workspace, stage: Stage, path: Path, key: str) -> Any | None:
    """The result in a record; None when it is not the record of this key, or not inside the workspace."""
    if not workspace.contains(path) or not path.is_file():
        return None
    try:
        record = StageRecord[stage.makes].model_validate_json(path.read_bytes(), strict=True)  # type: ignore[name-defined]  # as above
    except (OSError, ValidationError):
        return None
    return record.result if record.key == key else None


def _references(value: object) -> Iterator[TableRef | IndexRef]:
    """The tables and indexes of a result: itself, or in its fields and items."""
    if isinstance(value, TableRef | IndexRef):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _references(getattr(value, name))
    for item in value if isinstance(value, list) else ():
        yield from _references(item)
