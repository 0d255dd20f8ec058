"""Running stages one after another, and remembering which of them had to work."""

from typing import Concatenate, ParamSpec, TypeVar

from prefect import Task
from prefect.client.schemas.objects import State

from rag_eval.pipeline.outcome import Work
from rag_eval.pipeline.workspace import Workspace

P = ParamSpec("P")
R = TypeVar("R")


class StageRunner:
    """Runs stage tasks in one workspace; ``work`` says for each whether its body ran or a kept result served."""

    def __init__(self, workspace: Workspace) -> None:
        """Run in this workspace, where the tasks' results are kept too."""
        self._workspace = workspace
        self.work: dict[str, Work] = {}

    def __call__(self, task: Task[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The task's result; raises what the task raised."""
        placed = task.with_options(result_storage=self._workspace.results)
        state: State[R] = placed(self._workspace, *args, return_state=True, **kwargs)
        result = state.result()
        self.work[task.name] = "reused" if state.name == "Cached" else "computed"
        return result
