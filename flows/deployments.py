"""The deployments of ``deployments/prefect.yaml``, made known to a Prefect server: a set for each project.

A project is a benchmark with a name. All that it has on a server bears that name and its tag, and goes when it goes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, VersionInfo
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.events import Event
from prefect.events.schemas.events import Resource
from prefect.exceptions import ObjectAlreadyExists
from prefect.flows import load_flow_from_entrypoint
from prefect.runner.storage import LocalStorage
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

import flows
from flows.automations import (
    BECAME,
    SHARED,
    TAG,
    TOOK_TOO_LONG,
    automations_of,
    cancel_long_runs,
    crash_dead_runs,
    emit,
    find_all,
    find_block,
    keep_automations,
    messages,
    notify_of_failures,
    project_tag,
    remove_blocks,
    run_on,
)
from rag_eval.distribution import VERSION
from rag_eval.documents.watch import CorpusChange
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, slug
from rag_eval.parts.code import enter_folder
from rag_eval.types.ids import text_sha256

CORPUS_CHANGED = "corpus.changed"
MOST_NAMES = 100
"""How many names of documents an event holds of each kind; the counts are whole."""


def corpus_resource(corpus: Path) -> dict[str, str]:
    """Return a corpus as a resource of Prefect's events: one id for one folder."""
    path = corpus.resolve().as_posix()
    return {"prefect.resource.id": f"corpus.{text_sha256(path)[:16]}", "prefect.resource.name": corpus.resolve().name}


def change_payload(corpus: Path, change: CorpusChange) -> dict[str, Any]:
    """Return what the event tells: the corpus, a summary, and which documents were added, changed and removed."""
    kinds = {"added": change.added, "changed": change.changed, "removed": change.removed}
    return {
        "corpus": str(corpus.resolve()),
        "summary": f"{corpus.resolve().name}: {change}",
        **{kind: list(names[:MOST_NAMES]) for kind, names in kinds.items()},
        "counts": {kind: len(names) for kind, names in kinds.items()},
    }


def emit_corpus_change(corpus: Path, change: CorpusChange) -> None:
    """Emit the event and return when the server has it; raise ``ServiceError`` when it does not take it."""
    resource = Resource(corpus_resource(corpus))
    emit(Event(event=CORPUS_CHANGED, resource=resource, payload=change_payload(corpus, change)))


PREFECT_FILE = Path(flows.__file__).parents[1] / "deployments" / "prefect.yaml"
"""Beside the packages, in a checkout as where they are installed."""


def read_deployments() -> list[dict[str, Any]]:
    """Return the deployments of ``prefect.yaml``."""
    deployments: list[dict[str, Any]] = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))["deployments"]
    return deployments


def work_pool() -> str:
    """Return the work pool of the deployments."""
    return str(read_deployments()[0]["work_pool"]["name"])


@dataclass(frozen=True)
class Project:
    """A benchmark as a server is to know it; its paths are those of the machines that run it, in ``folder``.

    ``parameters`` (where a flow has them), ``cron`` and ``pool`` go in the place of what ``prefect.yaml`` says,
    ``environment`` is added to that of its runs, and ``secrets`` are variables that runs get from Secret blocks.
    ``notify`` names who learns of runs that failed. A run is cancelled after ``time_limit`` seconds, and counts as
    crashed after ``dead_after`` seconds without a heartbeat. With ``job_template``, the base job template of a
    Kubernetes work pool, runs are Kubernetes jobs, else processes of a worker.
    """

    name: str
    folder: Path
    corpus: Path
    parameters: Mapping[str, str | float | list[str]]
    cron: str | None = None
    pool: str | None = None
    job_template: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    notify: Sequence[str] = ()
    time_limit: float = 12 * 3600.0
    dead_after: float = 600.0

    @property
    def origin(self) -> Path:
        """The benchmark file that it is of."""
        return self.folder / str(self.parameters.get("benchmark_file", ""))


