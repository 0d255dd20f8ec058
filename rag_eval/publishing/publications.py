"""What was published of a run: noted beside it, with the addresses that the outbox has receipts for."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag_eval.errors import ArtifactError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.publishing.langsmith_experiments import SELECTED
from rag_eval.publishing.langsmith_outbox import CHANNEL, experiment_key
from rag_eval.publishing.outbox import Outbox

PUBLISHED = "published.json"


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


def outbox_of(workspace: Workspace) -> Outbox:
    """The outbox of a workspace: a folder of this machine, because what it sends is sent once, by one machine."""
    return Outbox(workspace.root / "outbox")


def comparison_url(sent: Sequence[Publication]) -> str:
    """Where LangSmith shows experiments of one dataset side by side."""
    page = str(sent[0].url).partition(SELECTED)[0]
    return f"{page}{SELECTED}{'%2C'.join(str(one.url).partition(SELECTED)[2] for one in sent)}"


def note_publications(workspace: Workspace, run: str, configurations: list[str], dataset: str) -> None:
    """Note that configurations of a run are put for a dataset."""
    noted = read_publications(workspace, run)
    known = {(one.configuration, one.dataset) for one in noted}
    new = [Publication(configuration=name, dataset=dataset) for name in configurations if (name, dataset) not in known]
    _write(workspace, run, [*noted, *new])


def read_publications(workspace: Workspace, run: str) -> list[Publication]:
    """What was put of a run, with the addresses and the reasons of now; [] when nothing was.

    What was taken back is not there. Raises ``ArtifactError`` when the note cannot be read.
    """
    path = workspace.newest(_place(workspace, run))
    try:
        noted = _PUBLICATIONS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError):
        raise ArtifactError(f"{str(path)!r} cannot be read: remove it, and publish the run again") from None
    outbox = outbox_of(workspace)
    reasons = {parcel.key: parcel.reason for parcel in outbox.waiting(CHANNEL)}
    found = []
    for one in noted:
        key = experiment_key(run, one.configuration, one.dataset)
        receipt = outbox.receipt(CHANNEL, key)
        if receipt is not None:
            sent = {"url": receipt.details.get("url"), "absent": receipt.details.get("absent", 0), "reason": None}
            found.append(one.model_copy(update=sent))
        elif key in reasons:
            found.append(one.model_copy(update={"reason": reasons[key]}))
    return found


def refresh_publications(workspace: Workspace, run: str) -> list[Publication]:
    """Write the addresses and the reasons of now beside the run, and give them back."""
    found = read_publications(workspace, run)
    if _place(workspace, run).exists():
        _write(workspace, run, found)
    return found


def _write(workspace: Workspace, run: str, publications: list[Publication]) -> None:
    workspace.keep(_place(workspace, run), _PUBLICATIONS.dump_json(publications, indent=2))


def _place(workspace: Workspace, run: str) -> Path:
    return workspace.runs / run / PUBLISHED
