"""The results of a task on the examples of a LangSmith dataset, for an experiment there."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from rag_eval.errors import GroundTruthError
from rag_eval.publishing.langsmith_experiments import ExampleOutcome, Experiment
from rag_eval.publishing.parcels import Parcel

if TYPE_CHECKING:
    from langsmith.schemas import Example


class RowOutcome(BaseModel):
    """What a task gave for the example of this id: outputs, scores and comments by evaluator, or the task's error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    outputs: dict[str, Any] = {}
    scores: dict[str, float] = {}
    comments: dict[str, str] = {}
    error: str | None = None


class TaskPayload(BaseModel):
    """One task of an experiment, on a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["task"] = "task"
    dataset: str
    experiment: str
    run: str
    task: str
    at: datetime
    metadata: dict[str, Any]
    rows: list[RowOutcome]

    @property
    def key(self) -> str:
        """The key of its parcel."""
        return f"task {self.task!r} of {self.experiment!r}, {self.run}, on {self.dataset!r}"


def task_experiment(payload: TaskPayload, parcel: Parcel, examples: "Sequence[Example]") -> Experiment:
    """The experiment that a payload makes on the examples of its dataset.

    Raises ``GroundTruthError`` when no row is an example of it.
    """
    known = {str(example.id): example for example in examples}
    outcomes = [
        ExampleOutcome(known[row.id], row.outputs, row.scores, row.error, row.comments)
        for row in payload.rows
        if row.id in known
    ]
    if not outcomes:
        raise GroundTruthError(
            f"no row of {payload.experiment!r} is an example of the LangSmith dataset {payload.dataset!r}: "
            "read its rows with LangSmithDataset, or give them the id of their example"
        )
    name = f"{payload.experiment} {payload.task} {parcel.id.hex[:8]}"
    return Experiment(name, payload.metadata, outcomes, payload.at, payload.task, "chain")
