"""Implement Prefect's cache for our tasks: the cache key of a step, the storage of results, and the locks on them.

A stored result is data, whoever wrote it. Its file in the workspace holds one of our references and nothing else: it
names no serializer and no class, so that reading it runs no code. The record that Prefect reads is built from it.
"""

import asyncio
import json
import logging
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

import prefect
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import WritableFileSystem
from prefect.locking.protocol import LockManager
from prefect.logging import get_run_logger
from prefect.results import get_result_store
from prefect.serializers import Serializer
from prefect.transactions import IsolationLevel
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from rag_eval.errors import ArtifactError
from rag_eval.pipeline.references import RESULT, AnyResult, Result
from rag_eval.pipeline.step import Step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import data_sha256, remove, touch, user_folder
from rag_eval.storage.locks import try_lock, wait_for_lock

logger = logging.getLogger("rag_eval.tasks")

AnyStep = Step[..., Any, Any]

UNKEYED = {"workspace", "name"}
"""Parameters that do not change a result."""
SERIALIZER = "rag-eval"
NOTHING = "null"


class LockFiles(LockManager):
    """Locks on files of the workspace, which the system releases when their holder is killed.

    Prefect's timeouts are ignored: a task run that needs a result waits until it is computed.
    """

    def acquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """Wait for the lock and hold it."""
        if not self.is_lock_holder(key, holder):
            lock = wait_for_lock(_lock_file(key))
            lock.__enter__()
            _held[key, holder] = lock
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """Wait for the lock in a thread."""
        return await asyncio.to_thread(self.acquire_lock, key, holder)

    def release_lock(self, key: str, holder: str) -> None:
        """Release the lock if it is held; Prefect releases it again when the transaction around a task ends."""
        if (lock := _held.pop((key, holder), None)) is not None:
            lock.__exit__(None, None, None)

    def is_locked(self, key: str) -> bool:
        """Return whether anybody holds the lock."""
        path = _lock_file(key)
        if not path.exists():
            return False
        with try_lock(path) as is_free:
            return not is_free

    def is_lock_holder(self, key: str, holder: str) -> bool:
        """Return whether this holder has the lock."""
        return (key, holder) in _held

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until nobody holds the lock."""
        with wait_for_lock(_lock_file(key)):
            return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait in a thread until nobody holds the lock."""
        return await asyncio.to_thread(self.wait_for_lock, key)


_held: dict[tuple[str, str], AbstractContextManager[None]] = {}
# Kept outside the lock manager, which Prefect copies and pickles.


def _lock_file(key: str) -> Path:
    """Return the file of a lock: in the workspace of the current run's results, or else in the user's state folder."""
    storage = get_result_store().result_storage
    root = storage.workspace.root if isinstance(storage, WorkspaceResults) else user_folder("state")
    return root / "locks" / key


@dataclass
class StepCachePolicy(CachePolicy):
    """Cache the result of a step by its name and version, the digests of its inputs and the identities of its parts."""

    step: AnyStep | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """Return the key; None if an input cannot be cached, or results are not stored in the task's workspace."""
        if task_ctx is not None and not _is_stored_in(inputs.get("workspace"), task_ctx.result_store.result_storage):
            get_run_logger(task_ctx).info(
                "not cached: the flow does not store results in the workspace of this task. "
                "Call it with_options(result_storage=result_storage(workspace)) from tasks.caching"
            )
            return None
        if self.step is None or not all(getattr(value, "is_cacheable", True) for value in inputs.values()):
            return None
        return self.step.cache_key({name: value for name, value in inputs.items() if name not in UNKEYED})


def _is_stored_in(workspace: object, storage: object) -> bool:
    if not isinstance(storage, WorkspaceResults) or not isinstance(workspace, Workspace):
        return False
    return storage.workspace.root.resolve() == workspace.root.resolve()


class CacheOptions(TypedDict):
    """Options of ``@task`` for a task whose result is cached."""

    cache_policy: CachePolicy
    result_serializer: str


def cached(step: AnyStep) -> CacheOptions:
    """Return the options of a task that runs a step: two runs that need the same result compute it once.

    Example:
        ```python
        @task(**cached(steps.chunk), tags=["chunk"])
        def chunk(documents: TableRef, chunker: Chunker, *, workspace: Workspace) -> ChunksRef:
            return steps.chunk.run(workspace, documents, chunker)
        ```
    """
    policy = StepCachePolicy(step=step, isolation_level=IsolationLevel.SERIALIZABLE, lock_manager=LockFiles())
    return {"cache_policy": policy, "result_serializer": SERIALIZER}


