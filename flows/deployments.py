"""The deployments of ``deployments/prefect.yaml``, made known to a Prefect server."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger, Event
from prefect.events.schemas.events import Resource
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError
from prefect.flows import load_flow_from_entrypoint
from prefect.runner.storage import LocalStorage
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

import flows
from rag_eval.documents.watch import CorpusChange
from rag_eval.errors import ConfigurationError, ServiceError, as_sentence
from rag_eval.types.ids import text_sha256

CORPUS_CHANGED = "corpus.changed"
MOST_NAMES = 100
"""How many names of documents an event holds of each kind; the counts are whole."""


def corpus_resource(corpus: Path) -> dict[str, str]:
    """A corpus as Prefect's events know it: one id for one folder."""
    path = corpus.resolve().as_posix()
    return {"prefect.resource.id": f"corpus.{text_sha256(path)[:16]}", "prefect.resource.name": corpus.resolve().name}


def change_payload(corpus: Path, change: CorpusChange) -> dict[str, Any]:
    """What the event tells: the corpus, a summary, and which documents were added, changed and removed."""
    kinds = {"added": change.added, "changed": change.changed, "removed": change.removed}
    return {
        "corpus": str(corpus.resolve()),
        "summary": f"{corpus.resolve().name}: {change}",
        **{kind: list(names[:MOST_NAMES]) for kind, names in kinds.items()},
        "counts": {kind: len(names) for kind, names in kinds.items()},
    }


def emit_corpus_change(corpus: Path, change: CorpusChange) -> None:
    """Tell Prefect; returns when the server has it.

    Raises ``ServiceError`` when it does not take it.
    """
    resource = Resource(corpus_resource(corpus))
    event = Event(event=CORPUS_CHANGED, resource=resource, payload=change_payload(corpus, change))
    try:
        with get_client(sync_client=True) as client:
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ServiceError(f"Prefect did not take the event {CORPUS_CHANGED} ({as_sentence(error)})") from None


PREFECT_FILE = Path(flows.__file__).parents[1] / "deployments" / "prefect.yaml"
"""Beside the packages, in a checkout as where they are installed."""


def read_deployments() -> list[dict[str, Any]]:
    """The deployments as they stand in the file."""
    found: list[dict[str, Any]] = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))["deployments"]
    return found


def work_pool() -> str:
    """The work pool of the deployments."""
    return str(read_deployments()[0]["work_pool"]["name"])


def deploy(
    folder: Path,
    parameters: Mapping[str, str | float | list[str]],
    cron: str | None = None,
    pool: str | None = None,
    job_template: Path | None = None,
) -> dict[str, UUID]:
    """Create or update the work pool and the deployments; their ids by name.

    Runs happen in ``folder``. ``parameters`` (where a flow has them), ``cron`` and ``pool`` go in the place of what the
    file says. With ``job_template``, the base job template of a Kubernetes work pool, runs are Kubernetes jobs, else
    processes of a worker. Raises ``ConfigurationError`` on a schedule or a template that is none.
    """
    try:
        CronSchedule(cron=cron or "0 0 * * *")
    except ValidationError:
        raise ConfigurationError(f"{cron!r} is no schedule: write it as cron does, such as '0 3 * * *'") from None
    pool = pool or work_pool()
    _ensure_work_pool(pool, job_template)
    made = {}
    for spec in read_deployments():
        accepted = load_flow_from_entrypoint(spec["entrypoint"]).parameters.properties
        limit = spec.get("concurrency_limit")
        deployment = RunnerDeployment.from_entrypoint(
            spec["entrypoint"],
            name=spec["name"],
            description=spec["description"],
            tags=spec["tags"],
            parameters=spec["parameters"] | {name: given for name, given in parameters.items() if name in accepted},
            cron=[cron or schedule["cron"] for schedule in spec.get("schedules", [])] or None,
            triggers=[DeploymentEventTrigger(**trigger) for trigger in spec.get("triggers", [])],
            concurrency_limit=ConcurrencyLimitConfig(**limit) if limit else None,
            work_pool_name=pool,
        )
        deployment.storage = LocalStorage(str(folder))
        made[str(spec["name"])] = cast("UUID", deployment.apply())
    return made


def _ensure_work_pool(name: str, job_template: Path | None) -> None:
    """Create the pool where it is not there; one whose jobs are described by a file is brought up to date."""
    template = read_template(job_template) if job_template else ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="kubernetes" if job_template else "process", base_job_template=template)
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            if job_template:
                client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))


def read_template(path: Path) -> dict[str, Any]:
    """The base job template in a file; raises ``ConfigurationError`` when there is none."""
    try:
        template = json.loads(path.read_text(encoding="utf-8"))
        if {"job_configuration", "variables"} <= set(template):
            return dict(template)
    except (OSError, ValueError, TypeError):
        pass
    raise ConfigurationError(
        f"{str(path)!r} is no base job template: it is JSON with job_configuration and variables, as in "
        "deployments/kubernetes-job.json"
    )


def next_runs(deployment: UUID) -> str:
    """When the server will run a deployment, in words."""
    with get_client(sync_client=True) as client:
        schedules = client.read_deployment(deployment).schedules
    return ", ".join(str(getattr(one.schedule, "cron", one.schedule)) for one in schedules if one.active) or "never"
