"""One task a stage."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger
from prefect.results import ResultStore
from pydantic import BaseModel

from rag_eval.benchmark import stages
from rag_eval.benchmark.housekeeping import mark_used
from rag_eval.benchmark.references import IndexRef, Made, TableRef
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ConfigurationError


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Tokenizers, numpy and LanceDB use several cores each, and Python code one at a time: as many stages as cores would
# take a third more CPU time and no less real time.
_computing = threading.BoundedSemaphore(max(1, cores() // 2))


@contextmanager
def room_to_compute(*, remote: bool) -> Iterator[None]:
    """Wait until a stage may compute; one that mostly waits for a service need not wait for others too."""
    if remote:
        yield
        return
    with _computing:
        yield


P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class StageKey(CachePolicy):
    """The key of a task run is the key of its stage; a kept result that cannot be used is dropped.

    That is one that is older than a refresh allows, was cut or altered, or whose files were or are gone.
    """

    stage: Stage[..., Any] | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """The stage's key for these inputs."""
        if self.stage is None:
            return None
        key = self.stage.key(**inputs)
        workspace: Workspace = inputs["workspace"]
        record = workspace.kept(workspace.results / key)
        if not record.is_file():
            return key
        kept = _kept_result(task_ctx.result_store, key)
        if kept is not None and workspace.is_too_old(kept):
            record.unlink(missing_ok=True)
            return key
        problem = f"the kept result {key} was cut or altered" if kept is None else _damage(workspace, kept)
        if problem:
            get_run_logger().warning("%s: %s is computed again", problem, self.stage.name)
            record.unlink(missing_ok=True)
        else:
            for used in (*(workspace.root / ref.uri for ref in _references(kept)), record):
                mark_used(used)
                workspace.ensure(used)
        return key


def _kept_result(store: ResultStore, key: str) -> Made | None:
    """What a stage made before; None when the record does not say."""
    try:
        kept = store.read(key).result
    except Exception:  # noqa: BLE001  # bytes that are no record fail in as many ways as there are bytes
        return None
    return kept if isinstance(kept, Made) else None


def _damage(workspace: Workspace, kept: Made) -> str | None:
    return next((problem for ref in _references(kept) if (problem := workspace.damage(ref))), None)


def stage_task(stage: Stage[P, R]) -> Task[P, R]:
    """The Prefect task of a stage."""
    return Task(
        fn=stage.run,
        name=stage.name,
        version=str(stage.version),
        cache_policy=StageKey(stage=stage),
        result_serializer="json",
        # A record that was dropped from disk must not live on in memory.
        cache_result_in_memory=False,
        persist_result=True,
    )


def key_of(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> str:
    """The cache key of a call of a stage task."""
    if not isinstance(task.cache_policy, StageKey) or task.cache_policy.stage is None:
        raise ConfigurationError(f"{task.name} is not the task of a stage")
    return task.cache_policy.stage.key(*args, **kwargs)


def _references(value: object) -> Iterator[TableRef | IndexRef]:
    if isinstance(value, TableRef | IndexRef):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _references(getattr(value, name))


load_corpus = stage_task(stages.load_corpus)
load_ground_truth = stage_task(stages.load_ground_truth)
chunk = stage_task(stages.chunk)
embed = stage_task(stages.embed)
index = stage_task(stages.index)
retrieve_by_vector = stage_task(stages.retrieve_by_vector)
retrieve_by_words = stage_task(stages.retrieve_by_words)
fuse = stage_task(stages.fuse)
rerank = stage_task(stages.rerank)
score = stage_task(stages.score)
