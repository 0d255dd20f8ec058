"""Create the deployments of ``deployments/prefect.yaml`` on a Prefect server, once for each project.

A project is a benchmark with a name. Everything that it has on a server has its name and tag, and is removed with it.
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
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, slug
from rag_eval.parts.code import enter_folder
from rag_eval.types.ids import text_sha256

CORPUS_CHANGED = "corpus.changed"
MOST_NAMES = 100
"""Maximum number of document names of each kind in an event; the counts are complete."""


def corpus_resource(corpus: Path) -> dict[str, str]:
    """Return the resource of a corpus folder in Prefect's events."""
    path = corpus.resolve()
    return {"prefect.resource.id": f"corpus.{text_sha256(path.as_posix())[:16]}", "prefect.resource.name": path.name}


def change_payload(corpus: Path, change: CorpusChange) -> dict[str, object]:
    """Return the payload of the event: the corpus, a summary, and the documents added, changed and removed."""
    kinds = {"added": change.added, "changed": change.changed, "removed": change.removed}
    return {
        "corpus": str(corpus.resolve()),
        "summary": f"{corpus.resolve().name}: {change}",
        **{kind: list(names[:MOST_NAMES]) for kind, names in kinds.items()},
        "counts": {kind: len(names) for kind, names in kinds.items()},
    }


def emit_corpus_change(corpus: Path, change: CorpusChange) -> None:
    """Emit the event that a corpus changed; raise ``ServiceError`` if the server refuses it."""
    resource = Resource(corpus_resource(corpus))
    emit(Event(event=CORPUS_CHANGED, resource=resource, payload=change_payload(corpus, change)))


PREFECT_FILE = Path(flows.__file__).parents[1] / "deployments" / "prefect.yaml"
"""Deployment file beside the packages, in a checkout and in an installation."""


def read_deployments() -> list[dict[str, Any]]:
    """Return the deployments of ``prefect.yaml``."""
    deployments: list[dict[str, Any]] = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))["deployments"]
    return deployments


def work_pool() -> str:
    """Return the work pool of the deployments."""
    return str(read_deployments()[0]["work_pool"]["name"])


