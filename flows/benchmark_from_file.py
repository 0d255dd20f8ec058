"""The benchmark for deployments: a file's name and a few plain settings, so that a run is started from a form."""

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
from rag_eval.errors import BenchmarkFailedError, RagEvalError, ServiceError, is_outage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.verdict import verdict_of
from rag_eval.reports.verdict_words import words_of
from rag_eval.results.gate import MAX_DROP
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import read_scores
from rag_eval.storage.files import sweep_scratch
from tasks.artifacts import best_effort, hold_against_baseline, show_report
from tasks.caching import result_storage
from tasks.current_folder import enter_project_folder

AUTOMATIC = ("AUTOMATION", "SCHEDULE")


def cancel_superseded_runs() -> int:
    """Cancel the runs of this deployment that are due, wait, were started by no person, and are asked for the same.

    This run begins after what started them, and so finds every change that they were started for. Gives back how many
    they were; none outside of a deployment.
    """
    if deployment.id is None:
        return 0
    superseded: State[Any] = Cancelled(message=f"its changes are in {flow_run.name}")
    with get_client(sync_client=True) as client:
        waiting = find_runs(client, StateType.SCHEDULED, sort="EXPECTED_START_TIME_ASC", deployment=deployment.id)
        due = [run for run in waiting if run.expected_start_time and run.expected_start_time <= datetime.now(UTC)]
        # As they are written down: a run that has begun has the defaults of the flow beside them.
        asked = _asked(client.read_flow_run(UUID(flow_run.id)))
        automatic = [run for run in due if run.created_by is not None and run.created_by.type in AUTOMATIC]
        same = [run for run in automatic if _asked(run) == asked]
        for run in same:
            client.set_flow_run_state(run.id, superseded)
    return len(same)


def _asked(run: FlowRun) -> dict[str, Any]:
    return {name: value for name, value in run.parameters.items() if name != "note"}


ATTEMPT = "attempt:"
MOST_ATTEMPTS = 4


def schedule_retry(error: RagEvalError, minutes: float) -> str:
    """Schedule a run of the same deployment that continues where this one ended.

    Three times as much later each time. Gives back what is to be said of the failure; it is the last word where there
    is no deployment, where it was tried often enough, and where ``minutes`` is 0.
    """
    attempt = next((int(tag.removeprefix(ATTEMPT)) for tag in flow_run.tags if tag.startswith(ATTEMPT)), 1)
    if deployment.id is None or minutes <= 0 or attempt >= MOST_ATTEMPTS:
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
    """Emit that this deployment works again, where its last run did not."""
    if deployment.id is None:
        return
    ended = (StateType.COMPLETED, StateType.FAILED, StateType.CRASHED)
    with best_effort(), get_client(sync_client=True) as client:
        before = find_runs(client, *ended, sort="END_TIME_DESC", deployment=deployment.id, most=1)
        if before and before[0].state_type != StateType.COMPLETED:
            run = Resource({"prefect.resource.id": f"prefect.flow-run.{flow_run.id}"})
            tags = [
                {"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"} for tag in flow_run.tags
            ]
            related = [RelatedResource(tag) for tag in tags]
            emit(Event(event=RECOVERED, resource=run, related=related, payload={"verdict": verdict}))


Runner = Literal["threads", "dask", "ray"]


def run_name() -> str:
    """Return which deployment runs what, and since when: ``nightly docs 2026-03-01 03:00:00``."""
    given = flow_run.parameters
    what = Path(given["corpus"]).name or Path(given["benchmark_file"]).stem or "sample"
    return f"{deployment.name or 'benchmark'} {what} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


@flow(name="rag-eval-benchmark-from-file", flow_run_name=run_name)
def benchmark_from_file(
    benchmark_file: str = "",
    corpus: str = "",
    truth: str = "",
    glob: list[str] = [],  # noqa: B006  # which is never changed; the form shows a list of texts
    workspace: str = ".rag-eval",
    runner: Runner = "threads",
    refresh: bool = False,
    reanchor: bool = False,
    gate: bool = False,
    gate_metric: str = "",
    max_drop: float = MAX_DROP,
    allow_different: bool = False,
    retry_minutes: float = 5.0,
    note: str = "",
) -> BenchmarkOutcome:
    """Compare the configurations of a benchmark file; every field may be left as it is.

    Args:
        benchmark_file: A YAML or TOML file on the worker's machine, such as benchmark.yaml. Empty: the sample.
        corpus: A folder of documents, in place of the benchmark file's.
        truth: A file of questions and what answers them, in place of the benchmark file's.
        glob: Which files are documents, such as **/*.md, one pattern or more. Empty: as the benchmark file says.
        workspace: Where work is kept between runs: a folder of the worker's machine, or s3://bucket/path.
        runner: What evaluates configurations side by side.
        refresh: Recompute everything, instead of only what changed.
        reanchor: Where documents have changed, look for the answers at their new places.
        gate: Compare the run with the baseline, and fail it if a metric dropped significantly by more than max_drop.
        gate_metric: The metric that may not drop, such as span_recall@5. Empty: what the baseline is ranked by.
        max_drop: How far it may drop, such as 0.02.
        allow_different: Gate on other documents or truth than the baseline's too, by the questions that both have.
        retry_minutes: When a run is tried again whose services were down; up to three times, each later. 0: never.
        note: Why this run was started, to be shown with its result.
    """
    enter_project_folder()
    cancel_superseded_runs()
    config = chosen_benchmark(
        Path(benchmark_file) if benchmark_file else None,
        Path(corpus) if corpus else None,
        Path(truth) if truth else None,
        glob or None,
    )
    kept = Workspace.at(workspace, refresh=refresh)
    sweep_scratch(kept.root)
    try:
        with temporary_settings({PREFECT_TASKS_REFRESH_CACHE: True} if refresh else {}):
            flow_with_storage = benchmark.with_options(result_storage=result_storage(kept))
            outcome = flow_with_storage(config, kept, reanchor, runner)
    except BenchmarkFailedError as error:
        failed = BenchmarkOutcome.model_validate_json(error.summary.read_bytes())
        show_report(kept, failed, note)
        if not any(failure.is_outage for failure in failed.failures.values()):
            raise
        raise BenchmarkFailedError(schedule_retry(error, retry_minutes), error.summary) from error
    except ServiceError as error:
        if not is_outage(error):
            raise
        raise ServiceError(schedule_retry(error, retry_minutes)) from error
    show_report(kept, outcome, note)
    verdict = words_of(verdict_of(outcome, read_scores(kept, outcome))).headline
    if gate:
        verdict = hold_against_baseline(kept, outcome, gate_metric, max_drop, allow_different=allow_different)
    emit_recovery(verdict)
    return outcome