@dataclass(frozen=True)
class Deployed:
    """A deployment on a server: its id, when it runs, and what was other before; None where there was none."""

    name: str
    id: UUID
    schedule: str
    before: dict[str, tuple[str, str]] | None

    def __str__(self) -> str:
        if self.before is None:
            return "new"
        changes = [f"{what} {preview(old)} → {preview(new)}" for what, (old, new) in self.before.items()]
        return f"replaced: {', '.join(changes)}" if changes else "unchanged"


def deploy(project: Project) -> dict[str, Deployed]:
    """Create or update the work pool, the queue, the deployments and the automations of a project.

    They are called ``nightly-NAME`` and so on, and returned by the name without the project's. Raises
    ``ConfigurationError`` on a schedule or a template that is none, and where the server has a project of this name
    that is of another file.
    """
    try:
        CronSchedule(cron=project.cron or "0 0 * * *")
    except ValidationError:
        raise ConfigurationError(
            f"{project.cron!r} is not a schedule: write it as cron does, such as '0 3 * * *'"
        ) from None
    pool, tag = project.pool or work_pool(), project_tag(project.name)
    with get_client(sync_client=True) as client:
        before = {deployment.name: deployment for deployment in deployments_of(client, tag)}
        for deployment in before.values():
            _check_origin(deployment, project)
        environment = dict(project.environment)
        for variable in project.secrets:
            block = slug(variable, 60)
            find_block(client, "secret", block, variable)
            environment[variable] = f"{{{{ prefect.blocks.secret.{block} }}}}"
        on_failure, on_cancel = (
            messages(client, project.name, project.notify, became) for became in (BECAME, TOOK_TOO_LONG)
        )
        _ensure_work_pool(client, pool, project.job_template)
        automations = [cancel_long_runs(project.name, project.time_limit, on_cancel)]
        automations += [notify_of_failures(project.name, on_failure)] if on_failure else []
        resource = corpus_resource(project.corpus)["prefect.resource.id"]
        deployed: dict[str, Deployed] = {}
        for spec in read_deployments():
            wanted = _deployment(spec, project, pool, environment)
            # Prefect would ask Git for a version, and Git runs programs that a repository names.
            version = VersionInfo(type="prefect:simple", version=VERSION)
            number = cast("UUID", wanted.apply(version_info=version))
            new, old = client.read_deployment(number), before.get(wanted.name)
            deployed[str(spec["name"])] = Deployed(wanted.name, number, _schedule(new), _changes(old, new))
            automations += [
                run_on(trigger, f"{trigger['name']}-{project.name}", number, resource)
                for trigger in spec.get("triggers", [])
            ]
        for deployment in before.values():
            if deployment.id not in {other.id for other in deployed.values()}:  # of another version of this package
                client.delete_deployment(deployment.id)
        keep_automations(client, tag, automations)
        keep_automations(client, SHARED, [crash_dead_runs(project.dead_after)])
    return deployed


def _check_origin(deployment: DeploymentResponse, project: Project) -> None:
    """Raise ``ConfigurationError`` where a deployment is of another benchmark file than the project."""
    file = deployment.parameters.get("benchmark_file")
    if file is not None and (origin := Path(_folder(deployment)) / str(file)) != project.origin:
        raise ConfigurationError(
            f"the server has a project {project.name!r} already, of {str(origin)!r}: give this one another "
            f"name:, or remove that one with rag-eval deploy --remove {project.name}"
        )


def _deployment(spec: dict[str, Any], project: Project, pool: str, environment: Mapping[str, str]) -> RunnerDeployment:
    """Return a deployment of ``prefect.yaml`` with the parameters, the schedule and the environment of a project."""
    import_module(spec["entrypoint"].rpartition(".")[0])  # by Prefect, the current folder would come first
    accepted = load_flow_from_entrypoint(spec["entrypoint"]).parameters.properties
    limit = spec.get("concurrency_limit")
    deployment = RunnerDeployment.from_entrypoint(
        spec["entrypoint"],
        name=f"{spec['name']}-{project.name}",
        description=spec["description"],
        tags=[*spec["tags"], TAG, project_tag(project.name)],
        parameters=spec["parameters"] | {name: value for name, value in project.parameters.items() if name in accepted},
        cron=[project.cron or schedule["cron"] for schedule in spec.get("schedules", [])] or None,
        concurrency_limit=ConcurrencyLimitConfig(**limit) if limit else None,
        work_pool_name=pool,
        work_queue_name=project.name,
        job_variables={"env": dict(environment)} if environment else {},
    )
    deployment.storage = ProjectFolder(str(project.folder))
    return deployment


