"""Publish runs by way of the workspace's outbox: as LangSmith experiments, and as a trace of OpenTelemetry."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any
from uuid import uuid5

import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag_eval.config.models import ConfigurationRecord
from rag_eval.errors import ArtifactError
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import PUBLISHED, BenchmarkOutcome, StageWork
from rag_eval.retry import BRIEF, PATIENT, RetryPolicy
from rag_eval.services.langsmith_outbox import (
    LANGSMITH_CHANNEL,
    ExperimentPayload,
    LangSmithSender,
    RowOutcome,
    experiment_key,
    put_experiment,
    put_truth,
    row_outcomes,
)
from rag_eval.services.outbox import NAMESPACE, Delivery, Message, Sender, outbox_of
from rag_eval.services.posting import (
    ORQ_CHANNEL,
    TRACES_CHANNEL,
    OrqSettings,
    load_settings,
    orq_sender,
    send_trace,
    traces_address,
)
from rag_eval.tables import truth_from_tables
from rag_eval.types.evidence import TRUTH_KINDS, ChunkLevelGroundTruth, TokenLevelGroundTruth

Truth = list[TokenLevelGroundTruth] | list[ChunkLevelGroundTruth]


class Publication(BaseModel):
    """One configuration on its way to a dataset: the address of its experiment once it is there, else why it waits.

    ``absent`` are queries of the run that the dataset does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    configuration: str
    dataset: str
    url: str | None = None
    absent: int = 0
    reason: str | None = None


_PUBLICATIONS = TypeAdapter(list[Publication])


def read_publications(workspace: Workspace, run: str) -> list[Publication]:
    """Return what was put of a run and not taken back, as it stands now; raises ``ArtifactError``."""
    path = workspace.fetch_newest(workspace.runs / run / PUBLISHED)
    try:
        noted = _PUBLICATIONS.validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        return []
    except (OSError, ValidationError):
        raise ArtifactError(f"{str(path)!r} cannot be read: remove it, and publish the run again") from None
    outbox = outbox_of(workspace.root)
    reasons = {message.key: message.reason for message in outbox.waiting(LANGSMITH_CHANNEL)}
    found = []
    for one in noted:
        key = experiment_key(run, one.configuration, one.dataset)
        receipt = outbox.receipt(LANGSMITH_CHANNEL, key)
        told: dict[str, object] = {"reason": reasons.get(key)}
        if receipt is not None:
            told = {name: receipt.details[name] for name in ("url", "absent") if name in receipt.details}
        elif key not in reasons:
            continue
        try:
            found.append(Publication.model_validate({**one.model_dump(), "reason": None, **told}, strict=True))
        except ValidationError:
            raise ArtifactError(
                f"the receipt of {one.configuration!r} on {one.dataset!r} is damaged: remove it to have it sent again"
            ) from None
    return found


def refresh_publications(workspace: Workspace, run: str) -> list[Publication]:
    """Write the addresses and the reasons of now beside the run, and give them back."""
    found = read_publications(workspace, run)
    if (workspace.runs / run / PUBLISHED).exists():
        _note(workspace, run, found)
    return found


def _note(workspace: Workspace, run: str, publications: list[Publication]) -> None:
    workspace.write_file(workspace.runs / run / PUBLISHED, _PUBLICATIONS.dump_json(publications, indent=2))


