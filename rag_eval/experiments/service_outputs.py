"""Send the results of an experiment to LangSmith and orq.ai."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from typing import IO

from rag_eval.errors import GroundTruthError, RagEvalError
from rag_eval.experiments.item_log import ItemLog
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import Call, ExperimentResult, ItemResult
from rag_eval.retry import BRIEF, PATIENT, RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import read_examples
from rag_eval.services.langsmith_experiments import (
    ExperimentUpload,
    RowOutcome,
    comparison_url,
    publish_experiment,
    service_id,
)
from rag_eval.services.orq import OrqSettings, post_experiment

LARGEST_BYTES = 100_000_000
"""Size limit of results for orq.ai, which takes an experiment as one request."""


def _sent(result: ExperimentResult, send: Callable[[], str], options: str = "") -> str:
    """Return the address of the results, or the reason why they were not sent but kept in a JSON file."""
    try:
        return send()
    except RagEvalError as error:
        if result.path is None:
            raise
        return f"not sent: {error}; to send it later: rag-eval publish {result.path}{options}"


class LangSmithOutput:
    """Sends results to LangSmith, for rows read with ``LangSmithDataset(dataset)``.

    Each task becomes an experiment with feedback from each evaluator; a sample whose task failed is a failed run. The
    key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.
    """

    name = "LangSmith"

    def __init__(self, dataset: str, retries: RetryPolicy = BRIEF) -> None:
        self._dataset, self._retries = dataset, retries

    def handle(self, results: ExperimentResult) -> str:
        """Send the experiments; return the address that compares them, or why they were not sent."""
        options = f" --dataset {self._dataset}"
        return _sent(results, lambda: send_to_langsmith(results, self._dataset, self._retries), options)


def send_to_langsmith(result: ExperimentResult, dataset: str, retries: RetryPolicy = PATIENT) -> str:
    """Send each task as an experiment on a dataset and return the address that compares them.

    Raises:
        ConfigurationError: There is no key.
        GroundTruthError: No row is an example of the dataset.
        ServiceError: LangSmith fails.
    """
    with closing(LangSmithService.connect(retries)) as service:
        examples = {str(example.id): example for example in read_examples(service, dataset)}
        urls = []
        for task in result.tasks:
            outcomes = (_row_outcome(result, item, task) for item in result.results if item.id in examples)
            rows = [(examples[outcome.id], outcome) for outcome in outcomes]
            if not rows:
                raise GroundTruthError(
                    f"no row of {result.name!r} is an example of the LangSmith dataset {dataset!r}: read the rows "
                    "with LangSmithDataset, or name another dataset"
                )
            metadata = {"experiment": result.name, "task": task, "run": result.run, "evaluators": result.evaluators}
            identity, name = service_id(result.run, task, dataset), f"{result.name} {task}"
            experiment = ExperimentUpload(identity, name, metadata, rows, result.timestamp, task, "chain")
            urls.append(publish_experiment(service, experiment))
        return comparison_url(urls)


def _row_outcome(result: ExperimentResult, item: ItemResult, task: str) -> RowOutcome:
    failed, scores = result.outcome(item, task)
    if None in failed:
        return RowOutcome(str(item.id), error=failed[None])
    output = item.task_results[result.tasks.index(task)]
    comments = {name: score.explanation for name, score in scores.items() if score.explanation}
    comments |= {str(name): f"failed: {message}" for name, message in failed.items()}
    return RowOutcome(
        str(item.id),
        outputs=dict(output) if isinstance(output, Mapping) else {"output": output},
        scores={name: score.value for name, score in scores.items()},
        comments=comments,
    )


class OrqOutput:
    """Sends results to orq.ai; with ``dry_run``, only prints what would be sent."""

    name = "orq.ai"

    def __init__(
        self, settings: OrqSettings | None = None, dry_run: IO[str] | None = None, retries: RetryPolicy = BRIEF
    ) -> None:
        self._settings, self._dry_run, self._retries = settings or OrqSettings(), dry_run, retries

    def handle(self, results: ExperimentResult) -> str:
        """Send the experiment; return its address, or why it was not sent."""
        if isinstance(results.results, ItemLog) and results.results.size > LARGEST_BYTES:
            return f"not sent: the results are larger than {LARGEST_BYTES:,} bytes"
        if self._dry_run is not None:
            text = json.dumps(orq_payload(results), indent=2, ensure_ascii=False)
            self._dry_run.write(text + "\n")
            return "not sent (dry run)"
        return _sent(results, lambda: send_to_orq(results, self._settings, self._retries))


OrqOutputHandler = OrqOutput


def send_to_orq(result: ExperimentResult, settings: OrqSettings, retries: RetryPolicy = BRIEF) -> str:
    """Send an experiment to orq.ai and return its address. Raises ``ServiceError``."""
    return post_experiment(orq_payload(result), service_id("orq", result.run), settings, retries)


def orq_payload(result: ExperimentResult) -> dict[str, object]:
    """Return the experiment in the format of orq.ai's own runner.

    The inputs of a data point are the row's input, its other columns and its id.
    """
    rows = []
    for item in result.results:
        inputs = dict(item.input) if isinstance(item.input, Mapping) else {"input": item.input}
        inputs |= {**item.columns, **({"id": item.id} if item.id is not None else {})}
        data_point = {"inputs": inputs} | ({"expectedOutput": item.output} if item.output is not None else {})
        outputs = zip(result.tasks, item.task_results, strict=True)
        jobs = [_job_result(result, item, task, output) for task, output in outputs]
        rows.append({"dataPoint": data_point, "jobResults": jobs})
    return {
        "_name": result.name,
        "_createdAt": result.timestamp.isoformat(),
        "_endedAt": (result.timestamp + timedelta(seconds=result.seconds)).isoformat(),
        "_evaluationDuration": round(result.seconds * 1_000),
        "metadata": {"run": result.run, "errors": result.errors, "resumedSamples": result.resumed},
        "results": rows,
    }


def _job_result(result: ExperimentResult, item: ItemResult, task: str, output: object) -> dict[str, object]:
    failed, scores = result.outcome(item, task)

    def traced(evaluator: str | None) -> dict[str, object]:
        """Return the error, the duration in milliseconds, and the attempts of a call."""
        call = item.calls.get(task if evaluator is None else f"{task}/{evaluator}", Call())
        error = failed.get(evaluator, "")
        duration = round(call.seconds * 1_000, 3)
        return {"error": error, "trace": {"duration": duration, "attempts": call.attempts, "error": error}}

    evaluator_scores: list[dict[str, object]] = []
    for name in result.evaluators:
        sent: dict[str, object] = {"value": None, "explanation": ""}
        if name in scores:
            score = scores[name]
            sent = {"value": score.value, "explanation": score.explanation or ""}
            sent |= {"pass": score.passed} if score.passed is not None else {}
        if name in scores or name in failed:
            evaluator_scores.append({"evaluatorName": name, "score": sent, **traced(name)})
    return {
        "jobName": task,
        "output": output if output is None or isinstance(output, str | int | float) else encode(output).decode(),
        "evaluatorScores": evaluator_scores,
        **traced(None),
    }
