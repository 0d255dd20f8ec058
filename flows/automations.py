"""Automations on a Prefect server.

They start a run when documents change, mark dead runs as crashed, cancel long runs, and notify of failures.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import UUID

import httpx
from prefect.blocks.notifications import SlackWebhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument, FlowRun, StateType
from prefect.events import DeploymentEventTrigger, Event, EventTrigger
from prefect.events.actions import CancelFlowRun, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, Posture
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from pydantic import BaseModel, SecretStr

from rag_eval.errors import ConfigurationError, ServiceError, as_sentence
from rag_eval.formatting import slug

TAG = "rag-eval"
"""Tag of everything that rag-eval creates on a server."""

SHARED = "project:"
"""Tag of what the projects of a server share; no project has this name."""

HEARTBEAT, RECOVERED = "prefect.flow-run.heartbeat", "rag-eval.recovered"
FAILED = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")}
ENDED = FAILED | {f"prefect.flow-run.{state}" for state in ("Completed", "Cancelled")}


def emit(event: Event) -> None:
    """Emit an event and wait until the server has it; raise ``ServiceError`` if it is refused."""
    try:
        with get_client(sync_client=True) as client:
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ServiceError(f"Prefect refused the event {event.event} ({as_sentence(error)})") from None


def project_tag(project: str) -> str:
    """Return the tag of everything that a project has on a server."""
    return f"project:{project}"


M = TypeVar("M", bound=BaseModel)
PAGE = 200
"""Maximum number of objects in one answer of a server."""


def find_all(client: SyncPrefectClient, what: str, kind: type[M], criteria: Mapping[str, object]) -> list[M]:
    """Return the objects of a server, such as its ``deployments``, that match a filter of its API."""
    path: Any = f"/{what}/filter"  # the client lists its paths as literals
    objects: list[M] = []
    while page := client.request("POST", path, json={what: criteria, "limit": PAGE, "offset": len(objects)}).json():
        objects += map(kind.model_validate, page)
    return objects


def find_runs(
    client: SyncPrefectClient, *states: StateType, sort: str, deployment: str | None = None, most: int = PAGE
) -> list[FlowRun]:
    """Return the runs in these states, of all deployments or of one."""
    query: dict[str, object] = {"flow_runs": {"state": {"type": {"any_": states}}}, "sort": sort, "limit": most}
    if deployment is not None:
        query["deployments"] = {"id": {"any_": [deployment]}}
    return [FlowRun.model_validate(run) for run in client.request("POST", "/flow_runs/filter", json=query).json()]


def automations_of(client: SyncPrefectClient, tag: str) -> list[Automation]:
    """Return our automations with a tag."""
    return find_all(client, "automations", Automation, {"tags": {"all_": [TAG, tag]}})


def keep_automations(client: SyncPrefectClient, tag: str, wanted: Sequence[AutomationCore]) -> None:
    """Make these the only automations with the tag: create, update by name, or delete."""
    ids = {automation.name: automation.id for automation in automations_of(client, tag)}
    for automation in wanted:
        # Validate from data: the client sends only fields that were set, and otherwise drops the types of actions.
        data = automation.model_dump(mode="json", exclude={"owner_resource"})
        tagged = AutomationCore.model_validate(data | {"tags": [TAG, tag]})
        if automation.name in ids:
            client.update_automation(ids.pop(automation.name), tagged)
        else:
            client.create_automation(tagged)
    for automation_id in ids.values():
        client.delete_automation(automation_id)


def run_on(trigger: dict[str, Any], name: str, deployment: UUID, resource: str) -> AutomationCore:
    """Return the automation that runs a deployment on a trigger of ``prefect.yaml`` for one resource."""
    event_trigger = DeploymentEventTrigger(**trigger | {"name": name, "match": {"prefect.resource.id": resource}})
    event_trigger.set_deployment_id(deployment)
    return event_trigger.as_automation()


def crash_dead_runs(seconds: float) -> AutomationCore:
    """Return the automation that marks runs without a heartbeat as crashed, because other runs wait for them.

    It matches the names of our flows, because subflow runs have no tags when they start.
    """
    flow: dict[str, str | list[str]] = {"prefect.resource.role": "flow", "prefect.resource.name": f"{TAG}-*"}
    message = f"no heartbeat for {seconds:.0f} seconds: its worker or machine has ended"
    action = ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=message, force=False)
    trigger = _on_runs(flow, {HEARTBEAT, *ENDED}, seconds, after={HEARTBEAT})
    return AutomationCore(name="rag-eval-dead-runs", trigger=trigger, actions=[action])


def cancel_long_runs(project: str, seconds: float, actions: Sequence[SendNotification]) -> AutomationCore:
    """Return the automation that cancels long runs of a project and takes further actions."""
    trigger = _on_runs(_tagged(project), ENDED, seconds, after={"prefect.flow-run.Running"})
    return AutomationCore(name=f"time-limit-{project}", trigger=trigger, actions=[CancelFlowRun(), *actions])


def notify_of_failures(project: str, actions: Sequence[SendNotification]) -> AutomationCore:
    """Return the automation that acts on failed runs of a project, and on recoveries."""
    trigger = _on_runs(_tagged(project), {*FAILED, RECOVERED})
    return AutomationCore(name=f"notify-{project}", trigger=trigger, actions=list(actions))


def _on_runs(
    related: dict[str, str | list[str]], events: set[str], seconds: float = 0, after: Iterable[str] = ()
) -> EventTrigger:
    """Trigger on one of the events or, given seconds, on their absence for that long after one of ``after``."""
    return EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related=related,
        for_each={"prefect.resource.id"},
        after=set(after),
        expect=events,
        posture=Posture.Proactive if seconds else Posture.Reactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )


def _tagged(project: str) -> dict[str, str | list[str]]:
    return {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{project_tag(project)}"}


# Prefect templates. The verdict of a recovered run is in its event, that of other runs in their state.
VERDICT = "(event.payload.verdict or flow_run.state.message or '')|replace('Flow run encountered an exception: ', '')"
BECAME = f"('recovered' if event.event == '{RECOVERED}' else flow_run.state.name)"
TOOK_TOO_LONG = "'took too long and was cancelled'"


def messages(client: SyncPrefectClient, project: str, targets: Sequence[str], became: str) -> list[SendNotification]:
    """Return the actions that send the state of a run, its verdict and the address of its page to each target.

    A target is a notification block, or an environment variable with the address of a webhook or of mail, which is
    stored in a block as a secret. Raises ``ConfigurationError`` if the variable is not set or the block is missing.
    """
    subject = f"'{project}: ' ~ flow_run.name ~ ' ' ~ {became}"
    body = f"({VERDICT}) ~ '\\n' ~ (flow_run|ui_url)"
    actions: list[SendNotification] = []
    for target in targets:
        title, text = f"{{{{ {subject} }}}}", f"{{{{ {body} }}}}"
        kind, _, name = target.partition("/")
        if name:
            block_id = find_block(client, kind, name, "notify")
        else:
            address = notification_address(target)
            if not address.startswith("mailto"):  # these have no subject
                title, text = "", f"{{{{ ({subject}) ~ '\\n' ~ ({body}) }}}}"
            # Prefect's block for any Apprise address. Its webhook block loses messages that are sent at once, and its
            # custom notification block quotes the address in errors.
            block = SlackWebhook(url=SecretStr(address))
            block_id = cast("UUID", block.save(f"{block_prefix(project)}{slug(target, 60)}", overwrite=True))
        actions.append(SendNotification(block_document_id=block_id, subject=title, body=text))
    return actions


def notification_address(variable: str) -> str:
    """Return the address in an environment variable as Apprise writes it: a webhook, or mail by SMTP.

    A webhook gets ``{"text": …}``. Raises ``ConfigurationError``, without the address, if it is neither.
    """
    address = os.environ.get(variable, "")
    parts = urlsplit(address)
    if parts.scheme in ("mailto", "mailtos") and parts.hostname:
        return address
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"the environment variable {variable} of notify has no address: set it to a webhook, https://…, or to "
            "mail, mailtos://USER:PASSWORD@SERVER?from=…&to=…"
        )
    fields = [(f"-{name}", value) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    shape = [(":message", "text"), *((f":{field}", "") for field in ("version", "title", "attachments", "type"))]
    query = urlencode([*fields, *shape], quote_via=quote)
    return parts._replace(scheme=parts.scheme.replace("http", "json"), query=query, fragment="").geturl()


def block_prefix(project: str) -> str:
    """Return the prefix of a project's blocks; no project name contains two dashes."""
    return f"rag-eval--{project}--"


def find_block(client: SyncPrefectClient, kind: str, name: str, wanted_by: str) -> UUID:
    """Return the id of a block on the server; raise ``ConfigurationError`` if it is missing."""
    try:
        answer = client.request(
            "GET",
            "/block_types/slug/{slug}/block_documents/name/{block_document_name}",
            path_params={"slug": kind, "block_document_name": name},
        )
    except (ObjectNotFound, PrefectHTTPStatusError):
        raise ConfigurationError(
            f"{wanted_by} needs the block {kind}/{name}, which is not on the server: create it in the UI, under Blocks"
        ) from None
    return UUID(answer.json()["id"])


def remove_blocks(client: SyncPrefectClient, project: str) -> list[str]:
    """Remove the blocks that ``messages`` created for a project, and return their names."""
    like = {"name": {"like_": f"{block_prefix(project)}%"}}
    ids = {str(block.name): block.id for block in find_all(client, "block_documents", BlockDocument, like)}
    ours = [name for name in ids if name.startswith(block_prefix(project))]
    for name in ours:
        client.delete_block_document(ids[name])
    return ours