def put_benchmark(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> None:
    """Put every configuration of a run for an experiment on a dataset, and note it beside the run.

    A configuration that failed is put as failed: its queries have an error and no scores. The ground truth goes first,
    for a dataset that is not there yet. What waits or was sent is not put again.
    Raises ``ArtifactError`` when tables of the run are gone.
    """
    new = unpublished(workspace, outcome, dataset)
    # Before anything is put: an address without a note would not be shown.
    noted = read_publications(workspace, outcome.run)
    known = {(one.configuration, one.dataset) for one in noted}
    names = [name for name in _names(outcome) if (name, dataset) not in known]
    _note(workspace, outcome.run, [*noted, *(Publication(configuration=name, dataset=dataset) for name in names)])
    if not new:
        return
    outbox, inputs = outbox_of(workspace.root), outcome.inputs
    truth: Any = truth_from_tables(workspace.read_truth(inputs.truth), TRUTH_KINDS[inputs.evaluation_type])
    put_truth(outbox, dataset, truth, only_if_new=True)
    documents = StoredDocuments([workspace.read_table(shard) for shard in inputs.documents])
    for done in outcome.configurations:
        if done.name in new:
            returned = workspace.read_table(done.returned).filter(pc.field("rank") <= max(inputs.ks))
            queries = row_outcomes(
                inputs.evaluation_type,
                [one.query for one in truth],
                returned,
                workspace.read_table(done.scores),
                documents,
                outcome.measured,
            )
            put_experiment(outbox, new[done.name], _payload(outcome, dataset, done.configuration, queries))
    for name, failure in outcome.failures.items():
        if name in new:
            failed = [RowOutcome(id=one.query.id, text=one.query.text, error=failure.reason) for one in truth]
            put_experiment(outbox, new[name], _payload(outcome, dataset, failure.configuration, failed))


def unpublished(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> dict[str, str]:
    """Return the configurations of a run that were not put for this dataset, with the keys of their messages to be."""
    outbox = outbox_of(workspace.root)
    waiting = {message.key for message in outbox.waiting(LANGSMITH_CHANNEL)}
    keys = {name: experiment_key(outcome.run, name, dataset) for name in _names(outcome)}
    return {
        name: key for name, key in keys.items() if key not in waiting and outbox.receipt(LANGSMITH_CHANNEL, key) is None
    }


def _names(outcome: BenchmarkOutcome) -> list[str]:
    return [*(done.name for done in outcome.configurations), *outcome.failures]


def _payload(
    outcome: BenchmarkOutcome, dataset: str, configuration: ConfigurationRecord, queries: Sequence[RowOutcome]
) -> ExperimentPayload:
    metadata = {
        "run": outcome.run,
        "configuration": configuration.model_dump(mode="json"),
        "evaluation_type": outcome.config.evaluation_type,
        "k": outcome.inputs.ks,
        "corpus": outcome.corpus.digest,
        "ground_truth": outcome.ground_truth.digest,
        "versions": outcome.versions,
        "state": "failed" if configuration.name in outcome.failures else "completed",
    }
    return ExperimentPayload(
        dataset=dataset,
        name=configuration.name,
        run=outcome.run,
        at=outcome.started,
        metadata=metadata,
        rows=list(queries),
        evaluation_type=outcome.config.evaluation_type,
    )


def put_trace(workspace: Workspace, outcome: BenchmarkOutcome) -> None:
    """Put a run as a trace: a span for the run, one for each configuration, and one for each of their stages.

    Durations are those that were measured. When a stage began is not kept: within a configuration the stages follow
    one another, and every configuration begins where the stages that all share have ended.
    """
    trace = uuid5(NAMESPACE, outcome.run).hex
    begin, spans = outcome.started.timestamp(), []

    def add(name: str, above: str, start: float, seconds: float, is_failed: bool, **told: object) -> str:
        own = uuid5(NAMESPACE, f"{outcome.run} {above} {name}").hex[:16]
        attributes = [
            {"key": f"rag_eval.{key}", "value": _otlp_value(value)} for key, value in told.items() if value is not None
        ]
        spans.append(
            {
                "traceId": trace,
                "spanId": own,
                "parentSpanId": above,
                "name": name,
                "kind": 1,
                "startTimeUnixNano": str(int(start * 1e9)),
                "endTimeUnixNano": str(int((start + seconds) * 1e9)),
                "attributes": attributes,
                "status": {"code": 2 if is_failed else 1},
            }
        )
        return own

    def add_stages(above: str, start: float, stages: Mapping[str, StageWork]) -> float:
        for name, one in stages.items():
            effort = {} if one.effort is None else {"tokens": one.effort.tokens, "cost_usd": one.effort.cost}
            add(name, above, start, one.seconds, one.work == "failed", work=one.work, **effort)
            start += one.seconds
        return start

    told = {"run": outcome.run, "objective": outcome.ranking_metric, "documents": outcome.documents}
    root = add("rag-eval run", "", begin, outcome.seconds, not outcome.configurations, **told)
    shared = add_stages(root, begin, outcome.stages)
    for one in outcome.configurations:
        seconds, score = sum(stage.seconds for stage in one.stages.values()), one.metrics[outcome.ranking_metric]
        own = add(one.name, root, shared, seconds, False, score=score, tokens=one.tokens, cost_usd=one.cost)
        add_stages(own, shared, one.stages)
    for name, failure in outcome.failures.items():
        seconds = sum(stage.seconds for stage in failure.stages.values())
        add_stages(add(name, root, shared, seconds, True, reason=failure.reason), shared, failure.stages)
    service = [{"key": "service.name", "value": {"stringValue": "rag-eval"}}]
    scope = {"scope": {"name": "rag-eval"}, "spans": spans}
    payload = {"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [scope]}]}
    outbox_of(workspace.root).put(TRACES_CHANNEL, f"trace of {outcome.run}", {"run": outcome.run, "trace": payload})


def _otlp_value(value: object) -> dict[str, object]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def deliver(workspace: Workspace, patience: RetryPolicy = PATIENT) -> list[Delivery]:
    """Send what waits, through every channel, and note the addresses beside the runs; raises ``ArtifactError``."""

    def send_to_orq(message: Message) -> Mapping[str, object]:
        # Settings that cannot be read hold up this message, and not those for other services.
        settings = load_settings(OrqSettings, "orq")
        return orq_sender(settings.endpoint, settings.timeout, patience)(message)

    with closing(LangSmithSender(patience)) as langsmith:
        senders: dict[str, Sender] = {
            LANGSMITH_CHANNEL: langsmith,
            ORQ_CHANNEL: send_to_orq,
            TRACES_CHANNEL: partial(send_trace, policy=patience),
        }
        deliveries = outbox_of(workspace.root).deliver(senders)
    _refresh_all(workspace, [one.receipt.details.get("run") for one in deliveries if one.receipt is not None])
    return deliveries


def _refresh_all(workspace: Workspace, runs: Sequence[object]) -> None:
    for run in sorted({run for run in runs if isinstance(run, str)}):
        refresh_publications(workspace, run)


def publish_run(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str | None) -> list[str]:
    """Put a run for a LangSmith dataset, and as a trace where one is asked for; send what can be sent now.

    Returns why something waits, once for each reason; raises ``ArtifactError``.
    """
    if dataset is not None:
        put_benchmark(workspace, outcome, dataset)
    if traces_address() is not None:
        put_trace(workspace, outcome)
    waiting = [one for one in deliver(workspace, BRIEF) if one.state != "sent"]
    if dataset is not None:
        refresh_publications(workspace, outcome.run)
    return list(dict.fromkeys(f"{one.key}: {one.reason}" for one in waiting))
