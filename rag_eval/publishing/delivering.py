"""Sending what waits in the outbox of a workspace."""

from collections.abc import Mapping
from functools import partial

from rag_eval.embedding.retrying import RetryPolicy
from rag_eval.experiments.settings import load_settings
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.publishing import langsmith_outbox, orq
from rag_eval.publishing.benchmarks import put_benchmark
from rag_eval.publishing.langsmith_outbox import LangSmithSender
from rag_eval.publishing.langsmith_service import BRIEF, PATIENT
from rag_eval.publishing.outbox import Delivery, Parcel, Sender
from rag_eval.publishing.publications import Publication, outbox_of, refresh_publications


def deliver(workspace: Workspace, patience: RetryPolicy = PATIENT) -> list[Delivery]:
    """Send what waits, through every channel there is, and note the addresses beside their runs.

    Raises ``ArtifactError`` when the outbox cannot be used.
    """
    langsmith = LangSmithSender(patience)
    senders: dict[str, Sender] = {langsmith_outbox.CHANNEL: langsmith, orq.CHANNEL: partial(_send_to_orq, patience)}
    try:
        deliveries = outbox_of(workspace).deliver(senders)
    finally:
        langsmith.close()
    runs = {delivery.receipt.details.get("run") for delivery in deliveries if delivery.receipt is not None}
    for run in sorted(run for run in runs if isinstance(run, str)):
        refresh_publications(workspace, run)
    return deliveries


def publish_run(workspace: Workspace, outcome: BenchmarkOutcome, dataset: str) -> list[Publication]:
    """Put a run for experiments on a LangSmith dataset, send what can be sent at once, and say how each stands.

    Raises ``ArtifactError`` when the workspace cannot be used.
    """
    put_benchmark(workspace, outcome, dataset)
    deliver(workspace, BRIEF)
    return refresh_publications(workspace, outcome.run)


def withdraw(workspace: Workspace, run: str | None = None, dataset: str | None = None) -> list[Parcel]:
    """Take back what waits, of this run and for this dataset where they are given; gives what was taken back."""
    outbox = outbox_of(workspace)
    taken, runs = [], set()
    for parcel in outbox.waiting():
        payload = parcel.payload
        fits = run in (None, payload.get("run")) and dataset in (None, payload.get("dataset"))
        if fits and outbox.withdraw(parcel.channel, parcel.key):
            taken.append(parcel)
            runs.add(payload.get("run"))
    for of_run in sorted(one for one in runs if isinstance(one, str)):
        refresh_publications(workspace, of_run)
    return taken


def _send_to_orq(patience: RetryPolicy, parcel: Parcel) -> Mapping[str, object]:
    # Settings that cannot be read hold up this parcel, and not those for other services.
    settings = load_settings().orq
    return orq.orq_sender(settings.endpoint, settings.timeout, patience)(parcel)
