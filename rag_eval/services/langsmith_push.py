"""Write ground truth to a LangSmith dataset; pushing it again updates examples and never creates duplicates."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid5

from rag_eval.disk.files import data_sha256
from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.records import chunk_level_outputs, token_level_outputs
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import check_type, find_dataset, list_examples, match_queries
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import EvaluationType, encode_utf8

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Dataset, Example

T = TypeVar("T")
Record = Mapping[str, Any]
"""An example as plain data: its ``inputs``, ``outputs`` and ``metadata``, which holds the ``query_id``."""

DEFAULT_DATASETS: Mapping[EvaluationType, str] = {
    "token-level": "rag-eval-token-level-v1",
    "chunk-level": "rag-eval-chunk-level-v1",
}
BATCH = 100
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class PushReport:
    """What a push did: how many examples it created, updated, found as they should be, and deleted.

    ``others`` are examples of the dataset that the ground truth does not have and that were kept.
    """

    dataset: str
    url: str | None
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    others: int = 0


def push_truth(
    service: LangSmithService,
    dataset_name: str,
    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    *,
    delete_others: bool = False,
) -> PushReport:
    """Make a dataset hold this ground truth; it is created when it is not there.

    An example is that of a query when it has the query's id, or none and its text. Examples that the ground truth does
    not have are kept unless ``delete_others``. Raises ``GroundTruthError`` when the ground truth is empty,
    or the dataset is of the other type; ``ServiceError`` when LangSmith fails.
    """
    if not truth:
        raise GroundTruthError(f"there is no ground truth to push to {dataset_name!r}: give at least one query")
    kind: EvaluationType = "token-level" if isinstance(truth[0], TokenLevelGroundTruth) else "chunk-level"
    return push_records(service, dataset_name, [record_of(item) for item in truth], kind, delete_others=delete_others)


def record_of(item: TokenLevelGroundTruth | ChunkLevelGroundTruth) -> Record:
    """Return an item of ground truth as an example of a dataset.

    Where the metadata does not say them, ``source_docs`` are the documents of the spans and ``generation_type`` is
    ``manual``. Raises ``TextEncodingError`` on a lone surrogate.
    """
    metadata = dict(item.query.metadata)
    outputs: dict[str, object]
    if isinstance(item, TokenLevelGroundTruth):
        outputs = {**token_level_outputs(item)}
        metadata.setdefault("source_docs", sorted({span.doc_id for span in item.relevant_spans}))
    else:
        outputs = {**chunk_level_outputs(item)}
    metadata.setdefault("generation_type", "manual")
    metadata["query_id"] = item.query.id
    if item.unanswerable:
        metadata["unanswerable"] = True
    record = {"inputs": {"query": item.query.text}, "outputs": outputs, "metadata": metadata}
    encode_utf8(json.dumps(record, ensure_ascii=False), f"the ground truth of {item.query.id}")
    return record


def push_records(
    service: LangSmithService,
    dataset_name: str,
    records: Sequence[Record],
    kind: EvaluationType,
    *,
    delete_others: bool = False,
    only_if_new: bool = False,
) -> PushReport:
    """As ``push_truth``, for plain data.

    With ``only_if_new`` a dataset that has examples is left alone, unless it was made from these very records, holds
    nothing else, and is to be completed.
    """
    digest = data_sha256(list(records))
    dataset = find_dataset(service, dataset_name) or _create(service, dataset_name, kind, digest)
    if dataset.data_type is not None and dataset.data_type.value != "kv":
        raise GroundTruthError(
            f"the LangSmith dataset {dataset_name!r} is of the type {dataset.data_type.value!r}: "
            "ground truth needs one of the type 'kv', give another name"
        )
    for attempt in range(ROUNDS):
        examples = list_examples(service, dataset)
        check_type(examples, kind, dataset_name)
        # Ids that are taken though nothing is listed under them are those of deleted examples: others are used then.
        plan = _plan(dataset, examples, records, salt="" if attempt < 2 else str(attempt))
        half_made = (dataset.metadata or {}).get("ground_truth") == digest and not plan.changed and not plan.others
        if only_if_new and examples and not half_made:
            return PushReport(dataset_name, dataset.url, others=len(examples))
        if _carry_out(service, dataset, plan, delete_others):
            gone = {"deleted" if delete_others else "others": len(plan.others)}
            return PushReport(dataset_name, dataset.url, len(plan.new), len(plan.changed), plan.unchanged, **gone)
    raise GroundTruthError(
        f"the LangSmith dataset {dataset_name!r} keeps refusing examples as known that it does not list: "
        "push to another name"
    )


@dataclass(slots=True)
class _Plan:
    new: list[Record]
    changed: list[Record]
    unchanged: int
    others: list[UUID]


def _create(service: LangSmithService, name: str, kind: EvaluationType, digest: str) -> "Dataset":
    from langsmith.schemas import Dataset
    from langsmith.utils import LangSmithConflictError

    def create(client: "Client") -> Dataset:
        try:
            made: Dataset = client.create_dataset(
                name,
                description=f"Ground truth for {kind} evaluation of retrieval",
                metadata={"evaluation_type": kind, "ground_truth": digest},
            )
        except LangSmithConflictError:  # another made it, or an answer got lost
            made = client.read_dataset(dataset_name=name)
        return made

    return service.ask(f"the LangSmith dataset {name!r} could not be created", create)


def _plan(dataset: "Dataset", examples: "Sequence[Example]", records: Sequence[Record], salt: str) -> _Plan:
    queries = [(record["metadata"]["query_id"], record["inputs"]["query"]) for record in records]
    matches, others = match_queries(examples, queries, dataset.name)
    plan = _Plan([], [], 0, [example.id for example in others])
    for record, match in zip(records, matches, strict=True):
        if match is None:
            plan.new.append({"id": uuid5(dataset.id, record["metadata"]["query_id"] + salt), **record})
        elif _plain(match) != (wanted := _with_split(match, record)):
            plan.changed.append({"id": match.id, **wanted})
        else:
            plan.unchanged += 1
    return plan


def _carry_out(service: LangSmithService, dataset: "Dataset", plan: _Plan, delete_others: bool) -> bool:
    """False when an example that was to be created is there by now: one has to look again."""
    from langsmith.utils import LangSmithConflictError

    problem = f"the LangSmith dataset {dataset.name!r} could not be written"

    def create(batch: Sequence[Record], client: "Client") -> bool:
        try:
            client.create_examples(dataset_id=dataset.id, examples=[_creation(record) for record in batch])
        except LangSmithConflictError:
            return False
        return True

    def update(batch: Sequence[Record], client: "Client") -> None:
        client.update_examples(dataset_id=dataset.id, updates=[dict(record) for record in batch])

    def delete(batch: Sequence[UUID], client: "Client") -> None:
        client.delete_examples(batch)

    for batch in _batches(plan.new):
        if not service.ask(problem, partial(create, batch)):
            return False
    for batch in _batches(plan.changed):
        service.ask(problem, partial(update, batch))
    for ids in _batches(plan.others if delete_others else []):
        service.ask(problem, partial(delete, ids))
    return True


def _creation(record: Record) -> dict[str, Any]:
    """Return the record in the words of the SDK, which calls outputs otherwise when it creates."""
    return {"reference_outputs" if key == "outputs" else key: value for key, value in record.items()}


def _plain(example: "Example") -> Record:
    return {"inputs": example.inputs, "outputs": example.outputs, "metadata": dict(example.metadata or {})}


def _with_split(example: "Example", record: Record) -> Record:
    """Return the record with the split that LangSmith keeps in the metadata."""
    kept = example.metadata or {}
    split = {"dataset_split": kept["dataset_split"]} if "dataset_split" in kept else {}
    return {**record, "metadata": {**record["metadata"], **split}}


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
