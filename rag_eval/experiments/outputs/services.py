"""Send the results of an experiment to LangSmith and orq.ai; what cannot be sent now waits in the outbox."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from rag_eval.benchmark.publishing import Publication, comparison_url
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.settings import ExperimentSettings, load_settings
from rag_eval.experiments.types import ExperimentResult, ItemResult, Output, score_key
from rag_eval.retry import BRIEF, PATIENT, RetryPolicy
from rag_eval.services.langsmith_outbox import LANGSMITH_CHANNEL, RowOutcome, TaskPayload, deliver_to_langsmith
from rag_eval.services.orq import ORQ_CHANNEL, orq_sender
from rag_eval.services.outbox import outbox_of


class LangSmithOutput(Output):
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
        """Send the experiments; return where they are shown side by side, or why they wait."""
        outbox = outbox_of(self._workspace)
        payloads = [task_payload(result, place, self._dataset) for place in range(len(result.tasks))]
        for payload in payloads:
            outbox.put(LANGSMITH_CHANNEL, payload.key, payload.model_dump(mode="json"))
        reasons = {one.key: one.reason for one in deliver_to_langsmith(outbox, self._patience)}
        receipts = {payload.key: outbox.receipt(LANGSMITH_CHANNEL, payload.key) for payload in payloads}
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
    """The results of one task, by its index, as an experiment on a dataset; rows without an id are left out."""
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


LARGEST_BYTES = 100_000_000


class OrqOutput(Output):
    """Sends the results, unless they are larger than ``largest`` bytes.

    Where ``dry_run`` is a stream, what would be sent is printed there instead.
    """

    name = "orq.ai"

    def __init__(
        self,
        settings: ExperimentSettings,
        dry_run: IO[str] | None = None,
        policy: RetryPolicy = PATIENT,
        largest: int = LARGEST_BYTES,
    ) -> None:
        self._outbox = outbox_of(settings.workspace)
        self._sender = orq_sender(settings.orq.endpoint, settings.orq.timeout, policy)
        self._dry_run = dry_run
        self._largest = largest

    def finished(self, result: ExperimentResult) -> str:
        """Send the experiment; return where it is, or why it waits.

        orq.ai takes an experiment as one request, which is made in memory: one too large for that stays here.
        """
        if isinstance(result.results, ItemLog) and result.results.size > self._largest:
            return f"not sent: the results are larger than {self._largest:,} bytes"
        payload = orq_payload(result)
        if self._dry_run is not None:
            text = json.dumps(payload, indent=2, ensure_ascii=False)
            self._dry_run.write(text.encode("utf-8", "replace").decode() + "\n")
            return "not sent (dry run)"
        key = f"{result.name!r}, {result.run}"
        self._outbox.put(ORQ_CHANNEL, key, payload)
        deliveries = self._outbox.deliver({ORQ_CHANNEL: self._sender})
        ours = next((one for one in deliveries if one.key == key), None)
        receipt = self._outbox.receipt(ORQ_CHANNEL, key)
        if receipt is not None:
            return str(receipt.details.get("url") or "sent")
        reason = ours.reason if ours is not None and ours.reason else "another process is sending"
        return f"waits in the outbox ({reason}); send it with rag-eval publish"


def orq_payload(result: ExperimentResult) -> dict[str, Any]:
    """The experiment as orq.ai's runner sends it."""
    ended = result.timestamp + timedelta(seconds=result.seconds)
    return {
        "_name": result.name,
        "_createdAt": result.timestamp.isoformat(),
        "_endedAt": ended.isoformat(),
        "_evaluationDuration": round(result.seconds * 1_000),
        "results": [_data_point_result(item, result) for item in result.results],
    }


def _data_point_result(item: ItemResult, result: ExperimentResult) -> dict[str, Any]:
    inputs = item.input if isinstance(item.input, dict) else {"input": item.input}
    data_point = {"inputs": inputs} | ({"expectedOutput": item.output} if item.output is not None else {})
    jobs = [_job_result(place, task, item, result) for place, task in enumerate(result.tasks)]
    return {"dataPoint": data_point, "jobResults": jobs}


def _job_result(place: int, task: str, item: ItemResult, result: ExperimentResult) -> dict[str, Any]:
    failed = {error.evaluator: error.message for error in item.errors if error.task == task}
    output = item.task_results[place]
    scores = []
    for evaluator in result.evaluators:
        score = item.scores.get(score_key(result.tasks, task, evaluator))
        if score is not None:
            told = {"value": score.value, "explanation": score.explanation or ""}
            told |= {"pass": score.passed} if score.passed is not None else {}
            scores.append({"evaluatorName": evaluator, "score": told, "error": ""})
        elif evaluator in failed:
            empty = {"value": None, "explanation": ""}
            scores.append({"evaluatorName": evaluator, "score": empty, "error": failed[evaluator]})
    return {
        "jobName": task,
        "output": output if output is None or isinstance(output, str | int | float) else encode(output).decode(),
        "error": failed.get(None, ""),
        "evaluatorScores": scores,
    }
