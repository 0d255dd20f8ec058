"""Generated ground truth on its way to LangSmith, through the outbox: what cannot be sent now waits there."""

from collections.abc import Sequence
from pathlib import Path

from rag_eval.generation.report import Upload
from rag_eval.pipeline.workspace import Workspace
from rag_eval.publishing.delivering import deliver
from rag_eval.publishing.langsmith_outbox import CHANNEL, put_truth
from rag_eval.publishing.langsmith_service import BRIEF
from rag_eval.publishing.publications import outbox_of
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth


def upload(
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth], dataset_name: str, workspace: Path
) -> Upload:
    """Put the ground truth into the outbox of the workspace and try to send it; raises nothing of LangSmith's."""
    place = Workspace(root=workspace)
    parcel = put_truth(outbox_of(place), dataset_name, truth)
    deliveries = deliver(place, BRIEF)
    receipt = outbox_of(place).receipt(CHANNEL, parcel.key)
    if receipt is not None:
        return Upload(dataset_name=dataset_name, state="sent", detail=receipt.details.get("url"))
    reasons = [delivery.reason for delivery in deliveries if delivery.key == parcel.key]
    return Upload(dataset_name=dataset_name, state="waiting", detail=next(iter(reasons), None))