class ProjectFolder(LocalStorage):
    """The folder that runs of a project happen in."""

    def to_pull_step(self) -> dict[str, Any]:
        """Name it, for the flow to change to when it has been loaded."""
        return {f"{enter_folder.__module__}.{enter_folder.__name__}": {"directory": str(self.destination)}}


def deployments_of(client: SyncPrefectClient, *tags: str) -> list[DeploymentResponse]:
    """Return the deployments that rag-eval made, with all of these tags."""
    return find_all(client, "deployments", DeploymentResponse, {"tags": {"all_": [TAG, *tags]}})


def remove(project: str) -> list[str]:
    """Remove all that ``deploy`` made for a project, and return what; its finished runs stay in the server's history.

    Raises ``ConfigurationError`` when there is no such project.
    """
    tag = project_tag(project)
    with get_client(sync_client=True) as client:
        deployments = deployments_of(client, tag)
        if not deployments:
            tags = {tag for one in deployments_of(client) for tag in one.tags}
            names = sorted(tag.removeprefix(project_tag("")) for tag in tags if tag.startswith(project_tag("")))
            known = choices(names, project) if names else "it has none"
            raise ConfigurationError(f"there is no project {project!r} on the server: {known}")
        automations = automations_of(client, tag)
        keep_automations(client, tag, [])
        blocks = remove_blocks(client, project)
        queues = {one.work_queue_id for one in deployments if one.work_queue_name == project}
        for deployment in deployments:
            client.delete_deployment(deployment.id)
        for queue in filter(None, queues):
            client.delete_work_queue_by_id(queue)
        if not deployments_of(client):
            keep_automations(client, SHARED, [])
    return [
        *(f"deployment {one.name}" for one in deployments),
        *(f"automation {one.name}" for one in automations),
        *(f"work queue {project}" for _ in queues),
        *(f"block {name}" for name in blocks),
    ]


def _folder(deployment: DeploymentResponse) -> str:
    steps = [settings for step in deployment.pull_steps or [] for settings in step.values()]
    return str(next((settings["directory"] for settings in steps if "directory" in settings), ""))


def _schedule(deployment: DeploymentResponse) -> str:
    schedules = (schedule.schedule for schedule in deployment.schedules if schedule.active)
    return ", ".join(str(getattr(schedule, "cron", schedule)) for schedule in schedules)


def _changes(old: DeploymentResponse | None, new: DeploymentResponse) -> dict[str, tuple[str, str]] | None:
    """Return what a person would notice to have changed, before and after; None where there was no deployment."""
    if old is None:
        return None
    before, after = (
        {name: str(value) for name, value in deployment.parameters.items()}
        | {
            "schedule": _schedule(deployment),
            "folder": _folder(deployment),
            "work pool": str(deployment.work_pool_name),
        }
        for deployment in (old, new)
    )
    pairs = {name: (before.get(name, ""), after.get(name, "")) for name in before | after}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _ensure_work_pool(client: SyncPrefectClient, name: str, job_template: Path | None) -> None:
    """Create the pool where it is not there; one whose jobs are described by a file is brought up to date."""
    template = read_template(job_template) if job_template else ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="kubernetes" if job_template else "process", base_job_template=template)
    try:
        client.create_work_pool(pool)
    except ObjectAlreadyExists:
        if job_template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))


def read_template(path: Path) -> dict[str, Any]:
    """Return the base job template in a file; raise ``ConfigurationError`` when there is none."""
    try:
        template = json.loads(path.read_text(encoding="utf-8"))
        if {"job_configuration", "variables"} <= set(template):
            return dict(template)
    except (OSError, ValueError, TypeError):
        pass
    raise ConfigurationError(
        f"{str(path)!r} is not a base job template: it is JSON with job_configuration and variables, as in "
        "deployments/kubernetes-job.json"
    )
