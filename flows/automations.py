"""What a Prefect server does by itself for the benchmarks on it.

It starts a run when documents change, marks runs whose worker died as crashed, cancels those that take too long, and
tells somebody when a run failed, and when it works again.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import httpx
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events import DeploymentEventTrigger, Event, EventTrigger
from prefect.events.actions import CallWebhook, CancelFlowRun, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, Posture
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.types import SecretDict
from pydantic import SecretStr

from rag_eval.errors import ConfigurationError, ServiceError, as_sentence
from rag_eval.formatting import slug

TAG = "rag-eval"
"""What all that rag-eval makes on a server is tagged with."""

SHARED = "project:"
"""The tag of what all projects of a server share; no project is called so."""

HEARTBEAT, RECOVERED = "prefect.flow-run.heartbeat", "rag-eval.recovered"
FAILED = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")}
ENDED = FAILED | {f"prefect.flow-run.{state}" for state in ("Completed", "Cancelled")}
ANY_RUN: dict[str, str | list[str]] = {"prefect.resource.id": "prefect.flow-run.*"}


def emit(event: Event) -> None:
    """Tell the server; returns when it has it. Raises ``ServiceError`` when it does not take it."""
    try:
        with get_client(sync_client=True) as client:
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ServiceError(f"Prefect did not take the event {event.event} ({as_sentence(error)})") from None


def project_tag(project: str) -> str:
    """What all is tagged with that one benchmark has on a server."""
    return f"project:{project}"


def automations_of(client: SyncPrefectClient, tag: str) -> list[Automation]:
    """The automations with a tag, and that of all we make."""
    answer = client.request("POST", "/automations/filter", json={"automations": {"tags": {"all_": [TAG, tag]}}})
    return [Automation.model_validate(one) for one in answer.json()]


def keep_automations(client: SyncPrefectClient, tag: str, wanted: Sequence[AutomationCore]) -> None:
    """Have these automations and no others with a tag: by name, each in the place of what it was."""
    found = {one.name: one.id for one in automations_of(client, tag)}
    for one in wanted:
        # From data, so that every field counts as given: those that do not are not sent, the types of actions too.
        data = one.model_dump(mode="json", exclude={"owner_resource"})
        tagged = AutomationCore.model_validate(data | {"tags": [TAG, tag]})
        if one.name in found:
            client.update_automation(found.pop(one.name), tagged)
        else:
            client.create_automation(tagged)
    for number in found.values():
        client.delete_automation(number)


def run_on(trigger: dict[str, Any], name: str, deployment: UUID, resource: str) -> AutomationCore:
    """The automation that runs a deployment as a trigger of ``prefect.yaml`` says, for one resource alone."""
    made = DeploymentEventTrigger(**trigger | {"name": name, "match": {"prefect.resource.id": resource}})
    made.set_deployment_id(deployment)
    return made.as_automation()


def crash_dead_runs(flows: Sequence[str], seconds: float) -> AutomationCore:
    """The automation for runs of which nothing is heard any more: their worker died, and others wait for them."""
    trigger = EventTrigger(
        match=ANY_RUN,
        match_related={"prefect.resource.role": "flow", "prefect.resource.name": list(flows)},
        for_each={"prefect.resource.id"},
        after={HEARTBEAT},
        expect={HEARTBEAT, *ENDED},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
    message = f"nothing was heard of it for {seconds:.0f} seconds: its worker, or the machine of that, has ended"
    action = ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=message, force=False)
    return AutomationCore(name="rag-eval-dead-runs", trigger=trigger, actions=[action])


def cancel_long_runs(project: str, seconds: float, actions: Sequence[Any]) -> AutomationCore:
    """The automation for runs of a project that take too long; what else to do then are ``actions``."""
    trigger = EventTrigger(
        match=ANY_RUN,
        match_related=_tagged(project),
        for_each={"prefect.resource.id"},
        after={"prefect.flow-run.Running"},
        expect=ENDED,
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
    return AutomationCore(name=f"time-limit-{project}", trigger=trigger, actions=[CancelFlowRun(), *actions])


def tell_of_failures(project: str, actions: Sequence[Any]) -> AutomationCore:
    """The automation for runs of a project that failed, or recovered."""
    trigger = EventTrigger(
        match=ANY_RUN,
        match_related=_tagged(project),
        expect={*FAILED, RECOVERED},
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )
    return AutomationCore(name=f"notify-{project}", trigger=trigger, actions=list(actions))


def _tagged(project: str) -> dict[str, str | list[str]]:
    return {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{project_tag(project)}"}


# In the language of Prefect's templates: the verdict of a run that recovered is in its event, of others in their state.
VERDICT = "(event.payload.verdict or flow_run.state.message or '')|replace('Flow run encountered an exception: ', '')"
BECAME = f"('recovered' if event.event == '{RECOVERED}' else flow_run.state.name)"
TOOK_TOO_LONG = "'took too long and was cancelled'"


def messages(client: SyncPrefectClient, project: str, targets: Sequence[str], became: str = BECAME) -> list[Any]:
    """The actions that tell each target what became of a run, its verdict, and where its page is.

    The address of a webhook comes from the environment and is kept in a block of the project, where it is a secret.
    Raises ``ConfigurationError`` when a variable is not set or a block is not there.
    """
    subject = f"'{project}: ' ~ flow_run.name ~ ' ' ~ {became}"
    body = f"({VERDICT}) ~ '\\n' ~ (flow_run|ui_url)"
    actions: list[Any] = []
    for target in targets:
        if "/" in target:
            kind, name = target.split("/")
            actions.append(
                SendNotification(
                    block_document_id=find_block(client, kind, name, "notify"),
                    subject=f"{{{{ {subject} }}}}",
                    body=f"{{{{ {body} }}}}",
                )
            )
            continue
        address = os.environ.get(target, "")
        if not address.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"notify names the environment variable {target}, which holds no address: set it to that of a webhook"
            )
        if any(isinstance(action, CallWebhook) for action in actions):
            # Calls at the same time share what the first to end closes. Its notification blocks do not, but their
            # errors quote the address.
            raise ConfigurationError(
                "notify names two webhooks, and Prefect may lose a message of two that it sends at once: keep one, and "
                "make notification blocks for the others"
            )
        headers = {"Content-Type": "application/json", "Connection": "close"}
        block = Webhook(url=SecretStr(address), headers=SecretDict(headers), allow_private_urls=True)
        number = cast("UUID", block.save(f"{block_prefix(project)}{slug(target, 60)}", overwrite=True))
        text = f"({subject}) ~ '\\n' ~ ({body})"
        actions.append(CallWebhook(block_document_id=number, payload=f'{{"text": {{{{ ({text})|tojson }}}}}}'))
    return actions


def block_prefix(project: str) -> str:
    """How the names of the blocks of a project begin; two dashes are in no project's name."""
    return f"rag-eval--{project}--"


def find_block(client: SyncPrefectClient, kind: str, name: str, wanted_by: str) -> UUID:
    """The id of a block on the server; raises ``ConfigurationError`` when there is none."""
    try:
        answer = client.request(
            "GET",
            "/block_types/slug/{slug}/block_documents/name/{block_document_name}",
            path_params={"slug": kind, "block_document_name": name},
        )
    except (ObjectNotFound, PrefectHTTPStatusError):
        raise ConfigurationError(
            f"{wanted_by} needs the block {kind}/{name}, and the server has none: create it in the UI, under Blocks"
        ) from None
    return UUID(answer.json()["id"])


def remove_blocks(client: SyncPrefectClient, project: str) -> list[str]:
    """Remove the blocks that ``messages`` made for a project; their names."""
    asked = {"block_documents": {"name": {"like_": f"{block_prefix(project)}%"}}}
    answer = client.request("POST", "/block_documents/filter", json=asked).json()
    found = {one["name"]: UUID(one["id"]) for one in answer if str(one["name"]).startswith(block_prefix(project))}
    for number in found.values():
        client.delete_block_document(number)
    return list(found)
