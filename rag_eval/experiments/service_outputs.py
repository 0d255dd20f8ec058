"""Send the results of an experiment to LangSmith and orq.ai; what cannot be sent now waits in the outbox."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import IO, Any

from rag_eval.experiments.experiment_file import ExperimentSettings
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import Call, ExperimentResult, ItemResult, Output
from rag_eval.retry import BRIEF, PATIENT, RetryPolicy
from rag_eval.services.langsmith_outbox import (
    LANGSMITH_CHANNEL,
    ExperimentPayload,
    RowOutcome,
    comparison_url,
    deliver_to_langsmith,
    put_experiment,
)
from rag_eval.services.outbox import outbox_of
from rag_eval.services.posting import ORQ_CHANNEL, load_settings, orq_sender


class LangSmithOutput(Output):
    """Sends the results of rows that are examples of a dataset, as ``LangSmithDataset(dataset)`` gives them.

    Each task becomes an experiment with feedback from each evaluator; a sample whose task failed is a failed run. The
    key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.
    """

    name = "LangSmith"

    def __init__(self, dataset: str, patience: RetryPolicy = BRIEF) -> None:
        self._dataset, self._patience = dataset, patience
        self._workspace = load_settings(ExperimentSettings).workspace

    def finished(self, result: ExperimentResult) -> str:
        """Send the experiments; return where they are shown side by side, or why they wait."""
        outbox = outbox_of(self._workspace)
        keys = [f"task {task!r} of {result.name!r}, {result.run}, on {self._dataset!r}" for task in result.tasks]
        for place, key in enumerate(keys):
            put_experiment(outbox, key, task_payload(result, place, self._dataset))
        reasons = {one.key: one.reason for one in deliver_to_langsmith(outbox, self._patience)}
        sent: list[str] = []
        waiting: list[str] = []
        for key in keys:
            receipt = outbox.receipt(LANGSMITH_CHANNEL, key)
            if receipt is None:
                waiting.append(_waits(reasons.get(key)))
            else:
                sent.append(str(receipt.details["url"]))
        places = [comparison_url(sent)] if sent else []
        return "; ".join([*places, *waiting[:1]])


def _waits(reason: str | None) -> str:
    return f"waits in the outbox ({reason or 'another process is sending'}); send it with rag-eval publish"


def task_payload(result: ExperimentResult, place: int, dataset: str) -> ExperimentPayload:
    """The results of one task, by its index, as an experiment on a dataset; rows without an id are left out."""
    task = result.tasks[place]
    rows: list[RowOutcome] = []
    for item in result.results:
        failed, scores = result.outcome(item, task)
        if item.id is None:
            continue
        if None in failed:
            rows.append(RowOutcome(id=item.id, error=failed[None]))
            continue
        given = item.task_results[place]
        comments = {name: score.explanation for name, score in scores.items() if score.explanation}
        comments |= {str(name): f"failed: {message}" for name, message in failed.items()}
        outputs = dict(given) if isinstance(given, Mapping) else {"output": given}
        values = {name: score.value for name, score in scores.items()}
        rows.append(RowOutcome(id=item.id, outputs=outputs, scores=values, comments=comments))
    metadata = {"experiment": result.name, "task": task, "run": result.run, "evaluators": result.evaluators}
    return ExperimentPayload(
        dataset=dataset,
        name=f"{result.name} {task}",
        run=result.run,
        at=result.timestamp,
        metadata=metadata,
        rows=rows,
        run_name=task,
        run_type="chain",
    )


LARGEST_BYTES = 100_000_000


class OrqOutput(Output):
    """Sends the results, unless they have more than ``largest`` bytes; with a stream ``dry_run`` only prints them."""

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
        reasons = {one.key: one.reason for one in self._outbox.deliver({ORQ_CHANNEL: self._sender})}
        receipt = self._outbox.receipt(ORQ_CHANNEL, key)
        if receipt is None:
            return _waits(reasons.get(key))
        note = receipt.details.get("note")
        return str(receipt.details.get("url") or (f"sent, but {note}" if note else "sent"))


def orq_payload(result: ExperimentResult) -> dict[str, Any]:
    """The experiment as orq.ai's runner sends it."""
    ended = result.timestamp + timedelta(seconds=result.seconds)
    rows = []
    for item in result.results:
        inputs = item.input if isinstance(item.input, dict) else {"input": item.input}
        data_point = {"inputs": inputs} | ({"expectedOutput": item.output} if item.output is not None else {})
        jobs = [
            _job_result(result, item, task, output)
            for task, output in zip(result.tasks, item.task_results, strict=True)
        ]
        rows.append({"dataPoint": data_point, "jobResults": jobs})
    return {
        "_name": result.name,
        "_createdAt": result.timestamp.isoformat(),
        "_endedAt": ended.isoformat(),
        "_evaluationDuration": round(result.seconds * 1_000),
        "metadata": {"run": result.run, "errors": result.errors, "resumedSamples": result.resumed},
        "results": rows,
    }


def _job_result(result: ExperimentResult, item: ItemResult, task: str, output: Any) -> dict[str, Any]:
    failed, scores = result.outcome(item, task)

    def traced(name: str | None) -> dict[str, Any]:
        """The error of a call, and its trace: milliseconds, attempts and error."""
        call = item.calls.get(task if name is None else f"{task}/{name}", Call())
        error = failed.get(name, "")
        return {
            "error": error,
            "trace": {"duration": round(call.seconds * 1_000, 3), "attempts": call.attempts, "error": error},
        }

    told = []
    for name in result.evaluators:
        score: dict[str, Any] = {"value": None, "explanation": ""}
        if name in scores:
            score = {"value": scores[name].value, "explanation": scores[name].explanation or ""}
            score |= {"pass": scores[name].passed} if scores[name].passed is not None else {}
        if name in scores or name in failed:
            told.append({"evaluatorName": name, "score": score, **traced(name)})
    return {
        "jobName": task,
        "output": output if output is None or isinstance(output, str | int | float) else encode(output).decode(),
        "evaluatorScores": told,
        **traced(None),
    }
