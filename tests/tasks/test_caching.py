"""Tasks are the stages, each with a key of its own."""

from typing import Any

from prefect import Task

from rag_eval.benchmark import stages as library
from rag_eval.benchmark.stage import Stage
from tasks import stages
from tasks.stages import StageKey


def all_tasks() -> list[Task[Any, Any]]:
    return [value for value in vars(stages).values() if isinstance(value, Task)]


def test_every_stage_has_its_task() -> None:
    declared = {value for value in vars(library).values() if isinstance(value, Stage)}
    wrapped = {task.cache_policy.stage for task in all_tasks() if isinstance(task.cache_policy, StageKey)}
    assert wrapped == declared
    assert len(all_tasks()) == len(declared) >= 7


def test_no_two_tasks_can_share_a_cache_key() -> None:
    """A key starts with the stage's name and version, and no name is the start of another one's key."""
    prefixes = [f"{task.cache_policy.stage.name}-v" for task in all_tasks()]  # type: ignore[union-attr]
    for place, one in enumerate(prefixes):
        assert not any(other.startswith(one) for other in prefixes[:place] + prefixes[place + 1 :])


def test_results_are_json_in_storage_only() -> None:
    for task in all_tasks():
        assert task.result_serializer == "json"
        assert task.persist_result is True
        assert task.cache_result_in_memory is False