class ReferenceSerializer(Serializer):
    """Writes references as JSON, and reads nothing else."""

    type: str = SERIALIZER

    def dumps(self, obj: Result | BaseException) -> bytes:
        """Return a reference as JSON; null for a task's exception, which is not stored."""
        return NOTHING.encode() if isinstance(obj, BaseException) else RESULT.dump_json(obj)

    def loads(self, blob: bytes) -> Result:
        """Return the reference in a JSON text; raises ``ValidationError`` on anything else."""
        return RESULT.validate_json(blob, strict=True)


class StoredResult(BaseModel):
    """The file of a stored result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    key: str
    expiration: AwareDatetime | None = None
    result: AnyResult


class WorkspaceResults(WritableFileSystem):
    """Stores the results of tasks in a workspace."""

    _block_type_name: ClassVar[str] = "rag-eval results"
    _block_type_slug: ClassVar[str] = "rag-eval-results"
    _description: ClassVar[str] = "Stores the results of rag-eval's tasks in a workspace."

    address: str

    @property
    def workspace(self) -> Workspace:
        """Return the workspace."""
        return Workspace.at(self.address)

    # Prefect passes _sync to get a result instead of a coroutine.
    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """Return the stored result of a cache key as Prefect's record.

        Raises:
            ArtifactError: The result, or a file that it refers to, is missing or damaged. Prefect then runs the task.
        """
        stored = self._read(path)
        metadata = {
            "storage_key": path,
            "expiration": stored.expiration and stored.expiration.isoformat(),
            "serializer": {"type": SERIALIZER},
            "prefect_version": prefect.__version__,
            "storage_block_id": None,
        }
        return json.dumps({"metadata": metadata, "result": RESULT.dump_json(stored.result).decode()}).encode()

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> None:  # type: ignore[override]
        """Store the result in Prefect's record under a cache key.

        Unfinished results and exceptions are not stored. If the file cannot be written, this is logged.
        """
        try:
            record = json.loads(content)
            is_ours = record["metadata"]["serializer"]["type"] == SERIALIZER and record["result"] != NOTHING
        except (ValueError, LookupError, TypeError):  # the exception of a flow is not a record
            is_ours = False
        if not is_ours:
            return
        result = RESULT.validate_json(record["result"], strict=True)
        if result.effort is not None and result.effort.unfinished:
            return
        fields = {"key": path, "expiration": record["metadata"]["expiration"], "result": result}
        stored = StoredResult.model_validate(fields)
        try:
            self.workspace.write_file(result_file(self.workspace, path), stored.model_dump_json().encode())
        except ArtifactError as error:
            logger.warning("the result %s is not cached: %s", path, error)

    def _resolve_path(self, path: str) -> None:
        """Return None, which tells Prefect in Dask and Ray processes that a cache key is not a path."""

    def _read(self, key: str) -> StoredResult:
        workspace = self.workspace
        file = workspace.fetch(result_file(workspace, key))
        if not file.exists() and not file.is_symlink():
            raise ArtifactError(f"there is no stored result {key}")
        stored = _parsed(workspace, file, key)
        files = [] if stored is None else stored.result.files
        problem = next((problem for ref in files if (problem := workspace.problem(ref))), None)
        if stored is None:
            problem = f"the stored result {key} is damaged"
        if stored is None or problem is not None:
            logger.warning("%s: the task runs again", problem)
            if workspace.contains(file.parent):
                with suppress(OSError):  # fails in a read-only workspace
                    remove(file)
            raise ArtifactError(str(problem))
        for used in (*(workspace.root / ref.uri for ref in files if workspace.is_here(ref)), file):
            with suppress(OSError):  # fails in a read-only workspace
                touch(used)  # recently used results are not pruned
        return stored


def result_file(workspace: Workspace, key: str) -> Path:
    """Return the file of the stored result with a cache key."""
    return workspace.root / "results" / f"{key}.json"


def _parsed(workspace: Workspace, file: Path, key: str) -> StoredResult | None:
    """Return a stored result; None if the file is not one, is outside the workspace, or belongs to another key."""
    if not workspace.contains(file) or not file.is_file():
        return None
    try:
        stored = StoredResult.model_validate_json(file.read_bytes(), strict=True)
    except (OSError, ValidationError):
        return None
    return stored if stored.key == key else None


def result_storage(workspace: Workspace) -> WorkspaceResults:
    """Return the block that stores the results of tasks in a workspace, saved on the current Prefect server.

    Example:
        ```python
        benchmark.with_options(result_storage=result_storage(workspace))(config, workspace)
        ```
    """
    block = WorkspaceResults(address=workspace.address)
    block.save(f"workspace-{data_sha256(workspace.address)[:16]}", overwrite=True)
    return block