@dataclass(frozen=True)
class Project:
    """A benchmark to deploy; its paths are on the machines that run it, in ``folder``.

    ``parameters`` (as far as a flow has them), ``cron`` and ``pool`` override ``prefect.yaml``. ``environment`` is
    added to the environment of the runs; ``secrets`` are variables that runs get from Secret blocks. ``notify`` lists
    the targets of notifications. A run is cancelled after ``time_limit`` seconds, and crashed after ``dead_after``
    seconds without a heartbeat. With ``job_template``, the base job template of a Kubernetes work pool, runs are
    Kubernetes jobs, else processes of a worker.
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
        """Return the benchmark file."""
        return self.folder / str(self.parameters.get("benchmark_file", ""))


@dataclass(frozen=True)
class Deployed:
    """A deployment on a server."""

    name: str
    id: UUID
    schedule: str


def deploy(project: Project) -> dict[str, Deployed]:
    """Create or update the work pool, the queue, the deployments and the automations of a project.

    Return the deployments by their names in ``prefect.yaml``; on the server they are called ``nightly-NAME`` and so on.

    Raises:
        ConfigurationError: The schedule or the job template is not valid, a block is missing, or the server has a
            project of this name with another benchmark file.
    """
    try:
        CronSchedule(cron=project.cron or "0 0 * * *")
    except ValidationError:
        raise ConfigurationError(f"{project.cron!r} is not a cron schedule: write it like '0 3 * * *'") from None
    pool, tag = project.pool or work_pool(), project_tag(project.name)
    with get_client(sync_client=True) as client:
        before = deployments_of(client, tag)
        for deployment in before:
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
            # Otherwise Prefect asks Git for a version, and Git runs programs that a repository names.
            version = VersionInfo(type="prefect:simple", version=VERSION)
            deployment_id = cast("UUID", wanted.apply(version_info=version))
            schedule = ", ".join(str(getattr(item.schedule, "cron", "")) for item in wanted.schedules or [])
            deployed[str(spec["name"])] = Deployed(wanted.name, deployment_id, schedule)
            automations += [
                run_on(trigger, f"{trigger['name']}-{project.name}", deployment_id, resource)
                for trigger in spec.get("triggers", [])
            ]
        for deployment in before:
            if deployment.id not in {other.id for other in deployed.values()}:  # from another version of this package
                client.delete_deployment(deployment.id)
        keep_automations(client, tag, automations)
        keep_automations(client, SHARED, [crash_dead_runs(project.dead_after)])
    return deployed


def _check_origin(deployment: DeploymentResponse, project: Project) -> None:
    """Raise ``ConfigurationError`` if a deployment has another benchmark file than the project."""
    steps = [settings for step in deployment.pull_steps or [] for settings in step.values()]
    folder = next((settings["directory"] for settings in steps if "directory" in settings), "")
    file = deployment.parameters.get("benchmark_file")
    if file is not None and (origin := Path(folder) / str(file)) != project.origin:
        raise ConfigurationError(
            f"the server already has a project {project.name!r} with the benchmark file {str(origin)!r}: change name: "
            f"in this file, or remove the project with rag-eval deploy --remove {project.name}"
        )


def _deployment(spec: dict[str, Any], project: Project, pool: str, environment: Mapping[str, str]) -> RunnerDeployment:
    """Return a deployment of ``prefect.yaml`` with the parameters, the schedule and the environment of a project."""
    import_module(spec["entrypoint"].rpartition(".")[0])  # otherwise Prefect would look in the current folder first
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
    """The folder in which the runs of a project start."""

    def to_pull_step(self) -> dict[str, object]:
        """Return the pull step that names the folder; the flow changes to it."""
        return {f"{enter_folder.__module__}.{enter_folder.__name__}": {"directory": str(self.destination)}}


def deployments_of(client: SyncPrefectClient, *tags: str) -> list[DeploymentResponse]:
    """Return our deployments with all of these tags."""
    return find_all(client, "deployments", DeploymentResponse, {"tags": {"all_": [TAG, *tags]}})


def remove(project: str) -> list[str]:
    """Remove everything that ``deploy`` created for a project, and return what was removed; finished runs stay.

    Raises ``ConfigurationError`` if there is no such project.
    """
    tag = project_tag(project)
    with get_client(sync_client=True) as client:
        deployments = deployments_of(client, tag)
        if not deployments:
            tags = {tag for deployment in deployments_of(client) for tag in deployment.tags}
            names = sorted(tag.removeprefix(project_tag("")) for tag in tags if tag.startswith(project_tag("")))
            known = choices(names, project) if names else "it has no projects"
            raise ConfigurationError(f"there is no project {project!r} on the server: {known}")
        automations = automations_of(client, tag)
        keep_automations(client, tag, [])
        blocks = remove_blocks(client, project)
        queues = {deployment.work_queue_id for deployment in deployments if deployment.work_queue_name == project}
        for deployment in deployments:
            client.delete_deployment(deployment.id)
        for queue in filter(None, queues):
            client.delete_work_queue_by_id(queue)
        if not deployments_of(client):
            keep_automations(client, SHARED, [])
    return [
        *(f"deployment {deployment.name}" for deployment in deployments),
        *(f"automation {automation.name}" for automation in automations),
        *(f"work queue {project}" for _ in queues),
        *(f"block {name}" for name in blocks),
    ]


def _ensure_work_pool(client: SyncPrefectClient, name: str, job_template: Path | None) -> None:
    """Create the work pool if it is missing; update it if there is a job template."""
    template = read_template(job_template) if job_template else ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="kubernetes" if job_template else "process", base_job_template=template)
    try:
        client.create_work_pool(pool)
    except ObjectAlreadyExists:
        if job_template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))


def read_template(path: Path) -> dict[str, Any]:
    """Return the base job template in a file; raise ``ConfigurationError`` if it is not one."""
    try:
        template = json.loads(path.read_text(encoding="utf-8"))
        if {"job_configuration", "variables"} <= set(template):
            return dict(template)
    except (OSError, ValueError, TypeError):
        pass
    raise ConfigurationError(
        f"{str(path)!r} is not a base job template: write JSON with job_configuration and variables, as in "
        "deployments/kubernetes-job.json"
    )
