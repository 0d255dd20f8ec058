"""The results as experiments in LangSmith, one for each task; what cannot be sent now waits in the outbox."""

from collections.abc import Mapping
from pathlib import Path

from rag_eval.embedding.retrying import RetryPolicy
from rag_eval.experiments.outputs.base import QuietOutput
from rag_eval.experiments.settings import load_settings
from rag_eval.experiments.types import ExperimentResult, ItemResult, score_key
from rag_eval.publishing.langsmith_outbox import CHANNEL, LangSmithSender
from rag_eval.publishing.langsmith_service import BRIEF
from rag_eval.publishing.langsmith_tasks import RowOutcome, TaskPayload
from rag_eval.publishing.outbox import Outbox
from rag_eval.publishing.publications import Publication, comparison_url


class LangSmithOutput(QuietOutput):
    """Sends the results of rows that are examples of a dataset, as ``LangSmithDataset(dataset)`` gives them.

    Each task becomes an experiment with feedback from each evaluator; a sample whose task failed is a failed run. The
    key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.
    """

    name = "LangSmith"

    def __init__(self, dataset: str, workspace: str | Path | None = None, patience: RetryPolicy = BRIEF) -> None:
        self._dataset = dataset
        self._workspace = Path(workspace) if workspace is not None else load_settings().workspace
        self._patience = patience

    def finished(self, result: ExperimentResult) -> str:
        """Where the experiments are shown side by side, or why they wait."""
        outbox = Outbox(self._workspace / "outbox")
        payloads = [task_payload(result, place, self._dataset) for place in range(len(result.tasks))]
        for payload in payloads:
            outbox.put(CHANNEL, payload.key, payload.model_dump(mode="json"))
        sender = LangSmithSender(self._patience)
        try:
            reasons = {one.key: one.reason for one in outbox.deliver({CHANNEL: sender})}
        finally:
            sender.close()
        receipts = {payload.key: outbox.receipt(CHANNEL, payload.key) for payload in payloads}
        sent = [
            Publication(configuration=payload.task, dataset=self._dataset, url=str(receipt.details["url"]))
            for payload in payloads
            if (receipt := receipts[payload.key]) is not None
        ]
        places = [comparison_url(sent)] if sent else []
        waiting = [reasons.get(key) or "another process is sending" for key, one in receipts.items() if one is None]
        if waiting:
            places.append(f"waits in the outbox ({waiting[0]}); send it with rag-eval publish")
        return "; ".join(places)


def task_payload(result: ExperimentResult, place: int, dataset: str) -> TaskPayload:
    """The results of the task at a place, for an experiment on a dataset; rows without an id are left out."""
    task = result.tasks[place]
    return TaskPayload(
        dataset=dataset,
        experiment=result.name,
        run=result.run,
        task=task,
        at=result.timestamp,
        metadata={"experiment": result.name, "task": task, "run": result.run, "evaluators": result.evaluators},
        rows=[_outcome(item, place, result) for item in result.results if item.id is not None],
    )


def _outcome(item: ItemResult, place: int, result: ExperimentResult) -> RowOutcome:
    task = result.tasks[place]
    failed = {error.evaluator: error.message for error in item.errors if error.task == task}
    if None in failed:
        return RowOutcome(id=str(item.id), error=failed[None])
    given = item.task_results[place]
    keys = {evaluator: score_key(result.tasks, task, evaluator) for evaluator in result.evaluators}
    scores = {evaluator: item.scores[key] for evaluator, key in keys.items() if key in item.scores}
    comments = {evaluator: score.explanation for evaluator, score in scores.items() if score.explanation}
    comments |= {evaluator: f"failed: {message}" for evaluator, message in failed.items() if evaluator is not None}
    return RowOutcome(
        id=str(item.id),
        outputs=dict(given) if isinstance(given, Mapping) else {"output": given},
        scores={evaluator: score.value for evaluator, score in scores.items()},
        comments=comments,
    )
