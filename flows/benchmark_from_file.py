"""Run a benchmark from a deployment: a file and a few plain settings, so that a run can be started from a form."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.events import Event, RelatedResource, Resource
from prefect.runtime import deployment, flow_run
from prefect.settings import PREFECT_TASKS_REFRESH_CACHE, temporary_settings
from prefect.states import Cancelled, Scheduled

from flows.automations import RECOVERED, emit, find_runs
from flows.benchmark import benchmark
from rag_eval.config.loading import chosen_benchmark
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import BenchmarkFailedError, RagEvalError, ServiceError, is_outage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.verdict import verdict_of
from rag_eval.reports.verdict_words import words_of
from rag_eval.results.gate import MAX_DROP
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import read_scores
from rag_eval.storage.files import sweep_scratch
from tasks.artifacts import best_effort, check_gate, show_report
from tasks.caching import result_storage
from tasks.current_folder import enter_project_folder

AUTOMATIC = ("AUTOMATION", "SCHEDULE")


def cancel_superseded_runs() -> int:
    """Cancel waiting runs of this deployment that were started automatically and have the same parameters.

    This run starts after the changes that triggered them, and so covers them. Returns how many were cancelled; 0
    outside a deployment.
    """
    if deployment.id is None:
        return 0
    superseded: State[Any] = Cancelled(message=f"its changes are in {flow_run.name}")
    with get_client(sync_client=True) as client:
        scheduled = find_runs(client, StateType.SCHEDULED, sort="EXPECTED_START_TIME_ASC", deployment=deployment.id)
        due = [run for run in scheduled if run.expected_start_time and run.expected_start_time <= datetime.now(UTC)]
        # Parameters as stored on the server: at run time, the flow's defaults are added.
        parameters = _parameters(client.read_flow_run(UUID(flow_run.id)))
        automatic = [run for run in due if run.created_by is not None and run.created_by.type in AUTOMATIC]
        same = [run for run in automatic if _parameters(run) == parameters]
        for run in same:
            client.set_flow_run_state(run.id, superseded)
    return len(same)


def _parameters(run: FlowRun) -> dict[str, Any]:
    return {name: value for name, value in run.parameters.items() if name != "note"}


ATTEMPT = "attempt:"
MAX_ATTEMPTS = 4


def schedule_retry(error: RagEvalError, minutes: float) -> str:
    """Schedule a run of the same deployment that continues from the cached results, each time three times as late.

    Returns the error with the time of the retry. There is no retry outside a deployment, after ``MAX_ATTEMPTS``, or
    with 0 ``minutes``.
    """
    attempt = next((int(tag.removeprefix(ATTEMPT)) for tag in flow_run.tags if tag.startswith(ATTEMPT)), 1)
    if deployment.id is None or minutes <= 0 or attempt >= MAX_ATTEMPTS:
        return str(error)
    when = datetime.now(UTC) + timedelta(minutes=minutes * 3 ** (attempt - 1))
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(
            UUID(deployment.id),
            parameters=client.read_flow_run(UUID(flow_run.id)).parameters,
            state=Scheduled(scheduled_time=when),
            tags=[f"{ATTEMPT}{attempt + 1}"],
            idempotency_key=f"after {flow_run.id}",
        )
    return f"{error}; it is tried again at {when:%H:%M:%S} UTC"


def emit_recovery(verdict: str) -> None:
    """Emit an event if the previous run of this deployment failed and this one did not."""
    if deployment.id is None:
        return
    ended = (StateType.COMPLETED, StateType.FAILED, StateType.CRASHED)
    with best_effort(), get_client(sync_client=True) as client:
        last = find_runs(client, *ended, sort="END_TIME_DESC", deployment=deployment.id, most=1)
        if last and last[0].state_type != StateType.COMPLETED:
            run = Resource({"prefect.resource.id": f"prefect.flow-run.{flow_run.id}"})
            tags = [
                RelatedResource({"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"})
                for tag in flow_run.tags
            ]
            emit(Event(event=RECOVERED, resource=run, related=tags, payload={"verdict": verdict}))


Runner = Literal["threads", "dask", "ray"]


def run_name() -> str:
    """Return the deployment, the corpus and the time: ``nightly docs 2026-03-01 03:00:00``."""
    parameters = flow_run.parameters
    what = Path(parameters["corpus"]).name or Path(parameters["benchmark_file"]).stem or "sample"
    return f"{deployment.name or 'benchmark'} {what} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


@flow(name="rag-eval-benchmark-from-file", flow_run_name=run_name)
def benchmark_from_file(
    benchmark_file: str = "",
    corpus: str = "",
    truth: str = "",
    glob: list[str] = [],  # noqa: B006  # never changed; the form shows a list
    workspace: str = ".rag-eval",
    runner: Runner = "threads",
    refresh: bool = False,
    reanchor: bool = False,
    gate: bool = False,
    gate_metric: str = "",
    max_drop: float = MAX_DROP,
    fail_on_warn: bool = False,
    allow_different: bool = False,
    retry_minutes: float = 5.0,
    note: str = "",
) -> BenchmarkOutcome:
    """Compare the configurations of a benchmark file; every field is optional.

    Args:
        benchmark_file: A YAML or TOML file on the worker's machine, such as benchmark.yaml. Empty: the sample.
        corpus: A folder of documents, instead of that in the benchmark file.
        truth: A ground-truth file, instead of that in the benchmark file.
        glob: Patterns of the documents, such as **/*.md. Empty: as in the benchmark file.
        workspace: Where results are stored between runs: a folder on the worker's machine, or s3://bucket/path.
        runner: What runs tasks in parallel.
        refresh: Ignore cached results and compute everything again.
        reanchor: Move the spans of the ground truth to their new places in changed documents.
        gate: Fail the run if a metric certainly dropped below the baseline by more than max_drop.
        gate_metric: The metric to check, such as span_recall@5. Empty: the ranking metric of the baseline.
        max_drop: How far the metric may drop, such as 0.02.
        fail_on_warn: Fail it, too, if such a drop is only suspected (WARN).
        allow_different: Check even if documents or ground truth differ from the baseline's, on the common questions.
        retry_minutes: Minutes until a run is retried whose services were down, up to three times, each later. 0: never.
        note: Why this run was started, shown with its result.
    """
    enter_project_folder()
    cancel_superseded_runs()
    config = chosen_benchmark(
        Path(benchmark_file) if benchmark_file else None,
        Path(corpus) if corpus else None,
        Path(truth) if truth else None,
        glob or None,
    )
    target = Workspace.at(workspace, refresh=refresh)
    sweep_scratch(target.root)
    outcome = run_with_retry(config, target, reanchor, runner, retry_minutes, note)
    show_report(target, outcome, note)
    verdict = words_of(verdict_of(outcome, read_scores(target, outcome))).headline
    if gate:
        verdict = check_gate(
            target, outcome, gate_metric, max_drop, allow_different=allow_different, fail_on_warn=fail_on_warn
        )
    emit_recovery(verdict)
    return outcome


def run_with_retry(
    config: BenchmarkConfig, workspace: Workspace, reanchor: bool, runner: Runner, retry_minutes: float, note: str
) -> BenchmarkOutcome:
    """Run the benchmark with results in the workspace; if a service was down, schedule a retry and raise its error."""
    refresh = {PREFECT_TASKS_REFRESH_CACHE: True} if workspace.refresh else {}
    try:
        with temporary_settings(refresh):
            return benchmark.with_options(result_storage=result_storage(workspace))(config, workspace, reanchor, runner)
    except BenchmarkFailedError as error:
        failed = BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
        show_report(workspace, failed, note)
        if not any(failure.is_outage for failure in failed.failures.values()):
            raise
        raise BenchmarkFailedError(schedule_retry(error, retry_minutes), error.summary) from error
    except ServiceError as error:
        if not is_outage(error):
            raise
        raise ServiceError(schedule_retry(error, retry_minutes)) from error
