"""The results in orq.ai; what cannot be sent now waits in the outbox."""

import json
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from rag_eval.embedding.retrying import RetryPolicy
from rag_eval.experiments.encoding import encode
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.outputs.base import QuietOutput
from rag_eval.experiments.settings import ExperimentSettings
from rag_eval.experiments.types import ExperimentResult, ItemResult, score_key
from rag_eval.publishing.orq import CHANNEL, POLICY, orq_sender
from rag_eval.publishing.outbox import Outbox

LARGEST_BYTES = 100_000_000


class OrqOutput(QuietOutput):
    """Sends the results, unless they are larger than ``largest`` bytes.

    Where ``dry_run`` is a stream, what would be sent is printed there instead.
    """

    name = "orq.ai"

    def __init__(
        self,
        settings: ExperimentSettings,
        dry_run: IO[str] | None = None,
        policy: RetryPolicy = POLICY,
        largest: int = LARGEST_BYTES,
    ) -> None:
        self._outbox = Outbox(Path(settings.workspace) / "outbox")
        self._sender = orq_sender(settings.orq.endpoint, settings.orq.timeout, policy)
        self._dry_run = dry_run
        self._largest = largest

    def finished(self, result: ExperimentResult) -> str:
        """Where the experiment is, or why it waits.

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
        self._outbox.put(CHANNEL, key, payload)
        deliveries = self._outbox.deliver({CHANNEL: self._sender})
        ours = next((one for one in deliveries if one.key == key), None)
        receipt = self._outbox.receipt(CHANNEL, key)
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
